//! `--policy NAME[:PARAMS]`: the policies by their names. `--share NAME:SHARE`: shares of tasks.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use clap::error::ErrorKind;
use trapline::{
    Builder, Share, sched,
    sched::{Allotment, Fair, Lottery, Mlfq, Pct, Priority, Random, RoundRobin, Sjf, Stcf, Stride},
};

use super::{
    output::Log,
    values::{duration, unknown},
};

/// Makes a policy with the draws of a seed.
type Make = dyn Fn(u64) -> Box<dyn sched::Policy> + Send + Sync;

/// Reads the parameters of a policy that a binary has registered.
pub(super) type Register =
    Arc<dyn Fn(&str) -> Result<Box<dyn sched::Policy>, String> + Send + Sync>;

/// A policy of the command line.
#[derive(Clone)]
pub(super) struct Policy {
    text: String,
    /// The kind of share that it looks at: `Some("")` for none, and `None` for any.
    share: Option<&'static str>,
    /// `None` for first in, first out, which is the kernel's own.
    make: Option<Arc<Make>>,
}

/// The time slice of a policy without a parameter.
const QUANTUM: Duration = Duration::from_millis(10);

/// The changes of `pct` without a parameter.
const CHANGES: u32 = 3;

const NAMES: [&str; 11] = [
    "fifo", "rr", "sjf", "stcf", "priority", "mlfq", "lottery", "stride", "fair", "random", "pct",
];

impl Policy {
    /// Sets the policy, with the draws of this seed.
    pub(super) fn set(&self, builder: Builder, seed: u64) -> Builder {
        match &self.make {
            None => builder,
            Some(make) => builder.policy(make(seed)),
        }
    }

    /// Reads a policy; `registered` are those of the binary.
    pub(super) fn parse(text: &str, registered: &[(String, Register)]) -> Result<Self, String> {
        let (name, params) = text.split_once(':').unwrap_or((text, ""));
        if text.ends_with(':') {
            return Err(format!("after '{name}:' there is no parameter"));
        }
        let (share, make) = match registered.iter().find(|(other, _)| other == name) {
            Some((_, register)) => (None, Some(of_binary(register, params)?)),
            None => (Some(share_for(name)), built_in(name, params, registered)?),
        };
        let text = text.to_string();
        Ok(Self { text, share, make })
    }

    /// Returns whether the policy looks at this share.
    fn uses(&self, share: Share) -> bool {
        let share = share.to_string();
        self.share
            .is_none_or(|kind| share.split('=').next() == Some(kind))
    }
}

/// The kind of share that a policy of the library looks at, if any.
fn share_for(name: &str) -> &'static str {
    match name {
        "lottery" | "stride" => "tickets",
        "fair" => "nice",
        "priority" => "priority",
        _ => "",
    }
}

/// The policy of a binary: made once for its errors, and then for each kernel.
fn of_binary(register: &Register, params: &str) -> Result<Arc<Make>, String> {
    register(params)?;
    let (register, params) = (Arc::clone(register), params.to_string());
    Ok(Arc::new(move |_| {
        let policy = register(&params);
        policy.unwrap_or_else(|error| panic!("the same parameters were right before: {error}"))
    }))
}

fn built_in(
    name: &str,
    params: &str,
    registered: &[(String, Register)],
) -> Result<Option<Arc<Make>>, String> {
    let none = || match params {
        "" => Ok(()),
        _ => Err(format!("{name} takes no parameters")),
    };
    let quantum = || match params {
        "" => Ok(QUANTUM),
        text => span(name, "quantum", text),
    };
    Ok(Some(match name {
        "fifo" => return none().map(|()| None),
        "rr" => quantum().map(|quantum| make(move |_| RoundRobin::new(quantum)))?,
        "sjf" => none().map(|()| make(|_| Sjf::default()))?,
        "stcf" => none().map(|()| make(|_| Stcf::default()))?,
        "priority" => priority(params)?,
        "mlfq" => mlfq(params)?,
        "lottery" => quantum().map(|quantum| make(move |seed| Lottery::new(quantum, seed)))?,
        "stride" => quantum().map(|quantum| make(move |_| Stride::new(quantum)))?,
        "fair" => fair(params)?,
        "random" => none().map(|()| make(Random::new))?,
        "pct" => pct(params)?,
        _ => {
            let names: Vec<&str> = NAMES
                .into_iter()
                .chain(registered.iter().map(|(name, _)| name.as_str()))
                .collect();
            return Err(unknown("policy", name, &names));
        }
    }))
}

