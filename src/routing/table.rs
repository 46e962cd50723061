//! The upstreams by their ids, with places for those that join and none for those that have gone.
//!
//! An id is a place in the table and how many had that place before, so that finding one is a look into
//! an array, and yet no id is ever given twice: what still names an upstream that has gone finds nobody.
//! Whoever has a booking or a holding has its upstream, which is why those may index.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::fleet::UpstreamId;
use super::upstream::Upstream;

#[derive(Default)]
pub struct Upstreams {
    places: Vec<Place>,
    /// The one that is free the longest is taken first.
    free: VecDeque<u32>,
}

/// Upstreams at one time: more than the configuration allows, and few enough that each place can be
/// given half a million times.
pub const MAX_UPSTREAMS: usize = 1 << PLACE_BITS;

const PLACE_BITS: u32 = 13;

/// The last generation is never reached, so that ids end before they begin anew.
const LAST_GENERATION: u32 = u32::MAX >> PLACE_BITS;

#[derive(Default)]
struct Place {
    generation: u32,
    upstream: Option<Upstream>,
}

impl Upstreams {
    /// A place for another one; `None`: there are as many as there may be.
    pub fn join(&mut self, upstream: Upstream) -> Option<UpstreamId> {
        let at = match self.free.pop_front() {
            Some(at) => at,
            None if self.places.len() >= MAX_UPSTREAMS => return None,
            None => {
                self.places.push(Place::default());
                self.places.len() as u32 - 1
            }
        };
        let place = &mut self.places[at as usize];
        place.upstream = Some(upstream);
        Some(UpstreamId(place.generation << PLACE_BITS | at))
    }

    /// Forgets one; its id will not come again.
    pub fn forget(&mut self, id: UpstreamId) {
        let at = place_of(id);
        let Some(place) = self.places.get_mut(at).filter(|place| place.is(id)) else { return };
        place.upstream = None;
        place.generation += 1;
        if place.generation < LAST_GENERATION {
            self.free.push_back(at as u32);
        }
    }

    pub fn get(&self, id: UpstreamId) -> Option<&Upstream> {
        self.places.get(place_of(id)).filter(|place| place.is(id))?.upstream.as_ref()
    }

    pub fn get_mut(&mut self, id: UpstreamId) -> Option<&mut Upstream> {
        self.places.get_mut(place_of(id)).filter(|place| place.is(id))?.upstream.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (UpstreamId, &Upstream)> {
        let places = self.places.iter().zip(0..);
        places
            .filter_map(|(place, at)| Some((UpstreamId(place.generation << PLACE_BITS | at), place.upstream.as_ref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Upstream> {
        self.places.iter_mut().filter_map(|place| place.upstream.as_mut())
    }

    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl Place {
    fn is(&self, id: UpstreamId) -> bool {
        self.generation == id.0 >> PLACE_BITS
    }
}

fn place_of(id: UpstreamId) -> usize {
    id.0 as usize % MAX_UPSTREAMS
}

impl Index<UpstreamId> for Upstreams {
    type Output = Upstream;

    fn index(&self, id: UpstreamId) -> &Upstream {
        self.get(id).expect("an upstream outlives its bookings and holdings")
    }
}

impl IndexMut<UpstreamId> for Upstreams {
    fn index_mut(&mut self, id: UpstreamId) -> &mut Upstream {
        self.get_mut(id).expect("an upstream outlives its bookings and holdings")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::routing::upstream::Spec;

    fn upstream(name: &str) -> Upstream {
        Upstream::new(Spec::named(name))
    }

    #[test]
    fn an_id_is_never_given_twice() {
        let mut upstreams = Upstreams::default();
        let stays = upstreams.join(upstream("stays")).unwrap();
        let mut seen = HashSet::from([stays]);
        for n in 0..10_000 {
            let id = upstreams.join(upstream(&n.to_string())).unwrap();
            assert!(seen.insert(id), "{id:?} came again");
            upstreams.forget(id);
            assert!(upstreams.get(id).is_none());
        }
        assert_eq!(upstreams.places.len(), 2, "places are used again");
        assert_eq!(upstreams.iter().map(|(id, _)| id).collect::<Vec<_>>(), [stays]);
    }

    #[test]
    fn one_who_has_gone_takes_nobody_along() {
        let mut upstreams = Upstreams::default();
        let gone = upstreams.join(upstream("gone")).unwrap();
        upstreams.forget(gone);
        let next = upstreams.join(upstream("next")).unwrap();
        upstreams.forget(gone);
        assert_eq!(upstreams.get(next).unwrap().spec.name, "next");
        assert!(upstreams.get_mut(gone).is_none());
    }

    #[test]
    fn there_are_only_so_many() {
        let mut upstreams = Upstreams::default();
        let ids: Vec<_> = (0..MAX_UPSTREAMS).filter_map(|_| upstreams.join(upstream("x"))).collect();
        assert_eq!((ids.len(), upstreams.count()), (MAX_UPSTREAMS, MAX_UPSTREAMS));
        assert!(upstreams.join(upstream("one more")).is_none());
        upstreams.forget(ids[17]);
        assert!(upstreams.join(upstream("one more")).is_some());
    }
}
