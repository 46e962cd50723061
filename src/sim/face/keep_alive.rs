//! Ollama's `keep_alive`: a number of seconds, or a length as Go writes it; negative is for ever.

use std::time::Duration;

use serde_json::Value;

use crate::sim::engine::KeepAlive;

/// `None` if absent; a sentence if it is no length of time.
pub fn read(value: &Value) -> Result<Option<KeepAlive>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Number(seconds) => Ok(seconds.as_f64().map(keep)),
        Value::String(text) => match go_seconds(text) {
            Some(seconds) => Ok(Some(keep(seconds))),
            None => Err(format!("time: invalid duration {text:?}")),
        },
        _ => Err("invalid keep_alive".into()),
    }
}

fn keep(seconds: f64) -> KeepAlive {
    // What overflows a length of time is for ever, too.
    match Duration::try_from_secs_f64(seconds) {
        Ok(length) => KeepAlive::For(length),
        Err(_) => KeepAlive::Forever,
    }
}

/// `1h30m`, `-1s`, `1.5m`, `300ms`; only zero goes without a unit.
fn go_seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if rest == "0" {
        return Some(0.0);
    }
    let mut seconds = 0.0;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let (unit_s, after) = UNITS.iter().find_map(|(unit, s)| Some((s, after.strip_prefix(unit)?)))?;
        seconds += number.parse::<f64>().ok()? * unit_s;
        rest = after;
        if rest.is_empty() {
            return Some(sign * seconds);
        }
    }
}

/// `ms` before `m`: the first that fits is taken.
const UNITS: [(&str, f64); 6] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: Value, seconds: f64) {
        assert_eq!(read(&value), Ok(Some(KeepAlive::For(Duration::from_secs_f64(seconds)))));
    }

    #[test]
    fn lengths() {
        check(json!(0), 0.0);
        check(json!("0"), 0.0);
        check(json!("0s"), 0.0);
        check(json!(90), 90.0);
        check(json!("5m"), 300.0);
        check(json!("1h30m"), 5400.0);
        check(json!("1.5s"), 1.5);
        check(json!("300ms"), 0.3);
    }

    #[test]
    fn negative_is_for_ever_and_absent_is_nothing() {
        for value in [json!(-1), json!("-1m"), json!("-1s"), json!(1e300)] {
            assert_eq!(read(&value), Ok(Some(KeepAlive::Forever)), "{value}");
        }
        assert_eq!(read(&Value::Null), Ok(None));
    }

    #[test]
    fn nonsense_is_refused() {
        for value in [json!(""), json!("-"), json!("5"), json!("m"), json!("5 m"), json!("1.2.3s"), json!([])] {
            assert!(read(&value).is_err(), "{value}");
        }
    }
}
