//! RFC 3339 times as seconds since 1970, as far as the engines' lists need them.
//!
//! Refuses what is no such time; ignores fractions of a second. No calendar crate for one field.

/// Days before each month of a common year.
const DAYS_BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// `2026-01-02T03:04:05.678+01:00` in seconds since 1970.
pub fn unix_secs(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-', [1..=9999, 1..=12, 1..=31])?;
    let [hour, minute, second] = numbers(time, ':', [0..=23, 0..=59, 0..=60])?;
    let days = days_before_year(year) - days_before_year(1970) + day_of_year(year, month, day);
    Some(days * 86_400 + hour * 3600 + minute * 60 + second - offset_secs(rest)?)
}

fn numbers<const N: usize>(
    text: &str,
    separator: char,
    ranges: [std::ops::RangeInclusive<i64>; N],
) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (number, range) in found.iter_mut().zip(&ranges) {
        let digits = parts.next().filter(|part| part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = digits.parse().ok().filter(|number| range.contains(number))?;
    }
    parts.next().is_none().then_some(found)
}

fn days_before_year(year: i64) -> i64 {
    let past = year - 1;
    past * 365 + past / 4 - past / 100 + past / 400
}

fn day_of_year(year: i64, month: i64, day: i64) -> i64 {
    let leaps = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let before = usize::try_from(month - 1).ok().and_then(|month| DAYS_BEFORE_MONTH.get(month)).unwrap_or(&0);
    before + i64::from(leaps && month > 2) + day - 1
}

/// Seconds east of Greenwich, from what follows the seconds.
fn offset_secs(rest: &str) -> Option<i64> {
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, zone) = match zone.strip_prefix('+') {
        Some(east) => (1, east),
        None => (-1, zone.strip_prefix('-')?),
    };
    let [hours, minutes] = numbers(zone, ':', [0..=23, 0..=59])?;
    Some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(unix_secs(text), expected, "{text}");
    }

    #[test]
    fn times_become_seconds() {
        check("1970-01-01T00:00:00Z", Some(0));
        check("2000-02-29T12:00:00Z", Some(951_825_600));
        check("2025-05-04T17:37:44.706015396-07:00", Some(1_746_405_464));
        check("2026-01-02T03:04:05+01:00", Some(1_767_319_445));
        check("2318-01-01T00:00:00Z", Some(10_981_785_600));
        check("0001-01-01T00:00:00Z", Some(-62_135_596_800));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "yesterday", "2026-01-02", "2026-13-02T03:04:05Z", "2026-01-02T03:04:05"] {
            check(text, None);
        }
        for text in ["2026-01-02T03:04:05+1", "2026-01-02T+3:04:05Z", "२०२६-01-02T03:04:05Z"] {
            check(text, None);
        }
    }
}
