//! Points in civil time as Ollama writes them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `2026-01-02T03:04:05.678901Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_micros(),
    )
}

/// The same without a fraction: `2026-01-02T03:04:05Z`.
pub fn rfc3339_seconds(time: SystemTime) -> String {
    let text = rfc3339(time);
    text.split_once('.').map_or(text.clone(), |(whole, _)| format!("{whole}Z"))
}

/// Year, month and day of a day number, after Howard Hinnant, "chrono-compatible low-level date
/// algorithms": years begin in March, so that the leap day comes last.
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn check(micros: u64, expected: &str) {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_micros(micros)), expected);
    }

    #[test]
    fn dates() {
        check(0, "1970-01-01T00:00:00.000000Z");
        check(951_782_400_000_000, "2000-02-29T00:00:00.000000Z");
        check(1_767_225_599_000_001, "2025-12-31T23:59:59.000001Z");
        check(1_772_323_200_000_000, "2026-03-01T00:00:00.000000Z");
    }
}
