//! Placement, worked by hand.

use super::*;
use crate::routing::ask::Dialect;
use crate::routing::fleet::Rules;
use crate::routing::group::{Group, Groups, Target};
use crate::routing::moment::Moment;
use crate::routing::prefix::CacheKind;
use crate::routing::report::{ModelReport, Report};
use crate::routing::upstream::{Spec, Traits};

const NOW: Moment = Moment(1_000_000);

/// A node in a few words: what it is, then its models with their sizes, `*` for resident.
struct Told {
    name: &'static str,
    naming: Naming,
    memory: Option<u64>,
    tier: u32,
    drain: bool,
    healthy: bool,
    models: &'static [(&'static str, u64)],
}

const PLAIN: Told = Told {
    name: "",
    naming: Naming::Ollama,
    memory: None,
    tier: 0,
    drain: false,
    healthy: true,
    models: &[("moss:7b", 4), ("fern:3b", 2)],
};

fn fleet(told: &[Told]) -> Fleet {
    let mut fleet = Fleet::new(Rules::default());
    for told in told {
        let engine = Traits {
            dialects: &[Dialect::Ollama],
            naming: told.naming,
            fixed_models: false,
            lacks: &[],
            unsalted: &[],
            stores_responses: false,
            busy_statuses: &[503],
            default_slots: 1,
            cache: CacheKind::PerSlot,
        };
        let id = fleet.join(Spec {
            engine: Some(engine),
            memory_bytes: told.memory,
            tier: told.tier,
            drain: told.drain,
            ..Spec::named(told.name)
        });
        let id = id.expect("room for a few");
        fleet.learn_health(id, told.healthy, NOW);
        let models = told.models.iter().map(|(name, size)| ModelReport {
            name: name.trim_end_matches('*').into(),
            resident: name.ends_with('*'),
            size_bytes: Some(*size),
            ..ModelReport::default()
        });
        let report = Report { models: models.collect(), ..Report::default() };
        fleet.learn_report(id, &report, fleet.asked(id, NOW), NOW);
    }
    fleet
}

fn names(fleet: &Fleet, places: Result<Vec<Place>, Misplaced>) -> Result<String, Misplaced> {
    let name = |place: &Place| fleet.upstream(place.upstream).unwrap().spec.name.clone();
    places.map(|places| places.iter().map(name).collect::<Vec<_>>().join(","))
}

fn name(fleet: &Fleet, id: Result<UpstreamId, Misplaced>) -> Result<String, Misplaced> {
    id.map(|id| fleet.upstream(id).unwrap().spec.name.clone())
}

#[test]
fn the_header_names_nodes_or_all() {
    let named = |names: &[&str]| Wanted::Named(names.iter().map(|name| name.to_string()).collect());
    for (header, expected) in [
        (None, Wanted::Unsaid),
        (Some("All"), Wanted::All),
        (Some("n2, n1,n2"), named(&["n1", "n2"])),
        (Some("n1,,"), named(&["n1"])),
        (Some("all,n1"), named(&["all", "n1"])),
    ] {
        assert_eq!(Wanted::of(header), Ok(expected), "{header:?}");
    }
}

#[test]
fn a_header_without_a_name_does_not_mean_every_holder() {
    for header in ["", " ", ",", " , ,\t"] {
        assert_eq!(Wanted::of(Some(header)), Err(Misplaced::NamesUnreadable), "{header:?}");
    }
}

fn read(header: Option<&str>) -> Wanted {
    Wanted::of(header).expect("names")
}

#[track_caller]
fn check_pull(told: &[Told], wanted: Option<&str>, model: &str, expected: Result<&str, Misplaced>) {
    let fleet = fleet(told);
    let got = names(&fleet, for_pull(&fleet, &read(wanted), model));
    assert_eq!(got, expected.map(String::from));
}

#[test]
fn cat_09_a_new_model_goes_to_the_node_with_room() {
    let two = |a: Told, b: Told| [Told { name: "a", ..a }, Told { name: "b", ..b }];
    let full = Told { models: &[("x", 100)], ..PLAIN };
    check_pull(&two(full, PLAIN), None, "new", Ok("b"));
    check_pull(&two(PLAIN, PLAIN), None, "new", Ok("a"));
    let [large, small] = [Some(500), Some(50)].map(|memory| Told { memory, ..PLAIN });
    let full = Told { models: &[("x", 100)], ..large };
    check_pull(&two(small, full), None, "new", Ok("b"));
    // Where some node's memory is not known, memories cannot be compared.
    check_pull(&two(PLAIN, Told { memory: Some(500), models: &[("x", 100)], ..PLAIN }), None, "new", Ok("a"));
    check_pull(&two(Told { tier: 1, ..PLAIN }, PLAIN), None, "new", Ok("b"));
    check_pull(&two(Told { drain: true, ..PLAIN }, PLAIN), None, "new", Ok("b"));
    check_pull(&two(Told { healthy: false, ..PLAIN }, PLAIN), None, "new", Ok("b"));
    check_pull(&two(Told { naming: Naming::Exact, models: &[], ..PLAIN }, PLAIN), None, "new", Ok("b"));
    check_pull(&[Told { name: "a", healthy: false, ..PLAIN }], None, "new", Err(Misplaced::NoNode));
}

