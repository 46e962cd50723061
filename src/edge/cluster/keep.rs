//! Keeps the connection while a cluster is configured: tells, hears, and probes.
//!
//! One after the other a connection is made, used until it breaks or hangs, and made anew. What could not be told
//! waits, the oldest is forgotten when it is too much, and all of it flows when Redis is back. A silent channel is
//! taken for a broken one: every replica hears its own heartbeat.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::PubSub;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::counts::{Operation, Result as Counted};
use super::fault::Fault;
use super::link::{ANSWER_MAX, Link};
use super::pace::PROBE_EVERY;
use super::{Cluster, stored};
use crate::config;
use crate::edge::clock::wall_ms;
use crate::edge::ingress::Ingress;
use crate::routing::chain::hash_text;
use crate::routing::elsewhere::tempo::{LIFE, Tempo};
use crate::routing::elsewhere::{Telling, Turn};
use crate::routing::moment::Moment;
use crate::wire::replicas::{Speaker, Unread, Word};

/// Nothing was heard, not even our own heartbeat: the channel is broken.
const SILENCE_MAX: Duration = Duration::from_millis(1500);

/// Turns told in one message.
const TURNS_PER_MESSAGE: usize = 2048;

/// The end of a turn from which a later one has gone on is kept that long, should it be asked again or edited. So
/// what Redis holds grows with conversations, and not with their turns.
const BEFORE_KEPT_MS: u64 = 60_000;

/// Turns learnt in one step, before others have their turn with the fleet.
const TURNS_PER_STEP: usize = 64;

/// So often is told again what was told last, after a connection is made: others may have come back a little later.
const TELLS_AGAIN: u32 = 2;

/// A pin is stored as soon as that, with those that come meanwhile: whoever has not heard of it finds it there.
const STORED_WITHIN: Duration = Duration::from_millis(2);

/// Between two attempts to connect.
const RETRY_EVERY: Duration = Duration::from_millis(250);

/// How often others who fell silent are looked for, and whether a cluster is configured.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Between two looks at what requests came to.
const SETTLE_EVERY: Duration = Duration::from_millis(20);

/// Between two looks at accounts that only say that their requests still run.
const ACCOUNTS_EVERY: Duration = Duration::from_millis(500);

pub async fn keep(ingress: Arc<Ingress>) {
    tokio::join!(forget_silent(&ingress), stay_connected(&ingress));
}

async fn forget_silent(ingress: &Ingress) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (others, has_less) = ingress.fleet.with(|fleet, now| {
            // Whoever falls silent may do so for want of Redis.
            (fleet.elsewhere.replicas(), fleet.forget_silent(now))
        });
        ingress.cluster.note_heard(others);
        if has_less {
            ingress.waiting_room.sweep();
        }
    }
}

async fn stay_connected(ingress: &Arc<Ingress>) {
    loop {
        let Some(config) = ingress.plan().cluster.clone() else {
            ingress.fleet.with(|fleet, _| fleet.elsewhere.tells = false);
            sleep(LOOK_EVERY).await;
            continue;
        };
        ingress.fleet.with(|fleet, _| fleet.elsewhere.tells = true);
        let counts = &ingress.metrics.cluster;
        let why = match Link::open(&config).await {
            Ok((link, pubsub)) => {
                counts.count(Operation::Connect, Counted::Ok);
                log::info!("cluster: agrees with other replicas over {}", config.redis);
                use_link(ingress, &config, Arc::new(link), pubsub).await
            }
            Err(why) => {
                counts.count(Operation::Connect, Counted::Error);
                why
            }
        };
        if ingress.cluster.lost(&why) {
            log::warn!("cluster: {} cannot be used: {why}; this replica goes by what it knows", config.redis);
        }
        sleep(RETRY_EVERY).await;
    }
}

/// Why it ended.
async fn use_link(ingress: &Arc<Ingress>, config: &config::Cluster, link: Arc<Link>, pubsub: PubSub) -> Fault {
    let cluster = &ingress.cluster;
    cluster.sure_since.store(ingress.fleet.now().0, Ordering::Relaxed);
    cluster.connected(link.clone());
    tokio::select! {
        why = tell(ingress, &link) => why,
        why = hear(ingress, pubsub) => why,
        why = probe(ingress, &link) => why,
        why = keep_accounts(ingress, &link) => why,
        () = is_reconfigured(ingress, config) => Fault::Reconfigured,
    }
}

async fn is_reconfigured(ingress: &Ingress, config: &config::Cluster) {
    while ingress.plan().cluster.as_ref() == Some(config) {
        sleep(LOOK_EVERY).await;
    }
}

