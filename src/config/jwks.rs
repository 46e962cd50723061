//! The keys that tokens are signed with, from a JWKS (RFC 7517): only what can check a signature.
//!
//! A key's own type decides how it may be used: what is secret on both sides is left out, and so is what is
//! meant for encryption, too short, or unknown to us. A set with nothing of use in it is refused.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Sets have a few keys of one or two KiB each, certificates included.
pub const JWKS_BYTES_MAX: u64 = 256 << 10;

/// Every token is held against all of them.
const KEYS_MAX: usize = 128;

/// The moduli that signatures are checked with: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// At least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SigningKeys(Vec<SigningKey>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKey {
    /// As tokens name it (`kid`).
    pub id: Option<String>,
    /// At least one, all of one family.
    pub algorithms: Vec<Algorithm>,
    jwk: Jwk,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl SigningKeys {
    /// Reads a set; what is wrong is told without quoting it.
    pub fn of(text: &[u8]) -> Result<SigningKeys, String> {
        if text.len() as u64 > JWKS_BYTES_MAX {
            return Err("is larger than any set of keys (256 KiB)".into());
        }
        let set: Set = serde_json::from_slice(text).map_err(|_| "is not a JWKS, which is JSON with a list `keys`")?;
        if set.keys.len() > KEYS_MAX {
            return Err(format!("has more than {KEYS_MAX} keys"));
        }
        let keys: Vec<SigningKey> = set.keys.into_iter().filter_map(SigningKey::of).collect();
        if keys.is_empty() {
            return Err(
                "has no public key for signatures that is RSA of 2048 bits or more, P-256, P-384 or Ed25519".into()
            );
        }
        Ok(SigningKeys(keys))
    }

    pub fn iter(&self) -> impl Iterator<Item = &SigningKey> {
        self.0.iter()
    }
}

impl SigningKey {
    fn of(written: Value) -> Option<SigningKey> {
        let jwk: Jwk = serde_json::from_value(written).ok()?;
        let fits = |algorithm: &Algorithm| {
            let named = jwk.common.key_algorithm;
            named.is_none_or(|named| Algorithm::try_from(named).is_ok_and(|named| named == *algorithm))
        };
        let algorithms: Vec<Algorithm> = algorithms(&jwk).iter().filter(|one| fits(one)).copied().collect();
        let id = jwk.common.key_id.clone();
        let key = SigningKey { id, algorithms, jwk };
        (!key.algorithms.is_empty() && key.may_verify() && key.decoding().is_some()).then_some(key)
    }

    /// In the form that signatures are checked with.
    pub fn decoding(&self) -> Option<DecodingKey> {
        DecodingKey::from_jwk(&self.jwk).ok()
    }

    fn may_verify(&self) -> bool {
        let common = &self.jwk.common;
        let by_use = common.public_key_use.as_ref().is_none_or(|used| *used == PublicKeyUse::Signature);
        by_use && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify))
    }
}

/// What a key of that type can check.
fn algorithms(jwk: &Jwk) -> &'static [Algorithm] {
    match &jwk.algorithm {
        AlgorithmParameters::RSA(key) if has_rsa_size(&key.n) => RSA,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
        _ => &[],
    }
}

const RSA: &[Algorithm] =
    &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];

fn has_rsa_size(modulus: &str) -> bool {
    let bytes = URL_SAFE_NO_PAD.decode(modulus).unwrap_or_default();
    RSA_BYTES.contains(&bytes.iter().skip_while(|byte| **byte == 0).count())
}

/// Whether an algorithm signs and checks with one secret.
pub fn is_symmetric(algorithm: Algorithm) -> bool {
    algorithm.family() == AlgorithmFamily::Hmac
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(key: Value, expected: &[Algorithm]) {
        let set = json!({"keys": [key]}).to_string();
        let read = SigningKeys::of(set.as_bytes()).unwrap_or_default();
        let all: Vec<Algorithm> = read.iter().flat_map(|key| key.algorithms.clone()).collect();
        assert_eq!(all, expected, "{key}");
    }

    #[test]
    fn the_type_of_a_key_decides_what_it_checks() {
        let rsa = |bytes: usize| URL_SAFE_NO_PAD.encode(vec![0x81; bytes]);
        let point = URL_SAFE_NO_PAD.encode([7; 32]);
        let ec = |curve: &str| json!({"kty": "EC", "crv": curve, "x": point, "y": point});
        check(json!({"kty": "RSA", "n": rsa(256), "e": "AQAB"}), RSA);
        check(json!({"kty": "RSA", "n": rsa(256), "e": "AQAB", "alg": "RS256"}), &[Algorithm::RS256]);
        check(json!({"kty": "RSA", "n": rsa(256), "e": "AQAB", "alg": "HS256"}), &[]);
        check(json!({"kty": "RSA", "n": rsa(256), "e": "AQAB", "alg": "RSA-OAEP"}), &[]);
        check(json!({"kty": "RSA", "n": rsa(256), "e": "AQAB", "use": "enc"}), &[]);
        check(json!({"kty": "RSA", "n": rsa(256), "e": "AQAB", "key_ops": ["encrypt"]}), &[]);
        check(json!({"kty": "RSA", "n": rsa(128), "e": "AQAB"}), &[]);
        check(ec("P-256"), &[Algorithm::ES256]);
        check(ec("P-384"), &[Algorithm::ES384]);
        check(ec("P-521"), &[]);
        check(ec("secp256k1"), &[]);
        check(json!({"kty": "OKP", "crv": "Ed25519", "x": point}), &[Algorithm::EdDSA]);
        check(json!({"kty": "oct", "k": point}), &[]);
        check(json!({"kty": "new", "z": 1}), &[]);
        check(json!("key"), &[]);
    }

    #[test]
    fn a_set_without_use_is_refused_and_one_odd_key_spoils_no_other() {
        for text in
            ["", "{}", "[]", "{\"keys\": 1}", "{\"keys\": []}", "{\"keys\": [{\"kty\": \"oct\", \"k\": \"AAAA\"}]}"]
        {
            assert!(SigningKeys::of(text.as_bytes()).is_err(), "{text}");
        }
        assert!(SigningKeys::of(&vec![b' '; JWKS_BYTES_MAX as usize + 1]).is_err());
        let good = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": URL_SAFE_NO_PAD.encode([7; 32])});
        let set = json!({"keys": [1, {"kty": "new"}, good]}).to_string();
        let keys = SigningKeys::of(set.as_bytes()).unwrap();
        assert_eq!(keys.iter().map(|key| key.id.as_deref()).collect::<Vec<_>>(), [Some("a")]);
    }
}
