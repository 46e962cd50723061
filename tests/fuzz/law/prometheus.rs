//! `wire::prometheus`: samples out of an engine's metrics.

use warmgate::routing::chain::mix;
use warmgate::wire::prometheus::samples;

use crate::target::{Target, law};

pub static TARGET: Target = Target {
    name: "prometheus",
    words: &[
        "vllm:num_requests_running",
        "{",
        "}",
        "model_name=\"m\"",
        "engine=\"0\",",
        "\\\"",
        "\\\\",
        "\\n",
        " NaN",
        " +Inf",
        "\n",
        "# TYPE ",
        "} 1 1712345678901",
        "# {trace=\"t\"} 0.5",
        "=\"",
        "\",",
    ],
    check,
};

const LABELS: [&str; 5] = ["model_name", "engine", "dp_rank", "le", ""];

fn check(input: &[u8]) -> Result<u64, String> {
    let told = told(input);
    let lines = input.split(|byte| *byte == b'\n').count();
    law(told.len() <= lines, || format!("{} samples in {lines} lines", told.len()))?;
    let mut end = (told.len() as u64).checked_ilog2().map_or(0, u64::from);
    for (at, (name, value, labels)) in told.iter().enumerate() {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':');
        law(is_name && !name.is_empty(), || format!("a name {name:?}"))?;
        let known = labels.iter().filter(|label| label.is_some()).count();
        if at < 3 {
            end = mix(end, (known as u64) << 8 | kind(f64::from_bits(*value)));
        }
    }
    let twice = [input, b"\n", input].concat();
    law(self::told(&twice) == [told.clone(), told.clone()].concat(), || "one text changes the next".into())?;
    if !input.contains(&b'\r') {
        let crlf = input.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..]);
        law(self::told(&crlf) == told || has_long_line(input), || "line ends change what is told".into())?;
    }
    Ok(end)
}

type Told = (String, u64, Vec<Option<String>>);

fn told(text: &[u8]) -> Vec<Told> {
    let tell = |sample: warmgate::wire::prometheus::Sample<'_>| {
        let labels = LABELS.map(|label| sample.label(label).map(|value| value.into_owned()));
        (sample.name.to_owned(), sample.value.to_bits(), labels.to_vec())
    };
    samples(text).map(tell).collect()
}

/// One more byte may put it over the limit.
fn has_long_line(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| line.len() >= 16 << 10)
}

fn kind(value: f64) -> u64 {
    match value {
        _ if value.is_nan() => 1,
        _ if value.is_infinite() => 2,
        _ if value < 0.0 => 3,
        _ => 4,
    }
}