#[test]
fn cat_09_a_held_model_is_pulled_wherever_it_is_and_a_named_node_at_its_word() {
    let nodes = || {
        [
            Told { name: "a", ..PLAIN },
            Told { name: "b", models: &[], ..PLAIN },
            Told { name: "c", healthy: false, ..PLAIN },
            Told { name: "d", naming: Naming::Exact, ..PLAIN },
            Told { name: "e", drain: true, ..PLAIN },
        ]
    };
    check_pull(&nodes(), None, "Moss:7B", Ok("a"));
    check_pull(&nodes(), Some("all"), "moss:7b", Ok("a,b,c"));
    check_pull(&nodes(), Some("b,e"), "moss:7b", Ok("b,e"));
    check_pull(&nodes(), Some("d"), "moss:7b", Err(Misplaced::NotOllama("d".into())));
    check_pull(&nodes(), Some("a,z"), "moss:7b", Err(Misplaced::UnknownNode("z".into())));
    let fleet = fleet(&nodes());
    let places = for_pull(&fleet, &Wanted::All, "Moss:7B").unwrap();
    let spellings: Vec<Option<&str>> = places.iter().map(|place| place.spelling.as_deref()).collect();
    assert_eq!(spellings, [Some("moss:7b"), None, Some("moss:7b")]);
}

#[track_caller]
fn check_holders(told: &[Told], wanted: Option<&str>, model: &str, expected: Result<&str, Misplaced>) {
    let fleet = fleet(told);
    let got = names(&fleet, for_holders(&fleet, &read(wanted), model));
    assert_eq!(got, expected.map(String::from));
}

#[test]
fn cat_09_a_delete_goes_to_every_holder() {
    let nodes = || {
        [
            Told { name: "a", ..PLAIN },
            Told { name: "b", models: &[("moss:latest", 1)], ..PLAIN },
            Told { name: "c", healthy: false, drain: true, ..PLAIN },
        ]
    };
    check_holders(&nodes(), None, "moss:7b", Ok("a,c"));
    check_holders(&nodes(), Some("all"), "moss:7b", Ok("a,c"));
    check_holders(&nodes(), Some("c"), "moss:7b", Ok("c"));
    check_holders(&nodes(), Some("a,b"), "moss:7b", Err(Misplaced::NotHeld));
    check_holders(&nodes(), None, "moss", Ok("b"));
    check_holders(&nodes(), None, "none", Err(Misplaced::NotHeld));
}

#[test]
fn a_push_is_one_usable_holder_s() {
    let down = Told { name: "a", healthy: false, ..PLAIN };
    let fleet = fleet(&[down, Told { name: "c", tier: 1, ..PLAIN }, Told { name: "b", ..PLAIN }]);
    let push = |wanted| names(&fleet, for_push(&fleet, &read(wanted), "moss:7b").map(|place| vec![place]));
    assert_eq!(push(None), Ok("b".into()));
    assert_eq!(push(Some("c")), Ok("c".into()));
    assert_eq!(push(Some("a")), Err(Misplaced::HoldersDown));
}

#[test]
fn cat_10_blobs_stay_together() {
    let down = Told { name: "c", healthy: false, ..PLAIN };
    let fleet = fleet(&[Told { name: "a", ..PLAIN }, Told { name: "b", models: &[], ..PLAIN }, down]);
    let [a, b, c] = [0, 1, 2].map(UpstreamId);
    let blob = |wanted, known: &[Option<UpstreamId>]| name(&fleet, for_blob(&fleet, &read(wanted), known));
    assert_eq!(blob(None, &[None, None]), Ok("b".into()));
    assert_eq!(blob(None, &[Some(a), Some(b)]), Ok("a".into()));
    assert_eq!(blob(None, &[Some(c), Some(a)]), Ok("a".into()));
    assert_eq!(blob(Some("a"), &[Some(b)]), Ok("a".into()));
    assert_eq!(blob(Some("a,b"), &[]), Err(Misplaced::OneNodeOnly));
}

