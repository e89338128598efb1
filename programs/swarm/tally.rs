//! What the requests came to: latencies to three digits, and the reasons of failures.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

/// The widest bar of the histogram.
const WIDTH: u64 = 40;

#[derive(Default)]
pub(crate) struct Tally {
    /// How many answers took so many nanoseconds. Three digits bound the number of entries.
    latencies: BTreeMap<u64, u64>,
    most: Duration,
    /// How many requests failed, by reason.
    failures: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts an answer.
    pub(crate) fn answered(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        *self.latencies.entry(three_digits(nanos)).or_default() += 1;
        self.most = self.most.max(latency);
    }

    /// Counts requests that have failed.
    pub(crate) fn fail(&mut self, count: u32, why: String) {
        *self.failures.entry(why).or_default() += u64::from(count);
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.answers() + self.failed()
    }

    fn answers(&self) -> u64 {
        self.latencies.values().sum()
    }

    /// The latency that so many hundredths of the answers did not exceed.
    fn percentile(&self, hundredths: u64) -> Duration {
        let rank = (self.answers() * hundredths).div_ceil(100);
        let mut seen = 0;
        let mut all = self.latencies.iter();
        let found = all.find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        found.map_or(self.most, |(nanos, _)| Duration::from_nanos(*nanos))
    }

    /// The report as text, for requests that took so long in all.
    pub(crate) fn report(&self, took: Duration) -> String {
        let answers = self.answers();
        let mut text = format!("{answers} answers in {took:.3?}");
        if answers > 0 && !took.is_zero() {
            let rate = answers as f64 / took.as_secs_f64();
            let _ = write!(text, ", {rate:.0} a second");
        }
        if answers > 0 {
            let [p50, p90, p99] = [50, 90, 99].map(|hundredths| self.percentile(hundredths));
            let most = self.most;
            let _ = write!(
                text,
                "\nlatency p50 {p50:?}, p90 {p90:?}, p99 {p99:?}, most {most:.3?}"
            );
            self.histogram(&mut text);
        }
        for (why, count) in &self.failures {
            let _ = write!(text, "\n{count} failed: {why}");
        }
        text
    }

    /// A line for each range of latencies, up to 1, 2, 5, 10, ...
    fn histogram(&self, text: &mut String) {
        let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
        for (latency, count) in &self.latencies {
            *rows.entry(upper_bound(*latency)).or_default() += count;
        }
        let highest = rows.values().copied().max().unwrap_or(1);
        for (bound, count) in rows {
            let bound = format!("{:?}", Duration::from_nanos(bound));
            // Three digits of a share of the width, so that nothing overflows.
            let bar = (count as f64 / highest as f64 * WIDTH as f64).ceil() as usize;
            let bar = "#".repeat(bar);
            let _ = write!(text, "\n  up to {bound:>6} {count:>8} {bar}");
        }
    }
}

/// Rounds to three digits.
fn three_digits(number: u64) -> u64 {
    let unit = 10u64.pow(number.max(1).ilog10().saturating_sub(2));
    number.saturating_add(unit / 2) / unit * unit
}

/// The first number of 1, 2, 5, 10, ... that is not below this one.
fn upper_bound(number: u64) -> u64 {
    let power = 10u64.pow(number.max(1).ilog10());
    let bounds = [1, 2, 5, 10].map(|times| power.saturating_mul(times));
    bounds
        .into_iter()
        .find(|bound| *bound >= number)
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(latencies: impl IntoIterator<Item = u64>) -> Tally {
        let mut tally = Tally::default();
        for micros in latencies {
            tally.answered(Duration::from_micros(micros));
        }
        tally
    }

    #[test]
    fn percentiles_are_latencies_that_were_measured() {
        let tally = tally(1..=200);
        let percentiles = [1, 50, 90, 99, 100].map(|p| tally.percentile(p).as_micros());
        assert_eq!(percentiles, [2, 100, 180, 198, 200]);
        assert_eq!(self::tally([7]).percentile(50).as_micros(), 7);
    }

    #[test]
    fn the_report_has_a_row_for_each_range() {
        let mut all = tally([999, 1000, 1001, 1500, 40_000, 1_234_567]);
        all.fail(1, "refused".into());
        all.fail(1, "refused".into());
        let report = all.report(Duration::from_secs(3));
        let expected = "\
            6 answers in 3.000s, 2 a second\n\
            latency p50 1ms, p90 1.23s, p99 1.23s, most 1.235s\n  \
              up to    1ms        3 ########################################\n  \
              up to    2ms        1 ##############\n  \
              up to   50ms        1 ##############\n  \
              up to     2s        1 ##############\n\
            2 failed: refused";
        assert_eq!(report, expected);
        assert_eq!((all.failed(), all.requests()), (2, 8));
        let none = Tally::default().report(Duration::ZERO);
        assert_eq!(none, "0 answers in 0.000ns");
        let at_once = tally([0, 0]).report(Duration::ZERO);
        assert!(
            at_once.ends_with("\n  up to    1ns        2 ########################################"),
            "{at_once}"
        );
    }

    #[test]
    fn numbers_are_rounded_without_overflow() {
        let rounded = [0, 1, 999, 1004, 1005, 9996, u64::MAX].map(three_digits);
        let most = 18_400_000_000_000_000_000;
        assert_eq!(rounded, [0, 1, 999, 1000, 1010, 10_000, most]);
        assert_eq!(upper_bound(u64::MAX), u64::MAX);
        assert_eq!(
            [0, 1, 2, 3, 6, 10, 11].map(upper_bound),
            [1, 1, 2, 5, 10, 10, 20]
        );
    }
}
