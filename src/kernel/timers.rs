//! The timer store: a run of timers in order, beside a ladder queue.
//!
//! A timer that is not due before the last of the run joins it. So the timeouts of a server, which
//! have the same span, are a list: the new ones come at its end, and mostly the oldest are disarmed.
//!
//! The others are on the ladder. The foot contains the next timers, in order. Each rung above contains the timers of a later
//! stretch of time, unordered. When the foot is empty, it takes the lowest rung. A short rung is
//! sorted; a long rung is first split into shorter ones. So each timer moves a few times, in sweeps
//! over memory. A tree would be searched for each timer.

mod rung;

use std::{cmp::Reverse, collections::VecDeque};

pub(crate) use rung::Timer;
use rung::{Armed, Disarmed, FOOT, Rung, growth};
use rustc_hash::FxHashSet;

use crate::{
    abi::Nanos,
    sched::{Runnable, Slot},
};

/// The largest number of rungs into which one is split.
const STEPS: usize = 64;

/// How many timers may go to the ladder before the run, if it is a single timer, begins anew.
const MISSED: u8 = 4;

/// Armed timers, by deadline and then by order of arming.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Timers in order. A disarmed one has [`Slot::NONE`]; neither the first nor the last is one.
    run: VecDeque<Armed>,
    /// How many timers were armed since the last that has joined the run, if not more than it can count.
    missed: u8,
    /// The next timers of the ladder, the first of them at the end.
    foot: Vec<Armed>,
    /// The other timers, the latest rung first.
    rungs: Vec<Rung>,
    /// How many timers of the run and the rungs are disarmed.
    dead: usize,
    /// The numbers of those that a search by number has not found.
    unmarked: FxHashSet<u64>,
    len: usize,
    count: u64,
}

#[derive(Debug, Default)]
pub(crate) struct TimerSets {
    pub(crate) tasks: Timers,
    /// Apart: a timer of a daemon does not count as a way out of a deadlock.
    pub(crate) daemons: Timers,
}

impl TimerSets {
    pub(crate) fn of(&mut self, task: Runnable) -> &mut Timers {
        match task.tid.is_daemon() {
            true => &mut self.daemons,
            false => &mut self.tasks,
        }
    }

    pub(crate) fn next(&mut self) -> Option<Nanos> {
        let deadlines = [self.tasks.next(), self.daemons.next()];
        deadlines.into_iter().flatten().min()
    }

    /// Takes the first timer that is due at `now`: of a daemon, if the world holds the tasks.
    pub(crate) fn pop_due(&mut self, now: Nanos, holds_tasks: bool) -> Option<Armed> {
        let due = (!holds_tasks).then(|| self.tasks.pop_due(now));
        due.flatten().or_else(|| self.daemons.pop_due(now))
    }

    pub(crate) fn reset(&mut self) {
        self.tasks.reset();
        self.daemons.reset();
    }
}

impl Timers {
    pub(crate) fn arm(&mut self, deadline: Nanos, task: Slot) -> Timer {
        let timer = self.reserve(deadline);
        self.start(timer, task);
        timer
    }

    /// Reserves a place in the order of arming, for a timer that starts later.
    pub(crate) fn reserve(&mut self, deadline: Nanos) -> Timer {
        self.count += 1;
        (deadline, self.count)
    }

    /// Starts a timer for `task`. A timer that never fires is not kept.
    pub(crate) fn start(&mut self, timer: Timer, task: Slot) {
        if timer.0 == Nanos::FOREVER {
            return;
        }
        self.len += 1;
        // One alone is cheaper on the ladder.
        if self.len > 1 && self.run.back().is_none_or(|(last, _)| *last < timer) {
            let kept = self.run.len();
            if kept == self.run.capacity() {
                self.run.reserve_exact(4 + growth(kept));
            }
            self.missed = 0;
            return self.run.push_back((timer, task));
        }
        self.missed = self.missed.saturating_add(1);
        // A late timer is no run: it goes to the ladder, so that others can follow this one.
        let (timer, task) = match self.run.len() {
            1 if self.missed > MISSED => std::mem::replace(&mut self.run[0], (timer, task)),
            _ => (timer, task),
        };
        self.climb(timer, task);
    }

