//! `--inject`: the rules, in the words of strace, and the injection that follows them.

use std::{
    io::ErrorKind,
    sync::{
        Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use clap::builder::TypedValueParser;
use trapline::{Inject, MayFault, SystemCall, Tid};

use super::{
    output::Log,
    values::{among, completed, duration, one_of},
};

const WORDS: [&str; 4] = ["error", "delay", "kill", "when"];

/// A rule: which calls, and what is done to them.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    text: String,
    call: SystemCall,
    inject: Inject,
    when: When,
}

/// Which calls of one kind, counted from 1: from the first to the last, every `step`th.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct When {
    first: u64,
    last: u64,
    step: u64,
}

impl When {
    const ALWAYS: Self = Self {
        first: 1,
        last: u64::MAX,
        step: 1,
    };

    /// Parses `N`, `N+`, `N+STEP`, `N..M` or `N..M+STEP`.
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0);
        let (range, step) = match text.split_once('+') {
            Some((range, step)) => (range, Some(step)),
            None => (text, None),
        };
        let (first, last) = match range.split_once("..") {
            Some((first, last)) => (number(first)?, Some(number(last)?)),
            None => (number(range)?, None),
        };
        let last = match (last, step) {
            (Some(last), _) => last,
            (None, Some(_)) => u64::MAX,
            (None, None) => first,
        };
        let step = match step {
            Some("") | None => 1,
            Some(step) => number(step)?,
        };
        (first <= last).then_some(Self { first, last, step })
    }

    fn has(self, nth: u64) -> bool {
        (self.first..=self.last).contains(&nth) && (nth - self.first).is_multiple_of(self.step)
    }
}

/// The parser of an option; a shell completes the names of calls.
pub(super) fn rules() -> impl TypedValueParser<Value = Rule> {
    let calls = SystemCall::NAMES.iter().map(|name| format!("{name}:"));
    completed(rule, calls)
}

/// Parses a rule such as `recv:error=ConnectionReset:when=3+2`; an error suggests a word.
pub(super) fn rule(text: &str) -> Result<Rule, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let call = call(name)?;
    let (mut inject, mut when) = (None, None);
    for part in parts {
        let (word, value) = match part.split_once('=') {
            Some((word, value)) => (word, Some(value)),
            None => (part, None),
        };
        let known = one_of("word", word, &WORDS, ToString::to_string)?;
        let is_again = match (known, value) {
            ("kill", None) => inject.replace(Inject::Kill).is_some(),
            ("kill", Some(_)) => return Err("'kill' takes no value".into()),
            (_, None | Some("")) => return Err(format!("'{word}' takes a value: {}", usage(word))),
            ("error", Some(kind)) => inject.replace(fail(call, kind)?).is_some(),
            ("delay", Some(span)) => inject.replace(delay(span)?).is_some(),
            (_, Some(range)) => {
                let parsed = When::parse(range);
                let parsed = parsed.ok_or_else(|| {
                    format!(
                        "'when={range}' selects no calls: it takes {}",
                        usage("when")
                    )
                })?;
                when.replace(parsed).is_some()
            }
        };
        if is_again {
            return Err("a rule has one of 'error', 'delay' and 'kill', and one 'when'".into());
        }
    }
    let missing = || "say what to do: 'error=KIND', 'delay=TIME' or 'kill'".to_string();
    Ok(Rule {
        text: text.into(),
        call,
        inject: inject.ok_or_else(missing)?,
        when: when.unwrap_or(When::ALWAYS),
    })
}

/// Finds the call of this name; an error suggests one that is similar.
pub(super) fn call(name: &str) -> Result<SystemCall, String> {
    MayFault::call(name).map_err(|why| {
        let near = among("call", name, &SystemCall::NAMES, ToString::to_string).err();
        near.filter(|near| near.ends_with('?')).unwrap_or(why)
    })
}

fn fail(call: SystemCall, kind: &str) -> Result<Inject, String> {
    if !call.is_io() {
        let name = call.name();
        return Err(format!(
            "'{name}' cannot fail: only calls that return an io::Result can, such as 'recv'; \
             'delay' and 'kill' work with every call"
        ));
    }
    let name_of = |kind: &ErrorKind| format!("{kind:?}");
    one_of("kind of error", kind, MayFault::kinds(), name_of).map(Inject::Fail)
}

fn delay(span: &str) -> Result<Inject, String> {
    let span = duration(span).map_err(|error| format!("'delay={span}': {error}"))?;
    Ok(Inject::Delay(span))
}

fn usage(word: &str) -> &'static str {
    match word {
        "error" => "a kind of error, such as error=ConnectionReset",
        "delay" => "a time, such as delay=2s",
        _ => "N, N+, N+STEP, N..M or N..M+STEP, counted from 1",
    }
}

/// The rules of a run, and the calls that they have seen.
#[derive(Clone)]
pub(super) struct Rules(Arc<RwLock<Vec<Counted>>>);

