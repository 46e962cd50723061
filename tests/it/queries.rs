//! Every query of the dashboard and of the alerts in `conf/grafana/` asks for what there is: names, labels, and
//! values where these are fixed.

use std::collections::{BTreeMap, BTreeSet};

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};
use serde_json::Value;
use warmgate::edge::metrics::Metrics;
use warmgate::edge::metrics::family::{Family, Kind, Values};

use crate::exposition::PARTS;

/// What a collector adds to every series.
const COLLECTORS: [&str; 2] = ["instance", "job"];

fn file(name: &str) -> String {
    let path = format!("{}/conf/grafana/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&file("dashboard.json")).expect("JSON")
}

fn alerts() -> Value {
    serde_yaml::from_str(&file("alerts.yaml")).expect("YAML")
}

/// All texts under that key, wherever it is.
fn under<'a>(told: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match told {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => under(value, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| under(item, key, found)),
        _ => {}
    }
}

fn expressions(told: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    under(told, "expr", &mut found);
    found
}

/// As Grafana asks it, with every variable open.
fn filled(expression: &str) -> String {
    let known = [("$__rate_interval", "5m"), ("$__range", "1h"), ("$__interval", "1m")];
    let text = known.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    ["node", "model", "tenant", "instance"]
        .iter()
        .fold(text, |text, name| text.replace(&format!("\"${name}\""), "\".*\""))
}

/// What is wrong with a query.
fn wrong(expression: &str, families: &[Family]) -> Vec<String> {
    let filled = filled(expression);
    if filled.contains('$') {
        return vec![format!("a variable that nobody fills in: {expression}")];
    }
    let parsed = match parser::parse(&filled) {
        Ok(parsed) => parsed,
        Err(e) => return vec![format!("{expression}: {e}")],
    };
    let mut asked = Asked { families, wrong: Vec::new() };
    asked.visit(&parsed);
    asked.wrong.into_iter().map(|wrong| format!("{wrong}, in {expression}")).collect()
}

struct Asked<'a> {
    families: &'a [Family],
    wrong: Vec<String>,
}

impl Asked<'_> {
    /// The labels that what it gives can have.
    fn visit(&mut self, expression: &Expr) -> BTreeSet<String> {
        match expression {
            Expr::VectorSelector(selector) => self.selector(selector),
            Expr::MatrixSelector(matrix) => self.selector(&matrix.vs),
            Expr::Aggregate(aggregate) => {
                let labels = self.visit(&aggregate.expr);
                match &aggregate.modifier {
                    Some(LabelModifier::Include(by)) => {
                        self.have(&labels, &by.labels);
                        by.labels.iter().cloned().collect()
                    }
                    Some(LabelModifier::Exclude(without)) => {
                        self.have(&labels, &without.labels);
                        labels.into_iter().filter(|label| !without.labels.contains(label)).collect()
                    }
                    None => BTreeSet::new(),
                }
            }
            Expr::Binary(binary) => {
                let (left, right) = (self.visit(&binary.lhs), self.visit(&binary.rhs));
                if let Some(LabelModifier::Include(on) | LabelModifier::Exclude(on)) =
                    binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref())
                {
                    self.have(&left, &on.labels);
                    self.have(&right, &on.labels);
                }
                left.union(&right).cloned().collect()
            }
            Expr::Call(call) => call.args.args.iter().flat_map(|argument| self.visit(argument)).collect(),
            Expr::Paren(inner) => self.visit(&inner.expr),
            Expr::Unary(inner) => self.visit(&inner.expr),
            Expr::Subquery(inner) => self.visit(&inner.expr),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => BTreeSet::new(),
        }
    }

    fn selector(&mut self, selector: &VectorSelector) -> BTreeSet<String> {
        let name = selector.name.clone().unwrap_or_default();
        if name == "up" {
            return COLLECTORS.map(String::from).into();
        }
        let family = self.families.iter().find(|family| is_of(family, &name));
        let Some(family) = family else {
            self.wrong.push(format!("there is no {name}"));
            return BTreeSet::new();
        };
        let mut labels: BTreeSet<String> = family.labels.iter().map(|label| label.name.to_owned()).collect();
        labels.extend(COLLECTORS.map(String::from));
        if name.ends_with("_bucket") {
            labels.insert("le".to_owned());
        }
        for matcher in &selector.matchers.matchers {
            self.have(&labels, std::slice::from_ref(&matcher.name));
            let own = family.labels.iter().find(|label| label.name == matcher.name);
            if let Some(Values::Fixed(values)) = own.map(|label| &label.values) {
                self.wrong.extend(unknown_values(matcher, values));
            }
        }
        labels
    }

    fn have(&mut self, labels: &BTreeSet<String>, wanted: &[String]) {
        let missing = wanted.iter().filter(|label| !labels.contains(*label));
        self.wrong.extend(missing.map(|label| format!("there is no label {label}")));
    }
}

