//! For which nodes is a managing call?
//!
//! Pure, over what the fleet believes. Only nodes that run Ollama are ever meant. A new model goes to one
//! node, the one with room; a model that is held already is changed wherever it is held, since one name
//! must not come to mean two models. Nodes that the client names are taken at its word, be they down.

use std::cmp::Reverse;

use super::fleet::{Fleet, UpstreamId};
use super::name::Naming;
use super::upstream::{Holding, Upstream};

/// What stands for every node that runs Ollama, in any case.
pub const ALL: &str = "all";

/// Stands where a node's name would, in answers that no node made.
pub const OURSELVES: &str = "warmgate";

/// Which nodes the client named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Unsaid,
    /// Every node that runs Ollama.
    All,
    Named(Vec<String>),
}

/// A node that is meant, and what it calls the model where it has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub upstream: UpstreamId,
    pub spelling: Option<String>,
}

/// Why no nodes are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misplaced {
    /// What the client wrote in place of names says nothing.
    NamesUnreadable,
    UnknownNode(String),
    NotOllama(String),
    /// No node that runs Ollama can take it now.
    NoNode,
    /// None of the nodes that may be asked has the model.
    NotHeld,
    /// They hold it and cannot be asked now.
    HoldersDown,
    /// The call is for one node, and more were named.
    OneNodeOnly,
    /// What a create names is not all on one node.
    Scattered,
}

impl Wanted {
    /// The header's value: `all`, or names with commas between. A header without a name is not taken for
    /// none, since then a call meant for one node could go to every one.
    pub fn of(header: Option<&str>) -> Result<Wanted, Misplaced> {
        let Some(value) = header else { return Ok(Wanted::Unsaid) };
        let names = value.split(',').map(str::trim);
        let mut names: Vec<String> = names.filter(|name| !name.is_empty()).map(str::to_string).collect();
        names.sort();
        names.dedup();
        match names.as_slice() {
            [] => Err(Misplaced::NamesUnreadable),
            [one] if one.eq_ignore_ascii_case(ALL) => Ok(Wanted::All),
            _ => Ok(Wanted::Named(names)),
        }
    }
}

/// The nodes to pull to.
pub fn for_pull(fleet: &Fleet, wanted: &Wanted, model: &str) -> Result<Vec<Place>, Misplaced> {
    let held = held(fleet, model);
    let ids = match wanted {
        Wanted::Named(names) => named(fleet, names)?,
        Wanted::All => ollamas(fleet).filter(|(_, upstream)| !upstream.drains()).map(|(id, _)| id).collect(),
        Wanted::Unsaid => {
            let usable: Vec<UpstreamId> =
                held.iter().map(|place| place.upstream).filter(|id| is_usable(fleet, *id)).collect();
            if usable.is_empty() { with_room(fleet).into_iter().collect() } else { usable }
        }
    };
    let spelling = |id| held.iter().find(|place| place.upstream == id).and_then(|place| place.spelling.clone());
    let places: Vec<Place> = ids.into_iter().map(|id| Place { upstream: id, spelling: spelling(id) }).collect();
    if places.is_empty() { Err(Misplaced::NoNode) } else { Ok(places) }
}

/// The nodes at which a model is deleted or copied: every holder, be it down, or the named ones.
pub fn for_holders(fleet: &Fleet, wanted: &Wanted, model: &str) -> Result<Vec<Place>, Misplaced> {
    let held = held(fleet, model);
    let Wanted::Named(names) = wanted else {
        return if held.is_empty() { Err(Misplaced::NotHeld) } else { Ok(held) };
    };
    let named = named(fleet, names)?;
    let places: Vec<Place> = held.into_iter().filter(|place| named.contains(&place.upstream)).collect();
    if places.len() < named.len() { Err(Misplaced::NotHeld) } else { Ok(places) }
}

/// The holder that pushes a model.
pub fn for_push(fleet: &Fleet, wanted: &Wanted, model: &str) -> Result<Place, Misplaced> {
    let places = for_holders(fleet, wanted, model)?;
    let usable = places.into_iter().filter(|place| is_usable(fleet, place.upstream));
    usable.min_by(|a, b| by_idleness(fleet, a, b)).ok_or(Misplaced::HoldersDown)
}

/// The node for a blob: where it was before, else where this client's others are, else the one with room.
pub fn for_blob(fleet: &Fleet, wanted: &Wanted, known: &[Option<UpstreamId>]) -> Result<UpstreamId, Misplaced> {
    match one_named(fleet, wanted)? {
        Some(id) => Ok(id),
        None => {
            let known = known.iter().flatten().copied().find(|id| is_usable(fleet, *id));
            known.or_else(|| with_room(fleet)).ok_or(Misplaced::NoNode)
        }
    }
}

