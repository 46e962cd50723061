//! How a model's weights are packed, as far as its engine tells.
//!
//! Ollama says so in a field; others only in the name of what they loaded. Words that are no
//! quantisation are passed over, so nothing found means unknown, never unquantised.

use serde_json::Value;

use crate::engines::Listing;

/// In capitals: `Q4_K_M`, `AWQ`, `GPTQ-INT4`.
pub fn of(listing: &Listing) -> Option<String> {
    let field = [&listing.tags, &listing.ps].into_iter().flatten().find_map(level);
    let root = || listing.openai.as_ref()?["root"].as_str().and_then(in_name);
    field.or_else(root).or_else(|| in_name(&listing.name))
}

fn level(entry: &Value) -> Option<String> {
    let level = entry["details"]["quantization_level"].as_str()?;
    let is_told = !level.is_empty() && !level.eq_ignore_ascii_case("unknown");
    is_told.then(|| one_spelling(&level.to_ascii_uppercase()).to_string())
}

/// The words of a name that are quantisations.
fn in_name(name: &str) -> Option<String> {
    let name = name.to_ascii_uppercase();
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    // `Q4_K_M` is one word, `moss_fp8` two.
    let words = parts.flat_map(|part| if is_level(part) { vec![part] } else { part.split('_').collect() });
    let found: Vec<&str> = words.filter(|word| is_level(word)).map(one_spelling).collect();
    (!found.is_empty()).then(|| found.join("-"))
}

const WORDS: [&str; 20] = [
    "F16", "F32", "BF16", "FP16", "FP32", "FP8", "FP4", "NF4", "MXFP4", "MXFP8", "NVFP4", "INT8", "INT4", "4BIT",
    "8BIT", "AWQ", "GPTQ", "EXL2", "EXL3", "HQQ",
];

fn is_level(word: &str) -> bool {
    WORDS.contains(&word) || is_gguf(word) || is_weights_and_activations(word)
}

/// `Q8_0`, `IQ2_XXS`, `TQ1_0`.
fn is_gguf(word: &str) -> bool {
    let Some((kind, rest)) = word.split_once('Q') else { return false };
    let mut parts = rest.split('_');
    let bits = parts.next().unwrap_or_default();
    let variants = parts.all(|part| (1..=3).contains(&part.len()));
    ["", "I", "T"].contains(&kind) && bits.len() == 1 && bits.bytes().all(|b| b.is_ascii_digit()) && variants
}

/// `W4A16`.
fn is_weights_and_activations(word: &str) -> bool {
    let digits = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let parts = word.strip_prefix('W').and_then(|rest| rest.split_once('A'));
    parts.is_some_and(|(weights, activations)| digits(weights) && digits(activations))
}

fn one_spelling(word: &str) -> &str {
    match word {
        "FP16" => "F16",
        "FP32" => "F32",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(in_name(name).as_deref(), expected, "{name}");
    }

    #[test]
    fn names_that_tell_and_names_that_do_not() {
        check("hub.test/pebblelab/moss-GGUF:Q4_K_M", Some("Q4_K_M"));
        check("moss:7b-instruct-q8_0", Some("Q8_0"));
        check("moss-7B-UD-IQ2_XXS.gguf", Some("IQ2_XXS"));
        check("Moss/Moss-32B-AWQ", Some("AWQ"));
        check("Moss/Moss-32B-GPTQ-Int4", Some("GPTQ-INT4"));
        check("moss_fp8", Some("FP8"));
        check("moss-w4a16", Some("W4A16"));
        check("moss:fp16", Some("F16"));
        check("moss:7b", None);
        check("Moss/Moss-7B-Instruct", None);
        check("QwQ-32B", None);
        check("Q", None);
        check("é_Q", None);
        check("", None);
    }

    #[test]
    fn a_field_comes_before_the_root_and_the_root_before_the_name() {
        let mut listing = Listing { name: "moss:q4_0".into(), ..Listing::default() };
        assert_eq!(of(&listing).as_deref(), Some("Q4_0"));
        listing.openai = Some(json!({"root": "/models/Moss-7B-FP8"}));
        assert_eq!(of(&listing).as_deref(), Some("FP8"));
        listing.ps = Some(json!({"details": {"quantization_level": "Q8_0"}}));
        listing.tags = Some(json!({"details": {"quantization_level": "unknown"}}));
        assert_eq!(of(&listing).as_deref(), Some("Q8_0"));
    }
}
