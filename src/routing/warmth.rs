//! What became of a conversation's warmth when its next turn was placed.
//!
//! A turn that leaves the node which served the last one pays for its prompt once more. Nothing fails
//! then, it is only slower; so what was lost, why, and about how much that costs is worked out here for
//! the receipt. It judges nobody and changes nothing.

use super::ask::Ask;
use super::fleet::{Fleet, UpstreamId};
use super::moment::Moment;
use super::select::{Decision, Exclusion, Row};

/// What a turn found of what its conversation had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmth {
    /// No conversation, so there is no warmth at all.
    None,
    /// The node that served the last turn.
    Session,
    /// Another than that.
    Moved(Lost),
    /// The node that it falls to by its hash, where other replicas look for it: they have served it, or served it last.
    Home,
    /// No last turn is known, but somebody began the same way here.
    Prefix,
    New,
}

/// What a turn that moved has lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// Who served the last turn.
    pub from: UpstreamId,
    pub why: Why,
    /// Tokens of the prompt that the node before has likely cached and the chosen one has not.
    pub tokens: u32,
    /// About what reading these costs there; `None`: nothing is known of any node's speed.
    pub seconds: Option<f64>,
}

/// Why a turn did not go where the last one was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The node is out, or gone.
    Down,
    Draining,
    /// It has no room, or wants to be left alone.
    Busy,
    /// It was tried for this request, and failed.
    Failed,
    /// The pin was older than `affinity.ttl`.
    Expired,
    /// It could have served, and another had the better score.
    Outscored,
    /// It cannot serve this turn, for any other reason of its exclusion.
    Unfit,
}

impl Why {
    pub const ALL: [Why; 7] =
        [Why::Down, Why::Draining, Why::Busy, Why::Failed, Why::Expired, Why::Outscored, Why::Unfit];

    /// As a label.
    pub fn name(self) -> &'static str {
        match self {
            Why::Down => "down",
            Why::Draining => "draining",
            Why::Busy => "busy",
            Why::Failed => "failed",
            Why::Expired => "expired",
            Why::Outscored => "outscored",
            Why::Unfit => "unfit",
        }
    }
}

impl Warmth {
    /// What `name` says of each.
    pub const NAMES: [&'static str; 6] = ["none", "session", "moved", "home", "prefix", "new"];

    /// As headers and metrics say it.
    pub fn name(self) -> &'static str {
        match self {
            Warmth::None => "none",
            Warmth::Session => "session",
            Warmth::Moved(_) => "moved",
            Warmth::Home => "home",
            Warmth::Prefix => "prefix",
            Warmth::New => "new",
        }
    }

    pub fn lost(self) -> Option<Lost> {
        if let Warmth::Moved(lost) = self { Some(lost) } else { None }
    }
}

/// What `ask` finds at `chosen`; to be asked before its first byte pins it there.
pub fn warmth(fleet: &Fleet, ask: &Ask, decision: &Decision, chosen: &Row, now: Moment) -> Warmth {
    if !ask.endpoint.is_conversation() {
        return Warmth::None;
    }
    let expired = || fleet.sessions.last_served(ask).filter(|last| *last != chosen.upstream);
    match decision.pin {
        Some(pin) if pin == chosen.upstream => Warmth::Session,
        _ if is_stray_at_home(fleet, ask, decision, chosen, now) => Warmth::Home,
        Some(pin) => Warmth::Moved(lost(fleet, ask, pin, why(fleet, decision, pin), chosen, now)),
        None => match expired() {
            Some(last) => Warmth::Moved(lost(fleet, ask, last, Why::Expired, chosen, now)),
            None if chosen.covered_tokens > 0 => Warmth::Prefix,
            None => Warmth::New,
        },
    }
}

/// It goes on from what is not known here, or not any more, and is where that was expected.
fn is_stray_at_home(fleet: &Fleet, ask: &Ask, decision: &Decision, chosen: &Row, now: Moment) -> bool {
    let knows = || fleet.sessions.find(ask, now).is_some_and(|pin| !pin.is_overtaken(ask));
    decision.home == Some(chosen.upstream) && ask.chain.answers > 0 && !knows()
}

