//! Where a conversation is at home: the node that every replica finds for it without hearing of the others.
//!
//! The choice of the rendezvous hash among those that can serve, weighted by what is told of nodes to all alike;
//! nothing that is learnt or counted here enters it. It counts as far as strays come (`routing::strays`): what
//! begins is begun at home, so that it is found again, and a stray is expected there. A preference among others, so
//! that a home that is busy, cold or excluded loses.

use super::Offer;
use crate::routing::ask::Ask;
use crate::routing::chain::mix;
use crate::routing::fleet::{Fleet, UpstreamId};
use crate::routing::session::{self, Pin};

/// The home of one ask's conversation, where that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Home {
    pub upstream: UpstreamId,
    /// How much it counts, 0 to 1; taken for how likely others have begun there what they began.
    pub strength: f64,
    /// Tokens of the prompt that are expected there beyond what is known; none of a conversation that begins.
    pub expected_tokens: u32,
}

/// Where `ask` is at home, if that is to count: not while it has a pin to go by among the eligible that is not of
/// yesterday.
pub fn home(fleet: &Fleet, ask: &Ask, eligible: &[Offer], pin: Option<Pin>) -> Option<Home> {
    let strength = if ask.endpoint.is_conversation() { fleet.strays.strength(&ask.model) } else { 0.0 };
    if strength <= 0.0 || ask.previous_response.is_some() {
        return None;
    }
    let can_serve = |pin: &Pin| eligible.iter().any(|offer| offer.model.upstream == pin.upstream);
    // Others have gone on from where it was here; if they have long been heard of, this is known to be chance.
    let is_overtaken = strength >= 1.0 && pin.is_some_and(|pin| pin.is_overtaken(ask));
    if pin.as_ref().is_some_and(can_serve) && !is_overtaken {
        return None;
    }
    let upstream = rendezvous(ask, eligible, session::conversation(ask)?)?;
    let is_stray = ask.chain.answers > 0 && (pin.is_none() || is_overtaken);
    let expected = if is_stray { strength * f64::from(answered_tokens(ask)) } else { 0.0 };
    Some(Home { upstream, strength, expected_tokens: expected as u32 })
}

/// The prompt up to what was added since the last answer.
fn answered_tokens(ask: &Ask) -> u32 {
    let mut ends = ask.chain.links.iter().rev().filter(|link| link.ends_message);
    ends.nth(1).map_or(0, |link| link.tokens.min(ask.prompt_tokens))
}

/// Among those that have the model in memory and room for the prompt, if there are any.
fn rendezvous(ask: &Ask, eligible: &[Offer], conversation: u64) -> Option<UpstreamId> {
    let fits = |offer: &&Offer| {
        let window = offer.model.context_tokens.or(offer.model.runner.trained_tokens);
        offer.model.resident && ask.fits(window)
    };
    let fitting = eligible.iter().filter(fits);
    highest(fitting, conversation).or_else(|| highest(eligible.iter(), conversation))
}

/// Highest random weight. With equal weights it is the choice that decides ties, too.
fn highest<'a, 'o: 'a>(offers: impl Iterator<Item = &'a Offer<'o>> + Clone, conversation: u64) -> Option<UpstreamId> {
    let by = Weights::of(offers.clone());
    let best = offers.map(|offer| (by.ticket(offer, conversation), offer)).min_by(|(a, one), (b, other)| {
        // Two tickets are alike by chance alone.
        a.total_cmp(b).then_with(|| one.upstream.spec.name.cmp(&other.upstream.spec.name))
    });
    best.map(|(_, offer)| offer.model.upstream)
}

/// What nodes are weighed by: what is configured or told of all of them.
#[derive(Clone, Copy)]
struct Weights {
    slots: bool,
    bandwidth: bool,
    /// They are all alike.
    even: bool,
}

impl Weights {
    fn of<'a, 'o: 'a>(offers: impl Iterator<Item = &'a Offer<'o>> + Clone) -> Weights {
        let (mut slots, mut bandwidth) = (true, true);
        for offer in offers.clone() {
            slots &= offer.upstream.spec.slots.or(offer.upstream.reported_slots).is_some();
            bandwidth &= offer.upstream.spec.bandwidth_bytes_s.is_some();
        }
        let weights = Weights { slots, bandwidth, even: !slots && !bandwidth };
        let mut all = offers.map(|offer| weights.weight(offer));
        let first = all.next();
        Weights { even: all.all(|weight| Some(weight) == first), ..weights }
    }

    fn weight(self, offer: &Offer) -> f64 {
        if self.even {
            return 1.0;
        }
        let upstream = offer.upstream;
        let slots = if self.slots { f64::from(upstream.slots(offer.model).count) } else { 1.0 };
        let bandwidth = upstream.spec.bandwidth_bytes_s.filter(|_| self.bandwidth).unwrap_or(1.0);
        (slots * bandwidth).max(f64::MIN_POSITIVE)
    }

    /// The least wins, in proportion to the weights (exponential races; Efraimidis and Spirakis, 2006).
    fn ticket(self, offer: &Offer, conversation: u64) -> f64 {
        let uniform = ((mix(conversation, offer.upstream.name_hash) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        // Among equals the logarithm would change nothing of the order.
        if self.even { -uniform } else { -uniform.ln() / self.weight(offer) }
    }
}
