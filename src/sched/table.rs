//! The table of policies: their names, their parameters, and what makes them.

use std::{fmt, time::Duration};

use super::{
    Allotment, Fair, Fifo, Lottery, Mlfq, Pct, Policy, Priority, Random, RoundRobin, Sjf, Stcf,
    Stride,
};

/// Makes a policy with the draws of a seed.
pub type Make = Box<dyn Fn(u64) -> Box<dyn Policy> + Send + Sync>;

/// A policy by its name, as `boot --policy NAME:PARAMS` takes it: a row of [`POLICIES`].
#[non_exhaustive]
pub struct NamedPolicy {
    /// The name.
    pub name: &'static str,
    /// An example of its parameters, with a comma between two. Empty if it takes none.
    pub params: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// The kind of [`Share`](crate::Share) that it looks at: `tickets`, `nice`, `priority` or none.
    pub share: &'static str,
    read: fn(&mut Params<'_>) -> Result<Make, String>,
}

/// All policies that have a name.
///
/// ```
/// use std::time::Duration;
/// use trapline::{Kernel, sched::NamedPolicy};
///
/// let span = |text: &str| (text == "5ms").then_some(Duration::from_millis(5));
/// let make = NamedPolicy::find("lottery").unwrap().read("5ms", &span)?;
/// let kernel = Kernel::builder().policy(make(7)).build().unwrap();
/// # Ok::<(), String>(())
/// ```
pub const POLICIES: [NamedPolicy; 11] = [
    row("fifo", "", "first in, first out", fifo),
    row("rr", "10ms", "round robin with this time slice", rr),
    row("sjf", "", "the shortest computation first", sjf),
    row("stcf", "", "the same, with interruption", stcf),
    row("priority", "10ms,inherit", LENDS, priority).of("priority"),
    row("mlfq", LEVELS, "a multi-level feedback queue", mlfq),
    row("lottery", "10ms", "slices drawn by tickets", lottery).of("tickets"),
    row("stride", "10ms", SHARES, stride).of("tickets"),
    row("fair", SPANS, "OSTEP's CFS", fair).of("nice"),
    row("random", "", "draws each turn", random),
    row("pct", "3,length=120", CHANGES, pct),
];

const LENDS: &str = "fixed priorities; inherit lends them to holders of locks";
const LEVELS: &str = "quanta=10ms/20ms/40ms,allotment=2,boost=1s,stay,bump";
const SHARES: &str = "slices in proportion to tickets";
const SPANS: &str = "latency=48ms,granularity=6ms";
const CHANGES: &str = "random priorities, of which 3 change during a run of 120 turns; without a \
                       length, the seed draws one";

const fn row(
    name: &'static str,
    params: &'static str,
    help: &'static str,
    read: fn(&mut Params<'_>) -> Result<Make, String>,
) -> NamedPolicy {
    NamedPolicy {
        name,
        params,
        help,
        share: "",
        read,
    }
}

impl NamedPolicy {
    const fn of(mut self, share: &'static str) -> Self {
        self.share = share;
        self
    }

    /// Returns the policy of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        const ALL: &[NamedPolicy] = &POLICIES;
        ALL.iter().find(|policy| policy.name == name)
    }

    /// Reads its parameters: the text after its name and a colon, or an empty one. `span` reads a
    /// time.
    ///
    /// *Errors:* a text that says which parameter is wrong, and what it takes.
    pub fn read(
        &self,
        params: &str,
        span: &dyn Fn(&str) -> Option<Duration>,
    ) -> Result<Make, String> {
        let all = params.split(',').filter(|param| !param.is_empty());
        let mut params = Params {
            policy: self.name,
            left: all.collect(),
            span,
        };
        let make = (self.read)(&mut params)?;
        let name = self.name;
        let Some(param) = params.left.first() else {
            return Ok(make);
        };
        if self.params.is_empty() {
            return Err(format!("{name} takes no parameters"));
        }
        if span(param).is_some() {
            let first = self.params.split(',').next().unwrap_or_default();
            return Err(format!(
                "{name} takes one time, such as {first}: '{param}' is a second"
            ));
        }
        let all = match self.params.replace(',', ", ").rsplit_once(", ") {
            Some((others, last)) => format!("are {others} and {last}"),
            None => format!("is {}", self.params),
        };
        Err(format!("{name} has no parameter '{param}': there {all}"))
    }
}

impl fmt::Debug for NamedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedPolicy({})", self.name)
    }
}

fn made<P: Policy + 'static>(
    policy: impl Fn(u64) -> P + Send + Sync + 'static,
) -> Result<Make, String> {
    Ok(Box::new(move |seed| Box::new(policy(seed))))
}

const QUANTUM: Duration = Duration::from_millis(10);

/// The shortest time of a policy. A simulated kernel has about a million slices a second, so with
/// shorter ones it is slower than the time that it simulates.
const SHORTEST: Duration = Duration::from_micros(1);

struct Params<'a> {
    policy: &'static str,
    left: Vec<&'a str>,
    span: &'a dyn Fn(&str) -> Option<Duration>,
}

