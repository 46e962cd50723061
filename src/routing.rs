pub mod ask;
pub mod chain;
pub mod moment;
pub mod report;