/// The node for a create: the one that has its blobs and the model that it is made from.
pub fn for_create(
    fleet: &Fleet,
    wanted: &Wanted,
    blobs: &[UpstreamId],
    from: Option<&str>,
    usual: Option<UpstreamId>,
) -> Result<UpstreamId, Misplaced> {
    let named = one_named(fleet, wanted)?;
    let with_blobs = blobs.first().copied();
    if blobs.iter().any(|id| Some(*id) != with_blobs) || named.zip(with_blobs).is_some_and(|(a, b)| a != b) {
        return Err(Misplaced::Scattered);
    }
    let from = from.map(|model| held(fleet, model)).unwrap_or_default();
    if let Some(id) = named.or(with_blobs) {
        let lacks_from = !from.is_empty() && from.iter().all(|place| place.upstream != id);
        return if lacks_from { Err(Misplaced::Scattered) } else { Ok(id) };
    }
    if !from.is_empty() {
        let usable = from.into_iter().filter(|place| is_usable(fleet, place.upstream));
        let best = usable.min_by(|a, b| by_idleness(fleet, a, b));
        return best.map(|place| place.upstream).ok_or(Misplaced::HoldersDown);
    }
    usual.filter(|id| is_usable(fleet, *id)).or_else(|| with_room(fleet)).ok_or(Misplaced::NoNode)
}

/// The nodes that have to let go of a model for it to be unloaded; `None` if no node that is up and runs
/// Ollama has it at all, by its own name or as a group's target.
pub fn for_unload(fleet: &Fleet, model: &str) -> Option<Vec<Place>> {
    let mut places = match fleet.rules.groups.find(model) {
        None => held(fleet, model),
        Some((group, rest)) => {
            let of_target = |target: &super::group::Target| {
                let held = held(fleet, &target.model_for(rest));
                held.into_iter().find(|place| place.upstream == target.upstream)
            };
            group.targets.iter().filter_map(of_target).collect()
        }
    };
    places.retain(|place| fleet.upstream(place.upstream).is_some_and(|upstream| upstream.healthy));
    if places.is_empty() {
        return None;
    }
    let in_memory = |holding: &Holding| holding.resident || holding.running > 0;
    places.retain(|place| {
        let mut holdings = fleet.holdings_of(place.upstream);
        holdings.any(|holding| Some(&holding.name) == place.spelling.as_ref() && in_memory(holding))
    });
    Some(places)
}

/// Every node that runs Ollama and has the model, with its own spelling.
fn held(fleet: &Fleet, model: &str) -> Vec<Place> {
    let holders = fleet.holders(model).into_iter().map(|id| fleet.holding(id));
    let ollamas = holders.filter(|holding| fleet.upstream(holding.upstream).is_some_and(is_ollama));
    ollamas.map(|holding| Place { upstream: holding.upstream, spelling: Some(holding.name.clone()) }).collect()
}

fn ollamas(fleet: &Fleet) -> impl Iterator<Item = (UpstreamId, &Upstream)> {
    fleet.upstreams().filter(|(_, upstream)| is_ollama(upstream))
}

fn is_ollama(upstream: &Upstream) -> bool {
    upstream.spec.engine.is_some_and(|engine| engine.naming == Naming::Ollama)
}

fn is_usable(fleet: &Fleet, id: UpstreamId) -> bool {
    fleet.upstream(id).is_some_and(|upstream| is_ollama(upstream) && upstream.healthy && !upstream.drains())
}

fn named(fleet: &Fleet, names: &[String]) -> Result<Vec<UpstreamId>, Misplaced> {
    let find = |name: &String| match fleet.upstreams().find(|(_, upstream)| upstream.spec.name == *name) {
        None => Err(Misplaced::UnknownNode(name.clone())),
        Some((_, upstream)) if !is_ollama(upstream) => Err(Misplaced::NotOllama(name.clone())),
        Some((id, _)) => Ok(id),
    };
    names.iter().map(find).collect()
}

fn one_named(fleet: &Fleet, wanted: &Wanted) -> Result<Option<UpstreamId>, Misplaced> {
    match wanted {
        Wanted::Unsaid => Ok(None),
        Wanted::Named(names) if names.len() == 1 => Ok(named(fleet, names)?.pop()),
        Wanted::All | Wanted::Named(_) => Err(Misplaced::OneNodeOnly),
    }
}

/// The node that has most room: the lowest tier first, then the most memory beyond what its models take
/// together where every node's memory is known, else the fewest bytes of models.
fn with_room(fleet: &Fleet) -> Option<UpstreamId> {
    let usable = || ollamas(fleet).filter(|(id, _)| is_usable(fleet, *id));
    let all_known = usable().all(|(_, upstream)| upstream.spec.memory_bytes.is_some());
    let room = |id: UpstreamId, upstream: &Upstream| {
        let taken: i128 = fleet.holdings_of(id).filter_map(Holding::need_bytes).map(i128::from).sum();
        let memory = upstream.spec.memory_bytes.filter(|_| all_known);
        i128::from(memory.unwrap_or(0)) - taken
    };
    let best = usable().min_by(|(a, a_is), (b, b_is)| {
        let key = |id, upstream: &Upstream| (upstream.spec.tier, Reverse(room(id, upstream)));
        key(*a, a_is).cmp(&key(*b, b_is)).then_with(|| a_is.spec.name.cmp(&b_is.spec.name))
    });
    best.map(|(id, _)| id)
}

fn by_idleness(fleet: &Fleet, a: &Place, b: &Place) -> std::cmp::Ordering {
    let key = |place: &Place| {
        fleet.upstream(place.upstream).map(|upstream| (upstream.spec.tier, upstream.in_flight, &upstream.spec.name))
    };
    key(a).cmp(&key(b))
}

#[cfg(test)]
mod tests;
