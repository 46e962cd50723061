//! What the nodes say of themselves, asked for at intervals.
//!
//! Each node is asked by a task of its own and all its questions at once, so that neither a node that
//! hangs nor one of its paths delays anything else. A failed or malformed answer changes nothing but the
//! note of what is wrong: a failed poll is not an empty node. An optional answer that fails leaves
//! unknown what it would have told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::complaint;
use super::fetch::{FetchError, Fetched, Fetcher};
use super::inquiries::Asker;
use super::problem::{Ailment, Finder, Finding};
use super::shared_fleet::SharedFleet;
use super::site::Site;
use crate::engines::{self, Engine, Reading};
use crate::routing::report::Report;

pub struct Telemetry {
    pub fleet: Arc<SharedFleet>,
    pub fetcher: Arc<Fetcher>,
    pub timeout: Duration,
    pub interval: Duration,
}

impl Telemetry {
    /// Asks one site once, and learns from what it says.
    pub async fn poll(&self, site: &Arc<Site>) {
        match self.engine(site).await {
            Ok(engine) => self.poll_as(site, engine).await,
            Err(problem) => site.note(Finder::Telemetry, problem),
        }
    }

    async fn poll_as(&self, site: &Arc<Site>, engine: &'static Engine) {
        let asked: Vec<_> = self.fleet.with(|fleet, now| site.rows.iter().map(|row| fleet.asked(*row, now)).collect());
        match self.read(site, engine).await {
            Ok(mut reading) => {
                if let Some(inquiry) = &engine.inquiry {
                    site.inquiries.complete(inquiry, &mut reading);
                    site.inquiries.go_on(inquiry, &reading, self.asker(site));
                }
                let reports = reports(site, &reading);
                self.fleet.with(|fleet, now| {
                    for ((row, asked), report) in site.rows.iter().zip(asked).zip(&reports) {
                        fleet.learn_report(*row, report, asked, now);
                    }
                });
                let odd = odd_ranks(site, &reading);
                if **site.listings.load() != reading.listings {
                    site.listings.store(Arc::new(reading.listings));
                }
                site.note(Finder::Telemetry, odd.unwrap_or_default());
            }
            Err(problem) => site.note(Finder::Telemetry, problem),
        }
    }

    fn asker(&self, site: &Arc<Site>) -> Asker {
        Asker { site: site.clone(), fetcher: self.fetcher.clone(), timeout: self.timeout }
    }

    async fn read(&self, site: &Arc<Site>, engine: &'static Engine) -> Result<Reading, Finding> {
        let mut asking = JoinSet::new();
        for (place, poll) in engine.polls.iter().enumerate() {
            let (fetcher, site, timeout) = (self.fetcher.clone(), site.clone(), self.timeout);
            asking.spawn(async move { (place, fetcher.ask_site(&site, poll.path, timeout).await) });
        }
        let mut bodies: Vec<Option<Bytes>> = vec![None; engine.polls.len()];
        while let Some(asked) = asking.join_next().await {
            let (place, answer) = asked.map_err(|died| format!("asking it failed: {died}"))?;
            let poll = &engine.polls[place];
            match good_body(answer, poll.path, engine) {
                Ok(body) => bodies[place] = Some(body),
                Err(problem) if poll.required => return Err(problem),
                Err(problem) => log::debug!("{}: GET {}: {}", site.name, poll.path, problem.words),
            }
        }
        let bodies: Vec<Option<&[u8]>> = bodies.iter().map(Option::as_deref).collect();
        (engine.read)(&bodies).map_err(Finding::from)
    }

    /// The site's engine: configured, or recognised by what it answers.
    async fn engine(&self, site: &Site) -> Result<&'static Engine, Finding> {
        if let Some(engine) = site.engine.get() {
            return Ok(engine);
        }
        let engine = self.recognise(site).await?;
        log::info!("{}: it is {}", site.name, engine.name);
        self.fleet.with(|fleet, _| site.rows.iter().for_each(|row| fleet.learn_engine(*row, engine.traits())));
        Ok(site.engine.get_or_init(|| engine))
    }

    async fn recognise(&self, site: &Site) -> Result<&'static Engine, Finding> {
        let mut heard: BTreeMap<&str, Option<Bytes>> = BTreeMap::new();
        let mut complaint = None;
        for engine in engines::detection_order() {
            let path = engine.fingerprint_path;
            if !heard.contains_key(path) {
                let answer = match self.fetcher.ask_site(site, path, self.timeout).await {
                    // Others may be served better; who cannot be reached is not asked six times.
                    Err(FetchError::Broken(_) | FetchError::TooLarge) => None,
                    answer => Some(answer.map_err(|error| error.to_string())?),
                };
                complaint = complaint.or(answer.as_ref().and_then(|answer| about_the_server(answer, path)));
                heard.insert(path, answer.filter(|answer| answer.status.is_success()).map(|answer| answer.body));
            }
            if heard[path].as_ref().is_some_and(|body| (engine.recognises)(body)) {
                return Ok(engine);
            }
        }
        let words = "nothing there answers like an engine we know; set `engine:` if it is one";
        Err(complaint.unwrap_or_else(|| Finding::new(Ailment::WrongType, words)))
    }
}

/// What each row of the site is to learn.
fn reports(site: &Site, reading: &Reading) -> Vec<Report> {
    match site.configured.data_parallel {
        Some(ranks) => (0..ranks).map(|rank| reading.of_rank(rank)).collect(),
        None => vec![reading.report.clone()],
    }
}

/// It tells of fewer ranks than are configured: requests for the others would fail.
fn odd_ranks(site: &Site, reading: &Reading) -> Option<String> {
    let (configured, told) = (site.configured.data_parallel?, reading.ranks.len());
    let fewer = (1..configured as usize).contains(&told);
    fewer.then(|| format!("it tells of {told} ranks, not {configured}: see `data_parallel`"))
}

/// What stands in the way at any path; that it does not know this one says nothing.
fn about_the_server(answer: &Fetched, path: &str) -> Option<Finding> {
    let tells = matches!(answer.status.as_u16(), 401 | 403 | 500..);
    if tells { complaint::about(answer, path, None) } else { None }
}

fn good_body(answer: Result<Fetched, FetchError>, path: &str, engine: &Engine) -> Result<Bytes, Finding> {
    let answer = answer.map_err(|error| error.to_string())?;
    match complaint::about(&answer, path, Some(engine)) {
        Some(problem) => Err(problem),
        None => Ok(answer.body),
    }
}

#[cfg(test)]
mod tests;
