//! A request's body, read once from its first byte to its last.
//!
//! Only top-level keys are looked at, each where its endpoint knows it; all others are walked over. What
//! is found is kept as it was said: what it means (a missing model, a default) is for `peek`.

use serde::de::{MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::digest::{Digest, Digester};
use super::item::Input;
use super::key::folded;
use super::message::{Images, Messages, System};
use super::prompt::{Ids, Prompt};
use super::size::Size;
use super::steps::{Kind, Step};
use super::turn::Attachments;
use super::value::{Scalar, Skip, Take, Taker, key, scalar};
use crate::routing::ask::{Dialect, Endpoint};
use crate::routing::chain::{Chain, Link, hash_text, mix};
use crate::routing::runner::{RunnerOption, RunnerOptions};

/// What a body said, by top-level key.
#[derive(Default)]
pub(super) struct Body<'de> {
    pub is_object: bool,
    pub model: Said<'de>,
    /// Ollama's older spelling of `model`.
    pub name: Said<'de>,
    pub stream: Option<bool>,
    pub stream_options: Said<'de>,
    pub max_tokens: Option<u32>,
    pub max_completion_tokens: Option<u32>,
    pub options: Options<'de>,
    /// Ollama's `think` asks for thoughts.
    pub thinks: bool,
    pub cache_key: Option<u64>,
    pub previous_response: Option<u64>,
    /// It names models besides `model`, for gateways such as LiteLLM to try in its place.
    pub names_others: bool,
    pub tools: Tools,
    context: Ids,
    system: Messages,
    messages: Messages,
    prompt: Prompt,
    images: Attachments,
}

/// A key's value as it stands in the body, and whether the key came twice.
#[derive(Default)]
pub(super) struct Said<'de> {
    pub raw: Option<&'de RawValue>,
    pub twice: bool,
}

impl<'de> Said<'de> {
    pub fn again(&mut self, raw: &'de RawValue) {
        self.twice = self.raw.is_some();
        self.raw = Some(raw);
    }
}

impl Body<'_> {
    /// The whole prompt as a chain, and how large it is.
    pub fn into_chain(mut self) -> (Chain, Size) {
        self.prompt.close(self.images);
        let (first_user, answers) = (self.messages.first_user, self.messages.answers);
        let first_piece = (!self.prompt.steps.is_empty()).then_some(0);
        let mut links = Linker::default();
        links.append(self.tools.step());
        links.append(self.context.step());
        links.append(self.system.steps);
        let messages_at = links.append(self.messages.steps);
        let prompt_at = links.append(self.prompt.steps);
        let root = first_user.map(|at| messages_at + at).or(first_piece.map(|at| prompt_at + at));
        links.finish(root, answers)
    }
}

/// Chains steps in the order in which the model reads them.
#[derive(Default)]
struct Linker {
    links: Vec<Link>,
    size: Size,
}

impl Linker {
    /// Where the first of these steps stands.
    fn append(&mut self, steps: impl IntoIterator<Item = Step>) -> usize {
        let at = self.links.len();
        for step in steps {
            self.size += step.size;
            let before = self.links.last().map_or(0, |link| link.hash);
            let (tokens, ends_message) = (self.size.tokens(), step.ends_message);
            self.links.push(Link { hash: mix(before, step.hash), tokens, ends_message });
        }
        at
    }

    fn finish(self, root: Option<usize>, answers: u32) -> (Chain, Size) {
        let last = self.links.len().saturating_sub(1);
        let root = u32::try_from(root.unwrap_or(last)).unwrap_or(u32::MAX);
        (Chain { links: self.links, root, answers }, self.size)
    }
}

/// Reads a body for one endpoint.
pub(super) struct Reader<'b, 'de> {
    pub endpoint: Endpoint,
    pub body: &'b mut Body<'de>,
}

#[derive(Clone, Copy)]
enum Field {
    Model,
    Name,
    Stream,
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    Options,
    Think,
    CacheKey,
    Tools,
    System,
    Messages,
    Input,
    PreviousResponse,
    Context,
    Images,
    Prompt,
    Others,
    Other,
}