#[test]
fn cat_10_a_create_goes_where_its_parts_are() {
    let fleet = fleet(&[
        Told { name: "a", ..PLAIN },
        Told { name: "b", models: &[("ivy:1b", 1)], ..PLAIN },
        Told { name: "c", healthy: false, models: &[("oak:1b", 1)], ..PLAIN },
    ]);
    let [a, b] = [0, 1].map(UpstreamId);
    let create =
        |wanted, blobs: &[UpstreamId], from, usual| name(&fleet, for_create(&fleet, &read(wanted), blobs, from, usual));
    assert_eq!(create(None, &[a, a], None, Some(b)), Ok("a".into()));
    assert_eq!(create(None, &[a, b], None, None), Err(Misplaced::Scattered));
    assert_eq!(create(Some("b"), &[a], None, None), Err(Misplaced::Scattered));
    assert_eq!(create(Some("b"), &[], None, None), Ok("b".into()));
    assert_eq!(create(None, &[a], Some("moss:7b"), None), Ok("a".into()));
    assert_eq!(create(None, &[b], Some("moss:7b"), None), Err(Misplaced::Scattered));
    assert_eq!(create(None, &[b], Some("hub.test/new"), None), Ok("b".into()));
    assert_eq!(create(None, &[], Some("ivy:1b"), Some(a)), Ok("b".into()));
    assert_eq!(create(None, &[], Some("oak:1b"), None), Err(Misplaced::HoldersDown));
    assert_eq!(create(None, &[], None, Some(a)), Ok("a".into()));
    assert_eq!(create(None, &[], None, None), Ok("b".into()));
}

#[test]
fn an_unload_goes_to_every_node_that_has_it_in_memory() {
    let mut fleet = fleet(&[
        Told { name: "a", models: &[("moss:7b*", 1)], ..PLAIN },
        Told { name: "b", drain: true, models: &[("moss:7b*", 1)], ..PLAIN },
        Told { name: "c", models: &[("moss:7b", 1)], ..PLAIN },
        Told { name: "d", healthy: false, models: &[("moss:7b*", 1), ("oak:1b*", 1)], ..PLAIN },
        Told { name: "e", naming: Naming::Exact, models: &[("ash:1b*", 1)], ..PLAIN },
    ]);
    let target = |upstream, model: &str| Target {
        upstream: UpstreamId(upstream),
        model: model.into(),
        weight: 1.0,
        rpm: None,
        tpm: None,
        cost: None,
    };
    let group = Group {
        name: "chat".into(),
        targets: vec![target(1, "moss:7b"), target(4, "ash:1b")],
        fallbacks: vec![],
        policy: None,
    };
    fleet.rules.groups = Groups::new(vec![group]);
    let unload = |fleet: &Fleet, model| for_unload(fleet, model).map(|places| names(fleet, Ok(places)).unwrap());
    assert_eq!(unload(&fleet, "Moss:7b").as_deref(), Some("a,b"));
    assert_eq!(unload(&fleet, "chat").as_deref(), Some("b"));
    assert_eq!(unload(&fleet, "oak:1b"), None);
    assert_eq!(unload(&fleet, "ash:1b"), None);

    fleet.learn_unloaded(UpstreamId(0), "moss:7b", NOW);
    fleet.learn_unloaded(UpstreamId(1), "moss:7b", NOW);
    assert_eq!(unload(&fleet, "moss:7b").as_deref(), Some(""));
}

#[test]
fn what_was_told_to_go_is_not_taken_back_by_a_reading_from_before() {
    let mut fleet = fleet(&[Told { name: "a", models: &[("moss:7b*", 1)], ..PLAIN }]);
    let resident = |fleet: &Fleet| fleet.holdings_of(UpstreamId(0)).any(|holding| holding.resident);
    let models = vec![ModelReport { name: "moss:7b".into(), resident: true, ..ModelReport::default() }];
    let report = Report { models, ..Report::default() };
    let asked = fleet.asked(UpstreamId(0), Moment::from_secs(9));
    fleet.learn_unloaded(UpstreamId(0), "moss:7b", Moment::from_secs(10));
    fleet.learn_report(UpstreamId(0), &report, asked, Moment::from_secs(10));
    assert!(!resident(&fleet));
    let asked = fleet.asked(UpstreamId(0), Moment::from_secs(12));
    fleet.learn_report(UpstreamId(0), &report, asked, Moment::from_secs(12));
    assert!(!resident(&fleet), "the engine is still letting go");
    let asked = fleet.asked(UpstreamId(0), Moment::from_secs(30));
    fleet.learn_report(UpstreamId(0), &report, asked, Moment::from_secs(30));
    assert!(resident(&fleet), "somebody loaded it again");

    fleet.learn_deleted(UpstreamId(0), "moss:7b");
    assert_eq!(names(&fleet, for_holders(&fleet, &Wanted::Unsaid, "moss:7b")), Err(Misplaced::NotHeld));
}
