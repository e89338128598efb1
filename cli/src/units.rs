//! Numbers and times as text.

use std::time::Duration;

/// So many of something.
pub(crate) fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
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

/// A span of time, exactly.
pub(crate) fn span(span: Duration) -> String {
    format!("{span:?}")
}

/// A span of time, to three digits.
pub(crate) fn rounded(span: Duration) -> String {
    let nanos = span.as_nanos() as f64;
    let digits = nanos.max(1.0).log10().floor() as i32 + 1;
    let unit = 10f64.powi((digits - 3).max(0));
    format!(
        "{:?}",
        Duration::from_nanos(((nanos / unit).round() * unit) as u64)
    )
}

/// A span of time in seconds, to a thousandth of its unit.
pub(crate) fn thousandths(seconds: f64) -> String {
    let nanos = (seconds * 1e9).round();
    let digits = nanos.max(1.0).log10().floor() as i32;
    let step = 10f64.powi((digits.min(9) / 3 * 3 - 3).max(0));
    match (nanos / step).round() * step {
        0.0 => "0".to_string(),
        nanos => span(Duration::from_nanos(nanos as u64)),
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

/// A number with a comma after each three digits.
pub(crate) fn separated(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
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
        let texts = [0.0, 3.3e-8, 5e-4, 63.3333333e-3, 0.0999999999, 1.5, 120.0].map(thousandths);
        let expected = ["0", "33ns", "500µs", "63.333ms", "100ms", "1.5s", "120s"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn digits_are_separated_in_threes() {
        let texts = [0, 999, 1000, 3041, 12_345_678].map(separated);
        assert_eq!(texts, ["0", "999", "1,000", "3,041", "12,345,678"]);
    }
}