    /// Puts a timer on the ladder.
    fn climb(&mut self, timer: Timer, task: Slot) {
        if let Some(rung) = self.rung_of(timer) {
            return rung.push((timer, task));
        }
        let at = self.foot.partition_point(|(other, _)| *other > timer);
        self.foot.insert(at, (timer, task));
        if self.foot.len() > FOOT {
            let half = self.foot.len() / 2;
            let (from, _) = self.foot[half - 1];
            let mut rung = Rung::new(from, half);
            self.foot
                .drain(..half)
                .rev()
                .for_each(|armed| rung.push(armed));
            self.rungs.push(rung);
        }
    }

    /// Disarms a timer that was started and has not fired. A timer on a rung is only marked, unless
    /// it was started last. The disarmed timers are swept when they are the majority.
    pub(crate) fn disarm(&mut self, timer: Timer) {
        if timer.0 == Nanos::FOREVER {
            return;
        }
        self.len -= 1;
        if self.leave_run(timer) {
            return self.sweep_if_due();
        }
        if let Some(rung) = self.rung_of(timer) {
            match rung.disarm(timer) {
                Disarmed::Gone => {}
                Disarmed::Marked => self.dead += 1,
                Disarmed::Unmarked => {
                    self.unmarked.insert(timer.1);
                    self.dead += 1;
                }
            }
        } else if let Ok(at) = self.foot.binary_search_by(|(other, _)| timer.cmp(other)) {
            self.foot.remove(at);
        }
        self.sweep_if_due();
    }

    #[inline(always)]
    fn sweep_if_due(&mut self) {
        if self.dead > FOOT + self.len {
            self.sweep();
        }
    }

    /// Removes a timer from the run. Returns whether it was there.
    #[inline]
    fn leave_run(&mut self, timer: Timer) -> bool {
        if self.run.front().is_some_and(|(first, _)| *first == timer) {
            self.pop_run();
            return true;
        }
        if self.run.back().is_none_or(|(last, _)| *last < timer) {
            return false;
        }
        let Ok(at) = self.run.binary_search_by_key(&timer, |armed| armed.0) else {
            return false;
        };
        if self.run[at].1 == Slot::NONE {
            // It was moved away and back, and is on the ladder.
            return false;
        }
        self.run[at].1 = Slot::NONE;
        self.dead += 1;
        while self.run.back().is_some_and(|(_, slot)| *slot == Slot::NONE) {
            self.run.pop_back();
            self.dead -= 1;
        }
        true
    }

    /// Takes the first of the run, and the disarmed ones behind it.
    #[inline]
    fn pop_run(&mut self) -> Option<Armed> {
        let first = self.run.pop_front();
        while self
            .run
            .front()
            .is_some_and(|(_, slot)| *slot == Slot::NONE)
        {
            self.run.pop_front();
            self.dead -= 1;
        }
        if self.run.is_empty() && self.run.capacity() > 2 * FOOT {
            self.run = VecDeque::new();
        }
        first
    }

