//! Tenants: who a request is from, what it may ask for, and what it has used.
//!
//! Made from the configuration, and made anew when that changes; what a tenant has used is kept by its name.
//! While there are none, everything is open. A key is looked up by its hash and compared in constant time; it
//! is never stored, sent on or shown.

mod counts;
mod models;
mod salt;
mod told;

use std::collections::HashMap;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use pingora::http::RequestHeader;
use serde_json::{Value, json};

pub use counts::TenantCounts;
use models::Models;
use salt::Salt;
pub use told::{LimitsTold, tell_limits};

use super::cluster::{Settled, Share, Taken, Wanted};
use super::ingress::Ingress;
use super::jwt::{TokenFault, Tokens};
use super::refusal::Refusal;
use super::shared_fleet::SharedFleet;
use crate::config::{self, KEY_CHARS_MAX, KeyHash, Plan};
use crate::routing::ask::Priority;
use crate::routing::chain::hash_text;
use crate::routing::limits::{Booked, Booking, Limits, Meter, Over, Part, Refused, Sharing, Stamp, Standing, Used};
use crate::routing::moment::Moment;
use crate::wire::edit::Edit;

/// All of them, as one configuration has it.
#[derive(Default)]
pub struct Tenants {
    all: Vec<Arc<Tenant>>,
    /// By the beginnings of their hashes, which tell nothing of a key.
    keys: HashMap<[u8; 8], Vec<(KeyHash, Arc<Tenant>)>>,
}

pub struct Tenant {
    pub name: String,
    /// As `Ask::tenant` has it; not zero.
    pub id: u64,
    pub priority: Priority,
    /// Whether it may manage models where not everybody may.
    pub management: bool,
    models: Models,
    limits: Limits,
    salt: Option<Salt>,
    /// Shared with the same tenant of other configurations.
    meter: Arc<Mutex<Meter>>,
}

/// For a limit whose end nobody knows.
const RETRY_AFTER_UNKNOWN_S: u64 = 1;

/// Where clients send a key of Anthropic's.
const API_KEY: &str = "x-api-key";

impl Tenants {
    pub fn of(plan: &Plan) -> Tenants {
        Tenants::renewed(&Tenants::default(), plan)
    }

    /// Those of a new configuration. Who was there before under its name goes on with what it has used.
    pub fn renewed(before: &Tenants, plan: &Plan) -> Tenants {
        let mut made = Tenants::default();
        for configured in &plan.tenants {
            let meter = before.named(&configured.name).map(|tenant| tenant.meter.clone()).unwrap_or_default();
            let tenant = Arc::new(Tenant::of(configured, plan, meter));
            for key in &configured.keys {
                made.keys.entry(key.beginning()).or_default().push((*key, tenant.clone()));
            }
            made.all.push(tenant);
        }
        made
    }

    /// Whose request this is. While there are no tenants: nobody's in particular.
    pub fn identify(&self, head: &RequestHeader, tokens: &Tokens) -> Result<Option<Arc<Tenant>>, Refusal> {
        if [AUTHORIZATION.as_str(), API_KEY].iter().any(|name| says_otherwise(head, name)) {
            return Err(Refusal::KeysDiffer);
        }
        if self.all.is_empty() {
            return Ok(None);
        }
        let has_key = keys_of(head).next().is_some();
        let mut owners = keys_of(head).filter_map(|key| self.owner(key));
        if let Some(owner) = owners.next() {
            return match owners.all(|other| Arc::ptr_eq(other, owner)) {
                true => Ok(Some(owner.clone())),
                false => Err(Refusal::KeysDiffer),
            };
        }
        match bearer(head).and_then(|token| tokens.tenant_of(token)) {
            Some(name) => self.named(&name?).cloned().map(Some).ok_or(Refusal::BadToken(TokenFault::NoTenant)),
            None if has_key => Err(Refusal::UnknownKey),
            None => Err(Refusal::NoKey),
        }
    }

