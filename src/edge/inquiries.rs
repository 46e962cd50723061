//! What a node's engine tells of each model beyond its lists, asked once for each edition of a model.
//!
//! A node may list hundreds of models, so a poll asks about a few of them, those in memory first, in the
//! background and one after the other: neither the poll nor any list waits for an answer. What was told is
//! added to the reports of later polls while the model is listed with the same edition, and forgotten with
//! it. A model that the node will not tell about is left in peace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::fetch::{FetchError, Fetched, Fetcher};
use super::site::Site;
use crate::engines::{Inquiry, ModelFacts, Reading};

/// Models asked about after one poll.
const ASKED_A_POLL_MAX: usize = 4;

/// Questions about one model that may fail before it is left in peace.
const FAILURES_MAX: u8 = 3;

/// One node's. As many models as the node lists, which `engines` bounds.
#[derive(Default)]
pub struct Inquiries {
    known: Mutex<BTreeMap<String, Known>>,
    /// A background task is at work; there is one at most.
    under_way: AtomicBool,
}

struct Known {
    edition: String,
    told: Told,
}

enum Told {
    Facts(ModelFacts),
    Nothing { failures: u8 },
}

/// Where a node's models are asked about, and how.
pub struct Asker {
    pub site: Arc<Site>,
    pub fetcher: Arc<Fetcher>,
    pub timeout: Duration,
}

/// A model to be asked about.
struct Subject {
    model: String,
    edition: String,
}

impl Inquiries {
    /// Adds what is known to a reading, and forgets what it no longer lists.
    pub fn complete(&self, inquiry: &Inquiry, reading: &mut Reading) {
        let mut known = self.known.lock();
        let mut before = std::mem::take(&mut *known);
        for (report, listing) in reading.report.models.iter_mut().zip(&reading.listings) {
            let same = (inquiry.edition)(listing).zip(before.remove(&listing.name));
            let Some((_, kept)) = same.filter(|(edition, kept)| *edition == kept.edition) else { continue };
            if let Told::Facts(facts) = &kept.told {
                facts.complete(report);
            }
            known.insert(listing.name.clone(), kept);
        }
    }

    /// Asks about some of the models of which nothing is known yet; returns at once.
    pub fn go_on(self: &Arc<Self>, inquiry: &'static Inquiry, reading: &Reading, asker: Asker) {
        let subjects = self.due(inquiry, reading);
        if subjects.is_empty() || self.under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let turn = Turn(self.clone());
        tokio::spawn(async move {
            for subject in subjects {
                let body = (inquiry.body)(&subject.model);
                let answer = asker.fetcher.post_to_site(&asker.site, inquiry.path, &body, asker.timeout).await;
                if !turn.0.hear(inquiry, subject, answer, &asker.site.name) {
                    break;
                }
            }
        });
    }

    /// Models not told of yet, those in memory first.
    fn due(&self, inquiry: &Inquiry, reading: &Reading) -> Vec<Subject> {
        let known = self.known.lock();
        let is_open = |model: &str| match known.get(model).map(|known| &known.told) {
            Some(Told::Facts(_)) => false,
            Some(Told::Nothing { failures }) => *failures < FAILURES_MAX,
            None => true,
        };
        let listed = reading.report.models.iter().zip(&reading.listings);
        let open = listed.filter(|(report, _)| is_open(&report.name)).filter_map(|(report, listing)| {
            let edition = (inquiry.edition)(listing)?.to_string();
            Some((!report.resident, Subject { model: report.name.clone(), edition }))
        });
        let mut open: Vec<(bool, Subject)> = open.collect();
        open.sort_by_key(|(on_disk, _)| *on_disk);
        open.into_iter().map(|(_, subject)| subject).take(ASKED_A_POLL_MAX).collect()
    }

    /// Keeps what was answered; false: the node is in no state to be asked on.
    fn hear(&self, inquiry: &Inquiry, about: Subject, answer: Result<Fetched, FetchError>, node: &str) -> bool {
        let (told, goes_on) = match answer {
            Ok(answer) if answer.status.is_success() => (Some((inquiry.read)(&answer.body)), true),
            // It knows the question, or never will: asking again is no use.
            Ok(answer) if answer.status.is_client_error() => (Some(Err(format!("status {}", answer.status))), true),
            Ok(_) | Err(_) => (None, false),
        };
        let mut known = self.known.lock();
        let entry = known.entry(about.model).or_insert_with_key(|_| Known::nothing(&about.edition));
        if entry.edition != about.edition {
            *entry = Known::nothing(&about.edition);
        }
        match (told, &mut entry.told) {
            (Some(Ok(facts)), told) => *told = Told::Facts(facts),
            (Some(Err(why)), told) => {
                log::debug!("{node}: {} tells nothing of a model: {why}", inquiry.path);
                *told = Told::Nothing { failures: FAILURES_MAX };
            }
            (None, Told::Nothing { failures }) => *failures = failures.saturating_add(1),
            (None, Told::Facts(_)) => {}
        }
        goes_on
    }
}

impl Known {
    fn nothing(edition: &str) -> Known {
        Known { edition: edition.to_string(), told: Told::Nothing { failures: 0 } }
    }
}

/// Lets the next task begin, however this one ends.
struct Turn(Arc<Inquiries>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.under_way.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