struct Counted {
    rule: Rule,
    /// The number of the first call that it counts, once it has come. A rule of the command line counts
    /// from the first of the run, and one that is added from the next one on.
    from: OnceLock<u64>,
    /// The most calls of a run. A search has many runs, on several threads.
    seen: AtomicU64,
    done: AtomicBool,
}

impl Counted {
    fn new(rule: Rule, from: OnceLock<u64>) -> Self {
        Self {
            rule,
            from,
            seen: AtomicU64::new(0),
            done: AtomicBool::new(false),
        }
    }
}

impl Rules {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let counted = |rule: &Rule| Counted::new(rule.clone(), OnceLock::from(1));
        let counted = rules.iter().map(counted).collect();
        Self(Arc::new(RwLock::new(counted)))
    }

    /// Adds a rule while the run is under way.
    pub(super) fn add(&self, rule: Rule) {
        let mut rules = self.0.write().unwrap_or_else(PoisonError::into_inner);
        rules.push(Counted::new(rule, OnceLock::new()));
    }

    fn all(&self) -> RwLockReadGuard<'_, Vec<Counted>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the injection. The first rule that selects a call applies.
    pub(super) fn injection(
        &self,
    ) -> impl Fn(Tid, SystemCall, u64) -> Option<Inject> + Send + Sync + 'static {
        let all = self.clone();
        move |_, call, nth| {
            let rules = all.all();
            let of_call = |rule: &&Counted| rule.rule.call.number() == call.number();
            let rules = rules.iter().filter(of_call);
            rules
                .map(|rule| (rule, nth + 1 - rule.from.get_or_init(|| nth)))
                .inspect(|(rule, nth)| {
                    rule.seen.fetch_max(*nth, Ordering::Relaxed);
                })
                .find(|(rule, nth)| rule.rule.when.has(*nth))
                .map(|(rule, _)| {
                    rule.done.store(true, Ordering::Relaxed);
                    rule.rule.inject
                })
        }
    }

    pub(super) fn report(&self, log: Log) {
        for counted in &*self.all() {
            let Counted {
                rule, seen, done, ..
            } = counted;
            if !done.load(Ordering::Relaxed) {
                let (text, call) = (&rule.text, rule.call.name());
                let seen = match seen.load(Ordering::Relaxed) {
                    0 => "no task made that call".to_string(),
                    1 => format!("tasks made 1 call of '{call}'"),
                    n => format!("tasks made {n} calls of '{call}'"),
                };
                log.warn(&format!("--inject '{text}' did nothing: {seen}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn when_selects_calls_as_strace_does() {
        let selected = |text: &str| {
            let when = When::parse(text)?;
            Some((1..=9).filter(|nth| when.has(*nth)).collect::<Vec<u64>>())
        };
        for (text, expected) in [
            ("3", &[3][..]),
            ("7+", &[7, 8, 9]),
            ("3+2", &[3, 5, 7, 9]),
            ("2..4", &[2, 3, 4]),
            ("2..4+", &[2, 3, 4]),
            ("2..8+3", &[2, 5, 8]),
            ("5..5", &[5]),
        ] {
            assert_eq!(selected(text).as_deref(), Some(expected), "{text}");
        }
        for wrong in [
            "", "0", "+", "-1", "x", "3+0", "4..2", "..3", "3..", "1+2+3",
        ] {
            assert_eq!(selected(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_rule_that_is_wrong_says_why_and_suggests() {
        let what = "say what to do: 'error=KIND', 'delay=TIME' or 'kill'";
        for (text, expected) in [
            ("", "there is no call ''"),
            (
                "lock:kill",
                "there is no call 'lock': a lock is a 'get' of a mutex",
            ),
            ("recv", what),
            ("recv:when=3", what),
            (
                "recv:eror=Other",
                "did you mean 'error'? There are error, delay, kill, when",
            ),
            (
                "recv:error",
                "'error' takes a value: a kind of error, such as error=ConnectionReset",
            ),
            (
                "recv:delay=",
                "'delay' takes a value: a time, such as delay=2s",
            ),
            (
                "recv:delay=2",
                "'delay=2': it takes a number and a unit, such as 500ms, 10s or 2m",
            ),
            ("recv:kill=9", "'kill' takes no value"),
            (
                "recv:kill:delay=1s",
                "a rule has one of 'error', 'delay' and 'kill', and one 'when'",
            ),
            (
                "recv:kill:when=4..2",
                "'when=4..2' selects no calls: it takes N, N+, N+STEP, N..M",
            ),
            (
                "yield:error=Other",
                "'yield' cannot fail: only calls that return an io::Result can",
            ),
            (
                "recv:error=Foo",
                "there is no kind of error 'Foo': there are AddrInUse, AddrNot",
            ),
            (
                "recv:error=ConectionReset",
                "did you mean 'ConnectionReset'? There are AddrInUse, ",
            ),
        ] {
            let error = rule(text).map(drop).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let rule = rule("connect:when=2+:delay=1500ms").unwrap();
        assert_eq!(rule.inject, Inject::Delay(Duration::from_millis(1500)));
        assert_eq!(Some(rule.when), When::parse("2+"));
    }
}
