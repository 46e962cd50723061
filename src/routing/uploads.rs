//! Where blobs were put, so that the create that names them goes there too.
//!
//! An import is several calls: for each blob a HEAD and a POST, then one create. The blobs of one create
//! must be on one node, so a client's next blob goes where its last one went. Both tables are bounded and
//! forget what is old.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::fleet::UpstreamId;
use super::moment::Moment;

/// A blob's SHA-256, which is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// `sha256:` and 64 hexadecimal digits, and nothing else.
    pub fn parse(text: &str) -> Option<Digest> {
        let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64)?.as_bytes();
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |at: usize| pair.get(at).and_then(|digit| char::from(*digit).to_digit(16));
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Digest(digest))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Blobs remembered. A large model in parts has some hundred.
pub const MAX_BLOBS: usize = 4096;

/// Clients remembered.
pub const MAX_CLIENTS: usize = 1024;

/// How long after the last call for it a blob's place is remembered; uploads of large models take hours.
const BLOB_TTL: Duration = Duration::from_secs(6 * 3600);

/// How long a client's next blob follows its last.
const CLIENT_TTL: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct Uploads {
    blobs: Places<Digest>,
    clients: Places<u64>,
}

impl Default for Uploads {
    fn default() -> Uploads {
        Uploads { blobs: Places::new(MAX_BLOBS, BLOB_TTL), clients: Places::new(MAX_CLIENTS, CLIENT_TTL) }
    }
}

impl Uploads {
    /// A call for this blob by this client went to that node.
    pub fn put(&mut self, blob: Digest, client: u64, upstream: UpstreamId, now: Moment) {
        self.blobs.put(blob, upstream, now);
        self.clients.put(client, upstream, now);
    }

    pub fn of_blob(&self, blob: Digest, now: Moment) -> Option<UpstreamId> {
        self.blobs.find(&blob, now)
    }

    /// Where this client's latest blob is.
    pub fn of_client(&self, client: u64, now: Moment) -> Option<UpstreamId> {
        self.clients.find(&client, now)
    }
}

/// A bounded table that forgets.
#[derive(Debug)]
struct Places<K> {
    most: usize,
    ttl: Duration,
    held: HashMap<K, (UpstreamId, Moment)>,
}

impl<K: Copy + Eq + Hash> Places<K> {
    fn new(most: usize, ttl: Duration) -> Places<K> {
        Places { most, ttl, held: HashMap::new() }
    }

    fn find(&self, key: &K, now: Moment) -> Option<UpstreamId> {
        let (upstream, at) = self.held.get(key)?;
        (now.since(*at) < self.ttl).then_some(*upstream)
    }

    fn put(&mut self, key: K, upstream: UpstreamId, now: Moment) {
        if self.held.len() >= self.most && !self.held.contains_key(&key) {
            self.held.retain(|_, (_, at)| now.since(*at) < self.ttl);
            let oldest = self.held.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| *key);
            if let Some(oldest) = oldest.filter(|_| self.held.len() >= self.most) {
                self.held.remove(&oldest);
            }
        }
        self.held.insert(key, (upstream, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> Digest {
        Digest([n; 32])
    }

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(Digest::parse(text).map(|digest| digest.to_string()).as_deref(), expected);
    }

    #[test]
    fn a_digest_is_sha256_and_64_digits() {
        let good = format!("sha256:{}", "0a".repeat(32));
        check(&good, Some(&good));
        check(&good.replace("0a", "0A"), Some(&good));
        check(&good.replace(':', "-"), None);
        check(&good[..good.len() - 1], None);
        check(&format!("{good}0"), None);
        check(&good.replace("0a", "..")[..], None);
        check(&format!("sha256:{}", "é".repeat(32)), None);
        check(&format!("sha256:{}", "+1".repeat(32)), None);
        check("sha256:", None);
    }

    #[test]
    fn cat_10_a_blob_and_the_client_s_next_go_to_the_same_node() {
        let mut uploads = Uploads::default();
        let now = Moment::from_secs(10);
        uploads.put(digest(1), 7, UpstreamId(3), now);
        assert_eq!(uploads.of_blob(digest(1), now), Some(UpstreamId(3)));
        assert_eq!(uploads.of_blob(digest(2), now), None);
        assert_eq!(uploads.of_client(7, now), Some(UpstreamId(3)));
        assert_eq!(uploads.of_client(8, now), None);
        assert_eq!(uploads.of_client(7, now + CLIENT_TTL), None);
        assert_eq!(uploads.of_blob(digest(1), now + BLOB_TTL), None);
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut places = Places::new(2, BLOB_TTL);
        for n in 1..=3 {
            places.put(n, UpstreamId(0), Moment::from_secs(n));
        }
        let now = Moment::from_secs(4);
        assert_eq!([1, 2, 3].map(|n| places.find(&n, now).is_some()), [false, true, true]);
        assert_eq!(places.held.len(), 2);
    }
}