impl Field {
    fn of(key: &str, endpoint: Endpoint) -> Field {
        use Endpoint::*;
        let folded = folded(key);
        // Of other engines it is not known in which case they read; two models never pass for one.
        let key = if endpoint.dialect() == Dialect::Ollama || folded == "model" { &folded } else { key };
        match (key, endpoint) {
            ("model", _) => Field::Model,
            ("name", endpoint) if endpoint.dialect() == Dialect::Ollama => Field::Name,
            ("stream", _) => Field::Stream,
            ("stream_options", OpenAiChat | OpenAiCompletions) => Field::StreamOptions,
            ("max_tokens", _) => Field::MaxTokens,
            ("max_completion_tokens", _) => Field::MaxCompletionTokens,
            ("options", endpoint) if endpoint.dialect() == Dialect::Ollama => Field::Options,
            ("think", OllamaChat | OllamaGenerate) => Field::Think,
            ("prompt_cache_key", _) => Field::CacheKey,
            ("tools", OllamaChat | OpenAiChat | OpenAiResponses | AnthropicMessages | AnthropicCountTokens) => {
                Field::Tools
            }
            ("system", OllamaChat | OpenAiChat | OllamaGenerate | AnthropicMessages | AnthropicCountTokens) => {
                Field::System
            }
            ("messages", OllamaChat | OpenAiChat | AnthropicMessages | AnthropicCountTokens) => Field::Messages,
            ("instructions", OpenAiResponses) => Field::System,
            ("input", OpenAiResponses) => Field::Input,
            ("max_output_tokens", OpenAiResponses) => Field::MaxTokens,
            ("previous_response_id", OpenAiResponses) => Field::PreviousResponse,
            ("context", OllamaGenerate) => Field::Context,
            ("images", OllamaGenerate) => Field::Images,
            ("prompt", OllamaGenerate | OpenAiCompletions | OllamaEmbeddings) => Field::Prompt,
            ("input", OllamaEmbed | OpenAiEmbeddings | OpenAiSpeech) => Field::Prompt,
            (
                "fallbacks"
                | "context_window_fallbacks"
                | "content_policy_fallbacks"
                | "context_window_fallback_dict"
                | "models",
                endpoint,
            ) if endpoint.dialect() != Dialect::Ollama => Field::Others,
            ("query" | "documents" | "texts", OpenAiRerank) => Field::Prompt,
            _ => Field::Other,
        }
    }
}

impl<'de> Taker<'de> for Reader<'_, 'de> {
    type Out = ();

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let body = self.body;
        body.is_object = true;
        while let Some(field) = fields.next_key_seed(key(|name| Field::of(name, self.endpoint)))? {
            match field {
                Field::Model => body.model.again(fields.next_value()?),
                Field::Name => body.name.again(fields.next_value()?),
                Field::Stream => body.stream = fields.next_value_seed(scalar(as_bool))?,
                Field::StreamOptions => body.stream_options.again(fields.next_value()?),
                Field::MaxTokens => body.max_tokens = fields.next_value_seed(scalar(limit))?,
                Field::MaxCompletionTokens => body.max_completion_tokens = fields.next_value_seed(scalar(limit))?,
                Field::Options => fields.next_value_seed(Take(&mut body.options))?,
                Field::Think => body.thinks = fields.next_value_seed(scalar(|said| said.is_filled()))?,
                Field::CacheKey => body.cache_key = fields.next_value_seed(scalar(name_hash))?,
                Field::Tools => body.tools = fields.next_value_seed(Take(ToolsReader))?,
                Field::System => fields.next_value_seed(Take(System(&mut body.system)))?,
                Field::Messages => fields.next_value_seed(Take(&mut body.messages))?,
                Field::Input => fields.next_value_seed(Take(Input(&mut body.messages)))?,
                Field::PreviousResponse => body.previous_response = fields.next_value_seed(scalar(name_hash))?,
                Field::Context => fields.next_value_seed(Take(&mut body.context))?,
                Field::Images => fields.next_value_seed(Take(Images(&mut body.images)))?,
                Field::Prompt => fields.next_value_seed(Take(&mut body.prompt))?,
                Field::Others => {
                    body.names_others = true;
                    fields.next_value_seed(Take(Skip))?;
                }
                Field::Other => fields.next_value_seed(Take(Skip))?,
            }
        }
        Ok(())
    }
}