/// Whether a name is the family's own, or a part of it.
fn is_of(family: &Family, name: &str) -> bool {
    match family.kind {
        Kind::Histogram => PARTS.iter().any(|part| name.strip_suffix(part) == Some(family.name)),
        Kind::Counter | Kind::Gauge => name == family.name,
    }
}

/// Values that are named one by one and do not exist.
fn unknown_values(matcher: &Matcher, values: &[&str]) -> Vec<String> {
    let is_simple = |value: &str| value.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    let named: Vec<&str> = match &matcher.op {
        MatchOp::Equal | MatchOp::NotEqual => vec![matcher.value.as_str()],
        MatchOp::Re(_) | MatchOp::NotRe(_) => matcher.value.split('|').filter(|value| is_simple(value)).collect(),
    };
    let unknown = named.into_iter().filter(|value| !values.contains(value));
    unknown.map(|value| format!("{} is never {value}", matcher.name)).collect()
}

#[test]
fn every_query_asks_for_what_there_is() {
    let families = Metrics::new().expect("metrics").families;
    let (dashboard, alerts) = (dashboard(), alerts());
    for (what, told, least) in [("dashboard", &dashboard, 20), ("alerts", &alerts, 8)] {
        let all = expressions(told);
        assert!(all.len() >= least, "{what}: only {} queries", all.len());
        let wrong: Vec<String> = all.iter().flat_map(|expression| wrong(expression, &families)).collect();
        assert_eq!(wrong, [""; 0], "{what}");
    }
}

#[test]
fn a_query_for_what_there_is_not_is_found() {
    let families = Metrics::new().expect("metrics").families;
    for (query, is_good) in [
        ("sum by (node) (rate(warmgate_requests_total[5m]))", true),
        ("sum by (rank) (rate(warmgate_requests_total[5m]))", false),
        ("rate(warmgate_request_total[5m])", false),
        ("warmgate_requests_total{outcome=\"ok\"}", true),
        ("warmgate_requests_total{outcome=\"fine\"}", false),
        ("warmgate_requests_total{outcome=~\"cut|stalled\"}", true),
        ("warmgate_requests_total{outcome=~\"cut|stuck\"}", false),
        ("warmgate_requests_total{user=\"x\"}", false),
        ("histogram_quantile(0.95, sum by (le) (rate(warmgate_first_byte_seconds_bucket[5m])))", true),
        ("sum by (le) (warmgate_first_byte_seconds_count)", false),
        ("warmgate_first_byte_seconds", false),
        ("sum by (node) (warmgate_slots) / on (model) sum by (node) (warmgate_slots)", false),
        ("sum(warmgate_slots", false),
        ("warmgate_slots{node=~\"$nodes_of_mine\"}", false),
    ] {
        assert_eq!(wrong(query, &families).is_empty(), is_good, "{query}: {:?}", wrong(query, &families));
    }
}

/// What the design wants to be warned of, and what an alert must tell whoever is woken.
#[test]
fn each_alert_says_what_is_wrong_and_what_to_do() {
    let alerts = alerts();
    let groups = alerts["groups"].as_array().expect("groups");
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules")).collect();
    let mut names = BTreeSet::new();
    for rule in &rules {
        let name = rule["alert"].as_str().expect("a name");
        assert!(names.insert(name), "{name} is there twice");
        assert!(["warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap_or_default()), "{name}");
        for note in ["summary", "description"] {
            assert!(rule["annotations"][note].as_str().is_some_and(|text| text.len() > 20), "{name}: {note}");
        }
        assert!(rule["for"].is_string(), "{name}");
    }
    let all = expressions(&alerts).join("\n");
    for wanted in [
        "warmgate_first_byte_seconds_bucket",
        "warmgate_lost_warmth_total",
        "warmgate_queue_waiting",
        "warmgate_breaker_state",
        "warmgate_model_drift",
        "warmgate_config_last_reload_success",
    ] {
        assert!(all.contains(wanted), "nothing watches {wanted}");
    }
}

#[test]
fn the_dashboard_is_one_that_grafana_takes() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut places) = (BTreeSet::new(), BTreeMap::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is there twice");
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{title}: no {side}"));
        assert!(at("x") + at("w") <= 24, "{title} is wider than the page");
        for (y, x) in (at("y")..at("y") + at("h")).flat_map(|y| (at("x")..at("x") + at("w")).map(move |x| (y, x))) {
            let there = places.insert((y, x), title);
            assert_eq!(there, None, "{title} lies over another");
        }
        if panel["type"] != "row" {
            assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{title} asks nothing");
            assert!(panel["description"].is_string(), "{title} does not say what it shows");
        }
    }
    let rows: Vec<&str> =
        panels.iter().filter(|panel| panel["type"] == "row").filter_map(|row| row["title"].as_str()).collect();
    assert_eq!(rows, ["Fleet at a glance", "First token", "Warmth", "Queue", "Failures", "Tenants", "Replicas"]);
}