/// Tells others what is new here: pins are stored at once, and told with what comes until it is time.
async fn tell(ingress: &Ingress, link: &Link) -> Fault {
    // The first message of a connection says all.
    let mut telling = Telling::default();
    let mut untold: Vec<(Moment, Turn)> = Vec::new();
    let mut published_at = Moment::default();
    let mut tells_again = TELLS_AGAIN;
    loop {
        if tells_again > 0 && ingress.cluster.may_tell_again() {
            tells_again -= 1;
            tell_again(ingress);
        }
        let tempo = Tempo::of(1 + ingress.fleet.with(|fleet, _| fleet.elsewhere.replicas()));
        let patience = if untold.is_empty() { tempo.loads_every } else { tempo.turns_within };
        let _ = timeout(patience, ingress.fleet.news.notified()).await;
        sleep(STORED_WITHIN).await;
        // Counts of many nodes are dear to carry, and each is heard by all: turns do not wait for them.
        let (turns, lost, loads, now) = ingress.fleet.with(|fleet, now| {
            let (turns, lost) = fleet.elsewhere.take_told(TURNS_PER_MESSAGE);
            (turns, lost, telling.is_due(&tempo, now).then(|| fleet.loads(now)), now)
        });
        ingress.metrics.cluster.dropped_turns(lost);
        // From here on they are told again with the next connection, should this one break.
        ingress.cluster.recent.lock().add(&turns, now);
        untold.extend(turns.iter().cloned());
        let is_time = now.since(published_at) >= tempo.turns_within || untold.len() >= TURNS_PER_MESSAGE;
        let loads = loads.and_then(|loads| telling.next(loads, &tempo, now));
        if (is_time && !untold.is_empty()) || loads.is_some() {
            let word = Word::new(speaker(ingress), loads, &untold, now, wall_ms());
            if let Err(why) = publish(ingress, link, word.to_bytes()).await {
                return why;
            }
            ingress.metrics.cluster.told(untold.len());
            untold.clear();
            published_at = now;
        }
        if let Err(why) = store(ingress, link, turns, now).await {
            return why;
        }
    }
}

fn speaker(ingress: &Ingress) -> Speaker {
    let in_flight = u32::try_from(ingress.fleet.with(|fleet, _| fleet.live_leases())).unwrap_or(u32::MAX);
    let Cluster { id, name, .. } = &*ingress.cluster;
    Speaker { replica: *id, name: name.clone(), fleet: fleet_of(ingress), in_flight }
}

/// What was told last may not have been heard.
fn tell_again(ingress: &Ingress) {
    let recent = ingress.cluster.recent.lock().all();
    ingress.fleet.with(|fleet, _| fleet.elsewhere.give_back(recent));
}

async fn publish(ingress: &Ingress, link: &Link, message: Vec<u8>) -> Result<(), Fault> {
    let mut command = redis::cmd("PUBLISH");
    command.arg(link.channel()).arg(message);
    done(ingress, link, Operation::Publish, link.call::<redis::Value>(&command)).await
}

/// Keeps the pins for replicas that were not there to hear of them.
async fn store(ingress: &Ingress, link: &Link, turns: Vec<(Moment, Turn)>, now: Moment) -> Result<(), Fault> {
    let (ttl_ms, wall) = (ingress.plan().affinity.ttl.0.as_millis() as u64, wall_ms());
    let mut commands = Vec::new();
    for (at, turn) in &turns {
        let age_ms = now.since(*at).as_millis() as u64;
        for (key, value) in stored::entries(&link.prefix, turn, wall.saturating_sub(age_ms)) {
            let mut command = redis::cmd("SET");
            command.arg(key).arg(value).arg("PX").arg(ttl_ms.saturating_sub(age_ms).max(1));
            commands.push(command);
        }
        if let Some(key) = stored::before(&link.prefix, turn) {
            let mut command = redis::cmd("PEXPIRE");
            command.arg(key).arg(ttl_ms.min(BEFORE_KEPT_MS));
            commands.push(command);
        }
    }
    if commands.is_empty() {
        return Ok(());
    }
    done(ingress, link, Operation::Store, link.call_all(commands)).await
}

