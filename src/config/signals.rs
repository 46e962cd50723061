//! The constants of the signals: `routing.signals.<signal>.<constant>`.
//!
//! Known names, kinds and defaults are those of the roster written out, so a new signal needs no line
//! here. Each constant is tried alone against the defaults; that is how every bad one is found rather
//! than the first. Two names mean something: what ends in `_per_point` divides and must be more than
//! zero, what starts with `per_` grows with load and must not be negative.

use serde_yaml::{Mapping, Value};

use super::problem::Report;
use super::read::{Keys, Read, Spot, expected, join};
use crate::routing::signal::Signals;

/// Keeps sums of points far from where floating point rounds decisions away.
const CONSTANT_MAX: f64 = 1e6;

impl Read for Signals {
    fn read(at: Spot, report: &mut Report) -> Option<Signals> {
        let mut all = written_out(&Signals::default());
        let keys = Keys::of(at, report)?;
        keys.refuse_others(&names(&all), report);
        for (name, constants) in all.clone() {
            if let (Some(name), Value::Mapping(defaults)) = (name.as_str(), constants)
                && let Some(node) = keys.node(name)
            {
                let path = join(at.path, name);
                read_signal(Spot { path: &path, node }, name, &defaults, &mut all, report);
            }
        }
        serde_yaml::from_value(Value::Mapping(all)).map_err(|error| report.add(at.path, error.to_string(), "")).ok()
    }

    fn schema(path: &str, paths: &mut Vec<String>) {
        paths.extend(constants(&Signals::default()).into_iter().map(|(key, _)| join(path, &key)));
    }
}

/// Every constant as `signal.constant` and its value in text.
pub fn constants(signals: &Signals) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for (name, constants) in written_out(signals) {
        let Value::Mapping(constants) = constants else { continue };
        for (constant, value) in constants {
            list.push((join(text_of(&name).as_str(), &text_of(&constant)), text_of(&value)));
        }
    }
    list
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().unwrap_or(f64::NAN).to_string(),
        _ => String::new(),
    }
}

fn written_out(signals: &Signals) -> Mapping {
    match serde_yaml::to_value(signals) {
        Ok(Value::Mapping(signals)) => signals,
        _ => Mapping::new(),
    }
}

fn names(section: &Mapping) -> Vec<&str> {
    section.keys().filter_map(Value::as_str).collect()
}

/// Reads the constants of one signal into `all`.
fn read_signal(at: Spot, signal: &str, defaults: &Mapping, all: &mut Mapping, report: &mut Report) {
    let Some(keys) = Keys::of(at, report) else { return };
    keys.refuse_others(&names(defaults), report);
    for (constant, default) in defaults {
        let Some(constant) = constant.as_str() else { continue };
        let Some(node) = keys.node(constant) else { continue };
        let path = join(at.path, constant);
        let Some(value) = read_constant(Spot { path: &path, node }, constant, default, report) else { continue };
        match alone(signal, constant, &value) {
            Ok(()) => put(all, signal, constant, value),
            Err(why) => report.add(path, why, ""),
        }
    }
}

fn read_constant(at: Spot, name: &str, default: &Value, report: &mut Report) -> Option<Value> {
    if default.is_number() {
        let number = f64::read(at, report)?;
        return match out_of_bounds(name, number) {
            None => Some(number.into()),
            Some(why) => {
                report.add(at.path, why, "");
                None
            }
        };
    }
    let text = at.node.scalar();
    if text.is_none() {
        expected(&format!("a value like {}", text_of(default)), at.node, at.path, report);
    }
    text.map(Value::String)
}

fn out_of_bounds(name: &str, number: f64) -> Option<&'static str> {
    match number {
        n if n.abs() > CONSTANT_MAX => Some("must be at most a million either way"),
        n if name.ends_with("_per_point") && n <= 0.0 => Some("must be more than zero: it divides"),
        n if name.starts_with("per_") && n < 0.0 => Some("must not be negative: load never makes a node likelier"),
        _ => None,
    }
}

/// Whether the signals accept this constant, all others being the defaults.
fn alone(signal: &str, constant: &str, value: &Value) -> Result<(), String> {
    let mut all = written_out(&Signals::default());
    put(&mut all, signal, constant, value.clone());
    serde_yaml::from_value::<Signals>(Value::Mapping(all)).map(drop).map_err(|error| error.to_string())
}

fn put(all: &mut Mapping, signal: &str, constant: &str, value: Value) {
    if let Some(Value::Mapping(constants)) = all.get_mut(signal) {
        constants.insert(constant.into(), value);
    }
}
