//! A schedule, as its departures from first in, first out.

use std::{fmt, str::FromStr};

use super::{cut::Cut, space::Which, strategy::SearchStrategy};

/// A departure: at this turn, counted from 1, the task that is next goes to the back of the ready
/// queue, and so do the tasks behind it, `by` in all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Delay {
    pub(super) turn: u32,
    pub(super) by: u32,
}

/// When a fault happens: before this turn, or at its call. So many waits for the clock come first, of
/// those between the turn before and this one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct When {
    pub(super) turn: u32,
    pub(super) waits: u32,
}

/// A decision of a schedule that is not the usual one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    Delay(Delay),
    /// The clock goes on to the next deadline before this turn.
    Time(u32),
    /// The choice of this number, counted from 1, has this answer, and not 0.
    Choice(u32, u64),
    /// A fault happens before this turn, or at its call; or it ends.
    Fault(When, Which),
    /// Of the faults of chaos those of such numbers happen, and no others. No fault has the number 0, which
    /// begins the list.
    Keep(u32),
}

/// The decisions of a schedule that are not the usual ones, in their order. Its text is
/// `k0-k7-3-c2=1-t8-9x2-f12=0-h15w1=0`: of the faults of chaos the one with the number 7 alone, a departure at turn 3 by one task, the answer 1 to the second choice, a
/// step of the clock before turn 8, a departure at turn 9 by two, the first fault of the list before
/// turn 12 or at its call, and its end before turn 15, behind one wait for the clock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan(pub(super) Vec<Step>);

impl Step {
    /// The turn of a decision that has one.
    pub(super) fn turn(self) -> Option<u32> {
        match self {
            Self::Delay(delay) => Some(delay.turn),
            Self::Time(turn) | Self::Fault(When { turn, .. }, _) => Some(turn),
            Self::Choice(..) | Self::Keep(_) => None,
        }
    }

    /// Whether it counts as a preemption.
    pub(super) fn counts(&self) -> bool {
        matches!(self, Self::Delay(_) | Self::Time(_))
    }

    pub(super) fn is_delay(&self) -> bool {
        matches!(self, Self::Delay(_))
    }

    pub(super) fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(..))
    }

    /// Whether it says which faults of chaos happen.
    pub(super) fn keeps(&self) -> bool {
        matches!(self, Self::Keep(_))
    }
}

impl Plan {
    /// Returns the turn of the last decision that has one, or 0.
    pub(super) fn last_turn(&self) -> u32 {
        let mut turns = self.0.iter().rev().copied();
        turns.find_map(Step::turn).unwrap_or(0)
    }

    /// The turns at which the task that is next is not resumed.
    pub(super) fn preemptions(&self) -> usize {
        self.0.iter().filter(|step| step.is_delay()).count()
    }

    /// The decisions that say which faults of chaos happen.
    pub(super) fn of_chaos(&self) -> Self {
        Self(self.0.iter().copied().filter(Step::keeps).collect())
    }

    /// Returns the numbers of the faults of chaos that happen; `None` if all do.
    pub(super) fn kept(&self) -> Option<Vec<u32>> {
        let kept = |step: &Step| match step {
            Step::Keep(number) => Some(*number),
            _ => None,
        };
        let kept: Vec<u32> = self.0.iter().filter_map(kept).collect();
        (!kept.is_empty()).then_some(kept)
    }

    /// Returns the same schedule, which says that these faults of chaos happen.
    pub(super) fn with_chaos(&self, numbers: &[u32]) -> Self {
        if numbers.is_empty() || self.kept().is_some() {
            return self.clone();
        }
        let keeps = [0].iter().chain(numbers).map(|number| Step::Keep(*number));
        Self(keeps.chain(self.0.iter().copied()).collect())
    }

    /// The decisions that a limit of preemptions counts.
    pub(super) fn counted(&self) -> usize {
        self.0.iter().filter(|step| step.counts()).count()
    }

