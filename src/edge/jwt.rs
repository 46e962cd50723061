//! Tokens that name a tenant: which configuration of them is in force, and the keys they are checked with.
//!
//! A token is believed only when a key of the issuer's has signed it, and while it lasts. Keys from a URL are
//! fetched in the background and kept until others have come; before the first have come a token is neither
//! good nor bad, and its client is asked to come again. No token is ever logged or quoted.

mod fault;
mod fetching;
mod signatures;
#[cfg(test)]
mod tests;
mod verifier;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use fault::TokenFault;
pub use fetching::{keep, look};
use verifier::Verifier;

use super::refusal::Refusal;
use crate::config::{Jwks, JwksUrl, Jwt, SigningKeys};

/// Between two looks at a URL.
const FETCH_EVERY: Duration = Duration::from_secs(300);

/// After one that failed.
const FETCH_AGAIN: Duration = Duration::from_secs(15);

/// Anybody can name an unknown key; that makes us look no more often than this.
const FETCH_FOR_UNKNOWN_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Tokens {
    in_force: ArcSwapOption<InForce>,
    /// Held while `in_force` changes.
    looks: Mutex<Looks>,
    /// Told when a look is due earlier than it was.
    sooner: Notify,
}

struct InForce {
    jwt: Jwt,
    /// With the keys it was made of; `None`: they were not fetched yet.
    verifier: Option<(SigningKeys, Verifier)>,
}

/// When the URL is asked.
struct Looks {
    due: Instant,
    /// Since an unknown key was named and until the look for it is over.
    for_unknown: bool,
    last_for_unknown: Option<Instant>,
    /// When keys last came from the URL.
    fetched: Option<Instant>,
    /// Why none have come since; `None`: the last look was good.
    error: Option<String>,
}

impl Tokens {
    pub fn of(jwt: Option<&Jwt>) -> Tokens {
        let tokens = Tokens::default();
        tokens.renew(jwt);
        tokens
    }

    /// Takes another configuration; keys that were fetched stay while their URL does.
    pub fn renew(&self, jwt: Option<&Jwt>) {
        let mut looks = self.looks.lock();
        let before = self.in_force.load_full();
        if before.as_ref().map(|before| &before.jwt) == jwt {
            return;
        }
        let keys = jwt.and_then(|jwt| match &jwt.jwks {
            Jwks::File { keys, .. } => Some(keys.clone()),
            Jwks::Url(_) => before.as_ref().filter(|before| before.jwt.jwks == jwt.jwks)?.keys().cloned(),
        });
        if keys.is_none() {
            *looks = Looks::default();
            self.sooner.notify_one();
        }
        self.in_force.store(jwt.map(|jwt| Arc::new(InForce::of(jwt.clone(), keys))));
    }

    /// The tenant that a token names, if it is to be believed. `None`: this is no token, or none is taken.
    pub fn tenant_of(&self, token: &str) -> Option<Result<Arc<str>, Refusal>> {
        if !looks_like_token(token) {
            return None;
        }
        let in_force = self.in_force.load_full()?;
        let Some((_, verifier)) = &in_force.verifier else { return Some(Err(Refusal::NoTokenKeys)) };
        let found = verifier.tenant_of(token, Instant::now());
        Some(found.map_err(|fault| match fault {
            TokenFault::UnknownSigner if in_force.url().is_some() && self.looks_for_unknown(Instant::now()) => {
                Refusal::NoTokenKeys
            }
            fault => Refusal::BadToken(fault),
        }))
    }

    /// A token names a key that is not here: whether it may come with a look that is due or under way.
    fn looks_for_unknown(&self, now: Instant) -> bool {
        let mut looks = self.looks.lock();
        let is_long_ago = |last: Instant| now.saturating_duration_since(last) >= FETCH_FOR_UNKNOWN_EVERY;
        if !looks.for_unknown && looks.last_for_unknown.is_none_or(is_long_ago) {
            (looks.due, looks.for_unknown, looks.last_for_unknown) = (now, true, Some(now));
            self.sooner.notify_one();
        }
        looks.for_unknown
    }

    /// Where the keys are, how many, how old, and what is wrong; null: no tokens are taken.
    pub fn to_json(&self) -> Value {
        let looks = self.looks.lock();
        let Some(in_force) = self.in_force.load_full() else { return Value::Null };
        json!({
            "jwks": in_force.jwt.jwks.to_string(),
            "keys": in_force.keys().map_or(0, |keys| keys.iter().count()),
            "age_s": looks.fetched.map(|at| at.elapsed().as_secs()),
            "last_error": looks.error,
        })
    }

    /// A look at the URL came to nothing.
    fn failed(&self, why: &str) {
        self.looks.lock().error = Some(why.to_owned());
    }

    fn due(&self) -> Instant {
        self.looks.lock().due
    }

    /// Where keys are to be fetched.
    fn url(&self) -> Option<JwksUrl> {
        self.in_force.load().as_ref()?.url().cloned()
    }

    /// What came of a look at a URL, or that there was none to look at.
    fn looked(&self, url: Option<&JwksUrl>, found: Option<SigningKeys>) {
        let mut looks = self.looks.lock();
        let in_force = self.in_force.load_full();
        // Another configuration came meanwhile: its look is due.
        let Some(in_force) = in_force.filter(|in_force| in_force.url() == url) else {
            if url.is_none() && self.url().is_none() {
                looks.due = Instant::now() + FETCH_EVERY;
            }
            return;
        };
        looks.due = Instant::now() + if found.is_none() && url.is_some() { FETCH_AGAIN } else { FETCH_EVERY };
        looks.for_unknown = false;
        if found.is_some() {
            (looks.fetched, looks.error) = (Some(Instant::now()), None);
        }
        // With the same keys, what they have proven stays.
        if let Some(keys) = found.filter(|keys| in_force.keys() != Some(keys)) {
            self.in_force.store(Some(Arc::new(InForce::of(in_force.jwt.clone(), Some(keys)))));
        }
    }
}

impl InForce {
    fn of(jwt: Jwt, keys: Option<SigningKeys>) -> InForce {
        let verifier = keys.map(|keys| {
            let verifier = Verifier::of(&jwt, &keys);
            (keys, verifier)
        });
        InForce { jwt, verifier }
    }

    fn keys(&self) -> Option<&SigningKeys> {
        self.verifier.as_ref().map(|(keys, _)| keys)
    }

    fn url(&self) -> Option<&JwksUrl> {
        match &self.jwt.jwks {
            Jwks::Url(url) => Some(url),
            Jwks::File { .. } => None,
        }
    }
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { due: Instant::now(), for_unknown: false, last_for_unknown: None, fetched: None, error: None }
    }
}

/// Three parts of base64url; the last is empty where nobody signed.
fn looks_like_token(text: &str) -> bool {
    let is_base64 = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let parts: Vec<&str> = text.splitn(4, '.').collect();
    match parts.as_slice() {
        [header, claims, signature] => {
            !header.is_empty() && !claims.is_empty() && [*header, *claims, *signature].into_iter().all(is_base64)
        }
        _ => false,
    }
}
