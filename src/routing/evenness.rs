//! Who has had more of the requests of late than was their due, for `expected_ttft`.
//!
//! Of each request that is booked every node that could have had it is due its share of their speed for that request, and
//! one of them gets it. A node that gets more than its due is ahead, by the part of its due that is beyond it. Both sums
//! fade, so that what is long past does not count; there are two numbers a node, whatever the traffic. An idle node
//! is never held to be ahead: nobody is better off if it stays idle.

use std::time::Duration;

use super::ask::Ask;
use super::estimate::Work;
use super::fleet::{Fleet, UpstreamId};
use super::moment::Moment;
use super::policy::Policy;
use super::select::{Decision, Row};
use super::upstream::{Holding, Upstream};

/// What is so old weighs half.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// So many requests that are neither due nor given stand beside both sums: few requests say little.
const DOUBTED: f64 = 3.0;

/// As full as a node must be to pay all that being ahead costs.
const BUSY: f64 = 0.5;

/// Half-lives after which the sums are written anew, far from where weights would overflow.
const SPAN: f64 = 32.0;

/// Requests that one node got and was due, each by its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    got: f64,
    due: f64,
}

/// What a request weighs: the later it comes the more, which spares writing down what fades.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    began: Moment,
}

impl Tally {
    /// By how much of its due a node is ahead that is `depth` of its slots full, where a request weighs so much now.
    pub fn ahead(&self, depth: f64, weight: f64) -> f64 {
        let beyond = (self.got - self.due).max(0.0);
        beyond / (self.due + DOUBTED * weight) * (depth / BUSY).clamp(0.0, 1.0)
    }
}

impl Weights {
    pub fn at(&self, now: Moment) -> f64 {
        self.age(now).exp2()
    }

    fn age(&self, now: Moment) -> f64 {
        now.since(self.began).as_secs_f64() / HALF_LIFE.as_secs_f64()
    }
}

impl Fleet {
    /// A request is booked `to` one of the rows of its decision, and was due to all of them. Other policies do not look at
    /// it, and do not pay for it.
    pub fn share_out(&mut self, decision: &Decision, to: UpstreamId, ask: &Ask, now: Moment) {
        if decision.policy != Policy::ExpectedTtft || !ask.endpoint.runs_model() {
            return;
        }
        if self.weights.age(now) > SPAN {
            self.begin_weights(now);
        }
        let weight = self.weights.at(now);
        let paces = self.paces(&decision.rows, ask);
        let each = weight / paces.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        for (row, pace) in decision.rows.iter().zip(paces) {
            self.upstreams[row.upstream].tally.due += each * pace;
        }
        self.upstreams[to].tally.got += weight;
    }

    fn begin_weights(&mut self, now: Moment) {
        let kept = 1.0 / self.weights.at(now);
        for upstream in self.upstreams.iter_mut() {
            let Tally { got, due } = upstream.tally;
            upstream.tally = Tally { got: kept * got, due: kept * due };
        }
        self.weights = Weights { began: now };
    }

    /// Such requests in a second that each could do. Where none was seen yet, memory bandwidth and slots say it, by what
    /// they come to where some were.
    fn paces(&self, rows: &[Row], ask: &Ask) -> Vec<f64> {
        let nodes = rows.iter().map(|row| (self.holding(row.holding), &self.upstreams[row.upstream]));
        let nodes: Vec<(f64, Option<f64>)> = nodes.map(|node| (strength(node), pace(node, ask))).collect();
        let known = nodes.iter().filter_map(|(strength, pace)| Some((strength, (*pace)?)));
        let (strengths, paces) = known.fold((0.0, 0.0), |sums, (strength, pace)| (sums.0 + strength, sums.1 + pace));
        let by_strength = if strengths > 0.0 { paces / strengths } else { 1.0 };
        nodes.into_iter().map(|(strength, pace)| pace.unwrap_or(by_strength * strength)).collect()
    }
}

/// Taken for a node's memory bandwidth where it is not configured.
const BANDWIDTH_BYTES_S: f64 = 400e9;

fn strength((holding, upstream): (&Holding, &Upstream)) -> f64 {
    let bandwidth = upstream.spec.bandwidth_bytes_s.unwrap_or(BANDWIDTH_BYTES_S);
    bandwidth * f64::from(upstream.slots(holding).count)
}

/// Seconds of a node's that a request takes: it computes one prompt at a time and writes as many answers at once as it
/// has slots, so that it is the longer of two, the prompt's time and a slot's part of prompt and answer together.
pub fn own_s(prefill_s: f64, answer_s: f64, slots: u32) -> f64 {
    prefill_s.max((prefill_s + answer_s) / f64::from(slots.max(1)))
}

fn pace((holding, upstream): (&Holding, &Upstream), ask: &Ask) -> Option<f64> {
    let prefill_s = holding.speed.prefill()?.seconds(Work::of(ask.prompt_tokens, 0));
    let answer_s = holding.speed.answer_s(ask.max_output_tokens)?;
    let seconds = own_s(prefill_s, answer_s, upstream.slots(holding).count);
    (seconds > 0.0).then(|| 1.0 / seconds)
}

#[cfg(test)]
mod tests;
