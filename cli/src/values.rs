//! Parsers for argument values, and their error messages.

use std::{
    ffi::OsStr, fmt, fs, net::SocketAddr, ops::RangeInclusive, path::Path, str::FromStr,
    time::Duration,
};

use clap::{
    Arg, Command,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
    error::ErrorKind,
};
use trapline::{Signal, SystemCall, Tid};

/// The error of a command line that is wrong.
pub(super) fn usage(why: impl fmt::Display) -> clap::Error {
    clap::Error::raw(ErrorKind::InvalidValue, format!("{why}\n"))
}

/// Sets what an option gives; without it, the builder stays as it is.
pub(super) fn given<B, T>(builder: B, value: Option<T>, set: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => set(builder, value),
        None => builder,
    }
}

/// Reads a duration such as `500ms`, `10s` or `1h 30m`: a `value_parser` for arguments.
///
/// *Errors:* a text that describes the format of a duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "it takes a number and a unit, such as 500ms, 10s or 2m".to_string())
}

/// Reads an address such as `127.0.0.1:45000` or `[::1]:0`: a `value_parser` for arguments.
///
/// *Errors:* a text that describes the format of an address.
pub fn addr(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "it takes an IP address and a port, such as 127.0.0.1:8080 or [::1]:0".into())
}

/// Reads an instant since boot, in the format of a trace (`00:04.000`) or as a duration (`4s`).
pub(super) fn instant(text: &str) -> Result<Duration, String> {
    let shown = || {
        let (minutes, seconds) = text.split_once(':')?;
        let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let digits = [minutes, seconds, fraction];
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits.into_iter().all(plain) || fraction.len() > 9 {
            return None;
        }
        let nanos: u64 = format!("{fraction:0<9}").parse().ok()?;
        let minutes = minutes.parse::<u64>().ok()?.checked_mul(60)?;
        let seconds = minutes.checked_add(seconds.parse().ok()?)?;
        Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos))
    };
    let instant = shown().map_or_else(|| duration(text), Ok);
    instant.map_err(|_| "it takes a time since boot, such as 00:04.000, 4s or 250ms".to_string())
}

/// Reads an instant and a signal, such as `3s:TERM`.
pub(super) fn signal(text: &str) -> Result<(Duration, Signal), String> {
    let what = "it takes a time and a signal, such as 3s:TERM";
    let (at, name) = text.rsplit_once(':').ok_or(what)?;
    let signal = name.parse::<Signal>();
    if !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "'{at}' has no unit: write {at}s:{name} or {at}ms:{name}"
        ));
    }
    Ok((instant(at)?, signal.map_err(|error| error.to_string())?))
}

/// Reads the file of `--stdin`, if there is one.
pub(super) fn text_of(path: Option<&Path>) -> Result<Option<Vec<u8>>, String> {
    let read = |path: &Path| {
        let why = |error| format!("cannot read --stdin {}: {error}", path.display());
        fs::read(path).map_err(why)
    };
    path.map(read).transpose()
}

/// Finds the value of this name; an error suggests a name that is similar.
pub(super) fn among<T: Copy>(
    what: &str,
    name: &str,
    values: &[T],
    name_of: impl Fn(&T) -> String,
) -> Result<T, String> {
    if let Some(value) = values.iter().find(|value| name_of(value) == name) {
        return Ok(*value);
    }
    let likeness = |value: &T| (strsim::jaro(&name_of(value), name), name_of(value));
    let near = values.iter().map(likeness);
    let near = near.max_by(|one, other| one.0.total_cmp(&other.0));
    // The threshold of clap. Long words reach it with half of their letters.
    let is_near = |(likeness, near): &(f64, String)| {
        *likeness > 0.7 && strsim::normalized_damerau_levenshtein(near, name) > 0.6
    };
    Err(match near.filter(is_near) {
        Some((_, near)) => format!("there is no {what} '{name}': did you mean '{near}'?"),
        None => format!("there is no {what} '{name}'"),
    })
}

/// Finds the value of this name; an error suggests a name that is similar, and lists all.
pub(super) fn one_of<T: Copy>(
    what: &str,
    name: &str,
    values: &[T],
    name_of: impl Fn(&T) -> String,
) -> Result<T, String> {
    let names = || values.iter().map(&name_of).collect::<Vec<_>>();
    among(what, name, values, &name_of).map_err(|_| unknown(what, name, &names()))
}

/// Explains that there is nothing of this name: a name that is similar, and all names.
pub(super) fn unknown(what: &str, name: &str, names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let why = among(what, name, &names, ToString::to_string);
    let why = why.expect_err("these names are known");
    let end = match why.ends_with('?') {
        true => " There",
        false => ": there",
    };
    let are = if names.len() == 1 { "is" } else { "are" };
    format!("{why}{end} {are} {}", names.join(", "))
}

/// Reads a size in bytes, such as `500k`, `64M` or `2G`: powers of 1024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let unit = text.len() - usize::from(text.ends_with(['k', 'M', 'G']));
    let (number, unit) = text.split_at(unit);
    let shift = match unit {
        "k" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    let number = number
        .parse()
        .ok()
        .and_then(|number: u64| number.checked_mul(1 << shift));
    number.ok_or_else(|| "it takes a number of bytes, or one of k, M or G, such as 64M".into())
}

/// Reads the name of a call; an error lists the names.
pub(super) fn calls() -> PossibleValuesParser {
    SystemCall::NAMES.into()
}

/// The parser, with words that a shell completes. It takes other values, too.
pub(super) fn completed<P: TypedValueParser>(
    parser: P,
    words: impl IntoIterator<Item = impl Into<String>>,
) -> Completed<P> {
    let words = words.into_iter().map(Into::into).collect();
    Completed { parser, words }
}

/// See [`completed`].
#[derive(Clone)]
pub(super) struct Completed<P> {
    parser: P,
    words: Vec<String>,
}

impl<P: TypedValueParser> TypedValueParser for Completed<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}

/// Reads a number in this range; an error names it, and what is counted.
pub(super) fn within(
    what: &'static str,
    range: RangeInclusive<usize>,
) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (first, last) = (range.start(), range.end());
            format!("it takes {what} from {first} to {last}")
        })
    }
}

/// Reads the number of a task: `17`, or `2:17` for one of the second kernel.
pub(super) fn task(text: &str) -> Result<Tid, String> {
    text.parse::<Tid>().map_err(String::from)
}

/// Reads a whole number; an error names the range.
pub(super) fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    let largest = u64::MAX >> (64 - 8 * size_of::<T>());
    let least = u8::from("0".parse::<T>().is_err());
    text.parse()
        .map_err(|_| format!("it takes a whole number from {least} to {largest}"))
}
