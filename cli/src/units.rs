//! Numbers and times as text.

use std::{fmt, time::Duration};

/// So many of something.
pub(crate) fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", self::number(number)),
    }
}

/// The first few texts, and what is said of the number of the others.
pub(crate) fn few(
    texts: impl ExactSizeIterator<Item = String>,
    most: usize,
    more: impl FnOnce(usize) -> String,
) -> Vec<String> {
    let others = texts.len().saturating_sub(most);
    let more = (others > 0).then(|| more(others));
    texts.take(most).chain(more).collect()
}

/// A span of time, to a thousandth of its unit.
pub(crate) fn span(span: Duration) -> String {
    let nanos = span.as_nanos();
    let step = match nanos {
        ..1_000_000 => 1,
        1_000_000..1_000_000_000 => 1_000,
        _ => 1_000_000,
    };
    match (nanos + step / 2) / step * step {
        0 => "0".to_string(),
        nanos => format!(
            "{:?}",
            Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
        ),
    }
}

/// The same of a number of seconds, such as a mean.
pub(crate) fn span_of(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

/// The same in a sentence, where no time has a unit, too.
pub(crate) fn lasting(seconds: f64) -> String {
    match span_of(seconds) {
        nothing if nothing == "0" => "0s".into(),
        span => span,
    }
}

/// A part of a whole in percent: to two digits below ten, and never rounded to nothing or to all.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    let percent = 100.0 * part / whole;
    match percent {
        _ if part == 0.0 || whole == 0.0 => "0 %".into(),
        _ if (part - whole).abs() < 1e-12 * whole => "100 %".into(),
        ..0.01 => "<0.01 %".into(),
        0.01..0.95 => format!("{percent:.2} %"),
        0.95..9.95 => format!("{percent:.1} %"),
        99.0.. => format!("{:.2} %", (percent * 100.0).floor() / 100.0),
        _ => format!("{percent:.0} %"),
    }
}

/// A whole number, with a comma before each three digits from the right.
pub(crate) fn number(number: impl fmt::Display) -> String {
    let whole = number.to_string();
    let digits = whole.trim_start_matches('-');
    let mut text = whole[..whole.len() - digits.len()].to_string();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_three_digits_behind_the_point_at_most() {
        let seconds = [0.0, 3.3e-8, 5e-4, 63.3333333e-3, 0.9999999, 1.5, 120.0];
        let expected = ["0", "33ns", "500µs", "63.333ms", "1s", "1.5s", "120s"];
        assert_eq!(seconds.map(span_of), expected);
        let nanos = [1, 1_234, 1_234_567, 1_234_567_890, 999_999_999].map(Duration::from_nanos);
        let expected = ["1ns", "1.234µs", "1.235ms", "1.235s", "1s"];
        assert_eq!(nanos.map(span), expected);
        assert_eq!([0.0, 1.5].map(lasting), ["0s", "1.5s"]);
        // The longest is shown, too.
        assert!(span(Duration::MAX).ends_with('s'));
    }

    #[test]
    fn digits_are_separated_in_threes() {
        let texts = [0, 999, 1000, 3041, 12_345_678].map(number);
        assert_eq!(texts, ["0", "999", "1,000", "3,041", "12,345,678"]);
        let texts = [-1, -123, -1234, -123_456].map(number);
        assert_eq!(texts, ["-1", "-123", "-1,234", "-123,456"]);
    }
}
