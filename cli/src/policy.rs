//! `--policy NAME[:PARAMS]`: the policies by their names. `--share NAME:SHARE`: shares of tasks.

use std::{fmt, str::FromStr, sync::Arc};

use trapline::{
    Builder, Fifo, Share,
    sched::{self, Make, NamedPolicy, POLICIES},
};

use super::{
    output::Log,
    values::{duration, unknown, usage},
};

/// Reads the parameters of a policy that a binary has registered.
pub(super) type Register =
    Arc<dyn Fn(&str) -> Result<Box<dyn sched::Policy>, String> + Send + Sync>;

/// The policies that a binary has registered, by their names.
pub(super) type Registered = Arc<[(String, Register)]>;

/// A policy of the command line.
#[derive(Clone)]
pub(super) struct Policy {
    text: String,
    /// The kind of share that it looks at: `Some("")` for none, and `None` for any.
    share: Option<&'static str>,
    /// `None` for first in, first out, which is the kernel's own.
    make: Option<Arc<Make>>,
}

impl Policy {
    pub(super) fn set(&self, builder: Builder, seed: u64) -> Builder {
        match &self.make {
            None => builder,
            Some(make) => builder.policy(make(seed)),
        }
    }

    /// Makes the policy.
    pub(super) fn make(&self, seed: u64) -> Box<dyn sched::Policy> {
        match &self.make {
            None => Box::<Fifo>::default(),
            Some(make) => make(seed),
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
            None => {
                let policy = NamedPolicy::find(name).ok_or_else(|| {
                    let built_in = POLICIES.iter().map(|policy| policy.name);
                    let mine = registered.iter().map(|(name, _)| name.as_str());
                    unknown("policy", name, &built_in.chain(mine).collect::<Vec<_>>())
                })?;
                let make = policy.read(params, &|text| duration(text).ok())?;
                (Some(policy.share), (name != "fifo").then_some(make))
            }
        };
        Ok(Self {
            text: text.to_string(),
            share,
            make: make.map(Arc::new),
        })
    }

    /// Returns whether the policy looks at this share.
    fn uses(&self, share: Share) -> bool {
        let share = share.to_string();
        let used = self.share;
        used.is_none_or(|kind| share.split('=').next() == Some(kind))
    }
}

/// The policy of a binary: made once for its errors, and then for each kernel.
fn of_binary(register: &Register, params: &str) -> Result<Make, String> {
    register(params)?;
    let (register, params) = (Arc::clone(register), params.to_string());
    Ok(Box::new(move |_| {
        let policy = register(&params);
        policy.unwrap_or_else(|error| panic!("the same parameters were right before: {error}"))
    }))
}

/// The help of `--policy`: a sentence for each policy.
pub(super) fn help() -> String {
    let mut help = "The scheduling policy. ".to_string();
    for policy in POLICIES {
        help += policy.name;
        if !policy.params.is_empty() {
            help += &format!(":{}", policy.params);
        }
        help += &format!(": {}. ", policy.help);
    }
    help + "All draws follow from --seed"
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
    let policies: Vec<&str> = policies.iter().map(|policy| &*policy.text).collect();
    Err(usage(format!(
        "--share {name}:{share} does nothing under {}: tickets are for lottery and stride, nice is \
         for fair, priority is for priority",
        policies.join(", ")
    )))
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
        for (text, expected) in [
            ("mine", None),
            ("mine:twice", None),
            ("mine:thrice", Some("'thrice' is not for mine")),
            ("rr:1ms", Some("'1ms' is not for mine")),
            ("mina", Some("did you mean 'mine'?")),
            ("", Some("there are fifo, rr")),
        ] {
            let error = Policy::parse(text, &all).err();
            let error = error
                .as_deref()
                .map(|error| error.contains(expected.unwrap_or("none")));
            assert_eq!(error, expected.map(|_| true), "{text}");
        }
    }
}
