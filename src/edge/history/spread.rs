//! How times are spread: counts in buckets that grow by a factor, so that a median is true to about four
//! percent from a millisecond to a day, in little memory.

/// Buckets to each doubling.
const STEPS: f64 = 8.0;

/// Of a time that no request can have taken: 2^27 ms are a day and a half.
const BUCKET_MAX: u8 = 27 * 8;

/// Counts by bucket, in order; at most `BUCKET_MAX + 1` of them.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    buckets: Vec<(u8, u64)>,
    count: u64,
}

impl Spread {
    pub fn add(&mut self, milliseconds: f64) {
        self.add_to(bucket(milliseconds), 1);
    }

    pub fn merge(&mut self, other: &Spread) {
        other.buckets.iter().for_each(|(bucket, count)| self.add_to(*bucket, *count));
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time, in milliseconds, that this share of all does not exceed; `None` of none.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map(|(bucket, _)| middle(*bucket))
    }

    fn add_to(&mut self, bucket: u8, count: u64) {
        self.count += count;
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.buckets[at].1 += count,
            Err(at) => self.buckets.insert(at, (bucket, count)),
        }
    }
}

/// Bucket 0 is up to one millisecond.
fn bucket(milliseconds: f64) -> u8 {
    let steps = (milliseconds.max(1.0).log2() * STEPS).ceil();
    steps.clamp(0.0, f64::from(BUCKET_MAX)) as u8
}

fn middle(bucket: u8) -> f64 {
    if bucket == 0 { 1.0 } else { ((f64::from(bucket) - 0.5) / STEPS).exp2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(times: &[f64], share: f64, expected: Option<f64>) {
        let mut spread = Spread::default();
        times.iter().for_each(|time| spread.add(*time));
        let found = spread.quantile(share);
        match expected {
            None => assert_eq!(found, None),
            Some(expected) => {
                let found = found.unwrap();
                assert!((found / expected - 1.0).abs() < 0.05, "{found} is not about {expected}");
            }
        }
    }

    #[test]
    fn quantiles() {
        check(&[], 0.5, None);
        check(&[0.01], 0.5, Some(1.0));
        check(&[100.0], 0.95, Some(100.0));
        check(&[10.0, 20.0, 5000.0], 0.5, Some(20.0));
        check(&[10.0, 20.0, 5000.0], 0.95, Some(5000.0));
        let rising: Vec<f64> = (1..=1000).map(f64::from).collect();
        check(&rising, 0.5, Some(500.0));
        check(&rising, 0.95, Some(950.0));
        check(&[f64::MAX, f64::NAN, -1.0], 0.1, Some(1.0));
    }

    #[test]
    fn together_they_are_as_one() {
        let (mut one, mut other, mut all) = (Spread::default(), Spread::default(), Spread::default());
        for time in 1..500 {
            let part = if time % 3 == 0 { &mut one } else { &mut other };
            part.add(f64::from(time));
            all.add(f64::from(time));
        }
        one.merge(&other);
        assert_eq!(one.count(), all.count());
        assert_eq!(one.quantile(0.9), all.quantile(0.9));
    }
}