fn as_bool(scalar: Scalar<'_>) -> Option<bool> {
    match scalar {
        Scalar::Bool(b) => Some(b),
        _ => None,
    }
}

/// A limit on tokens; zero and less mean none.
fn limit(scalar: Scalar<'_>) -> Option<u32> {
    scalar.count_u32().filter(|&n| n > 0)
}

fn name_hash(scalar: Scalar<'_>) -> Option<u64> {
    scalar.text().filter(|name| !name.is_empty()).map(hash_text)
}

/// Ollama's `options`, as far as routing cares. Should they come twice, Ollama joins them.
#[derive(Debug, Default)]
pub(super) struct Options<'de> {
    pub num_predict: Option<u32>,
    /// Those that a model is loaded with, of which the last one counts.
    pub runner: RunnerOptions,
    /// Every value of theirs.
    pub spans: Vec<(RunnerOption, &'de RawValue)>,
    count: usize,
}

/// Options that a model is loaded with in one body; there are seven. A body with more is not looked into.
const RUNNER_OPTIONS_MAX: usize = 32;

#[derive(Clone, Copy)]
enum OptionField {
    NumPredict,
    Runner(RunnerOption),
    Other,
}

impl OptionField {
    fn of(name: &str) -> OptionField {
        match RunnerOption::of_name(name) {
            Some(option) => OptionField::Runner(option),
            None if name == "num_predict" => OptionField::NumPredict,
            None => OptionField::Other,
        }
    }
}

impl<'de> Taker<'de> for &mut Options<'de> {
    type Out = ();

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key_seed(key(OptionField::of))? {
            match field {
                OptionField::NumPredict => self.num_predict = fields.next_value_seed(scalar(limit))?,
                OptionField::Runner(option) => self.say(option, fields.next_value()?),
                OptionField::Other => fields.next_value_seed(Take(Skip))?,
            }
        }
        Ok(())
    }
}

impl<'de> Options<'de> {
    fn say(&mut self, option: RunnerOption, raw: &'de RawValue) {
        self.count += 1;
        if self.count > RUNNER_OPTIONS_MAX {
            self.runner = RunnerOptions::default();
            self.spans.clear();
            return;
        }
        let value = runner_value(option, raw.get());
        self.runner.set(option, value);
        if value.is_some() {
            self.spans.push((option, raw));
        }
    }
}

/// `None` for what Ollama would not take as a value of that option.
fn runner_value(option: RunnerOption, json: &str) -> Option<i32> {
    let saturated = |value: f64| value.clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i32;
    match option {
        RunnerOption::UseMmap => json.parse::<bool>().ok().map(i32::from),
        // JSON's numbers are among those that Rust reads; its texts and the rest are not.
        RunnerOption::NumCtx => json.parse::<f64>().ok().map(saturated).filter(|tokens| *tokens > 0),
        _ => json.parse::<f64>().ok().map(saturated),
    }
}

/// The list of tools; anything but a list with something in it counts as none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tools(Option<Digest>);

impl Tools {
    pub fn any(self) -> bool {
        self.0.is_some()
    }

    fn step(self) -> Option<Step> {
        let digest = self.0?;
        let size = Size { tool_chars: digest.chars, ..Size::default() };
        Some(Step { hash: mix(Kind::Tools as u64, digest.hash), size, ends_message: true })
    }
}

struct ToolsReader;

impl<'de> Taker<'de> for ToolsReader {
    type Out = Tools;

    fn items<A: SeqAccess<'de>>(self, items: A) -> Result<Tools, A::Error> {
        let digest = Digester::default().items(items)?;
        Ok(Tools((!digest.empty).then_some(digest)))
    }
}
