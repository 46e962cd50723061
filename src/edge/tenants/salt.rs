//! What keeps the cached prompts of one tenant from those of others, at engines that know of it.
//!
//! A salt is made of the tenant's name by a keyed hash, never of its key, so nobody else can make it. One that
//! the client sends is hashed into it: it divides the tenant's cache further, and never joins another's.

use hmac::{Hmac, Mac};
use once_cell::sync::Lazy;
use rustls::crypto::ring;
use sha2::Sha256;

use crate::config::Secret;
use crate::wire::cache_salt;
use crate::wire::edit::Edit;

pub struct Salt(Hmac<Sha256>);

/// Of this process, where none is configured.
static KEY: Lazy<[u8; 32]> = Lazy::new(|| {
    let mut key = [0; 32];
    if ring::default_provider().secure_random.fill(&mut key).is_err() {
        log::error!("the system gives no random bytes: without `cache_salt_key` salts can be guessed");
    }
    key
});

impl Salt {
    pub fn of(key: Option<&Secret>, tenant: &str) -> Salt {
        let key = key.map_or(KEY.as_slice(), |key| key.expose().as_bytes());
        // A key of any length will do: longer ones are hashed first.
        let mut salt = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()));
        salt.update(tenant.as_bytes());
        salt.update(&[0]);
        Salt(salt)
    }

    /// What must be changed in a body, so that it says this salt.
    pub fn edits(&self, body: &[u8]) -> Vec<Edit> {
        cache_salt::edits(body, |clients| self.with(clients))
    }

    fn with(&self, clients: &str) -> String {
        let mut salt = self.0.clone();
        salt.update(clients.as_bytes());
        salt.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_differ_by_tenant_and_by_what_the_client_says() {
        let salt = |tenant: &str, clients: &str| Salt::of(None, tenant).with(clients);
        assert_eq!(salt("a", ""), salt("a", ""));
        assert_eq!(salt("a", "x").len(), 64);
        let all = [salt("a", ""), salt("b", ""), salt("a", "x"), salt("b", "x"), salt("ax", "")];
        for (n, one) in all.iter().enumerate() {
            assert!(!all[n + 1..].contains(one), "{n}");
        }
    }
}
