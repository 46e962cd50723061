//! Which replicas are heard, for people: by name, when last, and how much they have under way.
//!
//! One that falls silent is shown for a while yet, so that it is seen who is missing. That some speak another or a
//! newer version is said once each, and of each that what it says comes too late by the clocks of both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::routing::elsewhere::REPLICAS_MAX;
use crate::routing::elsewhere::tempo::LIFE;
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
    /// How long its last message was under way, as far as clocks agree.
    under_way_ms: u64,
    /// Since when everything has come too late for its loads to be believed.
    late_since: Option<Instant>,
    at: Instant,
}

/// Who is not heard of for that long is not shown any more.
const SHOWN_FOR: Duration = Duration::from_secs(60);

/// So long counts that another kind of message was heard.
const OTHERS_COUNT_FOR: Duration = Duration::from_secs(10);

/// What was late for that long is so for a reason that lasts: clocks that differ, more often than a slow Redis.
const LATE_FOR: Duration = Duration::from_secs(3);

/// Newer versions that are told apart.
const NEWER_MAX: usize = 16;

impl Voices {
    /// A message that was `under_way_ms`.
    pub fn hear(&mut self, word: &Word, under_way_ms: u64, now: Instant) {
        if word.minor > MINOR && self.newer.len() < NEWER_MAX && self.newer.insert(word.minor) {
            log::info!(
                "cluster: a replica speaks version {MAJOR}.{}, this one {MAJOR}.{MINOR}: what is new in it is passed over",
                word.minor
            );
        }
        let before = self.heard.remove(&word.replica);
        if before.is_none() {
            self.heard.retain(|_, voice| now.duration_since(voice.at) < SHOWN_FOR);
            if self.heard.len() >= REPLICAS_MAX {
                return;
            }
        }
        let voice = Voice::of(word, under_way_ms, before.as_ref().and_then(|before| before.late_since), now);
        if voice.is_late() && !before.is_some_and(|before| before.is_late()) {
            voice.tell_late();
        }
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
        let voices = shown.map(|(id, voice)| {
            json!({
                "replica": format!("{id:016x}"),
                "name": voice.name,
                "heard_ms_ago": voice.at.elapsed().as_millis() as u64,
                "in_flight": voice.in_flight,
                "under_way_ms": voice.under_way_ms,
                "late": voice.is_late(),
            })
        });
        voices.collect()
    }

    /// Those that are heard now, and late.
    pub fn late(&self) -> usize {
        let now = self.heard.values().filter(|voice| voice.at.elapsed() < OTHERS_COUNT_FOR);
        now.filter(|voice| voice.is_late()).count()
    }

    /// Kinds of messages that are heard now and not understood.
    pub fn others(&self) -> Vec<u8> {
        self.others.iter().filter(|(_, at)| at.elapsed() < OTHERS_COUNT_FOR).map(|(major, _)| *major).collect()
    }
}

impl Voice {
    fn of(word: &Word, under_way_ms: u64, late_since: Option<Instant>, now: Instant) -> Voice {
        let is_late = Duration::from_millis(under_way_ms) >= LIFE;
        Voice {
            name: word.name.clone(),
            in_flight: word.in_flight,
            under_way_ms,
            late_since: is_late.then(|| late_since.unwrap_or(now)),
            at: now,
        }
    }

    fn tell_late(&self) {
        log::warn!(
            "cluster: what {} says is {:.1} s old when it comes, by the clocks of both: its requests count in no depth \
             here. Set both clocks by NTP; if they are right, Redis or the network holds messages up",
            self.name,
            self.under_way_ms as f64 / 1e3
        );
    }

    fn is_late(&self) -> bool {
        self.late_since.is_some_and(|since| self.at.duration_since(since) >= LATE_FOR)
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
            voices.hear(&Word::new(speaker(replica, in_flight), None, &[], Moment(0), 0), 0, Instant::now());
        }
        let told = voices.to_json();
        let shown: Vec<_> =
            told.as_array().expect("a list").iter().map(|voice| (&voice["name"], &voice["in_flight"])).collect();
        assert_eq!(shown, [(&json!("gate-1"), &json!(3)), (&json!("gate-2"), &json!(4))]);
        for replica in 0..2 * REPLICAS_MAX as u64 {
            voices.hear(&Word::new(speaker(replica, 0), None, &[], Moment(0), 0), 0, Instant::now());
        }
        assert_eq!(voices.heard.len(), REPLICAS_MAX);
    }

    /// Messages at so many milliseconds, and how long each was under way.
    #[track_caller]
    fn check_late(messages: &[(u64, u64)], expected: bool) {
        let (mut voices, began) = (Voices::default(), Instant::now());
        for (at_ms, under_way_ms) in messages {
            let word = Word::new(Speaker { replica: 1, ..Speaker::default() }, None, &[], Moment(0), 0);
            voices.hear(&word, *under_way_ms, began + Duration::from_millis(*at_ms));
        }
        assert_eq!(voices.late(), usize::from(expected), "{messages:?}");
        assert_eq!(voices.to_json()[0]["late"], expected, "{messages:?}");
    }

    #[test]
    fn who_is_late_all_the_time_is_late() {
        check_late(&[(0, 9000), (3000, 9000)], true);
        check_late(&[(0, 1500), (1500, 1500), (3000, 1500)], true);
        check_late(&[(0, 9000), (2999, 9000)], false);
        check_late(&[(0, 1499), (3000, 1499)], false);
        // A machine that stood still.
        check_late(&[(0, 9000), (1500, 10), (3000, 9000), (4000, 9000)], false);
        check_late(&[(0, 9000), (3000, 9000), (3001, 10)], false);
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
            voices.hear(&word, 0, Instant::now());
        }
        assert_eq!(voices.newer.len(), NEWER_MAX);
    }
}
