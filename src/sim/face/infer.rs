//! One request for a model: understood, planned, handed to the engine, answered.
//!
//! A misbehaving node misbehaves here. What cannot be served is refused before the engine hears of it.
//! Every way out ends the journal's entry.

use std::time::SystemTime;

use pingora_core::protocols::http::ServerSession;

use super::answer::{Answer, client_gone};
use super::app::{After, Face, Gone, reply, reply_json};
use super::behaviour::Behaviour;
use super::call::{self, Call};
use super::journal::{Entry, Outcome};
use super::kind::{Overflow, Responses};
use super::params::NodeModel;
use super::refusal::Refusal;
use super::text::{self, Token};
use super::voice::{Ending, Voice, anthropic, ollama};
use crate::routing::ask::Endpoint;
use crate::sim::engine::{Job, Refused};

impl Face {
    pub async fn infer(&self, session: &mut ServerSession, endpoint: Endpoint, body: &[u8]) -> Result<After, Gone> {
        let id = session.get_header("x-request-id").and_then(|id| id.to_str().ok());
        let entry = self.shared.journal.open(endpoint.path(), id);
        let behaviour = self.shared.mood.for_request();
        match behaviour {
            Behaviour::Hang => {
                client_gone(session).await;
                entry.end(Outcome::Misbehaved);
                Ok(After::Cut)
            }
            Behaviour::Close => {
                entry.end(Outcome::Misbehaved);
                Ok(After::Cut)
            }
            Behaviour::Status { status } => {
                entry.end(Outcome::Misbehaved);
                self.refuse(session, &Refusal::Told(status.clamp(400, 599))).await
            }
            _ => self.work(session, endpoint, body, behaviour, entry).await,
        }
    }

    async fn work(
        &self,
        session: &mut ServerSession,
        endpoint: Endpoint,
        body: &[u8],
        behaviour: Behaviour,
        mut entry: Entry,
    ) -> Result<After, Gone> {
        let (call, model) = match self.understand(endpoint, body) {
            Ok(understood) => understood,
            Err(refusal) => {
                entry.end(Outcome::Refused);
                return self.refuse(session, &refusal).await;
            }
        };
        if call.wants_unloading_only() {
            entry.asked(&model.engine.name, self.desk.census());
            return self.unload(session, call, model, entry).await;
        }
        if endpoint == Endpoint::AnthropicCountTokens {
            entry.asked(&model.engine.name, self.desk.census());
            entry.end(Outcome::Done);
            return reply_json(session, 200, &anthropic::count(call.prompt.len())).await;
        }
        let plan = self.plan(&call, model, behaviour);
        let (census, ticket) = self.desk.submit(plan.job);
        entry.asked(&model.engine.name, census);
        let ticket = match ticket {
            Ok(ticket) => ticket,
            Err(refused) => {
                entry.end(outcome(refused));
                return self.refuse(session, &explain(refused, &model.engine.name)).await;
            }
        };
        let keeps = call.store && self.kind().responses == Responses::Stored;
        let answer = Answer {
            ticket,
            entry,
            reason: reason(&call, plan.pieces.len()),
            embedding_length: model.card.embedding_length,
            prompt: plan.prompt,
            pieces: plan.pieces,
            shelf: keeps.then(|| self.shelf.clone()),
            voice: self.voice(call, model),
            die_after: match behaviour {
                Behaviour::Die { after_chunks } => Some(after_chunks as usize),
                _ => None,
            },
        };
        Ok(answer.give(session).await)
    }

    /// The call and its model, or why not.
    fn understand(&self, endpoint: Endpoint, body: &[u8]) -> Result<(Call, &NodeModel), Refusal> {
        let call = call::read(self.kind(), endpoint, body, &|id| self.shelf.talk(id))?;
        let Some(model) = self.shared.params.find(&call.model) else {
            return Err(Refusal::UnknownModel(call.model));
        };
        let talks = endpoint.is_conversation() || endpoint == Endpoint::AnthropicCountTokens;
        let lacks = match (talks, model.card.abilities.embedding) {
            (true, true) => "generate",
            (false, false) => "embeddings",
            _ => return self.check_length(&call, model).map(|()| (call, model)),
        };
        Err(Refusal::Unable { model: model.engine.name.clone(), ability: lacks })
    }