fn lost(fleet: &Fleet, ask: &Ask, from: UpstreamId, why: Why, chosen: &Row, now: Moment) -> Lost {
    let tokens = kept(fleet, ask, from, now).min(ask.prompt_tokens).saturating_sub(chosen.covered_tokens);
    let to_read = ask.prompt_tokens.saturating_sub(chosen.covered_tokens);
    let share = f64::from(tokens) / f64::from(to_read.max(1));
    Lost { from, why, tokens, seconds: chosen.first_token.map(|parts| parts.prefill_s * share) }
}

/// Tokens of the prompt that a node would find in its cache, be it that it may not be asked now.
fn kept(fleet: &Fleet, ask: &Ask, node: UpstreamId, now: Moment) -> u32 {
    let Some(upstream) = fleet.upstream(node) else { return 0 };
    let holders = fleet.holders(&ask.model);
    let here = holders.into_iter().find(|id| fleet.holding(*id).upstream == node);
    here.map_or(0, |id| fleet.prefixes.prospects(ask, now).at(id, upstream.capacity(fleet.holding(id))).found)
}

fn why(fleet: &Fleet, decision: &Decision, pin: UpstreamId) -> Why {
    if let Some(row) = decision.rows.iter().find(|row| row.upstream == pin) {
        return if row.has_room { Why::Outscored } else { Why::Busy };
    }
    let reasons = decision.excluded.iter().filter(|(upstream, _)| *upstream == pin);
    match reasons.map(|(_, reason)| *reason).min_by_key(|reason| *reason != Exclusion::Tried) {
        Some(Exclusion::Tried) => Why::Failed,
        Some(Exclusion::Unhealthy | Exclusion::BreakerOpen | Exclusion::HalfOpen) => Why::Down,
        Some(Exclusion::Draining) => Why::Draining,
        Some(Exclusion::Cooling | Exclusion::SlowStart | Exclusion::OverLimit) => Why::Busy,
        Some(_) => Why::Unfit,
        None if fleet.upstream(pin).is_none_or(|upstream| !upstream.healthy) => Why::Down,
        None => Why::Unfit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::candidate::FirstToken;
    use crate::routing::chain::{Chain, Link};
    use crate::routing::fleet::{HoldingId, LeaseId, Rules};
    use crate::routing::policy::Merits;
    use crate::routing::prefix::Left;
    use crate::routing::report::{ModelReport, Report};
    use crate::routing::select::tests::OLLAMA;
    use crate::routing::upstream::Spec;

    const HOME: UpstreamId = UpstreamId(0);
    const AWAY: UpstreamId = UpstreamId(1);
    const NOW: Moment = Moment(1_000_000);

    fn row(upstream: UpstreamId, has_room: bool) -> Row {
        let merits = Merits { weight: 1.0, cost: None, first_token_s: 0.0, used: 0.0 };
        Row {
            upstream,
            holding: HoldingId(upstream.0),
            points: Default::default(),
            score: 0.0,
            depth: 0.0,
            covered_tokens: 0,
            displaced_s: 0.0,
            merits,
            has_room,
            is_resident: true,
            is_ready: true,
            first_token: Some(FirstToken { prefill_s: 2.0, ..FirstToken::default() }),
            misfit: None,
            name_hash: 0,
            marks: Default::default(),
        }
    }

    /// Two turns of one conversation: 400 tokens of the first, 500 in all.
    fn turns() -> [Ask; 2] {
        let link = |hash, tokens| Link { hash, tokens, ends_message: true };
        let ask = |links: &[Link], prompt_tokens| {
            let chain = Chain { links: links.to_vec(), root: 0, answers: 0 };
            Ask { chain, prompt_tokens, ..Ask::plain() }
        };
        let links = [link(11, 100), link(12, 400), link(13, 450), link(14, 500)];
        [ask(&links[..2], 400), ask(&links, 500)]
    }

    fn fleet() -> Fleet {
        let mut fleet = Fleet::new(Rules::default());
        let [first, _] = turns();
        let models = vec![ModelReport { name: first.model.clone(), ..ModelReport::default() }];
        let report = Report { models, ..Report::default() };
        for name in ["home", "away"] {
            let id = fleet.join(Spec { engine: Some(OLLAMA), slots: Some(1), ..Spec::named(name) }).unwrap();
            fleet.learn_health(id, true, NOW);
            fleet.learn_report(id, &report, fleet.asked(id, NOW), NOW);
        }
        fleet.sessions.pin(&first, HOME, NOW);
        let holding = *fleet.holders(&first.model).first().unwrap();
        let capacity = fleet.upstream(HOME).unwrap().capacity(fleet.holding(holding));
        fleet.prefixes.book(LeaseId(1), holding, capacity, &first, NOW);
        fleet.prefixes.first_byte(LeaseId(1), NOW);
        fleet.prefixes.end(LeaseId(1), Left::default(), NOW);
        fleet
    }

    #[track_caller]
    fn check(decision: Decision, at: UpstreamId, expected: Option<Why>) -> Option<Lost> {
        let found = warmth(&fleet(), &turns()[1], &decision, &row(at, true), NOW);
        assert_eq!(found.lost().map(|lost| lost.why), expected);
        found.lost()
    }

    #[test]
    fn a_turn_that_moves_says_why_and_what_that_costs() {
        let pinned = |rows: Vec<Row>, excluded: Vec<(UpstreamId, Exclusion)>| Decision {
            rows,
            excluded,
            pin: Some(HOME),
            ..Decision::default()
        };
        check(pinned(vec![row(HOME, true)], vec![]), HOME, None);
        check(pinned(vec![row(AWAY, true), row(HOME, true)], vec![]), AWAY, Some(Why::Outscored));
        check(pinned(vec![row(AWAY, true), row(HOME, false)], vec![]), AWAY, Some(Why::Busy));
        for (reason, expected) in [
            (Exclusion::Unhealthy, Why::Down),
            (Exclusion::BreakerOpen, Why::Down),
            (Exclusion::Draining, Why::Draining),
            (Exclusion::Cooling, Why::Busy),
            (Exclusion::Tried, Why::Failed),
            (Exclusion::TooLarge, Why::Unfit),
        ] {
            check(pinned(vec![row(AWAY, true)], vec![(HOME, reason)]), AWAY, Some(expected));
        }
        // Of the 500 tokens 400 were cached at home; reading all 500 takes 2 s.
        let lost = check(pinned(vec![row(AWAY, true)], vec![(HOME, Exclusion::Draining)]), AWAY, Some(Why::Draining));
        let lost = lost.expect("lost");
        assert_eq!((lost.from, lost.tokens, lost.seconds), (HOME, 400, Some(1.6)));
    }

    #[test]
    fn an_expired_pin_is_lost_too_unless_the_turn_goes_there() {
        check(Decision::default(), HOME, None);
        check(Decision::default(), AWAY, Some(Why::Expired));
    }

    #[test]
    fn a_turn_that_others_began_is_at_home_and_one_that_begins_is_new() {
        let stranger = |answers| {
            let chain = Chain { links: vec![Link { hash: 9, tokens: 9, ends_message: true }], root: 0, answers };
            Ask { chain, ..Ask::plain() }
        };
        let at_home = Decision { home: Some(AWAY), ..Decision::default() };
        for (answers, at, expected) in [(1, AWAY, "home"), (1, HOME, "new"), (0, AWAY, "new")] {
            let found = warmth(&fleet(), &stranger(answers), &at_home, &row(at, true), NOW);
            assert_eq!(found.name(), expected, "{answers} {at:?}");
        }
        // What is known to be elsewhere has moved, be it to its home.
        let known = Decision { pin: Some(HOME), excluded: vec![(HOME, Exclusion::Unhealthy)], ..at_home };
        let [first, mut second] = turns();
        second.chain.answers = first.chain.answers + 1;
        assert_eq!(warmth(&fleet(), &second, &known, &row(AWAY, true), NOW).name(), "moved");
        second.chain.answers += 1;
        assert_eq!(warmth(&fleet(), &second, &known, &row(AWAY, true), NOW).name(), "home", "others went on from it");
    }

    #[test]
    fn what_is_no_conversation_has_no_warmth() {
        let ask = Ask { endpoint: crate::routing::ask::Endpoint::OllamaEmbed, ..turns()[1].clone() };
        assert_eq!(warmth(&fleet(), &ask, &Decision::default(), &row(HOME, true), NOW), Warmth::None);
    }
}
