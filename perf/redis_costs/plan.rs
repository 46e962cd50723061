//! What the measured calls come to for 20,000 requests a second by 50 replicas, and a million sessions.

use crate::call::Cost;

const REQUESTS_A_SECOND: f64 = 20_000.0;
const SESSIONS: f64 = 1e6;
/// Of six turns of a conversation, five go on from one.
const GO_ON: f64 = 5.0 / 6.0;
/// The end before is kept for a minute: so many turns have one.
const BEFORE_KEPT_S: f64 = 60.0;

/// A value by what it is.
pub fn whole(costs: &[Cost], session_bytes: [f64; 2]) -> Vec<(String, f64)> {
    let [store, shorten, _, take, settle] = costs
        .get(..5)
        .and_then(|some| some.try_into().ok())
        .map_or_else(|| panic!("five calls are measured"), |some: &[Cost; 5]| some.each_ref());
    let pins = [(store, 1.0), (shorten, GO_ON)];
    let limits = [(take, 1.0), (settle, 1.0)];
    let per = |calls: &[(&Cost, f64)], of: fn(&Cost) -> f64| -> f64 {
        calls.iter().map(|(cost, share)| of(cost) * share).sum::<f64>() * REQUESTS_A_SECOND
    };
    let before_bytes = session_bytes[1] - session_bytes[0];
    let ends_before = REQUESTS_A_SECOND * GO_ON * BEFORE_KEPT_S;
    vec![
        ("pins: calls a second".into(), REQUESTS_A_SECOND * (1.0 + GO_ON)),
        ("pins: cores of Redis".into(), per(&pins, |cost| cost.process_us) / 1e6),
        ("pins: MB/s in".into(), per(&pins, |cost| cost.bytes_in) / 1e6),
        ("limits: calls a second, if all tenants have some".into(), REQUESTS_A_SECOND * 2.0),
        ("limits: cores of Redis".into(), per(&limits, |cost| cost.process_us) / 1e6),
        ("limits: MB/s in".into(), per(&limits, |cost| cost.bytes_in) / 1e6),
        ("memory of a million sessions, MB".into(), SESSIONS * session_bytes[0] / 1e6),
        ("memory of the ends before, MB".into(), ends_before * before_bytes / 1e6),
    ]
}