    fn check_length(&self, call: &Call, model: &NodeModel) -> Result<(), Refusal> {
        let wanted = match self.kind().overflow {
            Overflow::Truncated => return Ok(()),
            Overflow::Refused => 1,
            Overflow::RefusedWithOutput => call.output_tokens_max.unwrap_or(1),
        };
        let window = model.engine.context_for(call.context_tokens);
        let tokens = call.prompt.len() as u64 + u64::from(wanted);
        if tokens > u64::from(window) { Err(Refusal::TooLong { tokens, window }) } else { Ok(()) }
    }

    /// The prompt as it fits, the answer as it will be, and the work that makes it.
    fn plan(&self, call: &Call, model: &NodeModel, behaviour: Behaviour) -> Plan {
        let context_tokens = model.engine.context_for(call.context_tokens);
        let mut prompt = call.prompt.clone();
        // As Ollama truncates: the oldest tokens go, and with them the cached beginning.
        prompt.drain(..prompt.len().saturating_sub(context_tokens as usize));
        let pieces = self.answer(call, &prompt);
        let mut tokens = prompt.clone();
        pieces.iter().for_each(|piece| text::cut(piece, &mut tokens));
        let embedded: usize = call.inputs.iter().map(Vec::len).sum();
        let job = Job {
            model: model.engine.name.clone(),
            history: text::history(&tokens),
            prompt_tokens: u32::try_from(prompt.len() + embedded).unwrap_or(u32::MAX),
            output_tokens: u32::try_from(pieces.len()).unwrap_or(u32::MAX),
            context_tokens: call.context_tokens,
            keep_alive: call.keep_alive,
            slowness: match behaviour {
                Behaviour::Crawl { times } => times,
                _ => 1.0,
            },
            tell_tokens: call.stream,
        };
        Plan { prompt, pieces, job }
    }

    /// The answer, a token each. Only prose and JSON can be cut short.
    fn answer(&self, call: &Call, prompt: &[Token]) -> Vec<String> {
        let most = call.output_tokens_max.unwrap_or(u32::MAX);
        match call.form.text() {
            _ if prompt.is_empty() => Vec::new(),
            None => text::answer(prompt, most.min(self.shared.params.answer_tokens)),
            Some(text) if call.form.call().is_some() => text::split(&text),
            Some(text) => text::split(&text).into_iter().take(most as usize).collect(),
        }
    }

    /// An empty prompt that is not to be kept: nothing is loaded for it.
    async fn unload(
        &self,
        session: &mut ServerSession,
        call: Call,
        model: &NodeModel,
        entry: Entry,
    ) -> Result<After, Gone> {
        self.desk.unload(&model.engine.name);
        let stream = call.stream;
        let voice = self.voice(call, model);
        let whole = voice.whole(&Ending::of_unload());
        entry.end(Outcome::Done);
        reply(session, 200, voice.content_type(stream), ollama::line(&whole)).await
    }

    fn voice(&self, call: Call, model: &NodeModel) -> Voice {
        Voice {
            kind: self.kind(),
            model: if call.model.is_empty() { model.engine.name.clone() } else { call.model.clone() },
            call,
            time: SystemTime::now(),
            id: self.shared.next_answer(),
        }
    }
}

/// What is to be done for a call.
struct Plan {
    prompt: Vec<Token>,
    /// The answer, a token each.
    pieces: Vec<String>,
    job: Job,
}

/// Ollama's `done_reason`.
fn reason(call: &Call, output_tokens: usize) -> &'static str {
    let limited = (call.output_tokens_max).is_some_and(|most| most as usize == output_tokens);
    match limited {
        _ if call.wants_model_only() => "load",
        true => "length",
        false => "stop",
    }
}

fn outcome(refused: Refused) -> Outcome {
    match refused {
        Refused::Busy => Outcome::Busy,
        Refused::UnknownModel | Refused::TooLarge => Outcome::Refused,
    }
}

fn explain(refused: Refused, model: &str) -> Refusal {
    match refused {
        Refused::Busy => Refusal::Busy,
        Refused::UnknownModel => Refusal::UnknownModel(model.to_owned()),
        Refused::TooLarge => Refusal::NoMemory,
    }
}
