//! Whether one token is to be believed, by one set of keys and one configuration.
//!
//! What was proven is remembered for a moment, by the token's hash, so that a client is not checked anew with
//! every request. Only good tokens are; they go with the keys that proved them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{DecodingKey, Header, Validation, decode, decode_header};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::fault::TokenFault;
use super::signatures;
use crate::config::{Jwt, KeyHash, SigningKey, SigningKeys, is_symmetric};

/// What servers take as a header at most; a token with a hundred groups in it is half as long.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// How far the clocks of an issuer and this machine may differ.
const LEEWAY_S: u64 = 30;

/// A token that is taken back is good for so long here at most.
const REMEMBERED_MAX: Duration = Duration::from_secs(60);

/// About half a megabyte. More tokens than that within a minute are checked more often.
const TOKENS_REMEMBERED_MAX: usize = 4096;

pub struct Verifier {
    keys: Vec<Key>,
    claim: String,
    known: Mutex<HashMap<KeyHash, Known>>,
}

struct Key {
    id: Option<String>,
    key: DecodingKey,
    /// What it may be used for, and what the claims must be.
    terms: Validation,
}

struct Known {
    tenant: Arc<str>,
    until: Instant,
}

impl Verifier {
    pub fn of(jwt: &Jwt, keys: &SigningKeys) -> Verifier {
        signatures::install();
        let keys = keys
            .iter()
            .filter_map(|key| Some(Key { id: key.id.clone(), key: key.decoding()?, terms: terms(jwt, key)? }));
        Verifier { keys: keys.collect(), claim: jwt.claim.clone(), known: Mutex::default() }
    }

    /// The name of the tenant, who may not be one of ours.
    pub fn tenant_of(&self, token: &str, now: Instant) -> Result<Arc<str>, TokenFault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenFault::TooLong);
        }
        let hash = KeyHash::of(token);
        if let Some(known) = self.known.lock().get(&hash).filter(|known| known.until > now) {
            return Ok(known.tenant.clone());
        }
        let claims = self.claims_of(token)?;
        let tenant = claims.get(&self.claim).and_then(Value::as_str).ok_or(TokenFault::NoTenant)?;
        let tenant: Arc<str> = tenant.into();
        self.remember(hash, Known { tenant: tenant.clone(), until: now + lasts(&claims).min(REMEMBERED_MAX) }, now);
        Ok(tenant)
    }

    fn claims_of(&self, token: &str) -> Result<Map<String, Value>, TokenFault> {
        let header = decode_header(token).map_err(|_| TokenFault::Unreadable)?;
        let key = self.signer(&header)?;
        Ok(decode::<Map<String, Value>>(token, &key.key, &key.terms)?.claims)
    }

    /// The key that is said to have signed it, which must be one that signs that way.
    fn signer(&self, header: &Header) -> Result<&Key, TokenFault> {
        if is_symmetric(header.alg) {
            return Err(TokenFault::Algorithm);
        }
        let mut named: Vec<&Key> = match &header.kid {
            Some(kid) => self.keys.iter().filter(|key| key.id.as_ref() == Some(kid)).collect(),
            None if self.keys.len() == 1 => self.keys.iter().collect(),
            None => return Err(TokenFault::NoSigner),
        };
        if named.is_empty() {
            return Err(TokenFault::UnknownSigner);
        }
        named.retain(|key| key.terms.algorithms.contains(&header.alg));
        named.first().copied().ok_or(TokenFault::Algorithm)
    }

    fn remember(&self, hash: KeyHash, token: Known, now: Instant) {
        let mut known = self.known.lock();
        if known.len() >= TOKENS_REMEMBERED_MAX {
            known.retain(|_, known| known.until > now);
        }
        if known.len() >= TOKENS_REMEMBERED_MAX {
            known.clear();
        }
        if token.until > now {
            known.insert(hash, token);
        }
    }
}

fn terms(jwt: &Jwt, key: &SigningKey) -> Option<Validation> {
    let mut terms = Validation::new(*key.algorithms.first()?);
    terms.algorithms = key.algorithms.clone();
    terms.leeway = LEEWAY_S;
    terms.validate_nbf = true;
    // A token for others, where nobody is told to look, is not refused for that.
    terms.validate_aud = jwt.audience.is_some();
    terms.aud = jwt.audience.clone().map(|audience| [audience].into());
    terms.iss = jwt.issuer.clone().map(|issuer| [issuer].into());
    let needed = [Some("exp"), jwt.issuer.as_ref().map(|_| "iss"), jwt.audience.as_ref().map(|_| "aud")];
    terms.set_required_spec_claims(&needed.into_iter().flatten().collect::<Vec<_>>());
    Some(terms)
}

/// For how long a token has still to go.
fn lasts(claims: &Map<String, Value>) -> Duration {
    let expires_s = claims.get("exp").and_then(Value::as_f64).unwrap_or(0.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(expires_s as u64).saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Issuer, claims, jwt, now_s};
    use super::*;
    use crate::config::Jwks;

    fn verifier(issuer: &Issuer) -> Verifier {
        let keys = issuer.keys();
        Verifier::of(&jwt(Jwks::File { path: "x".into(), keys: keys.clone() }), &keys)
    }

    #[test]
    fn a_good_token_is_remembered_for_a_minute_or_until_it_expires() {
        let issuer = Issuer::new();
        let now = Instant::now();
        let remembered = |exp_s: i64| {
            let verifier = verifier(&issuer);
            let _ = verifier.tenant_of(&issuer.token(&claims(json!({"exp": exp_s}))), now);
            verifier.known.into_inner().into_values().map(|known| known.until - now).next()
        };
        assert_eq!(remembered(now_s() + 3600), Some(REMEMBERED_MAX));
        assert!(remembered(now_s() + 20).is_some_and(|lasts| lasts <= Duration::from_secs(20)));
        assert_eq!(remembered(now_s() - 5), None, "only the leeway lets it in");
        assert_eq!(remembered(now_s() - 3600), None);
    }

    #[test]
    fn what_is_remembered_is_not_checked_again_until_then() {
        let issuer = Issuer::new();
        let (verifier, now) = (verifier(&issuer), Instant::now());
        let token = issuer.token(&claims(json!({})));
        assert_eq!(verifier.tenant_of(&token, now).as_deref(), Ok("a"));
        let forged = Known { tenant: "forged".into(), until: now + REMEMBERED_MAX };
        verifier.known.lock().insert(KeyHash::of(&token), forged);
        assert_eq!(verifier.tenant_of(&token, now).as_deref(), Ok("forged"));
        assert_eq!(verifier.tenant_of(&token, now + REMEMBERED_MAX).as_deref(), Ok("a"));
    }

    #[test]
    fn no_more_is_remembered_than_may_be() {
        let (verifier, now) = (verifier(&Issuer::new()), Instant::now());
        let known = |seconds| Known { tenant: "a".into(), until: now + Duration::from_secs(seconds) };
        for n in 0..TOKENS_REMEMBERED_MAX {
            verifier.remember(KeyHash::of(&n.to_string()), known(if n % 2 == 0 { 1 } else { 60 }), now);
        }
        let later = now + Duration::from_secs(1);
        verifier.remember(KeyHash::of("one more"), known(60), later);
        assert_eq!(verifier.known.lock().len(), TOKENS_REMEMBERED_MAX / 2 + 1, "what is over goes first");
        for n in 0..TOKENS_REMEMBERED_MAX {
            verifier.remember(KeyHash::of(&format!("again {n}")), known(60), later);
            assert!(verifier.known.lock().len() <= TOKENS_REMEMBERED_MAX);
        }
    }
}
