//! A fleet, its nodes as they really are, and the requests under way, one step after another.
//!
//! What a gateway does with a request is done here in its plainest form: decide and book in one step, send,
//! move on where `routing::retry` allows it, end the lease once. The world keeps its own count of
//! who runs where, and compares.

use std::collections::BTreeMap;
use std::time::Duration;

use warmgate::routing::chain::mix;
use warmgate::routing::fleet::{Fleet, LeaseId, Outcome, Rules, UpstreamId};
use warmgate::routing::group::{Group, Groups, Target};
use warmgate::routing::laws;
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::routing::retry::Cause;
use warmgate::routing::select::{Row, decide};
use warmgate::routing::signal::Signals;
use warmgate::sim::engine::{Event, Refused, What};

use crate::Course;
use crate::chance::Chance;
use crate::node::{Health, MODELS, Node};
use crate::request::{ATTEMPTS, Attempt, Conversation, Request};
use crate::step::Step;
use crate::watch;

const NODES_AT_START: usize = 4;
const NODES_MAX: usize = 10;
const CONVERSATIONS_MAX: usize = 40;
/// A client with more under way would wait for one to end.
const REQUESTS_MAX: usize = 60;
/// Long enough for any load and any queue of theirs.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

pub struct World {
    pub last: Option<Step>,
    chance: Chance,
    now: Moment,
    fleet: Fleet,
    nodes: Vec<Node>,
    requests: BTreeMap<u64, Request>,
    conversations: Vec<Conversation>,
    ended: Vec<LeaseId>,
    numbers: u64,
    course: Course,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut chance = Chance::new(seed);
        let rules = rules(&[], &mut chance);
        let mut world = World {
            last: None,
            chance,
            now: Moment::from_secs(1),
            fleet: Fleet::new(rules),
            nodes: Vec::new(),
            requests: BTreeMap::new(),
            conversations: Vec::new(),
            ended: Vec::new(),
            numbers: 0,
            course: Course::default(),
        };
        (0..NODES_AT_START).for_each(|_| world.join());
        for at in 0..world.nodes.len() {
            world.probe(at, true);
            world.poll_begins(at);
            world.poll_ends(at);
        }
        world
    }

    /// Lets some time pass, takes one step and looks at the laws.
    pub fn step(&mut self) -> Result<(), String> {
        // Mostly a moment; now and then long enough for everything to be old.
        let longest = if self.chance.one_in(50) { 40_000 } else { 400 };
        self.now = self.now + Duration::from_millis(self.chance.below(longest) as u64);
        self.hear()?;
        let step = Step::draw(&mut self.chance);
        self.last = Some(step);
        self.take(step)?;
        self.laws()
    }

    /// Everything is mended and everybody waits: no request is left over.
    pub fn finish(&mut self) -> Result<Course, String> {
        for at in 0..self.nodes.len() {
            if self.nodes[at].health == Health::Hung {
                self.nodes[at].health = Health::Up;
            }
        }
        let patience = self.now + PATIENCE;
        let up = |node: &&Node| node.health == Health::Up;
        while let Some(next) = self.nodes.iter().filter(up).filter_map(|node| node.engine.next_event()).min() {
            if next > patience || self.requests.is_empty() {
                break;
            }
            self.now = self.now.max(next);
            self.hear()?;
            self.laws()?;
        }
        let left = self.requests.len();
        let in_flight: u32 = self.fleet.upstreams().map(|(_, upstream)| upstream.in_flight).sum();
        if left > 0 || in_flight > 0 || self.fleet.live_leases() > 0 {
            return Err(format!("L11: {left} requests never ended; L1: {in_flight} in flight"));
        }
        Ok(self.course.clone())
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Wait => {}
            Step::Arrive => return self.arrive(),
            Step::Continue => return self.continues(),
            Step::ClientLeaves => self.client_leaves(),
            Step::Join => self.join(),
            Step::NodeDies => {
                if let Some(at) = self.node_in(|health| health != Health::Dead) {
                    for request in self.nodes[at].die() {
                        self.breaks_off(request)?;
                    }
                }
            }
            Step::NodeReturns => self.turn(Health::Dead, Health::Up),
            Step::NodeHangs => self.turn(Health::Up, Health::Hung),
            Step::NodeThaws => self.turn(Health::Hung, Health::Up),
            Step::NodeSlows => self.some_node(|node, _| node.slowness = 8.0),
            Step::NodeRecovers => self.some_node(|node, _| node.slowness = 1.0),
            Step::EngineFails => return self.attempt_ends(false, Some(Cause::EngineFailed)),
            Step::FirstByteLate => return self.attempt_ends(false, Some(Cause::FirstByteLate)),
            Step::AnswerCut => return self.attempt_ends(true, None),
            Step::ModelDeleted => self.some_node(|node, chance| node.deleted.push(chance.pick(&MODELS).0)),
            Step::ModelRestored => self.some_node(|node, _| node.deleted.clear()),
            Step::PollBegins => self.each(World::poll_begins),
            Step::PollEnds => self.each(World::poll_ends),
            Step::PollFails => self.some_node(|node, _| drop(node.polls.pop())),
            Step::Probe => self.each(|world, at| {
                let up = world.nodes[at].health == Health::Up;
                world.probe(at, up);
            }),
            Step::ProbeErrs => self.each(|world, at| {
                let up = world.nodes[at].health == Health::Up;
                world.probe(at, !up);
            }),
            Step::Reload => {
                let nodes: Vec<UpstreamId> = self.nodes.iter().map(|node| node.id).collect();
                self.fleet.rules = rules(&nodes, &mut self.chance);
            }
            Step::LeaseEndsAgain => return self.lease_ends_again(),
        }
        Ok(())
    }

    // === requests ===

    fn arrive(&mut self) -> Result<(), String> {
        let conversation = Conversation::draw(&mut self.chance);
        let kept = (!self.chance.one_in(6)).then(|| {
            if self.conversations.len() < CONVERSATIONS_MAX {
                self.conversations.push(conversation.clone());
                self.conversations.len() - 1
            } else {
                let at = self.chance.below(CONVERSATIONS_MAX);
                self.conversations[at] = conversation.clone();
                at
            }
        });
        self.ask(&conversation, kept)
    }

    fn continues(&mut self) -> Result<(), String> {
        if self.conversations.is_empty() {
            return Ok(());
        }
        let at = self.chance.below(self.conversations.len());
        let conversation = self.conversations[at].clone();
        self.ask(&conversation, Some(at))
    }

    fn ask(&mut self, conversation: &Conversation, at: Option<usize>) -> Result<(), String> {
        if self.requests.len() >= REQUESTS_MAX {
            return Ok(());
        }
        self.numbers += 1;
        let request = Request::of(conversation, at, self.numbers, &mut self.chance);
        self.requests.insert(self.numbers, request);
        self.attempt(self.numbers)
    }

    /// Decides, books and sends, until somebody takes the request or nobody is left.
    fn attempt(&mut self, number: u64) -> Result<(), String> {
        while let Some(request) = self.requests.get_mut(&number) {
            let query = &request.query;
            let decision = decide(&self.fleet, query, self.now);
            watch::decision(&self.fleet, query, &request.tried, &decision, self.now)?;
            let chosen = decision.rows.first();
            let mark = chosen.map_or(0, |row| mix(u64::from(row.upstream.0) + 1, row.score.to_bits()));
            self.course.trace = mix(mix(self.course.trace, self.now.0), mix(number, mark));
            let (Some(row), true) = (chosen, request.attempts < ATTEMPTS) else {
                self.course.refused += u64::from(request.attempts == 0);
                self.course.failed += u64::from(request.attempts > 0);
                self.requests.remove(&number);
                return Ok(());
            };
            request.attempts += 1;
            self.course.moved += u64::from(request.attempts > 1);
            if let Err(cause) = self.send(number, row) {
                self.move_on(number, row, cause);
                continue;
            }
            return Ok(());
        }
        Ok(())
    }

    /// Books, and brings the request to the node; what a node says at once is the error.
    fn send(&mut self, number: u64, row: &Row) -> Result<(), Cause> {
        let Some(request) = self.requests.get_mut(&number) else { return Ok(()) };
        let lease = self.fleet.book(row, &request.query.ask, self.now);
        let model = self.fleet.holding_name(row.holding).to_owned();
        let node = &mut self.nodes[row.upstream.0 as usize];
        let taken = match node.health {
            Health::Dead => Err(Cause::ConnectFailed),
            Health::Up | Health::Hung => node.submit(self.now, request.job(&model)).map_err(|refused| match refused {
                Refused::Busy => Cause::Unavailable(503),
                Refused::UnknownModel => Cause::ModelGone,
                Refused::TooLarge => Cause::EngineFailed,
            }),
        };
        match taken {
            Ok(job) => {
                node.jobs.insert(job, number);
                let attempt = Attempt { lease, upstream: row.upstream, holding: row.holding, job, begun: false };
                request.current = Some(attempt);
                Ok(())
            }
            Err(cause) => {
                self.end(lease, if cause.is_failure() { Outcome::Failed } else { Outcome::Void });
                Err(cause)
            }
        }
    }

    /// Remembers what an ended attempt taught, so that the next one goes elsewhere.
    fn move_on(&mut self, number: u64, row: &Row, cause: Cause) {
        if cause == Cause::ModelGone {
            self.fleet.learn_gone(row.holding);
        }
        if let Some(request) = self.requests.get_mut(&number) {
            request.tries(row.upstream, row.holding);
            request.current = None;
        }
    }

    /// A connection is gone: before the first byte the request moves on, after it the answer is cut.
    fn breaks_off(&mut self, number: u64) -> Result<(), String> {
        let Some(current) = self.requests.get_mut(&number).and_then(|request| request.current.take()) else {
            return Err(format!("request {number} ran nowhere"));
        };
        self.end(current.lease, Outcome::Failed);
        if current.begun {
            self.course.cut += 1;
            self.requests.remove(&number);
            return Ok(());
        }
        if let Some(request) = self.requests.get_mut(&number) {
            request.tries(current.upstream, current.holding);
        }
        self.attempt(number)
    }

    /// One running attempt, with or without its first byte, ends badly.
    fn attempt_ends(&mut self, begun: bool, cause: Option<Cause>) -> Result<(), String> {
        let Some((number, current)) = self.some_request(|attempt| attempt.begun == begun) else { return Ok(()) };
        let node = &mut self.nodes[current.upstream.0 as usize];
        node.jobs.remove(&current.job);
        node.engine.cancel(self.now, current.job);
        if cause.is_none_or(Cause::may_move) {
            return self.breaks_off(number);
        }
        self.end(current.lease, Outcome::Failed);
        self.course.failed += 1;
        self.requests.remove(&number);
        Ok(())
    }

    fn client_leaves(&mut self) {
        let Some((number, current)) = self.some_request(|_| true) else { return };
        let node = &mut self.nodes[current.upstream.0 as usize];
        node.jobs.remove(&current.job);
        node.engine.cancel(self.now, current.job);
        self.end(current.lease, Outcome::Void);
        self.requests.remove(&number);
        self.course.left += 1;
    }

    fn lease_ends_again(&mut self) -> Result<(), String> {
        let (Some(lease), Some(request)) = (self.ended.last().copied(), self.requests.values().next()) else {
            return Ok(());
        };
        let before = self.counts();
        self.fleet.first_byte(lease, &request.query.ask, self.now);
        self.fleet.end(lease, Outcome::Failed, self.now);
        if self.counts() == before { Ok(()) } else { Err("L2: a lease ended twice".into()) }
    }

    fn end(&mut self, lease: LeaseId, outcome: Outcome) {
        self.fleet.end(lease, outcome, self.now);
        self.ended.push(lease);
        if self.ended.len() > 100 {
            self.ended.remove(0);
        }
    }

    // === nodes ===

    /// What the engines that live have to say.
    fn hear(&mut self) -> Result<(), String> {
        for at in 0..self.nodes.len() {
            if self.nodes[at].health != Health::Up {
                continue;
            }
            for event in self.nodes[at].engine.advance(self.now) {
                self.heard(at, event)?;
            }
        }
        Ok(())
    }

    fn heard(&mut self, at: usize, event: Event) -> Result<(), String> {
        // Of jobs that were given up, nothing is heard any more but what was said before.
        let Some(&number) = self.nodes[at].jobs.get(&event.job) else { return Ok(()) };
        let Some(request) = self.requests.get_mut(&number) else {
            return Err(format!("request {number} is gone and its job runs"));
        };
        let Some(current) = &mut request.current else { return Err(format!("request {number} runs nowhere")) };
        if matches!(event.what, What::FirstToken(_) | What::Done(_)) && !current.begun {
            current.begun = true;
            self.fleet.first_byte(current.lease, &request.query.ask, self.now);
        }
        let What::Done(usage) = event.what else { return Ok(()) };
        let (lease, conversation) = (current.lease, request.conversation);
        self.end(lease, Outcome::Done { output_tokens: Some(usage.output_tokens) });
        self.nodes[at].jobs.remove(&event.job);
        self.requests.remove(&number);
        self.course.answered += 1;
        if let Some(at) = conversation {
            self.conversations[at].goes_on(&mut self.chance);
        }
        Ok(())
    }

    fn join(&mut self) {
        if self.nodes.len() < NODES_MAX {
            let (spec, node) = Node::draw(self.nodes.len(), &mut self.chance);
            let id = self.fleet.join(spec);
            self.nodes.push(node(id));
        }
    }

    fn turn(&mut self, from: Health, to: Health) {
        if let Some(at) = self.node_in(|health| health == from) {
            self.nodes[at].health = to;
        }
    }

    fn probe(&mut self, at: usize, up: bool) {
        let node = &self.nodes[at];
        if up {
            self.fleet.learn_engine(node.id, node.traits());
        }
        self.fleet.learn_health(node.id, up);
    }

    fn poll_begins(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.health == Health::Up && node.polls.len() < 3 {
            let asked = self.fleet.asked(node.id, self.now);
            // Settled when it was asked, or only when the answer comes.
            let report = self.chance.one_in(2).then(|| node.report());
            node.polls.push((asked, report));
        }
    }

    fn poll_ends(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.health != Health::Up || node.polls.is_empty() {
            return;
        }
        let (asked, report) = node.polls.remove(self.chance.below(node.polls.len()));
        let report = report.unwrap_or_else(|| node.report());
        self.fleet.learn_report(node.id, &report, asked, self.now);
    }

    // === chance ===

    fn each(&mut self, act: impl FnOnce(&mut World, usize)) {
        let at = self.chance.below(self.nodes.len());
        act(self, at);
    }

    fn some_node(&mut self, act: impl FnOnce(&mut Node, &mut Chance)) {
        let at = self.chance.below(self.nodes.len());
        act(&mut self.nodes[at], &mut self.chance);
    }

    fn node_in(&mut self, which: impl Fn(Health) -> bool) -> Option<usize> {
        let found: Vec<usize> = (0..self.nodes.len()).filter(|at| which(self.nodes[*at].health)).collect();
        (!found.is_empty()).then(|| *self.chance.pick(&found))
    }

    fn some_request(&mut self, which: impl Fn(&Attempt) -> bool) -> Option<(u64, Attempt)> {
        let current = self.requests.iter().filter_map(|(number, request)| Some((*number, request.current?)));
        let found: Vec<(u64, Attempt)> = current.filter(|(_, attempt)| which(attempt)).collect();
        (!found.is_empty()).then(|| *self.chance.pick(&found))
    }

    // === laws ===

    fn laws(&self) -> Result<(), String> {
        laws::broken(&self.fleet)?;
        let mut running: BTreeMap<UpstreamId, u32> = BTreeMap::new();
        for request in self.requests.values() {
            let Some(current) = request.current else { return Err("L11: a request runs nowhere".into()) };
            *running.entry(current.upstream).or_default() += 1;
        }
        for (id, upstream) in self.fleet.upstreams() {
            let ours = running.get(&id).copied().unwrap_or(0);
            if upstream.in_flight != ours {
                return Err(format!("L1: {} counts {}, and {ours} run there", upstream.spec.name, upstream.in_flight));
            }
        }
        if self.fleet.live_leases() == self.requests.len() { Ok(()) } else { Err("L2: a lease too many".into()) }
    }

    fn counts(&self) -> Vec<(u32, bool, u32)> {
        let count = |upstream: &warmgate::routing::upstream::Upstream| {
            let running = self.fleet.live_leases() as u32;
            (upstream.in_flight, upstream.record.trust(self.now) < 1.0, running)
        };
        self.fleet.upstreams().map(|(_, upstream)| count(upstream)).collect()
    }
}

fn rules(nodes: &[UpstreamId], chance: &mut Chance) -> Rules {
    let target = |upstream: &UpstreamId| Target {
        upstream: *upstream,
        model: MODELS[upstream.0 as usize % MODELS.len()].0.into(),
        weight: 1.0,
        rpm: Some(20),
        tpm: None,
        cost: Some(1.0),
    };
    let group = Group {
        name: "group".into(),
        targets: nodes.iter().map(target).collect(),
        fallbacks: vec!["fern:3b".into()],
        policy: None,
    };
    Rules {
        policy: if chance.one_in(2) { Policy::Fleet } else { chance.pick(&Policy::NAMES).1 },
        groups: Groups::new(vec![group]),
        max_fallbacks: 5,
        signals: Signals::default(),
        session_ttl: Duration::from_secs(60),
        max_sessions: 20,
        stale_after: Duration::from_secs(5 + chance.below(20) as u64),
    }
}
