//! Mooncake's traces: arrivals, sizes, and hashes of blocks of 512 tokens.
//!
//! Equal hashes mean equal text up to there. Blocks at the beginning that many requests have in common are
//! the system prompt; the first block after them stands for the conversation. What a router sees of a
//! prompt are its complete blocks: the last, partial one does not come again in the next turn, and is shown
//! only where a prompt has no block of its own besides.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::{Request, Trace};
use crate::routing::chain::{Chain, Link, mix};
use crate::routing::moment::Moment;
use crate::sim::engine::{Block, History};

const BLOCK_TOKENS: u32 = 512;

/// A first block that more than one request in this many has is a system prompt's.
const COMMON_ONE_IN: usize = 20;

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Reads a trace; an error names the line.
pub fn read(path: &Path, model: &Arc<str>) -> Result<Trace, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    parse(&text, model)
}

fn parse(text: &str, model: &Arc<str>) -> Result<Trace, String> {
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        if line.input_length == 0 || !line.timestamp.is_finite() || line.timestamp < 0.0 {
            return Err(format!("line {number}: no time or no prompt"));
        }
        lines.push(line);
    }
    lines.sort_by(|a, b| a.timestamp.total_cmp(&b.timestamp));
    let common = common_blocks(&lines);
    let requests = lines.iter().map(|line| {
        let at = Moment((line.timestamp * 1000.0).round() as u64);
        (at, Arc::new(request(line, common, model)))
    });
    Ok(Arc::new(requests.collect()))
}

/// How many blocks at the beginning are shared by many.
fn common_blocks(lines: &[Line]) -> usize {
    for depth in 0.. {
        let mut counts: HashMap<&[u64], usize> = HashMap::new();
        for line in lines {
            if let Some(beginning) = line.hash_ids.get(..=depth) {
                *counts.entry(beginning).or_default() += 1;
            }
        }
        if counts.values().all(|count| count * COMMON_ONE_IN <= lines.len()) || lines.len() < COMMON_ONE_IN {
            return depth;
        }
    }
    0
}

fn request(line: &Line, common: usize, model: &Arc<str>) -> Request {
    let mut hash = 0;
    let blocks = line.hash_ids.iter().zip(1..).map(|(id, number)| {
        hash = mix(hash, *id);
        Block { hash, tokens_end: (BLOCK_TOKENS * number).min(line.input_length) }
    });
    let history = History::new(blocks.collect());
    let complete = history.blocks().iter().take_while(|block| block.tokens_end.is_multiple_of(BLOCK_TOKENS)).count();
    let shown = complete.max(common + 1).min(history.blocks().len());
    let links = history.blocks()[..shown].iter().enumerate();
    let links: Vec<Link> = links
        .map(|(index, block)| Link { hash: block.hash, tokens: block.tokens_end, ends_message: index >= common })
        .collect();
    let root = common.min(links.len().saturating_sub(1));
    let conversation = links.get(root).map_or(0, |link| link.hash);
    Request {
        model: model.clone(),
        chain: Chain { links, root: root as u32, answers: 0 },
        history,
        prompt_tokens: line.input_length,
        output_tokens: line.output_length,
        conversation,
        client: conversation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: u64) -> String {
        let line = |n: u64| {
            format!(
                r#"{{"timestamp": {}, "input_length": 1100, "output_length": 5, "hash_ids": [0, {n}, {}]}}"#,
                1000 * n,
                n + 1000
            )
        };
        (1..=count).map(|n| line(n) + "\n").collect()
    }

    #[test]
    fn the_block_that_all_share_is_no_conversation() {
        let trace = parse(&lines(40), &"m".into()).unwrap();
        let (at, request) = &trace[1];
        assert_eq!(*at, Moment::from_secs(2));
        assert_eq!(request.chain.root, 1);
        let links: Vec<_> = request.chain.links.iter().map(|link| (link.tokens, link.ends_message)).collect();
        assert_eq!(links, [(512, false), (1024, true)]);
        assert_eq!(request.history.blocks().last().map(|block| block.tokens_end), Some(1100));
        assert_ne!(trace[0].1.conversation, request.conversation);
    }

    #[test]
    fn a_prompt_without_a_block_of_its_own_shows_its_partial_one() {
        let text = lines(40) + r#"{"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [0, 77]}"#;
        let trace = parse(&text, &"m".into()).unwrap();
        assert_eq!(trace[0].1.chain.links.len(), 2);
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = parse("{\"timestamp\": 1}", &"m".into()).unwrap_err();
        assert!(error.starts_with("line 1: missing field"), "{error}");
    }
}
