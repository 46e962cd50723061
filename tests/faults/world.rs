//! A fleet, its nodes as they really are, and the requests under way, one step after another.
//!
//! What a gateway does with a request is done here in its plainest form: decide and book in one step, send,
//! move on where `routing::retry` allows it, end the lease once. The world keeps its own count of
//! who runs where, and compares.

mod laws;
mod nodes;
mod placing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use warmgate::routing::admission::Admission;
use warmgate::routing::breaker::BreakerRules;
use warmgate::routing::chain::mix;
use warmgate::routing::fleet::{Cached, Fleet, HoldingId, LeaseId, Outcome, Rules, UpstreamId};
use warmgate::routing::group::{Group, Groups, Target};
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::routing::queue::WaiterId;
use warmgate::routing::retry::{Cause, Phase};
use warmgate::routing::select::{Decision, Elsewhere, Query, decide, elsewhere};
use warmgate::routing::stuck::SilenceLimits;
use warmgate::routing::upstream::Spec;
use warmgate::sim::engine::{Event, Refused, What};

use crate::Course;
use crate::chance::Chance;
use crate::node::{Health, MODELS, Node};
use crate::request::{ATTEMPTS, Attempt, Conversation, Request, Waiting};
use crate::step::Step;
use crate::watch;

const NODES_AT_START: usize = 4;
const NODES_MAX: usize = 10;
const CONVERSATIONS_MAX: usize = 40;
/// A client with more under way would wait for one to end.
const REQUESTS_MAX: usize = 60;
/// Long enough for all who wait, one after the other.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);
/// Longer than any cooldown and any wait that an engine may ask for.
const REPAIR: Duration = Duration::from_secs(700);
/// Later comers that may be given a place which somebody waits for: other classes, tenants and sessions
/// have their turns, newcomers no more of them than those who wait.
const PASSED_MAX: u64 = 16;