    pub fn named(&self, name: &str) -> Option<&Arc<Tenant>> {
        self.all.iter().find(|tenant| tenant.name == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.all.iter()
    }

    fn owner(&self, key: &str) -> Option<&Arc<Tenant>> {
        let hash = KeyHash::of(key);
        let alike = self.keys.get(&hash.beginning())?;
        alike.iter().find(|(held, _)| held.is(&hash)).map(|(_, tenant)| tenant)
    }
}

/// The keys that a request shows; some clients send theirs both ways, and one of them may be a dummy.
fn keys_of(head: &RequestHeader) -> impl Iterator<Item = &str> {
    let keys = [bearer(head), text(head, API_KEY).map(str::trim)].into_iter().flatten();
    keys.filter(|key| !key.is_empty() && key.len() <= KEY_CHARS_MAX)
}

/// Whether a header stands there twice with two meanings: whoever reads the other one takes the request for another's.
fn says_otherwise(head: &RequestHeader, name: &str) -> bool {
    let mut values = head.headers.get_all(name).iter();
    values.next().is_some_and(|first| values.any(|other| other != first))
}

fn bearer(head: &RequestHeader) -> Option<&str> {
    let (scheme, key) = text(head, AUTHORIZATION.as_str())?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

fn text<'a>(head: &'a RequestHeader, name: &str) -> Option<&'a str> {
    head.headers.get(name)?.to_str().ok()
}

impl Tenant {
    fn of(configured: &config::Tenant, plan: &Plan, meter: Arc<Mutex<Meter>>) -> Tenant {
        let salted = configured.cache_salt || plan.cache_salt;
        Tenant {
            name: configured.name.clone(),
            id: hash_text(&configured.name).max(1),
            priority: configured.priority,
            management: configured.management,
            models: Models::of(configured.models.as_deref()),
            limits: configured.limits.limits(),
            salt: salted.then(|| Salt::of(plan.cache_salt_key.as_ref(), &configured.name)),
            meter,
        }
    }

    /// Whether it may ask for a model by that name.
    pub fn may_use(&self, model: &str) -> bool {
        self.models.contain(model)
    }

    pub fn may_use_all(&self) -> bool {
        self.models.are_all()
    }

    /// Whether a request could go now, of whose size nothing is known.
    pub fn look(&self, now: Moment) -> Result<(), Refusal> {
        let mut meter = self.meter.lock();
        meter.look(&self.limits, 0, now).map_err(|refused| self.refusal(&mut meter, refused, now))
    }

    /// Books a request that will use about so many tokens: here, and where other replicas share its limits there.
    pub async fn admit(self: &Arc<Tenant>, tokens: u64, ingress: &Arc<Ingress>) -> Result<Admitted, Refusal> {
        let (now, cluster) = (ingress.fleet.now(), &ingress.cluster);
        let (mut admitted, stamp) = self.admit_here(tokens, &ingress.fleet)?;
        let Some(booking) = &admitted.booking else { return Ok(admitted) };
        match cluster.take(ingress, Wanted { tenant: self, booking, tokens, stamp, since: now }).await {
            None => {}
            Some(Taken::Granted(share)) => admitted.share = Some(share),
            Some(Taken::Refused(refused, share)) => {
                admitted.share = Some(share);
                admitted.settle(Used::Nothing);
                return Err(self.refusal(&mut self.meter.lock(), refused, now));
            }
        }
        Ok(admitted)
    }

    fn admit_here(self: &Arc<Tenant>, tokens: u64, fleet: &Arc<SharedFleet>) -> Result<(Admitted, Stamp), Refusal> {
        let now = fleet.now();
        let mut meter = self.meter.lock();
        match meter.admit(&self.limits, tokens, now) {
            Ok(booking) => {
                let admitted =
                    Admitted { tenant: self.clone(), booking: Some(booking), share: None, fleet: fleet.clone() };
                Ok((admitted, meter.stamp()))
            }
            Err(refused) => Err(self.refusal(&mut meter, refused, now)),
        }
    }

