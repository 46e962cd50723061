//! The measures of one contestant, each a row.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::contestant::Running;
use crate::numbers::percentile;
use crate::process::Cores;
use crate::work::{self, CONVERSATIONS, Loop, Streamed};

/// One figure of one contestant in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub round: usize,
    pub contestant: &'static str,
    pub measure: String,
    pub unit: &'static str,
    pub value: f64,
}

/// A measure that says nothing, and why. There is no row of it.
#[derive(Clone, Debug, Serialize)]
pub struct Void {
    pub round: usize,
    pub contestant: &'static str,
    pub measure: String,
    pub why: String,
}

/// All that was measured.
#[derive(Default)]
pub struct Measured {
    pub rows: Vec<Row>,
    pub voids: Vec<Void>,
}

impl Measured {
    /// Whether this would be a row, but for what made it void.
    pub fn is_void(&self, contestant: &str, measure: &str) -> bool {
        self.voids.iter().any(|void| void.contestant == contestant && measure.starts_with(&void.measure))
    }
}

/// Rows of one contestant in one round.
pub struct Rows<'a> {
    pub round: usize,
    pub contestant: &'static str,
    pub all: &'a mut Measured,
}

impl Rows<'_> {
    pub fn add(&mut self, measure: String, unit: &'static str, value: f64) {
        self.all.rows.push(Row { round: self.round, contestant: self.contestant, measure, unit, value });
    }

    pub fn void(&mut self, measure: String, why: String) {
        eprintln!("{}, {measure}: void: {why}", self.contestant);
        self.all.voids.push(Void { round: self.round, contestant: self.contestant, measure, why });
    }

    /// Some load that is not counted: connections are made, and what is made at first use is there.
    pub fn warm_up(&mut self, running: &Running, body: &Path, cores: Cores) {
        let work = Loop { connections: 8, duration: WARM_UP, body, conversations: CONVERSATIONS, first: 0 };
        if let Err(why) = work.run(running.address, cores.load) {
            eprintln!("{}, warm-up: {why}", self.contestant);
        }
    }

    /// A closed loop of whole answers.
    pub fn closed(&mut self, running: &Running, what: &str, body: &Path, load: Load) {
        let Load { connections, duration, cores } = load;
        let cpu = || running.process.as_ref().map_or(Duration::ZERO, |process| process.cpu());
        let before = cpu();
        let closed = Loop { connections, duration, body, conversations: CONVERSATIONS, first: 0 }
            .run(running.address, cores.load);
        let used = cpu() - before;
        let closed = match closed {
            Ok(closed) => closed,
            Err(why) => return self.void(format!("{what}/{connections}"), why),
        };
        let name = |figure: &str| format!("{what}/{connections}/{figure}");
        let failed = closed.not_2xx + closed.broken;
        if failed as f64 > FAILED_SHARE_MAX * closed.requests as f64 || closed.requests == failed {
            let why = match closed.requests {
                0 => "nothing was answered in time".to_owned(),
                all => format!("{failed} of {all} requests failed"),
            };
            return self.void(format!("{what}/{connections}"), why);
        }
        self.add(name("rate"), "requests/s", closed.requests as f64 / closed.duration_s);
        self.add(name("p50"), "us", closed.p50_us);
        self.add(name("p99"), "us", closed.p99_us);
        self.add(name("failed"), "requests", failed as f64);
        if running.process.is_some() {
            self.add(name("cpu"), "us/request", used.as_secs_f64() * 1e6 / closed.requests.max(1) as f64);
        }
    }

    /// Streams side by side, each of a hundred chunks.
    pub async fn streams(&mut self, running: &Running, count: usize) {
        let cpu = || running.process.as_ref().map_or(Duration::ZERO, |process| process.cpu());
        let (before, address) = (cpu(), running.address);
        let tasks: Vec<_> = (0..count)
            .map(|n| {
                tokio::spawn(async move {
                    // Not all at the same instant, as no clients are.
                    tokio::time::sleep(Duration::from_micros(n as u64 * 617)).await;
                    tokio::time::timeout(STREAM_MAX, work::stream(address, n)).await
                })
            })
            .collect();
        let mut seen: Vec<Streamed> = Vec::new();
        let mut failures = Vec::new();
        for task in tasks {
            match task.await {
                Ok(Ok(Ok(streamed))) => seen.push(streamed),
                Ok(Ok(Err(error))) => failures.push(error.to_string()),
                _ => failures.push(format!("no end within {STREAM_MAX:?}")),
            }
        }
        if let Some(first) = failures.first() {
            let why = format!("{} of {count} streams failed, the first by: {first}", failures.len());
            return self.void(format!("stream/{count}"), why);
        }
        let used = cpu() - before;
        let us = |times: Vec<Duration>, share| {
            percentile(&times.iter().map(|time| time.as_secs_f64() * 1e6).collect::<Vec<_>>(), share)
        };
        let firsts: Vec<Duration> = seen.iter().map(|streamed| streamed.first).collect();
        let delays: Vec<Duration> = seen.iter().flat_map(|streamed| streamed.delays.clone()).collect();
        let gaps: Vec<Duration> = seen.iter().flat_map(|streamed| streamed.gaps.clone()).collect();
        let chunks = delays.len().max(1) as f64;
        let pieces = seen.iter().map(|streamed| streamed.pieces).sum::<usize>() as f64 / seen.len().max(1) as f64;
        for (figure, unit, value) in [
            ("first_p50", "us", us(firsts.clone(), 0.5)),
            ("first_p99", "us", us(firsts, 0.99)),
            ("delay_p50", "us", us(delays.clone(), 0.5)),
            ("delay_p99", "us", us(delays, 0.99)),
            ("gap_p99", "us", us(gaps, 0.99)),
            ("pieces", "a stream", pieces),
        ] {
            self.add(format!("stream/{count}/{figure}"), unit, value);
        }
        if running.process.is_some() {
            self.add(format!("stream/{count}/cpu"), "us/chunk", used.as_secs_f64() * 1e6 / chunks);
        }
    }

    /// Memory with so many streams open that say nothing. `standing` tells how many the upstreams have.
    pub async fn idle_streams(
        &mut self,
        running: &Running,
        count: usize,
        standing: impl AsyncFn() -> io::Result<usize>,
    ) {
        let Some(process) = &running.process else { return };
        let name = |figure: &str| format!("idle_streams/{count}/{figure}");
        if let Err(why) = settled(&standing, 0).await {
            return self.void(name("each"), format!("before it began, {why}"));
        }
        let before = process.resident_kib();
        let (mut open, mut failures) = (Vec::with_capacity(count), Vec::new());
        for batch in 0..count.div_ceil(BATCH) {
            let numbers = batch * BATCH..count.min((batch + 1) * BATCH);
            let address = running.address;
            let tasks: Vec<_> = numbers
                .map(|n| {
                    tokio::spawn(async move { tokio::time::timeout(FIRST_CHUNK_MAX, work::idle(address, n)).await })
                })
                .collect();
            for task in tasks {
                match task.await {
                    Ok(Ok(Ok(conn))) => open.push(conn),
                    Ok(Ok(Err(error))) => failures.push(error.to_string()),
                    _ => failures.push(format!("no first chunk within {FIRST_CHUNK_MAX:?}")),
                }
            }
            // It is void already.
            if !failures.is_empty() {
                break;
            }
        }
        let grown = process.resident_kib().saturating_sub(before);
        let stood = standing().await.unwrap_or_default();
        eprintln!("  {} streams open at the client, {stood} at the upstreams", open.len());
        self.add(name("open"), "streams", open.len().min(stood) as f64);
        if open.len().min(stood) < count {
            let why = failures.first().map_or("they were closed again", String::as_str);
            let stood = open.len().min(stood);
            return self.void(name("each"), format!("{stood} of {count} streams stood open when one failed: {why}"));
        }
        self.add(name("each"), "KiB", grown as f64 / count as f64);
        drop(open);
        match settled(&standing, 0).await {
            Ok(()) => self.add(name("after"), "KiB", process.resident_kib() as f64),
            Err(why) => self.void(name("after"), format!("after its clients had left, {why}")),
        }
    }

    /// What it uses when nobody asks anything.
    pub async fn at_rest(&mut self, running: &Running, what: &str, duration: Duration) {
        let Some(process) = &running.process else { return };
        let (before, began) = (process.cpu(), Instant::now());
        tokio::time::sleep(duration).await;
        let used = process.cpu() - before;
        self.add(format!("{what}/cpu"), "us/s", used.as_secs_f64() * 1e6 / began.elapsed().as_secs_f64());
        self.add(format!("{what}/memory"), "KiB", process.resident_kib() as f64);
    }

    /// Memory after so many requests of so many conversations.
    pub fn sessions(
        &mut self,
        running: &Running,
        body: &Path,
        (requests, conversations): (usize, usize),
        cores: Cores,
    ) {
        let Some(process) = &running.process else { return };
        let before = process.resident_kib();
        let (mut made, mut at_half, slice) = (0, None, Duration::from_secs(5));
        let name = |figure: &str| format!("sessions/{conversations}/{figure}");
        while made < requests {
            let work = Loop { connections: 16, duration: slice, body, conversations, first: made % conversations };
            match work.run(running.address, cores.load) {
                Ok(closed) if closed.requests > 0 => made += closed.requests as usize,
                Ok(_) => return self.void(name("grown"), "no request was answered".into()),
                Err(why) => return self.void(name("grown"), why),
            }
            if made >= requests / 2 {
                at_half.get_or_insert(process.resident_kib());
            }
        }
        let now = process.resident_kib();
        self.add(name("grown"), "KiB", now.saturating_sub(before) as f64);
        self.add(name("grown_in_second_half"), "KiB", now as f64 - at_half.unwrap_or(now) as f64);
        self.add(name("memory"), "KiB", now as f64);
    }
}

/// Waits until the upstreams have so many streams and no more.
async fn settled(standing: &impl AsyncFn() -> io::Result<usize>, wanted: usize) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match standing().await {
            Ok(now) if now <= wanted => return Ok(()),
            Ok(now) if began.elapsed() > SETTLED_MAX => {
                return Err(format!("{now} streams still stood at the upstreams"));
            }
            Err(error) if began.elapsed() > SETTLED_MAX => return Err(format!("the upstreams did not say: {error}")),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Shorter loads are none to wrk.
const WARM_UP: Duration = Duration::from_secs(1);

/// A rate of which more failed is none: failing is often faster than answering.
const FAILED_SHARE_MAX: f64 = 0.001;

/// For streams to leave the upstreams after their clients have left. Some proxies let them stand.
const SETTLED_MAX: Duration = Duration::from_secs(5);

/// Of an idle stream.
const FIRST_CHUNK_MAX: Duration = Duration::from_secs(30);

/// For one stream to come to its end.
const STREAM_MAX: Duration = Duration::from_secs(60);

/// Idle streams that are opened at once.
const BATCH: usize = 64;

#[derive(Clone, Copy)]
pub struct Load {
    pub connections: usize,
    pub duration: Duration,
    pub cores: Cores,
}
