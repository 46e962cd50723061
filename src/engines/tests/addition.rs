//! That an engine is added by its value alone: one that nothing else in the code has heard of is detected,
//! probed, read and chosen, beside all those of the roster.

use super::fixtures::{self, Server};
use super::*;
use crate::routing::ask::Ask;
use crate::routing::fleet::{Fleet, Rules};
use crate::routing::moment::Moment;
use crate::routing::select::{Query, decide};
use crate::routing::upstream::Spec;

/// What the file of an engine would have.
static ADDED: Engine = Engine {
    name: "added",
    dialects: &[Dialect::OpenAi],
    lacks: &[Endpoint::OpenAiRerank],
    naming: Naming::Exact,
    probe: Probe {
        path: "/pulse",
        older_path: None,
        patience: Duration::ZERO,
        says_up: |body| body == b"beats",
        says_loading: |body| body == b"wakes",
    },
    polls: &[Poll::required("/v1/models"), Poll::optional("/gauge")],
    inquiry: None,
    headers: &[],
    busy_statuses: &[503],
    fixed_models: true,
    counts_on_request: false,
    salts_cache: false,
    unsalted: &[],
    default_slots: 3,
    cache: CacheKind::PerSlot,
    read,
    fingerprint_path: "/badge",
    recognises: |body| body == b"added",
    generic: false,
    rank_header: None,
    continues: None,
};

fn read(bodies: &Bodies) -> Result<Reading, String> {
    let &[Some(models), gauge] = bodies else { return Err(misfit(bodies)) };
    Ok(reading(openai::models(models)?, Some(5), load(gauge.unwrap_or_default(), &["running"], &["waiting"])))
}

fn server() -> Server {
    let answers = [("/badge", "added"), ("/pulse", "beats"), ("/gauge", "running 2\nwaiting 1\n")];
    answers.iter().fold(fixtures::openai(), |server, (path, body)| server.and(path, body))
}

/// The roster with its one new line.
fn roster() -> Vec<&'static Engine> {
    ROSTER.iter().copied().chain([&ADDED]).collect()
}

/// Each engine of it, and a server that runs it.
fn all() -> Vec<(&'static Engine, Server)> {
    let known = fixtures::all().into_iter().map(|(name, server)| (find(name).unwrap(), server));
    known.chain([(&ADDED, server())]).collect()
}

fn detect(server: &Server) -> Option<&'static str> {
    let mut order = detection_order_of(&roster()).collect::<Vec<_>>().into_iter();
    let by = order.find(|engine| server.body(engine.fingerprint_path).is_some_and(engine.recognises));
    by.map(|engine| engine.name)
}

/// A node that is known by nothing but what it answers.
fn join(fleet: &mut Fleet, engine: &Engine, server: &Server) {
    let id = fleet.join(Spec::named(engine.name)).unwrap();
    let probed = server.body(engine.probe.path).unwrap();
    let bodies: Vec<_> = engine.polls.iter().map(|poll| server.body(poll.path)).collect();
    let report = (engine.read)(&bodies).unwrap().report;
    fleet.learn_engine(id, engine.traits());
    fleet.learn_health(id, (engine.probe.says_up)(probed), Moment(0));
    fleet.learn_report(id, &report, fleet.asked(id, Moment(0)), Moment(0));
}

#[test]
fn it_is_detected_and_takes_no_other_for_itself() {
    for (engine, server) in all() {
        assert_eq!(detect(&server), Some(engine.name));
    }
}

#[test]
fn it_is_probed_and_read_as_every_other() {
    for (engine, server) in all() {
        let name = engine.name;
        assert!((engine.probe.says_up)(server.body(engine.probe.path).unwrap()), "{name}");
        assert!(!(engine.probe.says_up)(b"<html>hello</html>"), "{name}");
        let bodies: Vec<_> = engine.polls.iter().map(|poll| server.body(poll.path)).collect();
        assert!(!(engine.read)(&bodies).unwrap().report.models.is_empty(), "{name}");
        assert!((engine.read)(&vec![None; bodies.len()]).is_err(), "{name}");
    }
}

#[test]
fn it_is_chosen_with_its_slots_and_its_load_among_all_others() {
    let mut fleet = Fleet::new(Rules::default());
    for (engine, server) in all() {
        join(&mut fleet, engine, &server);
    }
    let served = |ask: Ask| {
        let decision = decide(&fleet, &Query { ask, tried: vec![], request: 1 }, Moment(1));
        let names = decision.rows.iter().map(|row| fleet.upstream(row.upstream).unwrap().spec.name.clone());
        names.collect::<Vec<_>>()
    };
    // The model of the server that is only known to speak OpenAI's dialect, which this one resembles.
    let model = "moss".to_string();
    let mut chat = served(Ask::new(Endpoint::OpenAiChat, model.clone()));
    chat.sort();
    assert_eq!(chat, ["added", "openai"]);
    assert_eq!(served(Ask::new(Endpoint::OpenAiRerank, model.clone())), ["openai"], "it lacks that path");
    assert!(served(Ask::new(Endpoint::OllamaChat, model)).contains(&"added".to_string()), "translated");

    let upstreams = fleet.upstreams().find(|(_, upstream)| upstream.spec.name == "added");
    let (id, upstream) = upstreams.unwrap();
    let held = fleet.holdings_of(id).next().unwrap();
    assert_eq!(upstream.slots(held).count, 5);
    assert_eq!(upstream.foreign_requests(Moment(1), Duration::from_secs(60)), 3);
}