    /// Whether a step can follow those of this plan.
    fn takes(&self, step: Step) -> bool {
        let same = |other: &&Step| std::mem::discriminant(*other) == std::mem::discriminant(&step);
        match (step, self.0.iter().rev().find(same)) {
            (Step::Delay(delay), Some(Step::Delay(last))) => last.turn < delay.turn,
            (Step::Choice(number, _), Some(Step::Choice(last, _))) => *last < number,
            (Step::Choice(..), _) => true,
            (Step::Keep(number), Some(Step::Keep(last))) => {
                *last < number && self.0.iter().all(Step::keeps)
            }
            (Step::Keep(number), _) => number == 0 && self.0.is_empty(),
            _ => Some(self.last_turn()) <= step.turn(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            let dash = if at == 0 { "" } else { "-" };
            write!(f, "{dash}{step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delay(delay) => delay.fmt(f),
            Self::Time(turn) => write!(f, "t{turn}"),
            Self::Keep(number) => write!(f, "k{number}"),
            Self::Choice(number, answer) => write!(f, "c{number}={answer}"),
            Self::Fault(when, Which { at, ends: false }) => write!(f, "f{when}={at}"),
            Self::Fault(when, Which { at, ends: true }) => write!(f, "h{when}={at}"),
        }
    }
}

impl FromStr for Step {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0).ok_or(());
        if let Some(turn) = text.strip_prefix('t') {
            return number(turn).map(Self::Time);
        }
        if let Some(number) = text.strip_prefix('k') {
            return number.parse().map(Self::Keep).map_err(drop);
        }
        let mut letters = text.chars();
        if let Some(letter @ ('c' | 'f' | 'h')) = letters.next() {
            let (nth, answer) = letters.as_str().split_once('=').ok_or(())?;
            let answer = answer.parse::<u64>().map_err(drop)?;
            let at = u32::try_from(answer).map_err(drop);
            let ends = letter == 'h';
            return Ok(match letter {
                'c' => Self::Choice(number(nth)?, answer),
                _ => Self::Fault(nth.parse()?, Which { at: at?, ends }),
            });
        }
        let (turn, by) = text.split_once('x').unwrap_or((text, "1"));
        let (turn, by) = (number(turn)?, number(by)?);
        Ok(Self::Delay(Delay { turn, by }))
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.waits {
            0 => write!(f, "{}", self.turn),
            waits => write!(f, "{}w{waits}", self.turn),
        }
    }
}

impl FromStr for When {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0).ok_or(());
        let (turn, waits) = match text.split_once('w') {
            Some((turn, waits)) => (turn, number(waits)?),
            None => (text, 0),
        };
        let turn = number(turn)?;
        Ok(Self { turn, waits })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            1 => write!(f, "{}", self.turn),
            by => write!(f, "{}x{by}", self.turn),
        }
    }
}

impl FromStr for Plan {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut plan = Self::default();
        for part in text.split('-').filter(|_| !text.is_empty()) {
            let step = part.parse()?;
            if !plan.takes(step) {
                return Err(());
            }
            plan.0.push(step);
        }
        Ok(plan)
    }
}

#[expect(clippy::large_enum_variant, reason = "there are few of them")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decisions {
    Plan(Plan),
    /// Those of a strategy, where a plan would be too long for a line.
    Strategy(SearchStrategy),
}

impl Decisions {
    /// Names the policy of the schedule, for the header of a recording.
    pub(super) fn policy(&self) -> String {
        match self {
            Self::Plan(plan) if plan.0.is_empty() => "fifo".into(),
            Self::Plan(plan) if plan.preemptions() == plan.0.len() => {
                format!("fifo with preemptions {plan}")
            }
            Self::Plan(plan) => format!("fifo with decisions {plan}"),
            Self::Strategy(SearchStrategy::Fifo | SearchStrategy::Exhaustive) => "fifo".into(),
            Self::Strategy(strategy) => strategy.to_string(),
        }
    }
}

impl fmt::Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(plan) => plan.fmt(f),
            Self::Strategy(strategy) => strategy.fmt(f),
        }
    }
}

impl FromStr for Decisions {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let strategy = || text.parse().map(Self::Strategy).map_err(drop);
        text.parse().map(Self::Plan).or_else(|()| strategy())
    }
}

