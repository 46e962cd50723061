pub mod ask;
pub mod candidate;
pub mod chain;
pub mod moment;
pub mod report;
pub mod signal;