/// Waits for a call; an error if the connection is of no more use.
async fn done<T>(
    ingress: &Ingress,
    link: &Link,
    operation: Operation,
    call: impl Future<Output = redis::RedisResult<T>>,
) -> Result<(), Fault> {
    let counts = &ingress.metrics.cluster;
    match timeout(ANSWER_MAX, call).await {
        Ok(Ok(_)) => {
            counts.count(operation, Counted::Ok);
            if operation == Operation::Store && ingress.cluster.note_refused(None) {
                log::info!("cluster: Redis takes writes again");
            }
            Ok(())
        }
        Ok(Err(why)) if link.is_refusal(&why) => {
            counts.count(operation, Counted::Error);
            let why = Fault::of(&why);
            if ingress.cluster.note_refused(Some(why.clone())) {
                log::warn!("cluster: Redis refuses a write: {why}; replicas hear of each other all the same");
            }
            Ok(())
        }
        Ok(Err(why)) => {
            counts.count(operation, Counted::Error);
            Err(Fault::of(&why))
        }
        Err(_) => {
            counts.count(operation, Counted::Error);
            Err(Fault::TimedOut)
        }
    }
}

/// Learns what others tell.
async fn hear(ingress: &Arc<Ingress>, mut pubsub: PubSub) -> Fault {
    let mut messages = pubsub.on_message();
    loop {
        let next =
            std::future::poll_fn(|context| futures_core::Stream::poll_next(std::pin::Pin::new(&mut messages), context));
        let message = match timeout(SILENCE_MAX, next).await {
            Ok(Some(message)) => message,
            Ok(None) => return Fault::Broken,
            Err(_) => return Fault::Silent,
        };
        match Word::of(message.get_payload_bytes()) {
            Ok(word) if word.replica == ingress.cluster.id => {}
            Ok(word) => {
                learn(ingress, &word);
                // Whoever has much to learn lets others run in between.
                tokio::task::yield_now().await;
            }
            Err(Unread::Other(major)) => ingress.cluster.voices.lock().hear_other(major),
            Err(Unread::Broken) => {}
        }
    }
}

/// The same where the same upstreams are configured, in whatever order.
fn fleet_of(ingress: &Ingress) -> u64 {
    let plan = ingress.plan();
    plan.upstreams.iter().fold(0, |all, upstream| all ^ hash_text(&upstream.name))
}

fn learn(ingress: &Ingress, message: &Word) {
    let wall = wall_ms();
    let under_way_ms = message.under_way_ms(wall);
    ingress.cluster.voices.lock().hear(message, under_way_ms, std::time::Instant::now());
    if message.fleet != fleet_of(ingress) && ingress.cluster.strangers.lock().heard(message.fleet) {
        log::warn!(
            "cluster: a replica with other upstreams uses the prefix {}: its configuration is another, or it is of \
             another fleet and needs a prefix of its own",
            ingress.plan().cluster.as_ref().map_or("", |cluster| cluster.prefix.as_str())
        );
    }
    // What was held up tells how things stood then, not how they stand.
    let left = LIFE.saturating_sub(Duration::from_millis(under_way_ms));
    let learnt = ingress.fleet.with(|fleet, now| match &message.loads {
        Some(loads) if !left.is_zero() => fleet.learn_loads(message.replica, loads, left, now),
        _ => {
            fleet.hear_of(message.replica, left, now);
            Default::default()
        }
    });
    let turns: Vec<(u64, &Turn)> = message.turns(wall).collect();
    for some in turns.chunks(TURNS_PER_STEP) {
        ingress.fleet.with(|fleet, now| {
            for (age_ms, turn) in some {
                fleet.learn_turn(turn, now.before(Duration::from_millis(*age_ms)), now);
            }
        });
    }
    ingress.metrics.cluster.heard(turns.len());
    if learnt.new_doubt {
        ingress.roster.ask_for_a_look();
    }
    if message.loads.is_some() {
        ingress.waiting_room.sweep();
    }
}

/// Finds out when requests may wait for it again, and whether it hangs.
async fn probe(ingress: &Ingress, link: &Link) -> Fault {
    loop {
        let began = Instant::now();
        let answer = timeout(ANSWER_MAX, link.call::<redis::Value>(&redis::cmd("PING"))).await;
        match answer {
            Ok(Ok(_)) => ingress.cluster.answered(began.elapsed()),
            Ok(Err(why)) if link.is_refusal(&why) => ingress.cluster.pace.slow(),
            Ok(Err(why)) => return Fault::of(&why),
            Err(_) => return Fault::TimedOut,
        }
        sleep(PROBE_EVERY).await;
    }
}

/// Tells the accounts of tenants what their requests came to.
async fn keep_accounts(ingress: &Ingress, link: &Link) -> Fault {
    let mut refreshed = Instant::now();
    loop {
        sleep(SETTLE_EVERY).await;
        if refreshed.elapsed() >= ACCOUNTS_EVERY {
            ingress.cluster.account.refresh(&ingress.tenants());
            refreshed = Instant::now();
        }
        if let Err(why) = ingress.cluster.account.settle_all(ingress, link).await {
            return why;
        }
    }
}
