//! Numbers and times as text: one format everywhere.

use std::time::Duration;

/// So many of something.
pub(crate) fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
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
    fn digits_are_separated_in_threes() {
        let texts = [0, 999, 1000, 3041, 12_345_678].map(separated);
        assert_eq!(texts, ["0", "999", "1,000", "3,041", "12,345,678"]);
    }
}
