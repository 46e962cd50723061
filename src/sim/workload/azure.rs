//! Azure's traces of 2023: arrivals and sizes, and nothing of what was said.
//!
//! Every request is a conversation of its own, so no cache ever helps: what differs between policies is how
//! they spread load.

use std::path::Path;
use std::sync::Arc;

use super::text::{Text, Voice};
use super::{Request, Trace};
use crate::routing::moment::Moment;
use crate::sim::engine::History;

/// Reads a trace; an error names the line.
pub fn read(path: &Path, model: &Arc<str>) -> Result<Trace, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    parse(&text, model)
}

fn parse(text: &str, model: &Arc<str>) -> Result<Trace, String> {
    let mut rows = Vec::new();
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty() && !line.starts_with("TIMESTAMP"));
    for (line, number) in lines {
        let row = row(line).ok_or_else(|| {
            format!("line {number}: not a time and two counts, like 2023-11-16 18:17:03.9799600,4808,10")
        })?;
        rows.push(row);
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let begin = rows.first().map_or(0.0, |row| row.0);
    let requests = rows.iter().zip(0..).map(|((at, prompt, output), number)| {
        let at = Moment(((at - begin) * 1e6).round() as u64);
        (at, Arc::new(request(number, *prompt, *output, model)))
    });
    Ok(Arc::new(requests.collect()))
}

fn row(line: &str) -> Option<(f64, u32, u32)> {
    let mut fields = line.trim().split(',');
    let at = seconds(fields.next()?)?;
    let (prompt, output) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (fields.next().is_none() && prompt > 0).then_some((at, prompt, output))
}

/// Seconds since some day; the traces lie within one month.
fn seconds(text: &str) -> Option<f64> {
    let (date, time) = text.split_once(' ')?;
    let day: f64 = date.rsplit('-').next()?.parse().ok()?;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let at = ((day * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds;
    (at.is_finite() && at >= 0.0).then_some(at)
}

fn request(number: u64, prompt_tokens: u32, output_tokens: u32, model: &Arc<str>) -> Request {
    let mut text = Text::default();
    text.say(Voice::User, number, prompt_tokens);
    Request {
        model: model.clone(),
        chain: text.chain(),
        // Nothing in it ever comes again: no cache need look.
        history: History::default(),
        prompt_tokens,
        output_tokens,
        conversation: number,
        client: number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000000,4808,10\n2023-11-17 00:00:01.0,3180,8\n";
        let trace = parse(text, &"m".into()).unwrap();
        let seen: Vec<_> =
            trace.iter().map(|(at, request)| (at.0, request.prompt_tokens, request.output_tokens)).collect();
        assert_eq!(seen, [(0, 4808, 10), (1_500_000, 3180, 8)]);
    }

    #[test]
    fn a_bad_line_is_named() {
        assert!(parse("2023-11-16 18:17,4", &"m".into()).unwrap_err().starts_with("line 1: "));
    }
}
