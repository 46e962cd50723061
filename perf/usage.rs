//! What a process uses, by the kernel's own count.

use std::time::Duration;

use serde::Serialize;

/// Clock ticks a second in `/proc/PID/stat`; a constant of the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Resident memory; zero once the process is gone.
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// Processor time so far, of all its threads.
pub fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field is a name that may hold blanks; utime and stime are the 14th and 15th.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}

/// Cores in use, on the average of a stretch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cores {
    pub warmgate: f64,
    pub engines: f64,
    pub load_generator: f64,
}
