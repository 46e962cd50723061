//! The measures of one contestant, each a row.

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

/// Rows of one contestant in one round.
pub struct Rows<'a> {
    pub round: usize,
    pub contestant: &'static str,
    pub all: &'a mut Vec<Row>,
}

impl Rows<'_> {
    pub fn add(&mut self, measure: String, unit: &'static str, value: f64) {
        self.all.push(Row { round: self.round, contestant: self.contestant, measure, unit, value });
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
            Err(why) => return eprintln!("{}, {what}, {connections} connections: {why}", self.contestant),
        };
        let name = |figure: &str| format!("{what}/{connections}/{figure}");
        self.add(name("rate"), "requests/s", closed.requests as f64 / closed.duration_s);
        self.add(name("p50"), "us", closed.p50_us);
        self.add(name("p99"), "us", closed.p99_us);
        self.add(name("failed"), "requests", (closed.not_2xx + closed.broken) as f64);
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
        let mut failed = 0;
        for task in tasks {
            match task.await {
                Ok(Ok(Ok(streamed))) => seen.push(streamed),
                _ => failed += 1,
            }
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
            ("failed", "streams", failed as f64),
        ] {
            self.add(format!("stream/{count}/{figure}"), unit, value);
        }
        if running.process.is_some() {
            self.add(format!("stream/{count}/cpu"), "us/chunk", used.as_secs_f64() * 1e6 / chunks);
        }
    }

    /// Memory at rest, and with so many streams open that say nothing.
    pub async fn idle_streams(&mut self, running: &Running, count: usize) {
        let Some(process) = &running.process else { return };
        let before = process.resident_kib();
        self.add("memory/now".into(), "KiB", before as f64);
        let (mut open, mut failed) = (Vec::with_capacity(count), 0);
        for batch in 0..count.div_ceil(BATCH) {
            let numbers = batch * BATCH..count.min((batch + 1) * BATCH);
            let address = running.address;
            let tasks: Vec<_> = numbers
                .map(|n| tokio::spawn(async move { tokio::time::timeout(STREAM_MAX, work::idle(address, n)).await }))
                .collect();
            for task in tasks {
                match task.await {
                    Ok(Ok(Ok(conn))) => open.push(conn),
                    _ => failed += 1,
                }
            }
            if failed > BATCH {
                break;
            }
        }
        let grown = process.resident_kib().saturating_sub(before);
        self.add(format!("idle_streams/{count}/open"), "streams", open.len() as f64);
        self.add(format!("idle_streams/{count}/each"), "KiB", grown as f64 / open.len().max(1) as f64);
        drop(open);
        // The next contestant is not to see these leave.
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.add(format!("idle_streams/{count}/after"), "KiB", process.resident_kib() as f64);
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
        while made < requests {
            let work = Loop { connections: 16, duration: slice, body, conversations, first: made % conversations };
            match work.run(running.address, cores.load) {
                Ok(closed) if closed.requests > 0 => made += closed.requests as usize,
                other => return eprintln!("{}: {other:?}", self.contestant),
            }
            if made >= requests / 2 {
                at_half.get_or_insert(process.resident_kib());
            }
        }
        let now = process.resident_kib();
        let name = |figure: &str| format!("sessions/{conversations}/{figure}");
        self.add(name("grown"), "KiB", now.saturating_sub(before) as f64);
        self.add(name("grown_in_second_half"), "KiB", now as f64 - at_half.unwrap_or(now) as f64);
        self.add(name("memory"), "KiB", now as f64);
    }
}

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
