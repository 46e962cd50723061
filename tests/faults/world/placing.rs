//! How the world places its requests: books them, lets them wait, and looks over the queue as the product does.

use super::*;
use warmgate::routing::ask::Priority;

impl World {
    /// Books a node for a request, or lets it wait for one.
    pub(super) fn enter(&mut self, number: u64) -> Result<(), String> {
        let Some(request) = self.requests.get(&number) else { return Ok(()) };
        let (query, deadline) = (request.query.clone(), request.deadline);
        let decision = self.decide(number, &query)?;
        let best = decision.rows.first().map(|row| row.holding);
        if let Some(holding) = decision.admitted {
            self.book(number, &decision, holding);
            return Ok(());
        }
        if decision.rows.is_empty() && !decision.is_worth_waiting(deadline) {
            self.nobody(number);
            return Ok(());
        }
        let query_class = query.ask.priority;
        match self.fleet.wait(query, best, self.now) {
            Ok(id) => {
                self.waiters.insert(id, number);
                if let Some(request) = self.requests.get_mut(&number) {
                    request.waiting = Some(Waiting { id, best, passed: 0 });
                }
                self.course.count("waited");
            }
            Err(_) => {
                if self.queue_has_room(query_class) {
                    return Err("L11: the queue had room".into());
                }
                best.and_then(|best| self.fleet.wait_s(best));
                self.requests.remove(&number);
                self.course.count("queue full");
            }
        }
        Ok(())
    }

    pub(super) fn decide(&mut self, number: u64, query: &Query) -> Result<Decision, String> {
        let decision = decide(&self.fleet, query, self.now);
        let tried = self.requests.get(&number).map_or(&[][..], |request| &request.tried);
        watch::decision(&self.fleet, query, tried, &decision, &self.left, self.now)?;
        let mark = decision.rows.first().map_or(0, |row| mix(u64::from(row.upstream.0) + 1, row.score.to_bits()));
        let admitted = decision.admitted.map_or(0, |held| u64::from(held.0) + 1);
        self.course.trace = mix(mix(mix(self.course.trace, self.now.0), mix(number, mark)), admitted);
        Ok(decision)
    }

    pub(super) fn book(&mut self, number: u64, decision: &Decision, holding: HoldingId) {
        let Some(row) = decision.rows.iter().find(|row| row.holding == holding) else { return };
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.attempts += 1;
        if request.attempts == 1 {
            self.fleet.retries.request(self.now);
        } else {
            self.course.count("moved on");
        }
        let lease = self.fleet.book(row, &request.query.ask, self.now);
        let sent = row.misfit.as_ref().map_or(request.query.ask.runner, |misfit| misfit.sent());
        let (class, waiting_since) = (request.query.ask.priority, request.waiting.map(|waiting| waiting.id));
        request.current = Some(Attempt { lease, upstream: row.upstream, holding, job: None, begun: false, sent });
        self.to_send.push_back(number);
        // Whoever came earlier and waits for this very place was passed over.
        for (id, waiter) in self.fleet.queue.waiters() {
            let later = waiting_since.is_none_or(|since| since > id);
            if later
                && waiter.at == Some(holding)
                && waiter.query.ask.priority == class
                && let Some(passed) = self.waiters.get(&id).and_then(|number| self.requests.get_mut(number))
                && let Some(waiting) = &mut passed.waiting
            {
                waiting.passed += 1;
                let most = self.course.counts.entry("passed").or_default();
                *most = (*most).max(u64::from(waiting.passed));
            }
        }
    }

    pub(super) fn nobody(&mut self, number: u64) {
        if let Some(request) = self.requests.remove(&number) {
            self.course.count(if request.attempts == 0 { "refused" } else { "failed" });
        }
    }

    pub(super) fn leave_queue(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.requests.get_mut(&number)?.waiting.take()?;
        self.waiters.remove(&waiting.id);
        self.fleet.stop_waiting(waiting.id);
        Some(waiting)
    }

    /// As the product does it; true if anybody was served.
    pub(super) fn look_over_queue(&mut self) -> Result<bool, String> {
        if self.waiters.is_empty() {
            return Ok(false);
        }
        let (mut served, mut again) = (false, true);
        while std::mem::take(&mut again) {
            let mut sweep = self.fleet.sweep_queue();
            while let Some((id, query)) = sweep.next(&mut self.fleet) {
                let number = *self.waiters.get(&id).ok_or("a waiter whom nobody knows")?;
                let decision = self.decide(number, &query)?;
                if let Some(holding) = decision.admitted {
                    served = true;
                    self.book(number, &decision, holding);
                    self.fleet.bound(id);
                    self.waiters.remove(&id);
                    self.course.count("served from the queue");
                    let Some(request) = self.requests.get_mut(&number) else { continue };
                    request.waiting = None;
                    if self.chance.one_in(20) {
                        let lease = request.current.take().map(|current| current.lease);
                        self.requests.remove(&number);
                        lease.into_iter().for_each(|lease| self.fleet.end(lease, Outcome::Void, self.now));
                        self.course.count("left as it was served");
                        again = true;
                    }
                } else if !decision.rows.is_empty() {
                    self.fleet.place(id, decision.rows.first().map(|row| row.holding));
                } else if decision.is_worth_waiting(Moment::MAX) {
                    self.fleet.place(id, None);
                } else {
                    self.leave_queue(number);
                    self.nobody(number);
                }
            }
        }
        Ok(served)
    }

    /// QUE-10: once nobody is served any more, a decision on each alone, in order, admits nobody.
    pub(super) fn nobody_is_wedged(&mut self) -> Result<(), String> {
        while self.look_over_queue()? {
            self.settle()?;
        }
        let order = self.fleet.queue.order();
        drop(self.fleet.sweep_queue());
        for id in order {
            let Some(query) = self.fleet.queue.get(id).map(|waiter| waiter.query.clone()) else { continue };
            let decision = decide(&self.fleet, &query, self.now);
            if decision.admitted.is_some() {
                return Err(format!("QUE-10: {id:?} waits, and there is room: {decision:?}"));
            }
            self.fleet.place(id, decision.rows.first().map(|row| row.holding));
        }
        Ok(())
    }

    /// Sends what was booked, until nothing is left to send.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        while let Some(number) = self.to_send.pop_front() {
            if let Err(cause) = self.send(number) {
                self.fails(number, cause)?;
            }
        }
        Ok(())
    }

    /// Batch may not fill the share of the queue that is kept from it.
    fn queue_has_room(&self, class: Priority) -> bool {
        let rules = &self.fleet.rules.admission;
        let for_batch = (rules.max_queue as f64 * (1.0 - rules.reserve_for_interactive)).floor().max(1.0);
        let fits = class == Priority::Interactive || (self.fleet.queue.len_of(Priority::Batch) as f64) < for_batch;
        self.fleet.queue.len() < rules.max_queue && fits
    }
}
