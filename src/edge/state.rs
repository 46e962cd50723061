//! In what state a node, or a model on it, is: for people and programs, from memory.
//!
//! One word, why, since when and until when, so that a node which looks healthy and is not used has its
//! reason shown. What weighs most is said.

use serde_json::{Value, json};

use super::clock::wall_ms;
use super::node::Node;
use super::problem::Ailment;
use crate::routing::breaker::{Breaker, Fault, Opening};
use crate::routing::fleet::Fleet;
use crate::routing::moment::Moment;
use crate::routing::slow_start::SlowStart;
use crate::routing::upstream::{Holding, Upstream};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub name: &'static str,
    pub reason: String,
    pub since: Option<Moment>,
    pub until: Option<Moment>,
}

pub fn of_node(fleet: &Fleet, node: &Node, upstream: &Upstream, now: Moment) -> State {
    let problem = node.problem.load();
    let with = |name, since| State { name, reason: problem.to_string(), since, until: None };
    match node.problem.ailment() {
        // A server may answer its probe to anybody and its lists to nobody without the key.
        Ailment::Auth => with("auth", upstream.out_since),
        Ailment::WrongType => with("wrong type", upstream.out_since),
        _ if upstream.healthy && upstream.drains() => with("draining", None),
        _ if upstream.healthy => of_breaker(&upstream.breaker, now)
            .or_else(|| rising(&upstream.slow_start, fleet, now))
            .unwrap_or(State { name: "up", since: upstream.up_since, ..State::default() }),
        Ailment::Loading => with("starting", None),
        Ailment::Down => with("down", upstream.out_since),
        Ailment::None => with("unknown", None),
    }
}

pub fn of_model(fleet: &Fleet, holding: &Holding, now: Moment) -> State {
    let overdue = (holding.overdue > 0).then(|| State {
        name: "suspect",
        reason: format!("{} requests wait there without a sign of life", holding.overdue),
        ..State::default()
    });
    of_breaker(&holding.breaker, now)
        .or(overdue)
        .or_else(|| rising(&holding.slow_start, fleet, now))
        .unwrap_or(State { name: "up", ..State::default() })
}

/// 0: closed, 1: half-open, 2: open; the worst of the node and its models.
pub fn breaker_level(fleet: &Fleet, upstream: &Upstream, node: &Node, now: Moment) -> i64 {
    let level = |breaker: &Breaker| match breaker.opening() {
        Some(opening) if now < opening.until => 2,
        Some(_) => 1,
        None => 0,
    };
    fleet.holdings_of(node.id).map(|holding| level(&holding.breaker)).fold(level(&upstream.breaker), i64::max)
}

impl State {
    /// Times are of the wall clock, in milliseconds since 1970.
    pub fn to_json(&self, now: Moment) -> Value {
        let wall = wall_ms();
        json!({
            "state": self.name,
            "reason": Some(&self.reason).filter(|reason| !reason.is_empty()),
            "since_ms": self.since.map(|at| wall.saturating_sub(millis(now, at))),
            "until_ms": self.until.map(|at| wall.saturating_add(millis(at, now))),
        })
    }
}

fn millis(later: Moment, earlier: Moment) -> u64 {
    u64::try_from(later.since(earlier).as_millis()).unwrap_or(u64::MAX)
}

fn of_breaker(breaker: &Breaker, now: Moment) -> Option<State> {
    let reason = |opening: Opening| match opening.fault {
        Fault::Failures => "requests failed there",
        Fault::Unreachable => "no connection could be made",
        Fault::KeyRefused => "it refuses our key: see `api_key`",
        Fault::Stuck => "requests waited there without a sign of life, while others were answered",
    };
    let cooling = Some(breaker.cooling_until()).filter(|until| now < *until);
    match breaker.opening() {
        Some(opening) => {
            let name = match opening.fault {
                Fault::KeyRefused => "auth",
                _ if now < opening.until => "breaker_open",
                _ => "breaker_half_open",
            };
            let until = Some(opening.until).filter(|until| now < *until);
            Some(State { name, reason: reason(opening).into(), since: Some(opening.since), until })
        }
        None if cooling.is_some() => {
            Some(State { name: "cooling", reason: "it is busy".into(), since: None, until: cooling })
        }
        None => None,
    }
}

fn rising(start: &SlowStart, fleet: &Fleet, now: Moment) -> Option<State> {
    let length = fleet.rules.slow_start;
    let since = start.since(length, now)?;
    let reason = "it has just come back and is given load gradually".to_string();
    Some(State { name: "slow_start", reason, since: Some(since), until: Some(since + length) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Plan};
    use crate::edge::ingress::Ingress;
    use crate::edge::problem::{Finder, Finding};

    #[track_caller]
    fn check(healthy: bool, drain: bool, ailment: Ailment, expected: &str) {
        let upstream = config::Upstream::new("n1".into(), "http://127.0.0.1:9".parse().unwrap());
        let plan = Plan { upstreams: vec![config::Upstream { drain, ..upstream }], ..Plan::default() };
        let ingress = Ingress::new(plan).unwrap();
        let node = &ingress.roster.nodes().iter().next().unwrap().clone();
        ingress.fleet.with(|fleet, now| fleet.learn_health(node.id, healthy, now));
        node.note(Finder::Telemetry, Finding::new(ailment, "words"));
        let state = ingress.fleet.with(|fleet, now| of_node(fleet, node, fleet.upstream(node.id).unwrap(), now));
        assert_eq!((state.name, state.reason.as_str()), (expected, if expected == "up" { "" } else { "words" }));
    }

    #[test]
    fn ops_11_hlt_14_states_in_a_word() {
        check(true, false, Ailment::None, "up");
        check(true, true, Ailment::None, "draining");
        check(true, false, Ailment::Down, "up");
        check(true, false, Ailment::Auth, "auth");
        check(false, false, Ailment::Auth, "auth");
        check(false, false, Ailment::WrongType, "wrong type");
        check(false, false, Ailment::Loading, "starting");
        check(false, true, Ailment::Down, "down");
        check(false, false, Ailment::None, "unknown");
    }
}