    /// Disarms a timer that is started again with another deadline: its number must not be marked.
    pub(crate) fn remove(&mut self, timer: Timer) {
        if timer.0 == Nanos::FOREVER {
            return;
        }
        self.len -= 1;
        if self.leave_run(timer) {
            return self.sweep_if_due();
        }
        match self.rung_of(timer) {
            Some(rung) => rung.retain(|(other, _)| *other != timer),
            None => self.foot.retain(|(other, _)| *other != timer),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Nanos> {
        self.first().map(|((deadline, _), _)| deadline)
    }

    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Armed> {
        if self.len == 0 {
            return None;
        }
        let (_, is_in_run) = self.first().filter(|((deadline, _), _)| *deadline <= now)?;
        self.len -= 1;
        match is_in_run {
            true => self.pop_run(),
            false => self.foot.pop(),
        }
    }

    /// Returns the first timer, and whether it is in the run: otherwise it is at the end of the foot.
    #[inline(always)]
    fn first(&mut self) -> Option<(Timer, bool)> {
        if self.foot.is_empty() && (!self.rungs.is_empty() || self.foot.capacity() > 2 * FOOT) {
            self.descend();
        }
        let foot = self.foot.last().map(|armed| (armed.0, false));
        let Some((run, _)) = self.run.front() else {
            return foot;
        };
        foot.filter(|(foot, _)| foot < run).or(Some((*run, true)))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn all(&self) -> Vec<Timer> {
        let rungs = self.rungs.iter().flat_map(Rung::iter);
        let rungs = rungs
            .filter(|((_, number), slot)| *slot != Slot::NONE && !self.unmarked.contains(number));
        let run = self.run.iter().filter(|(_, slot)| *slot != Slot::NONE);
        let all = self.foot.iter().chain(run).copied().chain(rungs);
        let mut all: Vec<_> = all.map(|armed| armed.0).collect();
        all.sort_unstable();
        all
    }

    fn reset(&mut self) {
        self.run.clear();
        self.foot.clear();
        self.rungs.clear();
        self.unmarked.clear();
        (self.dead, self.len, self.count) = (0, 0, 0);
        self.missed = 0;
    }

    /// Returns the rung of a timer; `None` if it belongs into the foot.
    fn rung_of(&mut self, timer: Timer) -> Option<&mut Rung> {
        let at = self.rungs.partition_point(|rung| rung.from > timer);
        self.rungs.get_mut(at)
    }

    #[cold]
    fn descend(&mut self) {
        while self.foot.is_empty()
            && let Some(mut rung) = self.rungs.pop()
        {
            if self.dead > 0 {
                rung.retain(|armed| self.is_armed(armed));
            }
            if rung.len() > FOOT {
                self.split(&rung);
            } else {
                self.foot.extend(rung.iter());
                self.foot.sort_unstable_by_key(|armed| Reverse(armed.0));
            }
        }
        // Returns the memory of a crowd.
        self.foot.shrink_to(FOOT);
    }

    /// Splits a rung into steps of equal length: by the deadlines, or by the numbers if those are one instant.
    fn split(&mut self, rung: &Rung) {
        let timers = || rung.iter().map(|(timer, _)| timer);
        let (mut first, mut last) = range(timers().map(|timer| timer.0.0));
        let instant = (first == last).then_some(Nanos(first));
        if instant.is_some() {
            (first, last) = range(timers().map(|timer| timer.1));
        }
        let word = |(deadline, number): Timer| instant.map_or(deadline.0, |_| number);
        let shift = (u64::BITS - (last - first).leading_zeros()).saturating_sub(STEPS.ilog2());
        let step = |timer: Timer| ((word(timer) - first) >> shift) as usize;
        let mut lens = [0; STEPS];
        timers().for_each(|timer| lens[step(timer)] += 1);
        let mut places = [0; STEPS];
        for at in (0..STEPS).rev().filter(|at| lens[*at] > 0) {
            places[at] = self.rungs.len();
            let word = first + ((at as u64) << shift);
            let from = instant.map_or((Nanos(word), 0), |instant| (instant, word));
            self.rungs.push(Rung::new(from, lens[at]));
        }
        let rungs = &mut self.rungs;
        rung.iter()
            .for_each(|armed| rungs[places[step(armed.0)]].push(armed));
        if let Some(lowest) = self.rungs.last_mut() {
            lowest.from = rung.from;
        }
    }

    #[cold]
    fn sweep(&mut self) {
        let mut rungs = std::mem::take(&mut self.rungs);
        for rung in &mut rungs {
            rung.retain(|armed| self.is_armed(armed));
        }
        rungs.retain(|rung| rung.len() > 0);
        self.rungs = rungs;
        self.run.retain(|(_, slot)| *slot != Slot::NONE);
        self.dead = 0;
    }

    /// Returns whether a timer that leaves its rung is still armed.
    fn is_armed(&mut self, ((_, number), slot): &Armed) -> bool {
        let mut is_unmarked = || !self.unmarked.is_empty() && self.unmarked.remove(number);
        let is_dead = *slot == Slot::NONE || is_unmarked();
        self.dead -= usize::from(is_dead);
        !is_dead
    }
}

/// Returns the least and the greatest of some numbers.
fn range(words: impl Iterator<Item = u64>) -> (u64, u64) {
    words.fold((u64::MAX, 0), |(first, last), word| {
        (word.min(first), word.max(last))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The store, and a map as its model.
    #[derive(Default)]
    struct Pair {
        timers: Timers,
        model: BTreeMap<Timer, Slot>,
        now: u64,
        reserved: Vec<Timer>,
    }

    #[derive(Clone, Debug)]
    enum Act {
        /// Arms a number of timers, at `now` plus a span, plus a random part of a spread.
        Arm(usize, u64, u64),
        /// Reserves a timer; the next such act starts it.
        Reserve(u64),
        /// Disarms timers from a position on, with a step between them.
        Disarm(usize, usize),
        /// Moves a timer by its number, and maybe back.
        Move(usize, u64, bool),
        /// So many timers were armed meanwhile.
        Age(u64),
        /// Asks for the next deadline.
        Next,
        /// Moves the clock to the next deadline, and further by a span.
        Wait(u64),
    }

    impl Pair {
        fn later(&self, span: u64) -> Nanos {
            Nanos(self.now).saturating_add(Nanos(span))
        }

        fn next(&mut self) -> u64 {
            let next = self.timers.next();
            assert_eq!(next, self.model.keys().next().map(|timer| timer.0));
            next.map_or(0, |next| next.0)
        }

        fn act(&mut self, act: &Act, mut random: impl FnMut() -> u64) {
            match *act {
                Act::Arm(count, span, spread) => {
                    for _ in 0..count {
                        let deadline = self.later(span.saturating_add(random() % spread));
                        let task = Slot::new(self.model.len() + 1);
                        self.model.insert(self.timers.arm(deadline, task), task);
                    }
                }
                Act::Reserve(span) => {
                    for timer in std::mem::take(&mut self.reserved) {
                        self.timers.start(timer, Slot::LAST);
                        self.model.insert(timer, Slot::LAST);
                    }
                    let deadline = self.later(span);
                    self.reserved.push(self.timers.reserve(deadline));
                }
                Act::Disarm(from, step) => {
                    let some = self.model.keys().copied().skip(from).step_by(step);
                    for timer in some.collect::<Vec<_>>() {
                        self.timers.disarm(timer);
                        self.model.remove(&timer);
                        assert!(self.timers.kept() <= FOOT + 2 * self.model.len());
                    }
                }
                Act::Move(at, span, returns) => {
                    let Some((&timer, &task)) = self.model.iter().nth(at) else {
                        return;
                    };
                    self.timers.remove(timer);
                    let mut moved = (self.later(span), timer.1);
                    self.timers.start(moved, task);
                    if returns {
                        self.timers.remove(moved);
                        self.timers.start(timer, task);
                        moved = timer;
                    }
                    self.model.remove(&timer);
                    self.model.insert(moved, task);
                }
                Act::Age(count) => self.timers.count += count,
                Act::Next => drop(self.next()),
                Act::Wait(more) => {
                    let next = self.next().max(self.now);
                    self.now = next.saturating_add(more).min(u64::MAX - 1);
                    while let Some(due) = self.timers.pop_due(Nanos(self.now)) {
                        assert_eq!(self.model.pop_first(), Some(due));
                    }
                    let next = self.model.keys().next();
                    assert!(next.is_none_or(|next| next.0 > Nanos(self.now)));
                }
            }
            self.model.retain(|timer, _| timer.0 != Nanos::FOREVER);
            assert_eq!(self.timers.len(), self.model.len());
            assert!(self.timers.foot.len() <= FOOT);
            let run = &self.timers.run;
            let ends = run.front().into_iter().chain(run.back());
            assert!(ends.into_iter().all(|(_, slot)| *slot != Slot::NONE));
            if self.model.is_empty() {
                // A crowd that is gone gives its room back.
                self.next();
                let room = self.timers.foot.capacity().max(self.timers.run.capacity());
                assert!(room <= 2 * FOOT && self.timers.rungs.is_empty());
            }
        }
    }

    impl Timers {
        /// The number of timers in memory, disarmed ones included.
        fn kept(&self) -> usize {
            let rungs = self.rungs.iter().map(Rung::len);
            self.run.len() + self.foot.len() + rungs.sum::<usize>()
        }
    }

    fn span() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..4u64,
            0..1000u64,
            0..1_000_000_000u64,
            Just(30_000_000_000),
            any::<u64>(),
            u64::MAX - 3..=u64::MAX,
        ]
    }

    fn act() -> impl Strategy<Value = Act> {
        let arm = (1..300usize, span(), span());
        prop_oneof![
            4 => arm.prop_map(|(count, span, spread)| Act::Arm(count, span, spread.max(1))),
            2 => span().prop_map(Act::Reserve),
            2 => (0..200usize, 1..8usize).prop_map(|(from, step)| Act::Disarm(from, step)),
            2 => (0..200usize, span(), any::<bool>())
                .prop_map(|(at, span, returns)| Act::Move(at, span, returns)),
            1 => (0..1u64 << 33).prop_map(Act::Age),
            2 => Just(Act::Next),
            4 => span().prop_map(Act::Wait),
        ]
    }

    proptest! {
        #[test]
        fn timers_come_by_deadline_and_then_by_order_of_arming(
            acts in prop::collection::vec(act(), 1..60),
            mut seed: u64,
        ) {
            let mut pair = Pair::default();
            let mut random = move || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed >> 20
            };
            for act in acts {
                pair.act(&act, &mut random);
            }
            prop_assert_eq!(pair.timers.all(), pair.model.keys().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn timeouts_of_one_span_are_a_run_whatever_else_is_armed() {
        let mut timers = Timers::default();
        // A timer of long ago that comes late, and one that comes often.
        timers.arm(Nanos(3_600_000_000_000), Slot::LAST);
        let mut armed = VecDeque::new();
        for now in (0..50_000_000).step_by(1000) {
            let tick = timers.arm(Nanos(now + 1), Slot::LAST);
            armed.push_back(timers.arm(Nanos(now + 60_000_000), Slot::LAST));
            if armed.len() > 500 {
                // The oldest, or one of the youngest.
                let ended = match now % 7 {
                    0 => armed.remove(490),
                    _ => armed.pop_front(),
                };
                timers.disarm(ended.unwrap());
            }
            assert_eq!(timers.pop_due(Nanos(now + 1)), Some((tick, Slot::LAST)));
            let ladder = timers.foot.len() + timers.rungs.len();
            assert!(ladder <= 3, "{ladder} are on the ladder at {now}");
        }
        assert_eq!(timers.len(), armed.len() + 1);
    }

    #[test]
    fn a_timer_of_the_run_that_is_moved_away_and_back_can_be_disarmed() {
        let mut timers = Timers::default();
        let mut arm = |n| timers.arm(Nanos(n), Slot::LAST);
        let [_, _, moved, _] = [10, 20, 30, 40].map(&mut arm);
        for deadline in [30, 35, 30] {
            timers.remove((Nanos(deadline), moved.1));
            timers.start(
                (Nanos(if deadline == 35 { 30 } else { 35 }), moved.1),
                Slot::LAST,
            );
        }
        timers.disarm((Nanos(35), moved.1));
        let left = timers.all().into_iter().map(|timer| timer.0.0);
        assert_eq!(left.collect::<Vec<_>>(), [10, 20, 40]);
        assert_eq!(timers.len(), 3);
    }

    #[test]
    fn what_is_armed_and_disarmed_for_ever_leaves_nothing_behind() {
        let mut timers = Timers::default();
        let deadline = |n| Nanos(30_000_000_000 + n);
        let of_connections = (0..500).map(|n| timers.arm(deadline(n), Slot::LAST));
        let mut of_connections: Vec<_> = of_connections.collect();
        for n in 0..100_000u64 {
            let timer = timers.arm(deadline(n * 1000), Slot::LAST);
            let at = n as usize * 7 % of_connections.len();
            timers.disarm(std::mem::replace(&mut of_connections[at], timer));
            let kept = timers.kept();
            assert!(kept <= 2 * (FOOT + 500), "{kept} are kept");
        }
        for timer in of_connections {
            timers.disarm(timer);
        }
        assert_eq!((timers.next(), timers.len(), timers.kept()), (None, 0, 0));
        assert!(timers.dead == 0 && timers.unmarked.is_empty() && timers.rungs.is_empty());
    }
}
