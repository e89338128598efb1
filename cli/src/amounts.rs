//! Percentiles of many amounts, in bounded memory: for summaries.

use std::{collections::BTreeMap, time::Duration};

/// The calls of a name: their number, and the time that they took or were blocked.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) count: u64,
    pub(super) errors: u64,
    pub(super) total: Duration,
    /// In nanoseconds; all at place 0.
    spans: Amounts,
}

impl Calls {
    pub(super) fn add(&mut self, span: Duration) {
        self.total += span;
        self.spans.add(0, nanos(span), 1);
    }

    /// Counts the calls without a span as spans of no time.
    pub(super) fn fill(&mut self) {
        let [spans, ..] = self.spans.quantiles(None);
        self.spans.add(0, 0, self.count.saturating_sub(spans));
    }

    /// The total, the median, the 99th percentile and the longest.
    pub(super) fn times(&self) -> [Duration; 4] {
        let [_, quantiles @ ..] = self.spans.quantiles(None);
        let [median, high, longest] = quantiles.map(Duration::from_nanos);
        [self.total, median, high, longest]
    }
}

pub(super) fn nanos(span: Duration) -> u64 {
    span.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Amounts by row. Above 2,047, amounts that are equal to a thousandth share a bucket, so that
/// memory stays bounded in long runs. A bucket shows its largest amount.
#[derive(Default)]
pub(super) struct Amounts(BTreeMap<(u32, u32), Bucket>);

/// Amounts that are equal to a thousandth: their number, and the largest.
#[derive(Default)]
struct Bucket {
    count: u64,
    most: u64,
}

impl Amounts {
    pub(super) fn add(&mut self, place: u32, amount: u64, times: u64) {
        // The eleven highest bits, and the number of lower bits.
        let shift = 53u32.saturating_sub(amount.leading_zeros());
        let bucket = shift * 1024 + (amount >> shift) as u32;
        let bucket = self.0.entry((place, bucket)).or_default();
        bucket.count += times;
        bucket.most = bucket.most.max(amount);
    }

    /// Of a row, or of all rows: the number of amounts, the median, the 99th percentile and the largest.
    pub(super) fn quantiles(&self, place: Option<u32>) -> [u64; 4] {
        let (first, last) = place.map_or((0, u32::MAX), |place| (place, place));
        let mut buckets: BTreeMap<u32, Bucket> = BTreeMap::new();
        for ((_, number), bucket) in self.0.range((first, 0)..=(last, u32::MAX)) {
            let sum = buckets.entry(*number).or_default();
            sum.count += bucket.count;
            sum.most = sum.most.max(bucket.most);
        }
        let count: u64 = buckets.values().map(|bucket| bucket.count).sum();
        let [median, high, most] = [50, 99, 100].map(|percent| {
            let rank = (u128::from(count) * percent).div_ceil(100) as u64;
            let mut before = 0;
            let found = buckets.values().find(|bucket| {
                before += bucket.count;
                before >= rank
            });
            found.map_or(0, |bucket| bucket.most)
        });
        [count, median, high, most]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_take_a_bounded_number_of_buckets_and_are_exact_to_a_thousandth() {
        let mut amounts = Amounts::default();
        let steps = (0..64).flat_map(|bit| (0..3000).map(move |low| (1 << bit) | low));
        let mut all: Vec<u64> = steps.chain([u64::MAX]).collect();
        all.iter().for_each(|amount| amounts.add(0, *amount, 1));
        assert!(amounts.0.len() <= 54 * 1024 + 1024, "{}", amounts.0.len());
        all.sort_unstable();
        let exact = [50, 99, 100].map(|percent| all[(all.len() * percent).div_ceil(100) - 1]);
        let [count, found @ ..] = amounts.quantiles(None);
        assert_eq!((count, found[2]), (all.len() as u64, u64::MAX));
        for (found, exact) in found.into_iter().zip(exact) {
            let is_near = found >= exact && found - exact <= exact / 1024;
            assert!(is_near, "{found} for {exact}");
        }
        assert_eq!(amounts.quantiles(Some(1)), [0; 4]);
    }
}