fn make<P: sched::Policy + 'static>(
    policy: impl Fn(u64) -> P + Send + Sync + 'static,
) -> Arc<Make> {
    Arc::new(move |seed| Box::new(policy(seed)))
}

/// The shortest time of a policy. A simulated kernel has about a million slices a second, so with
/// shorter ones it is slower than the time that it simulates.
const SHORTEST: Duration = Duration::from_micros(1);

/// Reads a time from [`SHORTEST`].
fn span(name: &str, what: &str, text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(Duration::ZERO) => Err(format!(
            "the {what} of {name} is zero: give a time such as 10ms"
        )),
        Ok(span) if span < SHORTEST => Err(format!(
            "the {what} of {name} is {}: give at least 1us, such as 10ms",
            humantime::format_duration(span)
        )),
        Ok(span) => Ok(span),
        Err(_) => Err(format!(
            "'{text}' is no {what} of {name}: give a number and a unit, such as 10ms"
        )),
    }
}

fn pct(params: &str) -> Result<Arc<Make>, String> {
    const USAGE: &str = "pct takes a number of changes from 0 to 1000, and the turns of a run, such \
                         as pct:3 or pct:3,length=120";
    let (mut changes, mut length) = (None, None);
    for param in params.split(',').filter(|param| !param.is_empty()) {
        let is_twice = match param.split_once('=') {
            Some(("length", text)) => match text.parse() {
                Ok(turns @ 1_u64..) => length.replace(turns).is_some(),
                _ => return Err(format!("'{text}' is no length of a run: give turns from 1")),
            },
            _ => {
                let number = param.parse().ok().filter(|changes| *changes <= 1000);
                changes.replace(number.ok_or(USAGE)?).is_some()
            }
        };
        if is_twice {
            return Err(USAGE.into());
        }
    }
    let changes = changes.unwrap_or(CHANGES);
    Ok(make(move |seed| {
        let policy = Pct::new(changes, seed);
        match length {
            Some(turns) => policy.length(turns),
            None => policy,
        }
    }))
}

fn priority(params: &str) -> Result<Arc<Make>, String> {
    let (mut quantum, mut inherits) = (QUANTUM, false);
    for param in params.split(',').filter(|param| !param.is_empty()) {
        match param {
            "inherit" => inherits = true,
            text => quantum = span("priority", "quantum", text)?,
        }
    }
    Ok(make(move |_| {
        let policy = Priority::new(quantum);
        if inherits { policy.inherit() } else { policy }
    }))
}

fn fair(params: &str) -> Result<Arc<Make>, String> {
    let (mut latency, mut granularity) = (None, None);
    for param in params.split(',').filter(|param| !param.is_empty()) {
        match param.split_once('=') {
            Some(("latency", text)) => latency = Some(span("fair", "latency", text)?),
            Some(("granularity", text)) => granularity = Some(span("fair", "granularity", text)?),
            _ => {
                return Err(format!(
                    "fair has no parameter '{param}': there are latency=48ms and granularity=6ms"
                ));
            }
        }
    }
    Ok(make(move |_| {
        let mut policy = Fair::default();
        if let Some(span) = latency {
            policy = policy.latency(span);
        }
        if let Some(span) = granularity {
            policy = policy.granularity(span);
        }
        policy
    }))
}

fn mlfq(params: &str) -> Result<Arc<Make>, String> {
    let mut quanta = vec![QUANTUM, QUANTUM * 2, QUANTUM * 4];
    let mut allotments = Vec::new();
    let (mut boost, mut stay, mut bump) = (Duration::ZERO, false, false);
    for param in params.split(',').filter(|param| !param.is_empty()) {
        match param.split_once('=') {
            None if param == "stay" => stay = true,
            None if param == "bump" => bump = true,
            Some(("quanta", texts)) => {
                let spans = texts.split('/').map(|text| span("mlfq", "quantum", text));
                quanta = spans.collect::<Result<_, _>>()?;
                if quanta.len() > 256 {
                    return Err("mlfq has 256 levels at most".into());
                }
            }
            Some(("allotment", texts)) => {
                let all = texts.split('/').map(allotment);
                allotments = all.collect::<Result<_, _>>()?;
            }
            Some(("boost", text)) => boost = span("mlfq", "boost", text)?,
            _ => {
                return Err(format!(
                    "mlfq has no parameter '{param}': there are quanta=10ms/20ms/40ms, \
                     allotment=2, boost=1s, stay and bump"
                ));
            }
        }
    }
    if allotments.len() > quanta.len() {
        return Err(format!(
            "mlfq has {} allotments for {} levels: give one for each level, or one for all",
            allotments.len(),
            quanta.len()
        ));
    }
    Ok(make(move |_| {
        let mut policy = Mlfq::new(quanta.iter().copied())
            .allotments(&allotments)
            .boost(boost);
        if stay {
            policy = policy.stay();
        }
        if bump {
            policy = policy.bump();
        }
        policy
    }))
}

