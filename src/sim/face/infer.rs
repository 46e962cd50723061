//! One request for a model: understood, planned, handed to the engine, answered.
//!
//! A misbehaving node misbehaves here. What cannot be served is refused in Ollama's words and with
//! its statuses, before the engine hears of it. Every way out ends the journal's entry.

use std::time::SystemTime;

use pingora_core::protocols::http::ServerSession;

use super::answer::{Answer, client_gone};
use super::app::{After, Face, Gone, not_found, reply, reply_error};
use super::behaviour::Behaviour;
use super::call::{self, Call};
use super::journal::{Entry, Outcome};
use super::ollama;
use super::params::NodeModel;
use super::service::Service;
use super::text::{self, Token};
use super::voice::{Ending, Voice};
use crate::sim::engine::{Job, Refused};

/// Ollama's words, both blanks included.
const BUSY: &str = "server busy, please try again.  maximum pending requests exceeded";

impl Face {
    pub async fn infer(&self, session: &mut ServerSession, service: Service, body: &[u8]) -> Result<After, Gone> {
        let id = session.get_header("x-request-id").and_then(|id| id.to_str().ok());
        let entry = self.shared.journal.open(service.path, id);
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
                reply_error(session, status.clamp(400, 599), "told to answer with this status").await
            }
            _ => self.work(session, service, body, behaviour, entry).await,
        }
    }

    async fn work(
        &self,
        session: &mut ServerSession,
        service: Service,
        body: &[u8],
        behaviour: Behaviour,
        mut entry: Entry,
    ) -> Result<After, Gone> {
        let (call, model) = match self.understand(service, body) {
            Ok(understood) => understood,
            Err((status, message)) => {
                entry.end(Outcome::Refused);
                return reply_error(session, status, &message).await;
            }
        };
        if call.wants_unloading_only() {
            entry.asked(&model.engine.name, self.desk.census());
            return self.unload(session, &call, model, entry).await;
        }
        let plan = self.plan(&call, model, behaviour);
        let (census, ticket) = self.desk.submit(plan.job);
        entry.asked(&model.engine.name, census);
        let ticket = match ticket {
            Ok(ticket) => ticket,
            Err(refused) => {
                entry.end(outcome(refused));
                let (status, message) = explain(refused, &model.engine.name);
                return reply_error(session, status, &message).await;
            }
        };
        let answer = Answer {
            voice: self.voice(&call),
            ticket,
            entry,
            reason: reason(&call, plan.pieces.len()),
            embedding_length: model.card.embedding_length,
            inputs: call.inputs,
            prompt: plan.prompt,
            pieces: plan.pieces,
            stream: call.stream,
            die_after: match behaviour {
                Behaviour::Die { after_chunks } => Some(after_chunks as usize),
                _ => None,
            },
        };
        Ok(answer.give(session).await)
    }

    /// The call and its model, or the status and sentence to refuse it with.
    fn understand(&self, service: Service, body: &[u8]) -> Result<(Call, &NodeModel), (u16, String)> {
        let call = call::read(service, body).map_err(|message| (400, message))?;
        let Some(model) = self.shared.params.find(&call.model) else {
            return Err((404, not_found(&call.model)));
        };
        let lacks = match (service.endpoint.is_conversation(), model.card.abilities.embedding) {
            (true, true) => "generate",
            (false, false) => "embeddings",
            _ => return Ok((call, model)),
        };
        let name = &model.engine.name;
        Err((400, format!("\"{name}\" does not support {lacks}")))
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
        call: &Call,
        model: &NodeModel,
        entry: Entry,
    ) -> Result<After, Gone> {
        self.desk.unload(&model.engine.name);
        let voice = self.voice(call);
        let whole = voice.whole("", &Ending::of_unload());
        entry.end(Outcome::Done);
        reply(session, 200, voice.content_type(call.stream), ollama::line(&whole)).await
    }

    fn voice(&self, call: &Call) -> Voice {
        Voice {
            service: call.service,
            model: call.model.clone(),
            include_usage: call.include_usage,
            form: call.form.clone(),
            base64: call.base64,
            time: SystemTime::now(),
            number: self.shared.next_answer(),
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

fn explain(refused: Refused, model: &str) -> (u16, String) {
    match refused {
        Refused::Busy => (503, BUSY.into()),
        Refused::UnknownModel => (404, not_found(model)),
        Refused::TooLarge => (500, "model requires more system memory than is available".into()),
    }
}
