//! Which replicas are heard, for people: by name, when last, and how much they have under way.
//!
//! One that falls silent is shown for a while yet, so that it is seen who is missing. That some speak another or a
//! newer version is said once each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::routing::elsewhere::REPLICAS_MAX;
use crate::wire::replicas::{MAJOR, MINOR, Word};

#[derive(Default)]
pub struct Voices {
    heard: BTreeMap<u64, Voice>,
    /// Kinds of messages that are not understood, and when such came last.
    others: BTreeMap<u8, Instant>,
    /// Newer versions of our kind.
    newer: BTreeSet<u32>,
}

struct Voice {
    name: String,
    in_flight: u32,
    at: Instant,
}

/// Who is not heard of for that long is not shown any more.
const SHOWN_FOR: Duration = Duration::from_secs(60);

/// So long counts that another kind of message was heard.
const OTHERS_COUNT_FOR: Duration = Duration::from_secs(10);

/// Newer versions that are told apart.
const NEWER_MAX: usize = 16;

impl Voices {
    pub fn hear(&mut self, word: &Word) {
        if word.minor > MINOR && self.newer.len() < NEWER_MAX && self.newer.insert(word.minor) {
            log::info!(
                "cluster: a replica speaks version {MAJOR}.{}, this one {MAJOR}.{MINOR}: what is new in it is passed over",
                word.minor
            );
        }
        if !self.heard.contains_key(&word.replica) {
            self.heard.retain(|_, voice| voice.at.elapsed() < SHOWN_FOR);
            if self.heard.len() >= REPLICAS_MAX {
                return;
            }
        }
        let voice = Voice { name: word.name.clone(), in_flight: word.in_flight, at: Instant::now() };
        self.heard.insert(word.replica, voice);
    }

    /// A message of another kind.
    pub fn hear_other(&mut self, major: u8) {
        if self.others.insert(major, Instant::now()).is_none() {
            log::warn!(
                "cluster: a replica speaks version {major} and this one version {MAJOR}: they do not hear each other; \
                 limits and stored pins are shared all the same"
            );
        }
    }

    pub fn to_json(&self) -> Value {
        let shown = self.heard.iter().filter(|(_, voice)| voice.at.elapsed() < SHOWN_FOR);
        let voices = shown.map(|(id, Voice { name, in_flight, at })| {
            json!({
                "replica": format!("{id:016x}"),
                "name": name,
                "heard_ms_ago": at.elapsed().as_millis() as u64,
                "in_flight": in_flight,
            })
        });
        voices.collect()
    }

    /// Kinds of messages that are heard now and not understood.
    pub fn others(&self) -> Vec<u8> {
        self.others.iter().filter(|(_, at)| at.elapsed() < OTHERS_COUNT_FOR).map(|(major, _)| *major).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::moment::Moment;
    use crate::wire::replicas::Speaker;

    #[test]
    fn who_is_heard_is_told_with_its_name_and_work() {
        let mut voices = Voices::default();
        let speaker = |replica, in_flight| Speaker { replica, name: format!("gate-{replica}"), in_flight, fleet: 0 };
        for (replica, in_flight) in [(2, 5), (1, 3), (2, 4)] {
            voices.hear(&Word::new(speaker(replica, in_flight), None, &[], Moment(0), 0));
        }
        let told = voices.to_json();
        let shown: Vec<_> =
            told.as_array().expect("a list").iter().map(|voice| (&voice["name"], &voice["in_flight"])).collect();
        assert_eq!(shown, [(&json!("gate-1"), &json!(3)), (&json!("gate-2"), &json!(4))]);
        for replica in 0..2 * REPLICAS_MAX as u64 {
            voices.hear(&Word::new(speaker(replica, 0), None, &[], Moment(0), 0));
        }
        assert_eq!(voices.heard.len(), REPLICAS_MAX);
    }

    #[test]
    fn other_versions_are_told() {
        let mut voices = Voices::default();
        voices.hear_other(2);
        voices.hear_other(9);
        voices.hear_other(2);
        assert_eq!(voices.others(), [2, 9]);
        for minor in 0..2 * NEWER_MAX as u32 {
            let mut word = Word::new(Speaker::default(), None, &[], Moment(0), 0);
            word.minor = minor;
            voices.hear(&word);
        }
        assert_eq!(voices.newer.len(), NEWER_MAX);
    }
}