/// A schedule that can be run again: the seed of its kernel, its decisions, and a hash of the traps
/// that the program made in it, or 0 where it is not known. Its text is `SEED.DELAYS.HASH`, with `+CUT`
/// behind it if a task is cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Replay {
    pub(super) seed: u64,
    pub(super) decisions: Decisions,
    pub(super) cut: Option<Cut>,
    pub(super) hash: u32,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:08x}", self.seed, self.decisions, self.hash)?;
        match &self.cut {
            Some(cut) => write!(f, "+{cut}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Replay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: String| {
            format!(
                "{text:?} is no replay: {what}; copy SEED.DELAYS.HASH, such as 7.3-9x2.0123abcd, \
                 from a report"
            )
        };
        let (schedule, cut) = match text.split_once('+') {
            Some((schedule, cut)) => (schedule, Some(cut)),
            None => (text, None),
        };
        let cut = cut.map(str::parse::<Cut>).transpose();
        let parts: Vec<&str> = schedule.split('.').collect();
        let [seed, decisions, hash] = parts[..] else {
            return Err(wrong(format!("it has {} of 3 parts", parts.len())));
        };
        let is_hash = hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = u32::from_str_radix(hash, 16).ok().filter(|_| is_hash);
        Ok(Self {
            seed: seed
                .parse()
                .map_err(|_| wrong("its seed is no whole number".into()))?,
            decisions: decisions
                .parse()
                .map_err(|()| wrong("its decisions are no list such as 3-9x2-c1=2".into()))?,
            cut: cut.map_err(|()| wrong("behind its + is no cut such as killed-in:2:5".into()))?,
            hash: hash.ok_or_else(|| wrong("its hash is not 8 hexadecimal digits".into()))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_names_its_policy() {
        for (decisions, policy) in [
            ("", "fifo"),
            ("3-9x2", "fifo with preemptions 3-9x2"),
            ("fifo", "fifo"),
            ("exhaustive", "fifo"),
            ("random", "random"),
            ("pct:3", "pct:3"),
            ("surw:3/4<1", "surw:3/4<1"),
        ] {
            assert_eq!(decisions.parse::<Decisions>().unwrap().policy(), policy);
        }
    }

    #[test]
    fn a_replay_is_read_as_it_is_written() {
        for text in [
            "7.3-9x2.0123abcd",
            "0..00000000",
            "18446744073709551615.1.ffffffff",
            "7.pct:3.00000000",
            "7.c1=2-3-c2=7-9x2.0123abcd",
            "7.t3-t3-3-c2=7-f4=1-t4-h9=1.0123abcd",
            "7.f4=1-h8=1-f8w1=0-h8w12=0.0123abcd",
            "7.surw:12/30<1/8<1.00000000",
            "7.k0.00000000",
            "7.k0-k7-k12-3-c1=2.00000000",
            "7..00000000+killed-at:2:5",
            "7.3.00000000+cut-in:1:18446744073709551615",
        ] {
            assert_eq!(text.parse::<Replay>().unwrap().to_string(), text);
        }
        const HASH: &str = "its hash is not 8 hexadecimal digits";
        const CUT: &str = "behind its + is no cut such as killed-in:2:5";
        const PLAN: &str = "its decisions are no list such as 3-9x2-c1=2";
        for (text, what) in [
            ("", "it has 1 of 3 parts"),
            ("7.3", "it has 2 of 3 parts"),
            ("7.3.0123abcd.0", "it has 4 of 3 parts"),
            ("7.3.0123abc", HASH),
            ("7.3.0123abcde", HASH),
            ("7.3.+123abcd", CUT),
            ("7.3.0123abcx", HASH),
            ("-1..0123abcd", "its seed is no whole number"),
            ("7.0.0123abcd", PLAN),
            ("7.3-3.0123abcd", PLAN),
            ("7.3x0.0123abcd", PLAN),
            ("7.a.0123abcd", PLAN),
            ("7.t.0123abcd", PLAN),
            ("7.t0.0123abcd", PLAN),
            ("7.t4-3.0123abcd", PLAN),
            ("7.f4-9.0123abcd", PLAN),
            ("7.f4=-9.0123abcd", PLAN),
            ("7.h4=4294967296.0123abcd", PLAN),
            ("7.f4w=0.0123abcd", PLAN),
            ("7.f4w0=0.0123abcd", PLAN),
            ("7.fw1=0.0123abcd", PLAN),
            ("7.h4w1.0123abcd", PLAN),
            ("7.c4w1=1.0123abcd", PLAN),
            ("7.c.0123abcd", PLAN),
            ("7.k.0123abcd", PLAN),
            ("7.k3.0123abcd", PLAN),
            ("7.k0-k3-k3.0123abcd", PLAN),
            ("7.3-k0.0123abcd", PLAN),
            ("7.k0-3-k4.0123abcd", PLAN),
            ("7.c0=1.0123abcd", PLAN),
            ("7.c1.0123abcd", PLAN),
            ("7.c1=-1.0123abcd", PLAN),
            ("7.c1=1-c1=2.0123abcd", PLAN),
            ("7..0123abcd+", CUT),
            ("7..0123abcd+cut-in:2", CUT),
            ("7..0123abcd+cut-in:0:2", CUT),
            ("7..0123abcd+saved:1:2", CUT),
        ] {
            let error = text.parse::<Replay>().unwrap_err();
            let begin = format!("{text:?} is no replay: {what};");
            assert!(error.starts_with(&begin), "{error}");
        }
    }
}
