//! Models by name: which upstreams have what a client asks for, and where what is believed of each is kept.
//!
//! Ollama's names fold, other engines' do not. A place is used again once nothing refers to it.

use std::cell::LazyCell;

use super::{Fleet, HoldingId, MAX_HOLDINGS, PLACES_AT_REST, UpstreamId};
use crate::routing::name::{self, Naming};
use crate::routing::upstream::Holding;

impl Fleet {
    /// The holdings that a client's name means, one an upstream at most, in order of upstream.
    pub(in crate::routing) fn holders(&self, model: &str) -> Vec<HoldingId> {
        let exact = self.exact.get(model).map_or(&[][..], Vec::as_slice);
        let spellings = match self.folded.is_empty() {
            true => &[][..],
            false => self.folded.get(&name::fold(model)).map_or(&[][..], Vec::as_slice),
        };
        let mut holders = Vec::with_capacity(exact.len() + spellings.len());
        holders.extend_from_slice(exact);
        let same_upstream = |a: &HoldingId, b: &HoldingId| self.holding(*a).upstream == self.holding(*b).upstream;
        let canonical = LazyCell::new(|| name::canonical(model));
        for group in spellings.chunk_by(same_upstream) {
            if let [only] = group {
                holders.push(*only);
                continue;
            }
            let to_the_letter = group.iter().find(|id| name::canonical(&self.holding(**id).name) == *canonical);
            holders.extend(to_the_letter);
        }
        holders
    }

    /// The model's name as its upstream spells it.
    pub fn holding_name(&self, id: HoldingId) -> &str {
        &self.holding(id).name
    }

    /// What a client's name is called here: the configured name, or as the first upstream that has it spells it.
    pub fn known_name(&self, model: &str) -> Option<String> {
        let configured = self.rules.groups.find(model).map(|(group, _)| group.name.clone());
        configured.or_else(|| self.holders(model).first().map(|held| self.holding_name(*held).to_owned()))
    }

    /// Whether some upstream lists a model by that very name, or the configuration has it.
    pub fn has_name(&self, model: &str) -> bool {
        let configured = self.rules.groups.find(model).is_some_and(|(group, _)| group.name == model);
        configured || self.exact.contains_key(model) || self.folded.contains_key(&name::fold(model))
    }

    /// The upstream that has it.
    pub fn upstream_of(&self, id: HoldingId) -> Option<UpstreamId> {
        self.holdings.get(id.0 as usize).map(|holding| holding.upstream)
    }

    pub(in crate::routing) fn holding(&self, id: HoldingId) -> &Holding {
        &self.holdings[id.0 as usize]
    }

    /// Every name that a client may ask for, once, for suggestions.
    pub fn model_names(&self) -> Vec<String> {
        let groups = self.rules.groups.listed().into_iter().map(|group| &group.name);
        let mut names: Vec<String> = self.folded.keys().chain(self.exact.keys()).chain(groups).cloned().collect();
        names.sort();
        names
    }

    /// The holding of that name, made if there is room for it.
    pub(super) fn holding_named(&mut self, id: UpstreamId, name: &str) -> Option<HoldingId> {
        let upstream = &mut self.upstreams[id];
        if let Some(known) = upstream.holdings.get(name) {
            return Some(*known);
        }
        let made = Holding::new(id, name);
        let is_full = self.holdings.len() >= MAX_HOLDINGS;
        let rested = is_full || self.free.len() > PLACES_AT_REST;
        let place = match self.free.pop_front_if(|_| rested) {
            Some(place) => {
                self.holdings[place.0 as usize] = made;
                place
            }
            None if is_full => return None,
            None => {
                self.holdings.push(made);
                HoldingId(self.holdings.len() as u32 - 1)
            }
        };
        upstream.holdings.insert(name.to_string(), place);
        Some(place)
    }

    pub(super) fn listed(&self, id: UpstreamId) -> Vec<HoldingId> {
        let held = self.upstreams[id].holdings.values();
        held.filter(|held| self.holding(**held).listed).copied().collect()
    }

    /// Drops what the upstream no longer lists, once no request runs on it.
    pub(super) fn forget_unlisted(&mut self, id: UpstreamId) {
        let (holdings, free, prefixes) = (&self.holdings, &mut self.free, &mut self.prefixes);
        self.upstreams[id].holdings.retain(|_, held| {
            let holding = &holdings[held.0 as usize];
            let kept = holding.listed || holding.running > 0 || holding.waiting > 0;
            if !kept {
                free.push_back(*held);
                prefixes.forget(*held);
            }
            kept
        });
    }

    /// Takes the models of one upstream out of the index; cheaper than to make it anew.
    pub(super) fn unindex(&mut self, id: UpstreamId) {
        for (name, held) in &self.upstreams[id].holdings {
            for (map, key) in [(&mut self.folded, &name::fold(name)), (&mut self.exact, name)] {
                let Some(holders) = map.get_mut(key) else { continue };
                holders.retain(|holder| holder != held);
                if holders.is_empty() {
                    map.remove(key);
                }
            }
        }
    }

    pub(super) fn rebuild_index(&mut self) {
        self.folded.clear();
        self.exact.clear();
        for (_, upstream) in self.upstreams.iter() {
            let naming = upstream.spec.engine.map(|engine| engine.naming);
            for (name, id) in upstream.holdings.iter().filter(|(_, id)| self.holdings[id.0 as usize].listed) {
                let (map, key) = match naming {
                    Some(Naming::Ollama) => (&mut self.folded, name::fold(name)),
                    _ => (&mut self.exact, name.clone()),
                };
                map.entry(key).or_default().push(*id);
            }
        }
    }
}
