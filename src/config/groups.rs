//! What the entries of `models:` may be, alone, together, and beside the upstreams.
//!
//! Only what was written is looked at; that something required is missing is found when it is resolved.

use std::collections::HashSet;

use super::bounds::{check_count, check_unique};
use super::file::{File, Group, GroupTarget};
use super::plan::Plan;
use super::problem::Report;
use super::read::hint_for;
use crate::routing::name::fold;

/// More names than people could tell apart; keeps a generated file from going unnoticed.
const MODELS_MAX: usize = 1024;
/// Each one is looked at in every request for the name.
const TARGETS_MAX: usize = 256;
/// The longest names are paths in a model hub, and those stay below.
const NAME_BYTES_MAX: usize = 256;
/// Each one costs up to `resilience.attempts` tries while the client waits.
pub const FALLBACKS_MAX: u32 = 16;

const SAME_NAME_HINT: &str = "neither case nor :latest at the end tells two names apart";

pub fn check_models(written: &File, report: &mut Report) {
    let groups = written.models.as_deref().unwrap_or_default();
    check_count("models", groups.len(), 0..=MODELS_MAX, report);
    let around = Around::of(written);
    for (index, group) in groups.iter().enumerate().take(MODELS_MAX) {
        if let Some(group) = group {
            around.check_group(group, &format!("models[{index}]"), report);
        }
    }
    let names = groups.iter().take(MODELS_MAX).map(|group| group.as_ref()?.name.as_deref().map(fold));
    check_unique(|index| format!("models[{index}].name"), names, SAME_NAME_HINT, report);
}

/// What the rest of the file says that groups depend on.
struct Around<'a> {
    upstreams: HashSet<&'a str>,
    max_fallbacks: usize,
}

impl<'a> Around<'a> {
    fn of(written: &'a File) -> Around<'a> {
        let upstreams = written.upstreams.iter().flatten().flatten();
        let max_fallbacks = written.resilience.as_ref().and_then(|resilience| resilience.max_fallbacks);
        let max_fallbacks = max_fallbacks.unwrap_or(Plan::default().resilience.max_fallbacks);
        Around {
            upstreams: upstreams.filter_map(|upstream| upstream.name.as_deref()).collect(),
            max_fallbacks: max_fallbacks.min(FALLBACKS_MAX) as usize,
        }
    }

    fn check_group(&self, group: &Group, path: &str, report: &mut Report) {
        if let Some(name) = &group.name {
            check_name(name, &format!("{path}.name"), report);
        }
        if let Some(targets) = &group.targets {
            self.check_targets(targets, group.name.as_deref(), &format!("{path}.targets"), report);
        }
        if let Some(fallbacks) = &group.fallbacks {
            self.check_fallbacks(fallbacks, group.name.as_deref(), &format!("{path}.fallbacks"), report);
        }
    }

    fn check_targets(&self, targets: &[Option<GroupTarget>], name: Option<&str>, path: &str, report: &mut Report) {
        check_count(path, targets.len(), 1..=TARGETS_MAX, report);
        let each = || targets.iter().take(TARGETS_MAX).map(Option::as_ref);
        for (index, target) in each().enumerate() {
            if let Some(target) = target {
                self.check_target(target, name, &format!("{path}[{index}]"), report);
            }
        }
        let places = each().map(|target| target?.upstream.as_ref().zip(target?.model.as_ref()));
        let hint = "write it once, with the weight of both";
        check_unique(|index| format!("{path}[{index}]"), places, hint, report);
    }

    fn check_target(&self, target: &GroupTarget, name: Option<&str>, path: &str, report: &mut Report) {
        if let Some(upstream) = &target.upstream
            && !self.upstreams.contains(upstream.as_str())
        {
            let what = format!("no upstream is named `{upstream}`");
            report.add(format!("{path}.upstream"), what, self.hint_for_upstream(upstream));
        }
        if let Some(model) = &target.model {
            check_model(model, name, &format!("{path}.model"), report);
        }
        if target.weight.is_some_and(|weight| weight < 0.0) {
            report.add(format!("{path}.weight"), "must not be negative", "0 takes it out of the shuffle");
        }
        if target.cost.is_some_and(|cost| cost < 0.0) {
            report.add(format!("{path}.cost"), "must not be negative", "0 is free");
        }
        for (key, limit) in [("rpm", target.rpm), ("tpm", target.tpm)] {
            if limit == Some(0) {
                report.add(format!("{path}.{key}"), "must be at least 1", "leave it out for no limit");
            }
        }
    }

    fn hint_for_upstream(&self, written: &str) -> String {
        let mut known: Vec<&str> = self.upstreams.iter().copied().collect();
        known.sort_unstable();
        if known.is_empty() { "name it under upstreams first".to_owned() } else { hint_for(written, &known) }
    }

    fn check_fallbacks(&self, fallbacks: &[Option<String>], name: Option<&str>, path: &str, report: &mut Report) {
        if fallbacks.len() > self.max_fallbacks {
            let hint = format!("resilience.max_fallbacks allows {}", self.max_fallbacks);
            report.add(path, format!("has {} items", fallbacks.len()), hint);
        }
        let own = name.map(fold);
        let each = || fallbacks.iter().take(FALLBACKS_MAX as usize).map(Option::as_deref);
        for (index, fallback) in each().enumerate() {
            let Some(fallback) = fallback else { continue };
            let path = format!("{path}[{index}]");
            check_text(fallback, &path, report);
            if own.as_ref() == Some(&fold(fallback)) {
                report.add(path, "is the model itself", "name another one, or leave it out");
            } else if fallback.contains('*') {
                report.add(path, "must not have a *", "name one model");
            }
        }
        let names = each().map(|fallback| fallback.map(fold));
        check_unique(|index| format!("{path}[{index}]"), names, SAME_NAME_HINT, report);
    }
}

fn check_name(name: &str, path: &str, report: &mut Report) {
    check_text(name, path, report);
    if name.find('*').is_some_and(|at| at + 1 < name.len()) {
        report.add(path, "may have a * only at its end", "write it like qwen3*");
    }
}

/// `name` is that of the group, where it could be read.
fn check_model(model: &str, name: Option<&str>, path: &str, report: &mut Report) {
    check_text(model, path, report);
    match model.matches('*').count() {
        0 => {}
        1 if name.is_none_or(|name| name.contains('*')) => {}
        1 => report.add(path, "has a * but the name has none", "it stands for what the * of the name stood for"),
        _ => report.add(path, "has more than one *", ""),
    }
}

fn check_text(text: &str, path: &str, report: &mut Report) {
    if !(1..=NAME_BYTES_MAX).contains(&text.len()) || text.chars().any(char::is_control) {
        report.add(path, format!("must be 1 to {NAME_BYTES_MAX} bytes without control characters"), "");
    }
}

#[cfg(test)]
mod tests;