pub struct World {
    pub last: Option<Step>,
    chance: Chance,
    now: Moment,
    fleet: Fleet,
    nodes: Vec<Node>,
    requests: BTreeMap<u64, Request>,
    conversations: Vec<Conversation>,
    ended: Vec<LeaseId>,
    /// Nodes that have left, and with what they had.
    left: BTreeSet<UpstreamId>,
    /// Who waits in the core's queue.
    waiters: BTreeMap<WaiterId, u64>,
    /// Booked from the queue, and to be sent.
    to_send: VecDeque<u64>,
    queue_timeout: Duration,
    joined: usize,
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
            left: BTreeSet::new(),
            waiters: BTreeMap::new(),
            to_send: VecDeque::new(),
            queue_timeout: Duration::from_secs(20),
            joined: 0,
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
        self.pass_time()?;
        let step = Step::draw(&mut self.chance);
        self.last = Some(step);
        self.take(step)?;
        self.settle()?;
        if self.fleet.upstreams().any(|(id, _)| self.fleet.holdings_of(id).any(|held| held.breaker.opening().is_some()))
        {
            self.course.count("met an open breaker");
        }
        if self.numbers.is_multiple_of(4) {
            self.nobody_is_wedged()?;
        }
        self.laws()
    }

    /// Everything is mended and everybody waits: all are served, and every node is in use again.
    pub fn finish(&mut self) -> Result<Course, String> {
        self.last = None;
        self.mend();
        self.requests.values_mut().for_each(|request| request.deadline = Moment::MAX);
        let (patience, settled) = (self.now + PATIENCE, self.now + REPAIR);
        while self.now < settled || !self.requests.is_empty() {
            if self.now > patience {
                break;
            }
            self.now = self.now + Duration::from_secs(if self.requests.is_empty() { 50 } else { 5 });
            for at in 0..self.nodes.len() {
                self.nodes[at].polls.clear();
                self.probe(at, true);
                self.poll_begins(at);
                self.poll_ends(at);
            }
            self.pass_time()?;
            self.laws()?;
        }
        let in_flight: u32 = self.fleet.upstreams().map(|(_, upstream)| upstream.in_flight).sum();
        let counts = [self.requests.len(), self.fleet.queue.len(), in_flight as usize, self.fleet.live_leases()];
        if counts != [0; 4] {
            return Err(format!("L11: requests, waiting, in flight, leases at the end: {counts:?}"));
        }
        self.all_came_back()?;
        Ok(self.course.clone())
    }

    /// Every node, and every model on it that it could ever load, takes requests again.
    fn all_came_back(&self) -> Result<(), String> {
        for (id, upstream) in self.fleet.upstreams() {
            if self.left.contains(&id) {
                return Err(format!("{} has left, has nothing to do and is still there", upstream.spec.name));
            }
            if !upstream.is_open(self.now) {
                return Err(format!("{} never came back", upstream.spec.name));
            }
            for held in self.fleet.holdings_of(id) {
                if held.waiting != 0 || held.running != 0 || held.breaker.bar(self.now).is_some() {
                    return Err(format!("{} on {} never came back", held.name, upstream.spec.name));
                }
            }
        }
        Ok(())
    }

    /// What comes with time: answers, hung nodes found out, queue timeouts, a look over the queue.
    fn pass_time(&mut self) -> Result<(), String> {
        self.hear()?;
        self.move_the_stuck()?;
        let late =
            self.requests.iter().filter(|(_, request)| request.waiting.is_some() && request.deadline <= self.now);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            let best = self.leave_queue(number).and_then(|waiting| waiting.best);
            // What its refusal would say.
            best.and_then(|best| self.fleet.wait_s(best));
            self.requests.remove(&number);
            self.course.count("waited too long");
        }
        self.look_over_queue()?;
        self.settle()
    }

    fn move_the_stuck(&mut self) -> Result<(), String> {
        for lease in self.fleet.sweep(self.now) {
            let running = self.requests.iter().find_map(|(number, request)| {
                let current = request.current.filter(|current| current.lease == lease)?;
                Some((*number, current, request.query.clone(), request.attempts))
            });
            let Some((number, current, query, attempts)) = running else { continue };
            if current.begun {
                return Err("a request that is being answered was to move".into());
            }
            let other = elsewhere(&self.fleet, &query, current.holding, self.now);
            if attempts < ATTEMPTS && other == Elsewhere::Somewhere {
                self.stop_job(&current);
                self.course.count("moved from a hung node");
                self.fails(number, Cause::Ejected)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Wait => {}
            Step::Arrive => return self.arrive(),
            Step::Continue => return self.continues(),
            Step::ClientLeaves => return self.client_leaves(),
            Step::Join => self.join(),
            Step::NodeDies => {
                if let Some(at) = self.node_in(|health| health != Health::Dead) {
                    for request in self.nodes[at].die() {
                        self.fails(request, Cause::ConnectionLost)?;
                    }
                }
            }
            Step::NodeReturns => self.turn(Health::Dead, Health::Up),
            Step::NodeHangs => self.turn(Health::Up, Health::Hung),
            Step::NodeThaws => self.turn(Health::Hung, Health::Up),
            Step::NodeSlows => self.some_node(|node, _| node.slowness = 8.0),
            Step::NodeRecovers => self.some_node(|node, _| node.slowness = 1.0),
            Step::EngineFails => {
                let causes = [Cause::EngineFailed, Cause::Unavailable(502), Cause::KeyRefused, Cause::Empty];
                let cause = *self.chance.pick(&causes);
                return self.attempt_ends(false, cause);
            }
            Step::FirstByteLate => return self.attempt_ends(false, Cause::FirstByteLate),
            Step::AnswerCut => return self.attempt_ends(true, Cause::ConnectionLost),
            Step::ModelDeleted => self.some_node(|node, chance| node.deleted.push(chance.pick(&MODELS).0)),
            Step::ModelRestored => self.some_node(|node, _| node.deleted.clear()),
            Step::PollBegins => self.each(World::poll_begins),
            Step::PollEnds => self.each(World::poll_ends),
            Step::PollFails => self.some_node(|node, _| drop(node.polls.pop())),
            Step::Probe => self.each(|world, at| {
                let up = world.nodes[at].answers();
                world.probe(at, up);
            }),
            Step::ProbeErrs => self.each(|world, at| {
                let up = world.nodes[at].answers();
                world.probe(at, !up);
            }),
            Step::Reload => {
                let nodes: Vec<UpstreamId> = self.nodes.iter().map(|node| node.id).collect();
                let made = rules(&nodes, &mut self.chance);
                // The queue's limit stays for as long as the process.
                let max_queue = self.fleet.rules.admission.max_queue;
                self.fleet.rules = Rules { admission: Admission { max_queue, ..made.admission.clone() }, ..made };
            }
            Step::LeaseEndsAgain => return self.lease_ends_again(),
            Step::NodeLeaves => self.node_leaves(),
            Step::LateNews => self.late_news(),
            Step::NodeDrains => self.each(|world, at| world.fleet.drain(world.nodes[at].id, true, world.now)),
            Step::NodeResumes => self.each(|world, at| world.fleet.drain(world.nodes[at].id, false, world.now)),
            Step::Configure => self.each(World::configure),
            Step::NodeBreaks => self.turn(Health::Up, Health::Failing),
            Step::NodeMends => self.turn(Health::Failing, Health::Up),
            Step::EngineBusy => return self.attempt_ends(false, Cause::Busy(503)),
            Step::Loading => self.each(|world, at| world.fleet.learn_loading(world.nodes[at].id)),
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
        let mut request = Request::of(conversation, at, self.numbers, &mut self.chance);
        request.deadline = self.now + self.queue_timeout;
        self.requests.insert(self.numbers, request);
        self.enter(self.numbers)
    }

    /// Brings a request to its node; what the node says at once is the error.
    fn send(&mut self, number: u64) -> Result<(), Cause> {
        let Some(request) = self.requests.get_mut(&number) else { return Ok(()) };
        let Some(current) = request.current.filter(|current| current.job.is_none()) else { return Ok(()) };
        let model = self.fleet.holding_name(current.holding).to_owned();
        let job = request.job(&model, current.sent);
        let node = self.nodes.iter_mut().find(|node| node.id == current.upstream).ok_or(Cause::ConnectFailed)?;
        let id = match node.health {
            Health::Dead => return Err(Cause::ConnectFailed),
            Health::Failing => return Err(Cause::EngineFailed),
            Health::Up | Health::Hung => node.submit(self.now, job).map_err(|refused| match refused {
                Refused::Busy => Cause::Busy(503),
                Refused::UnknownModel => Cause::ModelGone,
                Refused::TooLarge => Cause::EngineFailed,
            })?,
        };
        node.jobs.insert(id, number);
        request.current = Some(Attempt { job: Some(id), ..current });
        Ok(())
    }

    /// An attempt fails: before the first byte the request may move on, after it the answer is cut.
    fn fails(&mut self, number: u64, cause: Cause) -> Result<(), String> {
        let Some(request) = self.requests.get_mut(&number) else { return Err("nobody failed".into()) };
        let Some(current) = request.current.take() else { return Err(format!("request {number} ran nowhere")) };
        let query = request.query.clone();
        let phase = if current.begun { Phase::Answering } else { Phase::Waiting };
        let verdict = cause.verdict(phase, query.ask.endpoint.is_repeatable());
        let could = verdict.moves
            && request.attempts < ATTEMPTS
            && elsewhere(&self.fleet, &query, current.holding, self.now) > Elsewhere::Nowhere;
        let moves = could && (!verdict.spends_budget || self.fleet.retries.take(self.now));
        request.tries(current.upstream, current.holding);
        match cause {
            Cause::ModelGone => self.fleet.learn_gone(current.holding),
            Cause::Busy(_) if self.chance.one_in(2) => {
                let wait = Duration::from_secs(1 + self.chance.below(40) as u64);
                self.fleet.learn_wait(current.holding, wait, self.now);
            }
            _ => {}
        }
        if !moves {
            self.requests.remove(&number);
            self.course.count(if current.begun { "cut" } else { "failed" });
        }
        self.end(current.lease, Outcome::of(cause))?;
        if moves { self.enter(number) } else { Ok(()) }
    }

    fn stop_job(&mut self, current: &Attempt) {
        let node = self.nodes.iter_mut().find(|node| node.id == current.upstream);
        if let Some((node, job)) = node.zip(current.job) {
            node.jobs.remove(&job);
            node.engine.cancel(self.now, job);
        }
    }

    /// One running attempt, with or without its first byte, ends badly.
    fn attempt_ends(&mut self, begun: bool, cause: Cause) -> Result<(), String> {
        let Some((number, current)) = self.some_request(|attempt| attempt.begun == begun) else { return Ok(()) };
        self.stop_job(&current);
        self.fails(number, cause)
    }

    fn client_leaves(&mut self) -> Result<(), String> {
        let all: Vec<u64> = self.requests.keys().copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let number = *self.chance.pick(&all);
        let was_waiting = self.leave_queue(number).is_some();
        self.course.count(if was_waiting { "left the queue" } else { "left" });
        let Some(current) = self.requests.remove(&number).and_then(|request| request.current) else { return Ok(()) };
        self.stop_job(&current);
        self.end(current.lease, Outcome::Void)
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

    /// Ends a lease and looks over the queue, in one step.
    fn end(&mut self, lease: LeaseId, outcome: Outcome) -> Result<(), String> {
        self.fleet.end(lease, outcome, self.now);
        self.ended.push(lease);
        if self.ended.len() > 100 {
            self.ended.remove(0);
        }
        self.look_over_queue().map(drop)
    }

    // === nodes ===

    /// What the engines that live have to say.
    fn hear(&mut self) -> Result<(), String> {
        // Those that have left and have nothing more to do are gone.
        self.nodes.retain(|node| !node.has_left || !node.jobs.is_empty());
        for at in 0..self.nodes.len() {
            if !self.nodes[at].answers() {
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
        self.nodes[at].jobs.remove(&event.job);
        self.requests.remove(&number);
        self.course.count("answered");
        let cached = Cached { prompt_tokens: usage.prompt_tokens, cached_tokens: usage.cached_tokens };
        self.end(lease, Outcome::Done { output_tokens: Some(usage.output_tokens), cached: Some(cached) })?;
        if let Some(at) = conversation {
            self.conversations[at].goes_on(&mut self.chance);
        }
        Ok(())
    }

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
        admission: Admission {
            engine_queue: *chance.pick(&[0.0, 0.5, 1.0]),
            max_queue: *chance.pick(&[3, 8, 16]),
            reserve_for_interactive: *chance.pick(&[0.0, 0.0, 0.5]),
            ..Admission::default()
        },
        breaker: BreakerRules { cooldown: Duration::from_secs(5), ..BreakerRules::default() },
        silence: SilenceLimits { first_byte: Duration::from_secs(150), idle: Duration::from_secs(100) },
        policy: if chance.one_in(2) { Policy::Fleet } else { chance.pick(&Policy::NAMES).1 },
        groups: Groups::new(vec![group]),
        session_ttl: Duration::from_secs(60),
        max_sessions: 20,
        stale_after: Duration::from_secs(5 + chance.below(20) as u64),
        ..Rules::default()
    }
}
