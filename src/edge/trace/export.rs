//! The way of spans to a collector: OTLP over HTTP, in JSON.
//!
//! They wait in a bounded queue, into which putting one never waits: what finds no place is dropped and counted.
//! A collector that does not answer is asked more and more seldom, and what it was sent is dropped, too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::spans::attribute;
use crate::config::UpstreamUrl;
use crate::edge::ingress::Ingress;
use crate::edge::target::Target;

/// Spans that wait: some seconds of a thousand requests each.
const WAITING_MAX: usize = 16_384;

/// Sent at once.
const SENT_MAX: usize = 1024;

const EVERY: Duration = Duration::from_secs(1);

/// While the process stops, which ends when it has nothing else to do.
const STOPPING_EVERY: Duration = Duration::from_millis(10);

/// For the collector to take what it is sent.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The longest rest after failures.
const REST_MAX: Duration = Duration::from_secs(30);

/// Where collectors take them, by the protocol.
const PATH: &str = "/v1/traces";

/// What became of spans, as labels.
pub const OUTCOMES: [&str; 3] = [SENT, FAILED, DROPPED];
const SENT: &str = "sent";
const FAILED: &str = "failed";
const DROPPED: &str = "dropped";

#[derive(Default)]
pub struct Spans {
    waiting: Mutex<VecDeque<Span>>,
    /// Taken out, and on their way.
    sending: AtomicUsize,
}

impl Spans {
    pub fn add(&self, spans: Vec<Span>, ingress: &Ingress) {
        if spans.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.len() + spans.len() > WAITING_MAX {
            drop(waiting);
            count(ingress, DROPPED, spans.len());
        } else {
            waiting.extend(spans);
        }
    }

    /// None waits, and none is on its way.
    pub fn are_gone(&self) -> bool {
        self.waiting.lock().is_empty() && self.sending.load(Ordering::Relaxed) == 0
    }

    fn take(&self) -> Vec<Span> {
        let mut waiting = self.waiting.lock();
        let some = waiting.len().min(SENT_MAX);
        self.sending.store(some, Ordering::Relaxed);
        waiting.drain(..some).collect()
    }
}

/// Sends what there is, again and again.
pub async fn keep(ingress: Arc<Ingress>) {
    let mut rest = EVERY;
    loop {
        sleep(rest).await;
        rest = if send_all(&ingress).await { EVERY } else { (rest * 2).min(REST_MAX) };
    }
}

/// Sends what is still to come of a process that stops, until nothing is.
pub async fn finish(ingress: &Ingress) {
    while ingress.plan().tracing.otlp.is_some()
        && send_all(ingress).await
        && (ingress.active.load(Ordering::Relaxed) > 0 || !ingress.spans.are_gone())
    {
        sleep(STOPPING_EVERY).await;
    }
}

/// False: the collector did not take it.
async fn send_all(ingress: &Ingress) -> bool {
    loop {
        let spans = ingress.spans.take();
        let plan = ingress.plan();
        let Some(collector) = plan.tracing.otlp.as_ref().filter(|_| !spans.is_empty()) else {
            ingress.spans.sending.store(0, Ordering::Relaxed);
            return true;
        };
        let number = spans.len();
        let sent = send(ingress, collector, spans).await;
        ingress.spans.sending.store(0, Ordering::Relaxed);
        match sent {
            Ok(()) => count(ingress, SENT, number),
            Err(why) => {
                count(ingress, FAILED, number);
                log::debug!("{number} spans were not taken by the collector: {why}");
                return false;
            }
        }
    }
}

async fn send(ingress: &Ingress, collector: &UpstreamUrl, spans: Vec<Span>) -> Result<(), String> {
    let body = serde_json::to_vec(&request(spans)).map_err(|why| why.to_string())?;
    let mut base = collector.clone();
    base.path = base.path.strip_suffix(PATH).unwrap_or(&base.path).to_owned();
    let answer = ingress.fetcher.post(&Target::of(&base), PATH, &body, ANSWER_MAX).await;
    let status = answer.map_err(|why| why.to_string())?.status;
    status.is_success().then_some(()).ok_or_else(|| format!("it answers {status}"))
}

fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let text = |text: &str| Value::StringValue(text.to_owned());
    let version = env!("CARGO_PKG_VERSION");
    let resource = Resource {
        attributes: vec![
            attribute("service.name", text("warmgate")),
            attribute("service.version", text(version)),
            attribute("process.pid", Value::IntValue(std::process::id().into())),
        ],
        ..Resource::default()
    };
    let scope = InstrumentationScope { name: "warmgate".into(), version: version.into(), ..Default::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    let resource_spans = ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }
}

fn count(ingress: &Ingress, outcome: &str, number: usize) {
    ingress.metrics.spans.with_label_values(&[outcome]).inc_by(number as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Plan;

    #[test]
    fn what_finds_no_place_is_dropped_and_counted() {
        let ingress = Ingress::new(Plan::default()).unwrap();
        for _ in 0..WAITING_MAX + 7 {
            ingress.spans.add(vec![Span::default()], &ingress);
        }
        assert_eq!(ingress.spans.waiting.lock().len(), WAITING_MAX);
        assert_eq!(ingress.metrics.spans.with_label_values(&[DROPPED]).get(), 7);
        assert_eq!(ingress.spans.take().len(), SENT_MAX);
    }
}
