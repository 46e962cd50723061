//! Ollama's `options`, one rule each.
//!
//! Sampling goes over under the names that vLLM, SGLang and llama.cpp read; where these differ, under all
//! of them, and each takes its own. What shapes the runner (threads, memory, batches) is left out and noted:
//! it cannot change an answer. A sampler that such engines lack is refused unless it is switched off.

use serde_json::value::RawValue;

use super::draft::Draft;
use super::fields::Fields;
use super::json::Json;
use super::raw;
use super::refusal::{Untranslatable, refuse};

enum Rule {
    /// Written under these names.
    As(&'static [&'static str]),
    /// A limit on the answer's tokens.
    Limit,
    /// Of no matter to the answer.
    Runner,
    /// Harmless only at this value.
    Off(f64),
}

const RULES: [(&str, Rule); 33] = [
    ("draft_num_predict", Rule::Runner),
    ("embedding_only", Rule::Runner),
    ("f16_kv", Rule::Runner),
    ("frequency_penalty", Rule::As(&["frequency_penalty"])),
    ("logits_all", Rule::Runner),
    ("low_vram", Rule::Runner),
    ("main_gpu", Rule::Runner),
    ("min_p", Rule::As(&["min_p"])),
    ("mirostat", Rule::Off(0.0)),
    // These two only tune mirostat.
    ("mirostat_eta", Rule::Runner),
    ("mirostat_tau", Rule::Runner),
    ("num_batch", Rule::Runner),
    ("num_ctx", Rule::Runner),
    ("num_gpu", Rule::Runner),
    ("num_gqa", Rule::Runner),
    ("num_keep", Rule::Runner),
    ("num_predict", Rule::Limit),
    ("num_thread", Rule::Runner),
    ("numa", Rule::Runner),
    // Today's Ollama ignores it, too.
    ("penalize_newline", Rule::Runner),
    ("presence_penalty", Rule::As(&["presence_penalty"])),
    // The engines' penalties look at everything, which is what -1 means.
    ("repeat_last_n", Rule::Off(-1.0)),
    // vLLM and SGLang read the first, llama.cpp the second.
    ("repeat_penalty", Rule::As(&["repetition_penalty", "repeat_penalty"])),
    ("seed", Rule::As(&["seed"])),
    ("stop", Rule::As(&["stop"])),
    ("temperature", Rule::As(&["temperature"])),
    ("tfs_z", Rule::Off(1.0)),
    ("top_k", Rule::As(&["top_k"])),
    ("top_p", Rule::As(&["top_p"])),
    ("typical_p", Rule::Off(1.0)),
    ("use_mlock", Rule::Runner),
    ("use_mmap", Rule::Runner),
    ("vocab_only", Rule::Runner),
];

/// Writes the options of a request that runs the model over a text.
pub(super) fn translate<'a>(raw: &'a RawValue, draft: &mut Draft<'a>) -> Result<(), Untranslatable> {
    for (name, rule, value) in known(raw)? {
        match rule {
            Rule::As(names) => names.iter().for_each(|name| draft.body.put(name, Json::Raw(value))),
            Rule::Limit => draft.body.put_some("max_tokens", limit(value)?),
            Rule::Runner => draft.dropped.push(name),
            Rule::Off(harmless) if raw::number(value) == Some(*harmless) => draft.dropped.push(name),
            Rule::Off(_) => return refuse(&format!("options.{name}"), "such an engine has no sampler of this kind"),
        }
    }
    Ok(())
}

/// Leaves out the options of a request for embeddings: none of them changes a vector.
pub(super) fn drop_all<'a>(raw: &'a RawValue, draft: &mut Draft<'a>) -> Result<(), Untranslatable> {
    draft.dropped.extend(known(raw)?.into_iter().map(|(name, ..)| name));
    Ok(())
}

type Known<'a> = (&'static str, &'static Rule, &'a RawValue);

/// The options that say something, each with its rule.
fn known(raw: &RawValue) -> Result<Vec<Known<'_>>, Untranslatable> {
    let fields = Fields::of(raw).ok_or_else(|| Untranslatable::new("options", super::fields::UNREADABLE))?;
    let members = fields.into_members().into_iter().filter(|(_, value)| value.get() != "null");
    members
        .map(|(name, value)| match RULES.iter().find(|(known, _)| *known == name) {
            Some((name, rule)) => Ok((*name, rule, value)),
            None => refuse(&format!("options.{name}"), "no option of this name is known"),
        })
        .collect()
}

/// Zero and less mean no limit to Ollama, which engines say by absence.
fn limit(raw: &RawValue) -> Result<Option<Json<'_>>, Untranslatable> {
    match raw::number(raw) {
        Some(n) => Ok((n >= 1.0).then_some(Json::Count(n as u64))),
        None => refuse("options.num_predict", "it is not a number"),
    }
}
