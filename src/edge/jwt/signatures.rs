//! Signatures of tokens, checked by ring; nothing is signed here.
//!
//! `jsonwebtoken` leaves the cryptography to whoever uses it, and ring is what rustls has already. Secrets
//! that both sides hold (HS256 and its like) are not among the kinds there are.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::signature::{Error as Wrong, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{self as by, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has tokens checked by ring, unless the program that this is part of has chosen something else.
pub fn install() {
    let _ = RING.install_default();
}

struct Check {
    algorithm: Algorithm,
    key: Key,
}

enum Key {
    Rsa { parameters: &'static RsaParameters, n: Vec<u8>, e: Vec<u8> },
    Point { algorithm: &'static dyn VerificationAlgorithm, bytes: Vec<u8> },
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if algorithm.family() != key.family() {
        return Err(new_error(ErrorKind::InvalidAlgorithm));
    }
    let key = match algorithm {
        Algorithm::RS256 => rsa(&by::RSA_PKCS1_2048_8192_SHA256, key)?,
        Algorithm::RS384 => rsa(&by::RSA_PKCS1_2048_8192_SHA384, key)?,
        Algorithm::RS512 => rsa(&by::RSA_PKCS1_2048_8192_SHA512, key)?,
        Algorithm::PS256 => rsa(&by::RSA_PSS_2048_8192_SHA256, key)?,
        Algorithm::PS384 => rsa(&by::RSA_PSS_2048_8192_SHA384, key)?,
        Algorithm::PS512 => rsa(&by::RSA_PSS_2048_8192_SHA512, key)?,
        Algorithm::ES256 => point(&by::ECDSA_P256_SHA256_FIXED, key)?,
        Algorithm::ES384 => point(&by::ECDSA_P384_SHA384_FIXED, key)?,
        Algorithm::EdDSA => point(&by::ED25519, key)?,
        _ => return Err(new_error(ErrorKind::InvalidAlgorithm)),
    };
    Ok(Box::new(Check { algorithm: *algorithm, key }))
}

fn rsa(parameters: &'static RsaParameters, key: &DecodingKey) -> Result<Key, Error> {
    // Some issuers write a zero in front, which ring does not take.
    let number = |bytes: &[u8]| bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, e } => Ok(Key::Rsa { parameters, n: number(n), e: number(e) }),
        DecodingKeyKind::SecretOrDer(_) => Err(new_error(ErrorKind::InvalidKeyFormat)),
    }
}

fn point(algorithm: &'static dyn VerificationAlgorithm, key: &DecodingKey) -> Result<Key, Error> {
    Ok(Key::Point { algorithm, bytes: key.try_get_as_bytes()?.to_vec() })
}

impl Verifier<Vec<u8>> for Check {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Wrong> {
        let checked = match &self.key {
            Key::Rsa { parameters, n, e } => RsaPublicKeyComponents { n, e }.verify(parameters, message, signature),
            Key::Point { algorithm, bytes } => UnparsedPublicKey::new(*algorithm, bytes).verify(message, signature),
        };
        checked.map_err(|_| Wrong::new())
    }
}

impl JwtVerifier for Check {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
