//! `config::parse`: any text gives a plan or problems, soon.

use std::path::Path;

use warmgate::config;
use warmgate::routing::chain::mix;

use crate::target::{Target, law};

pub static TARGET: Target = Target {
    name: "config",
    words: &[
        "upstreams:\n",
        "  - name: a\n    url: http://127.0.0.1:1\n",
        "listen:\n",
        "models:\n",
        "targets:",
        "fallbacks: [a]",
        "policy: fleet",
        "&a ",
        "*a",
        "<<: *a",
        "- ",
        ": ",
        "? ",
        "!tag ",
        "| \n",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "{",
        "}",
        "[",
        "]",
        "30s",
        "64MiB",
        "400GB/s",
        "\t",
        "'",
        "\"",
        "# x\n",
        "\u{85}",
        "\u{2028}",
        "~",
    ],
    check,
};

fn check(input: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(input);
    // No folder: a secret's file that a mutation names is not there.
    let origin = Path::new("/nowhere/warmgate.yaml");
    let problems = match config::parse(&text, origin) {
        Ok(plan) => return Ok(mix(plan.upstreams.len() as u64, plan.models.len() as u64)),
        Err(problems) => problems,
    };
    let lines = text.lines().count().max(1);
    law(!problems.list.is_empty(), || "no plan, and no problem".into())?;
    for problem in &problems.list {
        law(!problem.what.is_empty(), || format!("a problem without words at {}", problem.path))?;
        law(problem.line.is_none_or(|line| (1..=lines).contains(&line)), || {
            format!("line {:?} of {lines}", problem.line)
        })?;
    }
    let words = problems.list.iter().map(|problem| {
        // Names are in quotes; without them the words are a kind of problem.
        let kind = problem.what.split('`').step_by(2).flat_map(|words| words.split(|c: char| c.is_ascii_digit()));
        kind.fold(0, |all, words| mix(all, words.len() as u64))
    });
    let kinds: std::collections::BTreeSet<u64> = words.take(8).collect();
    Ok(kinds.into_iter().fold(3, mix))
}
