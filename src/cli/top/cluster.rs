//! The line on other replicas: whether they agree, and who is heard.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::fleet::{Cluster, Heard};
use super::words::span;

/// From so long ago a last word is told as silence, milliseconds.
const SILENT_MS: u64 = 2000;

pub fn line(cluster: &Cluster, now_ms: u64) -> Line<'static> {
    let (state, colour) = state(cluster, now_ms);
    let heard: String = cluster.heard.iter().map(word).collect();
    Line::from(vec![Span::raw("replicas: "), Span::styled(state, Style::new().fg(colour)), Span::raw(heard)])
}

fn state(cluster: &Cluster, now_ms: u64) -> (String, Color) {
    let since = cluster
        .since_ms
        .map_or_else(String::new, |since| format!(" for {}", span(now_ms.saturating_sub(since) as f64)));
    let answer = cluster.answer_ms.map_or_else(|| "no answer yet".into(), latency);
    let shared = format!("shared with {}{since}", cluster.other_replicas);
    match (cluster.up, cluster.quick, &cluster.problem) {
        // It answers, and does not do what it is asked: it is full, say, or takes no writes.
        (true, true, Some(problem)) => (format!("{shared}, but {problem}"), Color::Yellow),
        (true, true, None) => (format!("{shared}, Redis {answer}"), Color::Green),
        (true, false, _) => (format!("Redis is slow ({answer}), nobody waits for it"), Color::Yellow),
        (false, _, problem) => {
            let problem = problem.as_deref().unwrap_or("Redis was not reached yet");
            (format!("on its own{since}: {problem}"), Color::Red)
        }
    }
}

fn word(heard: &Heard) -> String {
    let Heard { name, heard_ms_ago, in_flight, under_way_ms, late } = heard;
    match *heard_ms_ago {
        ms if ms >= SILENT_MS => format!("   {name} silent for {}", span(ms as f64)),
        _ if *late => format!("   {name} {in_flight}, late by {}", span(*under_way_ms as f64)),
        _ => format!("   {name} {in_flight}"),
    }
}

fn latency(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1} ms") } else { span(ms) }
}
