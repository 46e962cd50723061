//! `engines::*::read` and the core that learns from it. The bodies of one round stand in an input one after
//! the other, with a line `%%` between them.
//!
//! What an optional body holds never spoils a required one, what is read is whole and bounded, and a fleet
//! that believes it decides with finite scores.

use warmgate::engines::{Engine, ROSTER, Reading};
use warmgate::routing::ask::{Ask, Endpoint};
use warmgate::routing::chain::mix;
use warmgate::routing::fleet::{Fleet, Rules};
use warmgate::routing::laws;
use warmgate::routing::moment::Moment;
use warmgate::routing::runner::RunnerOptions;
use warmgate::routing::select::{Query, decide};
use warmgate::routing::upstream::Spec;

use crate::target::{Target, law};

pub static TARGET: Target = Target {
    name: "engines",
    words: &[
        "\n%%\n",
        "{\"models\":[",
        "{\"data\":[",
        "{\"name\":\"a\"}",
        "{\"id\":\"a\"}",
        "\"size\":1",
        "\"context_length\":8",
        "\"max_model_len\":8",
        "\"owned_by\":\"vllm\"",
        "\"capabilities\":[\"vision\"]",
        "\"total_slots\":4",
        "\"default_generation_settings\":{\"n_ctx\":8}",
        "vllm:num_requests_running 1\n",
        "\"model_info\":{}",
        "\"status\":{\"value\":\"loaded\"}",
        "\"meta\":{\"n_ctx\":8}",
        "null",
        ",",
    ],
    check,
};

/// As in `engines`.
const MODELS_MAX: usize = 4096;

fn check(input: &[u8]) -> Result<u64, String> {
    let bodies = split(input);
    let mut end = 0;
    for engine in ROSTER {
        let named = |words: String| format!("{}: {words}", engine.name);
        for body in &bodies {
            let known = [(engine.recognises)(body), (engine.probe.says_up)(body), (engine.probe.says_loading)(body)];
            end = known.iter().fold(end, |end, known| mix(end, u64::from(*known)));
        }
        end = mix(end, round(engine, &bodies).map_err(named)?);
    }
    Ok(end)
}

fn split(input: &[u8]) -> Vec<&[u8]> {
    const BETWEEN: &[u8] = b"\n%%\n";
    let (mut bodies, mut rest) = (Vec::new(), input);
    while let Some(at) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
        bodies.push(&rest[..at]);
        rest = &rest[at + BETWEEN.len()..];
    }
    bodies.push(rest);
    bodies
}

fn round(engine: &Engine, bodies: &[&[u8]]) -> Result<u64, String> {
    let given: Vec<Option<&[u8]>> = (0..engine.polls.len()).map(|at| bodies.get(at).copied()).collect();
    let needed: Vec<Option<&[u8]>> =
        engine.polls.iter().zip(&given).map(|(poll, body)| body.filter(|_| poll.required)).collect();
    let (read, least) = ((engine.read)(&given), (engine.read)(&needed));
    law(read.is_ok() == least.is_ok(), || format!("what is optional decides: {read:?}, {least:?}"))?;
    let Ok(reading) = read else { return Ok(1) };
    let models = &reading.report.models;
    law(models.len() <= 2 * MODELS_MAX, || format!("{} models", models.len()))?;
    law(models.len() == reading.listings.len(), || "models without listings".into())?;
    let alike = models.iter().zip(&reading.listings).all(|(model, listing)| model.name == listing.name);
    law(alike && models.iter().all(|model| !model.name.is_empty()), || "names that differ or are empty".into())?;
    law(reading.report.slots != Some(0), || "no slots at all".into())?;
    believed(engine, &reading)?;
    let known = u64::from(reading.report.slots.is_some()) << 1 | u64::from(reading.report.load.is_some());
    Ok(mix(known, models.len().checked_ilog2().map_or(2, |log| u64::from(log) + 3)))
}

/// A fleet of one node that said all this.
fn believed(engine: &Engine, reading: &Reading) -> Result<(), String> {
    let mut fleet = Fleet::new(Rules { max_fallbacks: 0, max_sessions: 10, ..Rules::default() });
    let id = fleet.join(Spec {
        engine: Some(engine.traits()),
        memory_bytes: Some(24 << 30),
        bandwidth_bytes_s: Some(4e11),
        ..Spec::named("node")
    });
    let Some(id) = id else { return Err("no room for one node".into()) };
    let now = Moment::from_secs(1);
    let asked = fleet.asked(id, now);
    fleet.learn_health(id, true, now);
    fleet.learn_report(id, &reading.report, asked, now);
    laws::broken(&fleet)?;
    for model in reading.report.models.iter().take(8) {
        for endpoint in [Endpoint::OpenAiChat, Endpoint::OllamaChat] {
            let ask = Ask { runner: RunnerOptions::with_num_ctx(7), ..Ask::new(endpoint, model.name.clone()) };
            let decision = decide(&fleet, &Query { ask, tried: vec![], request: 1 }, now);
            for row in &decision.rows {
                let sum: f64 = row.points.iter().sum();
                let finite = row.score.is_finite() && row.depth.is_finite() && row.points.iter().all(|p| p.is_finite());
                law(finite && row.score == sum, || format!("L4: {row:?}"))?;
            }
        }
    }
    Ok(())
}
