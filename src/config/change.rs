//! What is different between two configurations, key by key.
//!
//! Keys are named as people find them: items of a list by their names, not by their places. Secrets are
//! compared and never shown. Two plans that differ in anything have at least one change.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::plan::{Plan, Upstream};
use super::tls::Pem;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Such as `upstreams[studio].slots`.
    pub key: String,
    pub what: What,
    /// What it was; of a secret, and of what was not there, nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Added,
    Removed,
    Changed,
    /// The same items in another order.
    Reordered,
}

/// Keys that a running process cannot take over.
const NEEDS_NEW_PROCESS: [&str; 4] = ["listen", "admin.address", "admin.tls", "server"];

/// Of a value that is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// Everything that is different in `new`.
pub fn changes(old: &Plan, new: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    compare("", &shown(old), &shown(new), &mut changes);
    for upstream in &new.upstreams {
        if let Some(before) = old.upstreams.iter().find(|before| before.name == upstream.name) {
            compare_hidden(before, upstream, &mut changes);
        }
    }
    if old.admin.token.is_some() && new.admin.token.is_some() && old.admin.token != new.admin.token {
        changes.push(Change::of("admin.token", What::Changed));
    }
    for tenant in &new.tenants {
        let before = old.tenants.iter().find(|before| before.name == tenant.name);
        if before.is_some_and(|before| before.keys != tenant.keys) {
            changes.push(Change::of(&format!("tenants[{}].keys", tenant.name), What::Changed));
        }
    }
    let jwks = |plan: &Plan| plan.jwt.as_ref().map(|jwt| jwt.jwks.clone());
    if jwks(old).zip(jwks(new)).is_some_and(|(old, new)| old.to_string() == new.to_string() && old != new) {
        changes.push(Change::of("jwt.jwks", What::Changed));
    }
    if old
        .cluster
        .as_ref()
        .zip(new.cluster.as_ref())
        .is_some_and(|(old, new)| old.redis.to_string() == new.redis.to_string() && old.redis != new.redis)
    {
        changes.push(Change::of("cluster.redis", What::Changed));
    }
    if changes.is_empty() && old != new {
        changes.push(Change::of("", What::Changed));
    }
    changes
}

impl Change {
    fn of(key: &str, what: What) -> Change {
        Change { key: key.to_owned(), what, from: None, to: None }
    }

    /// Only another process can have it.
    pub fn needs_new_process(&self) -> bool {
        NEEDS_NEW_PROCESS.iter().any(|key| {
            let rest = self.key.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }
}

impl fmt::Display for Change {
    /// `upstreams[studio].slots: 1 -> 4`
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let key = if self.key.is_empty() { "what is not shown" } else { &self.key };
        match (self.what, &self.from, &self.to) {
            (What::Added, ..) => write!(f, "{key}: added"),
            (What::Removed, ..) => write!(f, "{key}: removed"),
            (What::Reordered, ..) => write!(f, "{key}: in another order"),
            (What::Changed, Some(from), Some(to)) => write!(f, "{key}: {} -> {}", Short(from), Short(to)),
            (What::Changed, ..) => write!(f, "{key}: changed"),
        }
    }
}

struct Short<'a>(&'a Value);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let text = match self.0 {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let end = text.char_indices().nth(SHOWN_CHARS_MAX).map_or(text.len(), |(at, _)| at);
        write!(f, "{}{}", &text[..end], if end < text.len() { "..." } else { "" })
    }
}

fn shown(plan: &Plan) -> Value {
    // Nothing in a plan can fail to be written out; a difference would still be told of.
    serde_json::to_value(plan).unwrap_or_default()
}

fn compare(key: &str, old: &Value, new: &Value, changes: &mut Vec<Change>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(old), Value::Object(new)) => compare_sections(key, old, new, changes),
        (Value::Array(old), Value::Array(new)) => match (named(old), named(new)) {
            (Some(old), Some(new)) => compare_lists(key, &old, &new, changes),
            _ => changes.push(changed(key, &Value::from(old.clone()), &Value::from(new.clone()))),
        },
        _ => changes.push(changed(key, old, new)),
    }
}

fn changed(key: &str, from: &Value, to: &Value) -> Change {
    Change { from: Some(from.clone()), to: Some(to.clone()), ..Change::of(key, What::Changed) }
}

fn compare_sections(key: &str, old: &Map<String, Value>, new: &Map<String, Value>, changes: &mut Vec<Change>) {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for inner in keys {
        let path = if key.is_empty() { inner.clone() } else { format!("{key}.{inner}") };
        let of = |section: &Map<String, Value>| section.get(inner).cloned().unwrap_or_default();
        compare(&path, &of(old), &of(new), changes);
    }
}

fn compare_lists(key: &str, old: &[(String, &Value)], new: &[(String, &Value)], changes: &mut Vec<Change>) {
    let before = changes.len();
    let of = |list: &[(String, &Value)], name: &str| list.iter().position(|(other, _)| other == name);
    for (name, value) in old.iter().filter(|(name, _)| of(new, name).is_none()) {
        let removed = Change::of(&format!("{key}[{name}]"), What::Removed);
        changes.push(Change { from: Some((*value).clone()), ..removed });
    }
    for (name, value) in new {
        let path = format!("{key}[{name}]");
        match of(old, name).and_then(|at| old.get(at)) {
            Some((_, before)) => compare(&path, before, value, changes),
            None => changes.push(Change { to: Some((*value).clone()), ..Change::of(&path, What::Added) }),
        }
    }
    if changes.len() == before {
        changes.push(Change::of(key, What::Reordered));
    }
}

/// The items under their names, if all have one and no two the same.
fn named(list: &[Value]) -> Option<Vec<(String, &Value)>> {
    let named: Vec<_> = list.iter().map(|item| Some((name_of(item)?, item))).collect::<Option<_>>()?;
    let names: BTreeSet<&String> = named.iter().map(|(name, _)| name).collect();
    (names.len() == named.len()).then_some(named)
}

/// What identifies an item: its name, its address, or the model of an upstream.
fn name_of(item: &Value) -> Option<String> {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    let model = || Some(format!("{}/{}", text("upstream")?, text("model")?));
    text("name").or(text("address")).map(str::to_owned).or_else(model)
}

/// What is written out alike and may differ all the same: a secret with a new value, a file with a new content.
fn compare_hidden(old: &Upstream, new: &Upstream, changes: &mut Vec<Change>) {
    let key = |key: &str| format!("upstreams[{}].{key}", new.name);
    if old.api_key.is_some() && new.api_key.is_some() && old.api_key != new.api_key {
        changes.push(Change::of(&key("api_key"), What::Changed));
    }
    let (Some(old), Some(new)) = (&old.tls, &new.tls) else { return };
    for (name, old, new) in [("ca", &old.ca, &new.ca), ("cert", &old.cert, &new.cert), ("key", &old.key, &new.key)] {
        if is_renewed(old.as_ref(), new.as_ref()) {
            changes.push(Change::of(&key(&format!("tls.{name}")), What::Changed));
        }
    }
}

fn is_renewed(old: Option<&Pem>, new: Option<&Pem>) -> bool {
    old.zip(new).is_some_and(|(old, new)| old.path() == new.path() && old != new)
}

#[cfg(test)]
mod tests;
