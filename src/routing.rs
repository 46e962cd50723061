//! The decision core: which upstream, and why.
//!
//! Pure. No I/O, no clock, no chance of its own, no async, no globals, no logging: time and chance come
//! in as arguments, reasons go out as values. The product, the simulator, the tests and the benchmarks
//! call these same functions. `tests/it/purity.rs` scans this folder and fails on any breach.

pub mod admission;
pub mod aged;
pub mod ask;
pub mod breaker;
pub mod budget;
pub mod candidate;
pub mod chain;
pub mod conduct;
pub mod elsewhere;
pub mod estimate;
pub mod evenness;
pub mod fleet;
pub mod group;
pub mod laws;
pub mod limits;
pub mod line;
pub mod moment;
pub mod name;
pub mod placement;
pub mod policy;
pub mod prefix;
pub mod queue;
pub mod recent;
pub mod report;
pub mod retry;
pub mod runner;
pub mod select;
pub mod session;
pub mod signal;
pub mod slow_start;
pub mod snapshot;
pub mod strays;
pub mod stuck;
pub mod table;
pub mod uploads;
pub mod upstream;
pub mod usage;
pub mod warmth;
