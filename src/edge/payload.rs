//! The client's request as it is sent to one node: as it came, under the node's own name for the model, with
//! options pinned, or in the node's dialect.

use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;

use super::body::BodyError;
use super::budget::Budget;
use super::node::Node;
use super::refusal::Refusal;
use super::tenants::Tenant;
use super::translation::Translation;
use crate::date::rfc3339;
use crate::routing::ask::{Ask, Endpoint};
use crate::routing::name::Naming;
use crate::routing::runner::{Action, Misfit, RunnerOption};
use crate::wire::edit::{Edit, edited};
use crate::wire::peek::{spell, spell_option};
use crate::wire::translate::{self, Translated};

/// A body, held once for all attempts.
pub struct Payload {
    pub bytes: Bytes,
    /// Where it names the model.
    pub model_span: Range<usize>,
    /// What would make it ask for the counts of its stream, if it does not.
    pub usage_edit: Option<Edit>,
    /// Where it gives values of options that a model is loaded with.
    pub option_spans: Vec<(RunnerOption, Range<usize>)>,
}

/// What a node is to be sent.
pub enum Prepared {
    Plain(Bytes),
    Translated(Bytes, Translation),
    /// Nothing, since this is the answer already.
    Answered(Vec<u8>),
}

impl Payload {
    /// With the model in the node's spelling, where that is another than the client's, with options as they are
    /// pinned, and with these edits besides. Nothing but those bytes changes (L9).
    pub fn under(
        &self,
        model: &str,
        ask: &Ask,
        node: &Node,
        misfit: Option<&Misfit>,
        more: Vec<Edit>,
        memory: &Budget,
    ) -> Result<Prepared, Refusal> {
        let naming = node.engine.get().map_or(Naming::Exact, |engine| engine.naming);
        let renamed = !naming.is_same(model, &ask.model);
        let name = renamed.then(|| Edit::replace(self.model_span.clone(), spell(ask.endpoint, model)));
        let edits: Vec<Edit> = name.into_iter().chain(self.pins(misfit)).chain(more).collect();
        if edits.is_empty() {
            return Ok(Prepared::Plain(self.bytes.clone()));
        }
        let body = edited(&self.bytes, edits).ok_or(Refusal::Internal)?;
        held(body, memory).map(Prepared::Plain)
    }

    /// The values of pinned options.
    fn pins(&self, misfit: Option<&Misfit>) -> Vec<Edit> {
        let Some(misfit) = misfit.filter(|misfit| misfit.action == Action::Pinned) else { return Vec::new() };
        let pinned = self.option_spans.iter().filter(|(option, _)| misfit.differing.contains(option));
        let edit = |(option, span): &(RunnerOption, Range<usize>)| {
            Edit::replace(span.clone(), spell_option(*option, misfit.resident.get(*option)))
        };
        pinned.map(edit).collect()
    }

    /// What makes this node tell the counts of a stream whose client did not ask for them, if it can.
    pub fn usage_probe(&self, node: &Node) -> Option<&Edit> {
        self.usage_edit.as_ref().filter(|_| node.engine.get().is_some_and(|engine| engine.counts_on_request))
    }

    /// What keeps the cached prompts of the tenant apart, at an engine that knows of it.
    pub fn salting(&self, endpoint: Endpoint, salt: Option<&Tenant>) -> Vec<Edit> {
        salting(&self.bytes, endpoint, salt)
    }

    /// In the dialect of an engine that speaks OpenAI.
    pub fn translated(
        &self,
        model: &str,
        ask: &Ask,
        salt: Option<&Tenant>,
        memory: &Budget,
    ) -> Result<Prepared, Refusal> {
        match translate::request(ask.endpoint, &self.bytes, model).map_err(Refusal::Untranslatable)? {
            Translated::Call(call) => {
                if !call.dropped.is_empty() {
                    log::debug!("left out for an engine that has nothing like it: {:?}", call.dropped);
                }
                let called = Endpoint::of_path(call.path).ok_or(Refusal::Internal)?;
                let salting = salting(&call.body, called, salt);
                let body = if salting.is_empty() { Some(call.body) } else { edited(&call.body, salting) };
                let body = held(body.ok_or(Refusal::Internal)?, memory)?;
                Ok(Prepared::Translated(body, Translation::new(called, ask.endpoint, &ask.model)))
            }
            Translated::NothingToRun => {
                let now = rfc3339(SystemTime::now());
                Ok(Prepared::Answered(translate::nothing_run(ask.endpoint, &ask.model, &now)))
            }
        }
    }
}

fn salting(body: &[u8], endpoint: Endpoint, salt: Option<&Tenant>) -> Vec<Edit> {
    use Endpoint::{AnthropicMessages, OpenAiChat, OpenAiCompletions, OpenAiResponses};
    let known = matches!(endpoint, OpenAiChat | OpenAiCompletions | OpenAiResponses | AnthropicMessages);
    salt.filter(|_| known).map(|tenant| tenant.salt_edits(body)).unwrap_or_default()
}

fn held(body: Vec<u8>, memory: &Budget) -> Result<Bytes, Refusal> {
    memory.adopt(body).map_err(|_| Refusal::Body(BodyError::NoMemory))
}

#[cfg(test)]
mod tests;