/// Reads a number of slices, or a time.
fn allotment(text: &str) -> Result<Allotment, String> {
    if let Ok(slices) = text.parse::<u32>() {
        return match slices {
            0 => Err("an allotment of mlfq is zero: give a number of slices from 1".into()),
            slices => Ok(Allotment::Slices(slices)),
        };
    }
    let time = span("mlfq", "allotment", text);
    time.map(Allotment::Time).map_err(|_| {
        format!("'{text}' is no allotment of mlfq: give a number of slices, such as 2, or a time")
    })
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, &[])
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A share of the tasks of a name.
#[derive(Clone)]
pub(super) struct NamedShare {
    pub(super) name: String,
    pub(super) share: Share,
}

/// Refuses shares that none of the policies looks at. An error is a usage error.
pub(super) fn check_shares(policies: &[Policy], shares: &[NamedShare]) -> Result<(), clap::Error> {
    let is_unused = |share: &&NamedShare| !policies.iter().any(|policy| policy.uses(share.share));
    let Some(NamedShare { name, share }) = shares.iter().find(is_unused) else {
        return Ok(());
    };
    let policies: Vec<String> = policies.iter().map(ToString::to_string).collect();
    let why = format!(
        "--share {name}:{share} does nothing under {}: tickets are for lottery and stride, nice is \
         for fair, priority is for priority\n",
        policies.join(", ")
    );
    Err(clap::Error::raw(ErrorKind::ArgumentConflict, why))
}

/// Warns of the names of `--share` that no task has had.
pub(super) fn warn_of_unused<'a>(log: Log, names: impl IntoIterator<Item = &'a str>) {
    for name in names {
        log.warn(&format!(
            "--share {name}:.. did nothing: there was no task {name:?}"
        ));
    }
}

/// Reads `NAME:nice=5`: a `value_parser` for arguments.
pub(super) fn named_share(text: &str) -> Result<NamedShare, String> {
    let Some((name, share)) = text.rsplit_once(':').filter(|(name, _)| !name.is_empty()) else {
        return Err("it takes the name of a task and a share, such as batch:nice=5".into());
    };
    Ok(NamedShare {
        name: name.to_string(),
        share: share_of(share)?,
    })
}

/// Reads `nice=5`, `tickets=100` or `priority=3`.
pub(super) fn share_of(text: &str) -> Result<Share, String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let number = value.parse::<i32>();
    match (key, number) {
        ("tickets", Ok(number @ 1..)) => Ok(Share::tickets(number.unsigned_abs())),
        ("tickets", _) => Err(format!(
            "'{value}' is no number of tickets: give one from 1"
        )),
        ("nice", Ok(number @ -20..=19)) => Ok(Share::nice(number)),
        ("nice", _) => Err(format!(
            "'{value}' is no nice value: give one from -20 to 19"
        )),
        ("priority", Ok(number)) => Ok(Share::priority(number)),
        ("priority", _) => Err(format!("'{value}' is no priority: give a whole number")),
        _ => Err(format!(
            "there is no share '{key}': there are tickets=100, nice=5 and priority=3"
        )),
    }
}

#[cfg(test)]
mod tests {
    use trapline::Fifo;

    use super::*;

    #[test]
    fn a_policy_of_the_binary_gets_its_parameters_and_comes_before_one_of_the_library() {
        let register: Register = Arc::new(|params: &str| match params {
            "" | "twice" => Ok(Box::<Fifo>::default() as Box<dyn sched::Policy>),
            other => Err(format!("'{other}' is not for mine")),
        });
        let all = [
            ("mine".to_string(), Arc::clone(&register)),
            ("rr".into(), register),
        ];
        let error = |text| Policy::parse(text, &all).err().unwrap_or_default();
        assert_eq!(
            (error("mine"), error("mine:twice")),
            (String::new(), String::new())
        );
        assert_eq!(error("mine:thrice"), "'thrice' is not for mine");
        assert_eq!(error("rr:1ms"), "'1ms' is not for mine");
        assert!(
            error("mina").contains("did you mean 'mine'?"),
            "{}",
            error("mina")
        );
        assert!(error("").contains("there are fifo, rr"), "{}", error(""));
    }
}
