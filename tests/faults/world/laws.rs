//! What must hold after every step, as the fleet says and as the world counts itself.

use super::*;

impl World {
    pub(super) fn laws(&self) -> Result<(), String> {
        warmgate::routing::laws::broken(&self.fleet)?;
        let mut running: BTreeMap<UpstreamId, u32> = BTreeMap::new();
        let mut waits = 0;
        for request in self.requests.values() {
            match (request.current, request.waiting) {
                (Some(current), None) => *running.entry(current.upstream).or_default() += 1,
                (None, Some(waiting)) if self.fleet.queue.get(waiting.id).is_some() => waits += 1,
                _ => return Err("L11: a request runs nowhere and waits nowhere".into()),
            }
        }
        if self.fleet.queue.len() != waits || self.waiters.len() != waits {
            return Err(format!("L2: {} in the queue, and {waits} wait", self.fleet.queue.len()));
        }
        if self.course.counts.get("passed").is_some_and(|most| *most > PASSED_MAX) {
            return Err("L11: somebody was passed over again and again".into());
        }
        for (id, upstream) in self.fleet.upstreams() {
            let ours = running.get(&id).copied().unwrap_or(0);
            if upstream.in_flight != ours {
                return Err(format!("L1: {} counts {}, and {ours} run there", upstream.spec.name, upstream.in_flight));
            }
        }
        if self.fleet.live_leases() + waits == self.requests.len() {
            Ok(())
        } else {
            Err("L2: a lease too many".into())
        }
    }

    pub(super) fn counts(&self) -> Vec<(u32, bool, u32)> {
        let count = |upstream: &warmgate::routing::upstream::Upstream| {
            let running = self.fleet.live_leases() as u32;
            (upstream.in_flight, upstream.breaker.opening().is_some(), running)
        };
        self.fleet.upstreams().map(|(_, upstream)| count(upstream)).collect()
    }
}