impl<'a> Params<'a> {
    /// Takes a word. Returns whether it is there.
    fn word(&mut self, word: &str) -> bool {
        let before = self.left.len();
        self.left.retain(|param| *param != word);
        self.left.len() < before
    }

    /// Takes the value of a key; the last one, if there are several.
    fn value(&mut self, key: &str) -> Option<&'a str> {
        let of_key = |param: &&'a str| param.strip_prefix(key)?.strip_prefix('=');
        let value = self.left.iter().filter_map(of_key).next_back();
        self.left.retain(|param| of_key(param).is_none());
        value
    }

    /// Takes the first parameter without a key.
    fn plain(&mut self) -> Option<&'a str> {
        let at = self.left.iter().position(|param| !param.contains('='))?;
        Some(self.left.remove(at))
    }

    fn quantum(&mut self) -> Result<Duration, String> {
        let text = self.plain();
        text.map_or(Ok(QUANTUM), |text| self.span("quantum", text))
    }

    fn time(&mut self, key: &str) -> Result<Option<Duration>, String> {
        let text = self.value(key);
        text.map(|text| self.span(key, text)).transpose()
    }

    fn span(&self, what: &str, text: &str) -> Result<Duration, String> {
        let policy = self.policy;
        match (self.span)(text) {
            Some(Duration::ZERO) => Err(format!(
                "the {what} of {policy} is zero: give a time such as 10ms"
            )),
            Some(span) if span < SHORTEST => Err(format!(
                "the {what} of {policy} is {span:?}: give at least 1us, such as 10ms"
            )),
            Some(span) => Ok(span),
            None => Err(format!(
                "'{text}' is no {what} of {policy}: give a number and a unit, such as 10ms"
            )),
        }
    }
}

fn fifo(_: &mut Params<'_>) -> Result<Make, String> {
    made(|_| Fifo::default())
}

fn rr(params: &mut Params<'_>) -> Result<Make, String> {
    let quantum = params.quantum()?;
    made(move |_| RoundRobin::new(quantum))
}

fn sjf(_: &mut Params<'_>) -> Result<Make, String> {
    made(|_| Sjf::default())
}

fn stcf(_: &mut Params<'_>) -> Result<Make, String> {
    made(|_| Stcf::default())
}

fn lottery(params: &mut Params<'_>) -> Result<Make, String> {
    let quantum = params.quantum()?;
    made(move |seed| Lottery::new(quantum, seed))
}

fn stride(params: &mut Params<'_>) -> Result<Make, String> {
    let quantum = params.quantum()?;
    made(move |_| Stride::new(quantum))
}

fn random(_: &mut Params<'_>) -> Result<Make, String> {
    made(Random::new)
}

fn priority(params: &mut Params<'_>) -> Result<Make, String> {
    let inherits = params.word("inherit");
    let quantum = params.quantum()?;
    made(move |_| {
        let policy = Priority::new(quantum);
        if inherits { policy.inherit() } else { policy }
    })
}

fn fair(params: &mut Params<'_>) -> Result<Make, String> {
    let latency = params.time("latency")?.unwrap_or(Fair::LATENCY);
    let granularity = params.time("granularity")?;
    let granularity = granularity.unwrap_or(Fair::GRANULARITY);
    made(move |_| Fair::default().latency(latency).granularity(granularity))
}

fn mlfq(params: &mut Params<'_>) -> Result<Make, String> {
    let (stay, bump) = (params.word("stay"), params.word("bump"));
    let boost = params.time("boost")?.unwrap_or_default();
    let quanta = match params.value("quanta") {
        None => vec![QUANTUM, QUANTUM * 2, QUANTUM * 4],
        Some(texts) => {
            let spans = texts.split('/').map(|text| params.span("quantum", text));
            spans.collect::<Result<Vec<_>, _>>()?
        }
    };
    let texts = params.value("allotment").map(|texts| texts.split('/'));
    let allotments = texts.into_iter().flatten();
    let allotments = allotments.map(|text| allotment(params, text));
    let allotments = allotments.collect::<Result<Vec<_>, _>>()?;
    if quanta.len() > 256 {
        return Err("mlfq has 256 levels at most".into());
    }
    if allotments.len() > quanta.len() {
        return Err(format!(
            "mlfq has {} allotments for {} levels: give one for each level, or one for all",
            allotments.len(),
            quanta.len()
        ));
    }
    made(move |_| {
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
    })
}

fn allotment(params: &Params<'_>, text: &str) -> Result<Allotment, String> {
    match text.parse::<u32>() {
        Ok(0) => Err("an allotment of mlfq is zero: give a number of slices from 1".into()),
        Ok(slices) => Ok(Allotment::Slices(slices)),
        Err(_) => {
            let wrong = format!(
                "'{text}' is no allotment of mlfq: give a number of slices, such as 2, or a time"
            );
            let span = params.span("allotment", text);
            span.map(Allotment::Time).map_err(|_| wrong)
        }
    }
}

fn pct(params: &mut Params<'_>) -> Result<Make, String> {
    let (changes, length) = Pct::parameters(&params.left.join(","))?;
    params.left.clear();
    made(move |seed| Pct::of(changes, length, seed))
}