    /// Whether who is admitted already may go without asking the account.
    pub fn stands(&self, booking: &Booking, sharing: Sharing, now: Moment) -> Standing {
        self.meter.lock().stands(&self.limits, booking, sharing, now)
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What to tell the account for somebody who was refused without asking it, so that it is heard of again; `None`: it
    /// was asked a moment ago.
    pub fn stamp_refused(&self, now: Moment) -> Option<Stamp> {
        let mut meter = self.meter.lock();
        meter.may_ask_again(now).then(|| meter.stamp())
    }

    /// What runs here, for other replicas; `None`: nothing does.
    pub fn stamp_running(&self) -> Option<Stamp> {
        Some(self.meter.lock().stamp()).filter(|stamp| stamp.running > 0)
    }

    /// The account of all replicas was changed for who came at `at`; what of it is to be booked anew.
    pub fn learn_booked(&self, born: u64, booked: Booked, at: Moment, now: Moment) -> Vec<Part> {
        self.meter.lock().learn_booked(born, booked, at, now)
    }

    /// What all replicas have used together, and what others have running, if that was told.
    pub fn learn_used(&self, requests: u64, tokens: u64, others_running: Option<u32>, now: Moment) {
        self.meter.lock().learn_used(requests, tokens, others_running, now);
    }

    /// What is left of its limits, as answers tell it.
    pub fn limits_told(&self, now: Moment) -> LimitsTold {
        self.told(&mut self.meter.lock(), now)
    }

    /// Whether its cached prompts are kept apart.
    pub fn is_salted(&self) -> bool {
        self.salt.is_some()
    }

    /// What keeps its cached prompts apart, written into a body that an engine gets.
    pub fn salt_edits(&self, body: &[u8]) -> Vec<Edit> {
        self.salt.as_ref().map(|salt| salt.edits(body)).unwrap_or_default()
    }

    /// Requests that run or wait.
    pub fn running(&self, now: Moment) -> u32 {
        self.meter.lock().used(now).2
    }

    /// What it has used of late and what it may use.
    pub fn to_json(&self, now: Moment) -> Value {
        let (requests, tokens, running) = self.meter.lock().used(now);
        json!({
            "name": self.name,
            "priority": self.priority.name(),
            "requests_last_minute": requests,
            "tokens_last_minute": tokens,
            "running": running,
            "limits": {
                "rpm": self.limits.requests_a_minute,
                "tpm": self.limits.tokens_a_minute,
                "concurrent": self.limits.concurrent,
            },
        })
    }

    fn refusal(&self, meter: &mut Meter, refused: Refused, now: Moment) -> Refusal {
        let limit = match refused.over {
            Over::Requests => self.limits.requests_a_minute,
            Over::Tokens => self.limits.tokens_a_minute,
            Over::Concurrent => self.limits.concurrent,
        };
        let retry_after_s = refused.free_in.map_or(RETRY_AFTER_UNKNOWN_S, |wait| wait.as_secs_f64().ceil() as u64);
        let told = self.told(meter, now);
        Refusal::OverLimit { over: refused.over, limit: limit.unwrap_or(0), retry_after_s, told }
    }

    fn told(&self, meter: &mut Meter, now: Moment) -> LimitsTold {
        LimitsTold { requests: meter.requests_left(&self.limits, now), tokens: meter.tokens_left(&self.limits, now) }
    }
}

/// A request that counts among its tenant's until this is settled or dropped.
pub struct Admitted {
    tenant: Arc<Tenant>,
    booking: Option<Booking>,
    /// Its part of the account of all replicas, where there is one.
    share: Option<Share>,
    fleet: Arc<SharedFleet>,
}

impl Admitted {
    /// The request is over; gives the tokens that it was charged.
    pub fn settle(mut self, used: Used) -> u64 {
        self.end(used)
    }

    fn end(&mut self, used: Used) -> u64 {
        let now = self.fleet.now();
        let Some(booking) = self.booking.take() else { return 0 };
        let (booked_tokens, is_void) = (booking.tokens(), used == Used::Nothing);
        let mut meter = self.tenant.meter.lock();
        let used_tokens = meter.settle(booking, used, now);
        if let Some(share) = self.share.take() {
            share.settle(Settled { booked_tokens, used_tokens, is_void, stamp: meter.stamp() });
        }
        used_tokens
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.end(Used::AsBooked);
    }
}

#[cfg(test)]
mod tests;
