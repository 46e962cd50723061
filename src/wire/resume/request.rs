//! The client's request, with the answer so far at its end.
//!
//! Nothing else is added: no words of ours, and none that the client did not get. Limits on the answer are
//! lowered by what has been said.

use serde::Serialize;
use serde_json::value::RawValue;

use super::follower::Said;
use super::members::{Members, is_filled, last_item, span, text};
use super::{Kind, Unfit};
use crate::wire::edit::Edit;

/// What of a request binds its output, or asks to see more than text.
const BINDING: [&str; 23] = [
    "format",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "n_probs",
    "echo",
    "use_beam_search",
    "function_call",
    "audio",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "return_hidden_states",
    "return_progress",
];

/// How many answers.
const NUMBERS: [&str; 2] = ["n", "best_of"];

/// The most tokens of an answer, in engines' spellings.
const LIMITS: [&str; 4] = ["max_tokens", "max_completion_tokens", "n_predict", "num_predict"];

/// The least.
const LEAST: &str = "min_tokens";

/// How the last message is to be taken.
const TAKING: [&str; 2] = ["continue_final_message", "add_generation_prompt"];

/// What has to be changed in a request, so that its answer begins where another ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Behind the brace that opens the request; `None`: nothing was said, so that nothing is added.
    at: Option<usize>,
    edits: Vec<Edit>,
}

impl Prefix {
    /// For the client's own request.
    pub fn of(kind: Kind, body: &[u8], said: &Said) -> Result<Prefix, Unfit> {
        let json = std::str::from_utf8(body).map_err(|_| Unfit::Odd)?;
        let json = json.trim_start_matches('\u{feff}');
        let members = Members::read(json).ok_or(Unfit::Odd)?;
        let messages = members.get("messages").ok_or(Unfit::Odd)?;
        let last = last_item(messages.get()).and_then(|last| Members::read(last.get())).ok_or(Unfit::Odd)?;
        if text(last.get("role")).is_none_or(|role| role == "assistant")
            || TAKING.iter().any(|name| members.get(name).is_some())
        {
            return Err(Unfit::Prefilled);
        }
        if is_bound(&members) {
            return Err(Unfit::Bound);
        }
        let thought = !said.thinking.is_empty();
        if thought && (said.given().is_empty() || kind == Kind::OpenAi) {
            return Err(Unfit::Thinking);
        }
        if said.given().is_empty() {
            return Ok(Prefix::default());
        }
        let brace = body.iter().position(|&b| b == b'{').ok_or(Unfit::Odd)?;
        let mut edits = limits(body, &members, said.output_tokens())?;
        edits.push(Edit::insert(span(body, messages).end.saturating_sub(1), message(said)));
        Ok(Prefix { at: Some(brace + 1), edits })
    }

    /// For a node that takes the last message for the beginning of its answer if these members say so.
    pub fn edits(&self, members: &'static str) -> Vec<Edit> {
        let saying = self.at.filter(|_| !members.is_empty()).map(|at| Edit::insert(at, members.as_bytes()));
        self.edits.iter().cloned().chain(saying).collect()
    }
}

fn is_bound(members: &Members<'_>) -> bool {
    let other_form = |raw: &RawValue| {
        let form = Members::read(raw.get()).and_then(|form| text(form.get("type")));
        form.as_deref() != Some("text")
    };
    let chooses = |raw: &RawValue| !matches!(raw.get(), "\"auto\"" | "\"none\"");
    let more_than_one = |name: &&str| members.filled(name).is_some_and(|raw| raw.get() != "1");
    BINDING.iter().any(|name| members.filled(name).is_some())
        || NUMBERS.iter().any(more_than_one)
        || members.filled("response_format").is_some_and(other_form)
        || members.filled("tool_choice").is_some_and(chooses)
}

fn limits(body: &[u8], members: &Members<'_>, said_tokens: u32) -> Result<Vec<Edit>, Unfit> {
    let options = members.get("options").filter(|raw| is_filled(raw));
    let options = options.map(|raw| Members::read(raw.get()).ok_or(Unfit::Odd)).transpose()?.unwrap_or_default();
    let mut edits = Vec::new();
    for raw in LIMITS.iter().flat_map(|name| [members.get(name), options.get(name)]).flatten() {
        // Less than nothing, and anything that is no number, is no limit.
        if let Some(limit) = raw.get().parse::<u64>().ok().filter(|limit| *limit > 0) {
            let left = limit.saturating_sub(u64::from(said_tokens));
            if left == 0 {
                return Err(Unfit::AtItsLimit);
            }
            edits.push(Edit::replace(span(body, raw), left.to_string().into_bytes()));
        }
    }
    if let Some((raw, least)) = members.get(LEAST).and_then(|raw| Some((raw, raw.get().parse::<u64>().ok()?))) {
        let left = least.saturating_sub(u64::from(said_tokens));
        edits.push(Edit::replace(span(body, raw), left.to_string().into_bytes()));
    }
    Ok(edits)
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: &'a str,
}

fn message(said: &Said) -> Vec<u8> {
    let message = Message { role: "assistant", content: said.given(), thinking: &said.thinking };
    // Texts in a struct cannot fail to be written.
    [b",".to_vec(), serde_json::to_vec(&message).unwrap_or_default()].concat()
}
