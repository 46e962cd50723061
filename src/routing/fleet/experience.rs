//! What one model on one upstream shows of itself: by readings, first bytes and ends of answers.

use std::time::Duration;

use super::{Booking, LeaseId, Outcome, Start};
use crate::routing::ask::Priority;
use crate::routing::estimate::Work;
use crate::routing::moment::Moment;
use crate::routing::prefix::Placed;
use crate::routing::report::ModelReport;
use crate::routing::runner::RunnerOptions;
use crate::routing::upstream::Holding;

/// A model that was told to go is still listed in memory while the engine frees it.
const LEAVING: Duration = Duration::from_secs(5);

/// What a first byte told of times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Learnt {
    /// Loading the model took so long.
    pub load_s: Option<f64>,
    /// Reading the prompt did.
    pub prefill_s: Option<f64>,
    /// What that teaches waits for the end, where the engine tells how much of the prompt was cached.
    pub left_to_the_end: bool,
}

impl Holding {
    pub(super) fn unload(&mut self, now: Moment) {
        if self.resident {
            self.unloaded_at = Some(now);
        }
        self.resident = false;
        self.told_to_unload_at = Some(now);
    }

    /// Whether a reading that was asked for then may still show a model that was told to go.
    pub(super) fn is_leaving(&self, asked_at: Moment) -> bool {
        self.told_to_unload_at.is_some_and(|told_at| asked_at.since(told_at) < LEAVING)
    }

    pub(super) fn learn(&mut self, model: &ModelReport, fixed: bool, asked_at: Moment, now: Moment) {
        self.listed = true;
        self.weights_bytes = model.size_bytes.or(self.weights_bytes);
        self.resident_bytes = model.resident_bytes.or(self.resident_bytes);
        self.runner.trained_tokens = model.trained_tokens.or(self.runner.trained_tokens);
        // Not kept when it is gone: an edition without a window of its own may have come.
        self.runner.own_window = model.own_window;
        if let Some(told) = model.context_tokens
            && self.runner.learn_window(told, self.context_tokens, asked_at)
        {
            self.context_tokens = Some(told);
        }
        self.abilities = model.abilities.or(self.abilities);
        self.gives_way &= model.resident;
        if fixed || (model.resident && !self.is_leaving(asked_at) && !self.gives_way) {
            self.resident = true;
            self.resident_at = asked_at.max(self.resident_at);
        } else if self.resident && self.resident_at < asked_at {
            self.resident = false;
            self.unloaded_at = Some(now);
            self.runner.forget();
        }
    }

    /// The model is answering its first request since nothing was known of how it was loaded.
    pub(super) fn learn_served(&mut self, sent: RunnerOptions, was_cold: bool, now: Moment) {
        let before = self.context_tokens;
        let loaded = self.runner.serves(sent, before, now);
        self.context_tokens = match sent.num_ctx() {
            Some(_) if was_cold => loaded,
            None if was_cold => loaded.or(before),
            _ => before.or(loaded),
        };
    }

    pub(super) fn learn_first_byte(
        &mut self,
        lease: LeaseId,
        booking: &Booking,
        placed: Option<Placed>,
        now: Moment,
    ) -> Learnt {
        let learnt = self.learn_prefill(lease, booking, placed, now);
        self.line.leave(lease, now);
        if let Some(sent) = booking.sent.filter(|_| !self.runner.has_served()) {
            self.learn_served(sent, booking.start == Start::ColdModel, now);
        }
        self.resident = true;
        self.resident_at = now;
        self.told_to_unload_at = None;
        self.gives_way = false;
        self.progress_at = now;
        self.loading_since = None;
        self.answering += 1;
        self.answers.push((lease, now));
        self.answering_peak = self.answering_peak.max(self.answering);
        learnt
    }

    /// A first token tells how long its prompt took: since its node was idle, or since the first token of the
    /// one before it in line. With a load in between it tells how long that took.
    fn learn_prefill(&mut self, lease: LeaseId, booking: &Booking, placed: Option<Placed>, now: Moment) -> Learnt {
        let mut learnt = Learnt::default();
        let Some(placed) = placed.filter(|_| self.line.is_first(lease)) else { return learnt };
        let work = Work::of(booking.prompt_tokens, placed.found);
        if booking.start == Start::ColdModel && self.loading_since == Some(booking.booked_at) {
            let prefill_s = self.speed.prefill().map_or(0.0, |cost| cost.seconds(work));
            let load_s = (now.since(booking.booked_at).as_secs_f64() - prefill_s).max(0.0);
            self.speed.learn_load(load_s);
            learnt.load_s = Some(load_s);
        } else if booking.start != Start::Foreign {
            let began_at = placed.at.max(self.line.began_at());
            let prefill_s = now.since(began_at).as_secs_f64();
            learnt.prefill_s = Some(prefill_s);
            learnt.left_to_the_end = self.tells_cached;
            if !self.tells_cached {
                self.speed.learn_prefill(work, prefill_s, now);
            }
        }
        learnt
    }

    pub(super) fn learn_end(&mut self, lease: LeaseId, booking: &Booking, outcome: Outcome, now: Moment) {
        self.running -= 1;
        self.batch_running -= u32::from(booking.priority == Priority::Batch);
        self.line.leave(lease, now);
        self.answers.retain(|(of, _)| *of != lease);
        if self.running == 0 {
            self.gives_way = false;
            self.loading_since = None;
        }
        let Some(first_byte_at) = booking.first_byte_at else {
            if booking.start == Start::ColdModel && booking.sent.is_some() {
                // Whether it was loaded after all, nobody knows.
                self.runner.forget();
            }
            return;
        };
        self.answering -= 1;
        let Outcome::Done { output_tokens, cached } = outcome else { return };
        self.tells_cached = cached.is_some();
        if let Some((seconds, cached)) = booking.read_s.zip(cached) {
            // In our own count of tokens, which is that of all forecasts.
            let share = f64::from(cached.cached_tokens) / f64::from(cached.prompt_tokens.max(1));
            let found = (share.min(1.0) * f64::from(booking.prompt_tokens)) as u32;
            self.speed.learn_prefill(Work::of(booking.prompt_tokens, found), seconds, now);
        }
        self.progress_at = now;
        self.usage.add(0, output_tokens.unwrap_or(0), now);
        if booking.start == Start::FreeSlot {
            self.speed.learn_service(now.since(booking.booked_at).as_secs_f64());
        }
        self.speed.learn_answer(output_tokens, now.since(first_byte_at).as_secs_f64());
    }
}
