//! The engines that `engine:` may name.

use super::problem::Report;
use super::read::{Read, Spot, one_of};
use crate::engines;

/// The names, as written in the configuration.
pub fn engine_names() -> Vec<&'static str> {
    engines::ROSTER.iter().map(|engine| engine.name).collect()
}

/// What depth is divided by on an upstream of this engine whose slots are unknown; never a limit.
/// Zero for a name that is no engine.
pub fn default_slots(engine: &str) -> u32 {
    engines::find(engine).map_or(0, |engine| engine.default_slots)
}

/// A name out of `engine_names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineName(pub &'static str);

impl Read for EngineName {
    fn read(at: Spot, report: &mut Report) -> Option<EngineName> {
        let names: Vec<_> = engine_names().into_iter().map(|name| (name, EngineName(name))).collect();
        one_of(at, &names, report)
    }
}
