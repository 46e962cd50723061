//! Quantities as people write them: `250ms`, `64MiB`, `400GB/s`.
//!
//! Each unit is a newtype that reads and writes its own notation, so that a configuration value, a
//! default and an error message all agree. `GB` is 10^9 and `GiB` is 2^30, everywhere. A bare number
//! is refused: it would leave the unit to guesswork.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bandwidth(pub f64);

impl Span {
    pub const fn from_secs(secs: u64) -> Span {
        Span(Duration::from_secs(secs))
    }
}

const SPANS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

const SIZES: [(&str, f64); 9] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let secs = parse(text, &SPANS)
            .ok_or_else(|| format!("`{text}` is not a duration; write it like 250ms, 30s or 15m"))?;
        Duration::try_from_secs_f64(secs).map(Span).map_err(|_| format!("`{text}` is too long"))
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let bytes =
            parse(text, &SIZES).ok_or_else(|| format!("`{text}` is not a size; write it like 64MiB or 24GiB"))?;
        Ok(ByteSize(bytes as u64))
    }
}

impl FromStr for Bandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Bandwidth, String> {
        text.trim()
            .strip_suffix("/s")
            .and_then(|size| parse(size, &SIZES))
            .map(Bandwidth)
            .ok_or_else(|| format!("`{text}` is not a bandwidth; write it like 400GB/s"))
    }
}

/// A non-negative number followed by one of the units; spaces between are allowed.
fn parse(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    let value = number.parse::<f64>().ok()? * factor;
    value.is_finite().then_some(value)
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let ms = self.0.as_millis();
        let (per_unit, unit) = match ms {
            _ if ms > 0 && ms.is_multiple_of(3_600_000) => (3_600_000, "h"),
            _ if ms > 0 && ms.is_multiple_of(60_000) => (60_000, "m"),
            _ if ms.is_multiple_of(1000) => (1000, "s"),
            _ => (1, "ms"),
        };
        write!(f, "{}{unit}", ms / per_unit)
    }
}

impl fmt::Display for ByteSize {
    /// In the largest unit that divides the size; sizes that are no round number of anything in kB.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        const LARGEST_FIRST: [&str; 7] = ["TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB"];
        for unit in LARGEST_FIRST {
            let bytes = SIZES.iter().find(|(name, _)| *name == unit).map_or(1, |(_, bytes)| *bytes as u64);
            if self.0 > 0 && self.0.is_multiple_of(bytes) {
                return write!(f, "{}{unit}", self.0 / bytes);
            }
        }
        write!(f, "{}kB", self.0 as f64 / 1e3)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}GB/s", self.0 / 1e9)
    }
}

macro_rules! written_as_text {
    ($($unit:ty),*) => { $(
        impl Serialize for $unit {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )* };
}

written_as_text!(Span, ByteSize, Bandwidth);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: FromStr<Err = String> + fmt::Display>(text: &str, expected: Option<&str>) {
        let read = text.parse::<T>().ok().map(|unit| unit.to_string());
        assert_eq!(read.as_deref(), expected, "{text}");
    }

    #[test]
    fn spans() {
        check::<Span>("250ms", Some("250ms"));
        check::<Span>("30s", Some("30s"));
        check::<Span>("90s", Some("90s"));
        check::<Span>("15m", Some("15m"));
        check::<Span>("0s", Some("0s"));
        check::<Span>("1.5h", Some("90m"));
        check::<Span>("15", None);
        check::<Span>("-1s", None);
        check::<Span>("1 day", None);
        check::<Span>("", None);
    }

    #[test]
    fn sizes() {
        check::<ByteSize>("128MiB", Some("128MiB"));
        check::<ByteSize>("24 GiB", Some("24GiB"));
        check::<ByteSize>("24GB", Some("24GB"));
        check::<ByteSize>("0.5GiB", Some("512MiB"));
        check::<ByteSize>("64M", None);
        check::<ByteSize>("1.2.3GB", None);
    }

    #[test]
    fn bandwidths() {
        check::<Bandwidth>("400GB/s", Some("400GB/s"));
        check::<Bandwidth>("400GB", None);
    }
}
