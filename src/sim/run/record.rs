//! What came of each request, and what that amounts to.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::Number;
use super::nodes::Nodes;
use crate::routing::moment::Moment;
use crate::sim::capacity;
use crate::sim::engine::Usage;
use crate::sim::workload::Request;

#[derive(Default)]
pub struct Record {
    fates: Vec<Fate>,
    nodes: Vec<Burden>,
    loads: u64,
    ended_at: Moment,
}

/// What a node had to do, and what would have been its part.
#[derive(Clone, Default)]
struct Burden {
    requests: f64,
    /// What its part of the fleet's speed comes to, for requests of each kind.
    requests_due: f64,
    /// Seconds of its own, nothing being cached.
    work_s: f64,
    /// If everybody who has a request's model had their part of it.
    work_due_s: f64,
}

/// One request.
#[derive(Default)]
struct Fate {
    arrived_at: Moment,
    conversation: u64,
    prompt_tokens: u32,
    /// Seconds that its whole prompt takes on an idle node of the first kind that has its model.
    alone_s: f64,
    cached_tokens: u32,
    ttft: Option<Duration>,
    total: Option<Duration>,
    output_tokens: u32,
}

/// A run in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub requests: usize,
    pub refused: usize,
    /// Of the tokens of all prompts that were read, those found in a cache.
    pub cached_share: f64,
    pub ttft_mean_s: f64,
    pub ttft_p50_s: f64,
    pub ttft_p90_s: f64,
    pub ttft_p95_s: f64,
    pub ttft_p99_s: f64,
    /// From arrival to the last token.
    pub total_mean_s: f64,
    /// Requests that the busiest node for its speed had, over those that its share of the speed comes to; the
    /// speed at which each request's own kind is done there (`capacity`).
    pub hottest: f64,
    /// The same by work: seconds of its own that the busiest node was given, over those that are its part. A weak
    /// machine that has room for the small model alone does many requests that are little work, and is not
    /// hot for that; one of the few that hold the large model may be, with few requests.
    pub busiest: f64,
    /// Jain's index over the conversations' slowdowns: 1 when all wait alike for what they ask.
    pub fairness: f64,
    pub loads: u64,
    /// From the first arrival to the last token.
    pub took_s: f64,
}

impl Record {
    pub(super) fn arrives(&mut self, request: &Request, nodes: &Nodes, now: Moment) {
        let model = nodes.params().iter().find_map(|node| node.model(&request.model));
        let alone = model.map(|model| model.prefill.seconds(request.prompt_tokens, request.prompt_tokens));
        self.fates.push(Fate {
            arrived_at: now,
            conversation: request.conversation,
            prompt_tokens: request.prompt_tokens,
            alone_s: alone.unwrap_or_default(),
            ..Fate::default()
        });
        let shares = capacity::shares(nodes.params(), request);
        self.nodes.resize(shares.len(), Burden::default());
        for (node, (share, even_s)) in
            self.nodes.iter_mut().zip(shares.into_iter().zip(capacity::even_s(nodes.params(), request)))
        {
            node.requests_due += share;
            node.work_due_s += even_s;
        }
    }

    pub(super) fn sent(&mut self, node: usize, request: &Request, nodes: &Nodes) {
        if let Some((burden, params)) = self.nodes.get_mut(node).zip(nodes.params().get(node)) {
            burden.requests += 1.0;
            burden.work_s += capacity::own_s(params, request);
        }
    }

    pub(super) fn first_token(&mut self, number: Number, usage: Usage, now: Moment) {
        if let Some(fate) = self.fates.get_mut(number) {
            fate.ttft = Some(now.since(fate.arrived_at));
            fate.cached_tokens = usage.cached_tokens;
        }
    }

    pub(super) fn done(&mut self, number: Number, usage: Usage, now: Moment) {
        self.ended_at = self.ended_at.max(now);
        if let Some(fate) = self.fates.get_mut(number) {
            let total = now.since(fate.arrived_at);
            // An answer of no tokens begins as it ends.
            fate.ttft.get_or_insert(total);
            fate.cached_tokens = usage.cached_tokens;
            fate.output_tokens = usage.output_tokens;
            fate.total = Some(total);
        }
    }

    pub(super) fn finish(&mut self, nodes: &Nodes) {
        self.loads = nodes.loads();
    }

