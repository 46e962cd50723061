//! Where a request stands in somebody's trace, as W3C Trace Context has it, and the spans that Warmgate adds.
//!
//! Without a collector a sound `traceparent` goes on untouched. With one the request is a span of its own, each
//! attempt another, and upstreams are told of theirs. What is not sound goes nowhere, and is never said back.

pub mod export;
mod spans;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use once_cell::sync::Lazy;

use crate::config::Tracing;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Of version 00: two digits, 32, 16 and two, and what stands between.
const LENGTH: usize = 55;

/// The lowest bit of the flags: whoever asks keeps its spans.
const SAMPLED: u8 = 1;

/// A request's place in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What the client said; `None`: nothing, or nothing sound.
    parent: Option<Parent>,
    /// Its own span; `None`: no spans are made here.
    own: Option<Own>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parent {
    trace: u128,
    span: u64,
    flags: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    trace: u128,
    span: u64,
    sampled: bool,
}

impl Trace {
    pub fn begin(headers: &HeaderMap, tracing: &Tracing) -> Trace {
        let parent = parent(headers);
        let own = tracing.otlp.as_ref().map(|_| {
            let trace = parent.map_or_else(new_trace, |parent| parent.trace);
            let sampled = parent.map_or_else(|| is_drawn(trace, tracing.sample), |parent| parent.flags & SAMPLED != 0);
            Own { trace, span: new_span(), sampled }
        });
        Trace { parent, own }
    }

    /// As logs and receipts have it.
    pub fn id(&self) -> Option<String> {
        let trace = self.own.map(|own| own.trace).or(self.parent.map(|parent| parent.trace));
        trace.map(|trace| format!("{trace:032x}"))
    }

    /// Says to the node of that attempt, counted from zero, what it belongs to.
    pub fn tell(&self, headers: &mut HeaderMap, attempt: usize) {
        if self.parent.is_none() {
            headers.remove(TRACEPARENT);
            headers.remove(TRACESTATE);
        }
        if let Some(own) = self.own {
            let told = format!("00-{:032x}-{:016x}-{:02x}", own.trace, own.attempt(attempt), u8::from(own.sampled));
            if let Ok(told) = HeaderValue::try_from(told) {
                headers.insert(TRACEPARENT, told);
            }
        }
    }
}

impl Own {
    /// The span of an attempt, which is known before it is made.
    fn attempt(&self, attempt: usize) -> u64 {
        self.child("attempt", attempt)
    }

    fn child(&self, what: &str, n: usize) -> u64 {
        SEEDS.1.hash_one((self.trace, self.span, what, n)).max(1)
    }
}

/// The one `traceparent` of a request, if it is sound.
fn parent(headers: &HeaderMap) -> Option<Parent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let text = value.to_str().ok()?;
    let (known, later) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split('-');
    let version = lower_hex(parts.next()?, 2)? as u8;
    let (trace, span) = (lower_hex(parts.next()?, 32)?, lower_hex(parts.next()?, 16)? as u64);
    let flags = lower_hex(parts.next()?, 2)? as u8;
    // Later versions may say more, behind another dash.
    let ends = if version == 0 { later.is_empty() } else { later.is_empty() || later.starts_with('-') };
    let sound = version != 0xff && trace != 0 && span != 0 && parts.next().is_none() && ends;
    sound.then_some(Parent { trace, span, flags })
}

fn lower_hex(digits: &str, count: usize) -> Option<u128> {
    let sound = digits.len() == count && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(digits, 16).ok().filter(|_| sound)
}

/// Keys of the system's own chance: nobody guesses an id from another.
static SEEDS: Lazy<(RandomState, RandomState)> = Lazy::new(Default::default);
static NEXT: AtomicU64 = AtomicU64::new(0);

fn new_trace() -> u128 {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    (u128::from(SEEDS.0.hash_one(n)) << 64 | u128::from(SEEDS.1.hash_one(n))).max(1)
}

fn new_span() -> u64 {
    SEEDS.0.hash_one((NEXT.fetch_add(1, Ordering::Relaxed), "span")).max(1)
}

/// Whether a trace that begins here is kept; by its id, so that all who look say the same.
fn is_drawn(trace: u128, share: f64) -> bool {
    const BITS: u32 = 56;
    ((trace & ((1 << BITS) - 1)) as f64) < share * (1u64 << BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        headers.insert(TRACESTATE, HeaderValue::from_static("a=b"));
        headers
    }

    fn tracing(otlp: bool, sample: f64) -> Tracing {
        Tracing { otlp: otlp.then(|| "http://127.0.0.1:4318".parse().unwrap()), sample }
    }

    #[track_caller]
    fn check(values: &[&str], expected: Option<u8>) {
        assert_eq!(parent(&headers(values)).map(|parent| parent.flags), expected, "{values:?}");
    }

    #[test]
    fn only_sound_parents_are_believed() {
        check(&[SOUND], Some(1));
        check(&[&SOUND.replace("-01", "-00")], Some(0));
        check(&[&SOUND.replace("00-4b", "cc-4b")], Some(1));
        check(&[&format!("{}-what-comes", SOUND.replace("00-4b", "cc-4b"))], Some(1));
        for odd in [
            "",
            "00",
            &SOUND[..54],
            &format!("{SOUND}-more"),
            &format!("{}more", SOUND.replace("00-4b", "cc-4b")),
            &SOUND.to_uppercase(),
            &SOUND.replace("00-4b", "ff-4b"),
            &SOUND.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &SOUND.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &SOUND.replace("00f067aa0ba902b7", "+0f067aa0ba902b7"),
            &SOUND.replace('-', "_"),
        ] {
            check(&[odd], None);
        }
        check(&[SOUND, SOUND], None);
        check(&[], None);
    }

    #[track_caller]
    fn check_told(said: &[&str], otlp: bool, expected: Option<&str>) {
        let mut headers = headers(said);
        let trace = Trace::begin(&headers, &tracing(otlp, 1.0));
        trace.tell(&mut headers, 0);
        let told = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        assert_eq!(told.map(|told| &told[..told.len().min(36)]), expected, "{said:?}");
        assert_eq!(
            headers.contains_key(TRACESTATE),
            Trace::begin(&self::headers(said), &tracing(false, 1.0)).id().is_some()
        );
    }

    #[test]
    fn sound_parents_go_on_and_others_do_not() {
        check_told(&[SOUND], false, Some(&SOUND[..36]));
        check_told(&["junk"], false, None);
        check_told(&[], false, None);
        check_told(&[SOUND], true, Some(&SOUND[..36]));
        let mut told = headers(&[SOUND]);
        let trace = Trace::begin(&told, &tracing(true, 0.0));
        let told = [0, 1].map(|attempt| {
            trace.tell(&mut told, attempt);
            told[TRACEPARENT].to_str().unwrap().to_string()
        });
        assert!(told.iter().all(|told| told.starts_with(&SOUND[..36]) && told.ends_with("-01") && told != SOUND));
        assert_ne!(told[0], told[1], "each attempt is a span of its own");
    }

    #[test]
    fn the_share_that_is_kept() {
        let kept = |share: f64| (0..1000).filter(|_| is_drawn(new_trace(), share)).count();
        assert_eq!((kept(0.0), kept(1.0)), (0, 1000));
        assert!((150..350).contains(&kept(0.25)));
    }
}
