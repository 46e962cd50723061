//! Ollama's `think`: whether the model thinks before it answers, or how hard.
//!
//! Engines have no field for it; their chat templates have variables, whose names differ by model. Each
//! template takes those it knows: Qwen, GLM and Gemma read `enable_thinking`, DeepSeek and Granite read
//! `thinking`, gpt-oss reads `reasoning_effort`, which vLLM and SGLang also take as a field.

use serde_json::value::RawValue;

use super::draft::Draft;
use super::json::{Json, Object};
use super::raw;
use super::refusal::{Untranslatable, refuse};

const LEVELS: [&str; 3] = ["low", "medium", "high"];

pub(super) fn translate<'a>(think: &'a RawValue, draft: &mut Draft<'a>) -> Result<(), Untranslatable> {
    let level = raw::text(think);
    let on = match (&level, raw::flag(think)) {
        (Some(level), _) if LEVELS.contains(&level.as_ref()) => true,
        (_, Some(on)) => on,
        _ => return refuse("think", "it is neither true, false, \"low\", \"medium\" nor \"high\""),
    };
    let mut variables = Object::of([("enable_thinking", Json::Bool(on)), ("thinking", Json::Bool(on))]);
    if let Some(level) = level {
        variables.put("reasoning_effort", Json::text(level.clone()));
        draft.body.put("reasoning_effort", Json::text(level));
    }
    draft.body.put("chat_template_kwargs", variables.into());
    Ok(())
}