    pub fn summary(&self) -> Summary {
        let answered: Vec<&Fate> = self.fates.iter().filter(|fate| fate.ttft.is_some()).collect();
        let mut ttfts: Vec<f64> = answered.iter().filter_map(|fate| fate.ttft).map(|ttft| ttft.as_secs_f64()).collect();
        ttfts.sort_by(f64::total_cmp);
        let tokens = |of: fn(&Fate) -> u32| answered.iter().map(|fate| f64::from(of(fate))).sum::<f64>();
        let totals = answered.iter().filter_map(|fate| fate.total).map(|total| total.as_secs_f64());
        Summary {
            requests: self.fates.len(),
            refused: self.fates.len() - answered.len(),
            cached_share: over(tokens(|fate| fate.cached_tokens), tokens(|fate| fate.prompt_tokens)),
            ttft_mean_s: over(ttfts.iter().sum(), ttfts.len() as f64),
            ttft_p50_s: quantile(&ttfts, 0.5),
            ttft_p90_s: quantile(&ttfts, 0.9),
            ttft_p95_s: quantile(&ttfts, 0.95),
            ttft_p99_s: quantile(&ttfts, 0.99),
            total_mean_s: over(totals.sum(), answered.len() as f64),
            hottest: self.hottest(),
            busiest: self.busiest(),
            fairness: fairness(&answered),
            loads: self.loads,
            took_s: self.ended_at.since(self.fates.first().map_or(Moment::MAX, |fate| fate.arrived_at)).as_secs_f64(),
        }
    }

    fn hottest(&self) -> f64 {
        let sent: f64 = self.nodes.iter().map(|node| node.requests).sum();
        let due: f64 = self.nodes.iter().map(|node| node.requests_due).sum();
        let ratio = |node: &Burden| over(over(node.requests, sent), over(node.requests_due, due));
        self.nodes.iter().map(ratio).fold(0.0, f64::max)
    }

    fn busiest(&self) -> f64 {
        self.nodes.iter().map(|node| over(node.work_s, node.work_due_s)).fold(0.0, f64::max)
    }
}

/// Jain, Chiu and Hawe (1984) over each conversation's mean slowdown.
fn fairness(answered: &[&Fate]) -> f64 {
    let mut slowdowns: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for fate in answered.iter().filter(|fate| fate.alone_s > 0.0) {
        let slowdown = fate.ttft.unwrap_or_default().as_secs_f64() / fate.alone_s;
        let (sum, count) = slowdowns.entry(fate.conversation).or_default();
        (*sum, *count) = (*sum + slowdown, *count + 1.0);
    }
    let means: Vec<f64> = slowdowns.values().map(|(sum, count)| sum / count).collect();
    let (sum, squares) = (means.iter().sum::<f64>(), means.iter().map(|mean| mean * mean).sum::<f64>());
    if squares > 0.0 { sum * sum / (means.len() as f64 * squares) } else { 1.0 }
}

fn over(above: f64, below: f64) -> f64 {
    if below > 0.0 { above / below } else { 0.0 }
}

/// The smallest of `sorted` that at least that share does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let index = (share * sorted.len() as f64) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

impl Summary {
    /// The mean of runs that differ in their seed alone.
    pub fn mean(runs: &[Summary]) -> Summary {
        let count = runs.len().max(1);
        let mean = |of: fn(&Summary) -> f64| runs.iter().map(of).sum::<f64>() / count as f64;
        let whole = |of: fn(&Summary) -> usize| runs.iter().map(of).sum::<usize>() / count;
        Summary {
            requests: whole(|run| run.requests),
            refused: whole(|run| run.refused),
            cached_share: mean(|run| run.cached_share),
            ttft_mean_s: mean(|run| run.ttft_mean_s),
            ttft_p50_s: mean(|run| run.ttft_p50_s),
            ttft_p90_s: mean(|run| run.ttft_p90_s),
            ttft_p95_s: mean(|run| run.ttft_p95_s),
            ttft_p99_s: mean(|run| run.ttft_p99_s),
            total_mean_s: mean(|run| run.total_mean_s),
            hottest: mean(|run| run.hottest),
            busiest: mean(|run| run.busiest),
            fairness: mean(|run| run.fairness),
            loads: whole(|run| run.loads as usize) as u64,
            took_s: mean(|run| run.took_s),
        }
    }
}
