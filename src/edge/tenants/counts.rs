//! What tenants did, for Prometheus. The only label values are the names of tenants that are configured.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::Tenants;
use crate::edge::jwt::TokenFault;
use crate::edge::metrics::family::{Register, one_of, tenant};
use crate::edge::verdict::Verdict;
use crate::routing::limits::Over;
use crate::routing::moment::Moment;

pub struct TenantCounts {
    requests: IntCounterVec,
    tokens: IntCounterVec,
    limited: IntCounterVec,
    running: IntGaugeVec,
    keys_refused: IntCounterVec,
    jwks_fetches: IntCounterVec,
}

/// Whether an engine told what was charged, or nobody did.
const KINDS: [&str; 2] = ["told", "estimated"];

const FETCHED: [&str; 2] = ["ok", "failed"];

impl TenantCounts {
    pub fn new(register: &mut Register) -> prometheus::Result<TenantCounts> {
        let outcome = one_of("outcome", Verdict::ALL.map(Verdict::name));
        let reasons = ["none", "unknown", "token_keys_missing"].into_iter().chain(TokenFault::NAMES);
        Ok(TenantCounts {
            requests: register.counters(
                "warmgate_tenant_requests_total",
                "Requests of each tenant by outcome",
                &[tenant(), outcome],
            )?,
            tokens: register.counters(
                "warmgate_tenant_tokens_total",
                "Tokens charged to each tenant, as engines told or as they were estimated",
                &[tenant(), one_of("kind", KINDS)],
            )?,
            limited: register.counters(
                "warmgate_tenant_limited_total",
                "Requests refused since their tenant was at a limit",
                &[tenant(), one_of("limit", Over::ALL.map(Over::name))],
            )?,
            running: register.gauges(
                "warmgate_tenant_running",
                "Requests of each tenant that run or wait here",
                &[tenant()],
            )?,
            keys_refused: register.counters(
                "warmgate_keys_refused_total",
                "Requests without a key, with one that nobody knows, or with a token that is refused",
                &[one_of("reason", reasons)],
            )?,
            jwks_fetches: register.counters(
                "warmgate_jwks_fetches_total",
                "Times that the keys of tokens were asked for at their URL",
                &[one_of("outcome", FETCHED)],
            )?,
        })
    }

    pub fn request(&self, tenant: &str, verdict: Verdict) {
        self.requests.with_label_values(&[tenant, verdict.name()]).inc();
    }

    pub fn charge(&self, tenant: &str, tokens: u64, is_estimated: bool) {
        let [told, estimated] = KINDS;
        self.tokens.with_label_values(&[tenant, if is_estimated { estimated } else { told }]).inc_by(tokens);
    }

    pub fn limit(&self, tenant: &str, over: Over) {
        self.limited.with_label_values(&[tenant, over.name()]).inc();
    }

    pub fn key_refused(&self, reason: &'static str) {
        self.keys_refused.with_label_values(&[reason]).inc();
    }

    pub fn jwks_fetched(&self, is_ok: bool) {
        let [ok, failed] = FETCHED;
        self.jwks_fetches.with_label_values(&[if is_ok { ok } else { failed }]).inc();
    }

    /// Those that are there, as they are now.
    pub fn tell_running(&self, tenants: &Tenants, now: Moment) {
        for tenant in tenants.iter() {
            self.running.with_label_values(&[&tenant.name]).set(i64::from(tenant.running(now)));
        }
    }

    /// A tenant that is configured no longer is shown no longer.
    pub fn forget(&self, tenant: &str) {
        for verdict in Verdict::ALL {
            let _ = self.requests.remove_label_values(&[tenant, verdict.name()]);
        }
        for kind in KINDS {
            let _ = self.tokens.remove_label_values(&[tenant, kind]);
        }
        for over in Over::ALL {
            let _ = self.limited.remove_label_values(&[tenant, over.name()]);
        }
        let _ = self.running.remove_label_values(&[tenant]);
    }
}
