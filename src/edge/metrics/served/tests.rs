//! The series of models on nodes: counted under their own names, bounded, and gone when these are.

use prometheus::core::Collector;

use super::*;

fn pairs() -> Pairs {
    Pairs::new(&mut Register::default()).unwrap()
}

/// How many series there are of requests that were counted.
fn told(pairs: &Pairs) -> usize {
    pairs.families.requests.collect().iter().flat_map(|family| family.get_metric()).count()
}

fn count(pairs: &Pairs, node: &str, model: &str) {
    pairs.of(node, model).request(Dialect::OpenAi, Verdict::Ok);
}

#[test]
fn each_class_is_counted_under_its_own_name() {
    for dialect in Dialect::ALL {
        for verdict in Verdict::ALL {
            let pairs = pairs();
            pairs.of("n1", "moss:7b").request(dialect, verdict);
            let labels = ["moss:7b", "n1", dialect.name(), verdict.name()];
            assert_eq!(pairs.families.requests.with_label_values(&labels).get(), 1, "{labels:?}");
        }
    }
    for (n, source) in Source::ALL.into_iter().enumerate() {
        assert_eq!(source as usize, n);
    }
}

#[test]
fn sec_07_names_beyond_the_room_count_as_one() {
    let pairs = pairs();
    for n in 0..3 * MODELS_MAX {
        count(&pairs, "n1", &format!("m{n}"));
        count(&pairs, "n2", &format!("m{n}"));
    }
    count(&pairs, "n1", &"x".repeat(NAME_BYTES_MAX + 1));
    assert_eq!(pairs.labels().0.len(), MODELS_MAX + 1, "these and `other`");
    let others = ["n1", "n2"].map(|node| pairs.of(node, OTHER).requests_in(Dialect::OpenAi)[0].get());
    // The empty name of requests without a model has a place too.
    assert_eq!(others[0] + others[1], 2 * (2 * MODELS_MAX as u64 + 1) + 1);
    let before = told(&pairs);
    count(&pairs, "n1", "one more");
    assert_eq!(told(&pairs), before);
}

#[test]
fn what_has_left_is_told_for_a_while_and_then_no_more() {
    let pairs = pairs();
    let nobody = told(&pairs);
    for (node, model) in [("n1", "moss:7b"), ("n1", "fern:3b"), ("n2", "moss:7b")] {
        count(&pairs, node, model);
    }
    let all = told(&pairs);
    let at = Moment::from_secs;
    let kept = KEPT_AFTER_LEAVING.as_secs();
    let without_n1 = |node: &str, _: &str| node != "n1";
    let no_names = (HashSet::new(), HashSet::new());

    assert_eq!(pairs.forget(without_n1, at(100)), no_names);
    assert_eq!(pairs.forget(without_n1, at(100 + kept - 1)), no_names);
    assert_eq!(told(&pairs), all, "its last counts can still be collected");
    assert_eq!(pairs.forget(|_, _| true, at(100 + kept)), no_names, "it came back, and begins anew");
    assert_eq!(pairs.forget(without_n1, at(200 + kept)), no_names);
    let under_way = pairs.of("n1", "moss:7b");
    let gone = pairs.forget(without_n1, at(200 + 2 * kept));
    assert_eq!(gone, (HashSet::from(["n1".to_owned()]), HashSet::from(["fern:3b".to_owned()])));
    assert_eq!(told(&pairs), nobody + Verdict::ALL.len(), "the other node's");

    pairs.again(&under_way).request(Dialect::OpenAi, Verdict::Ok);
    let labels = ["moss:7b", "n1", "openai", "ok"];
    assert_eq!(pairs.families.requests.with_label_values(&labels).get(), 1, "a late end is counted all the same");
}
