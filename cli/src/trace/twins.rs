//! What each task came to in two runs: for `trace diff`. The first task of a name in one run is the twin
//! of the first of that name in the other, and so on.
//!
//! Memory grows with the number of names, not with the number of tasks. Twins are compared when both have
//! ended, and then only differences are kept. A task whose twin has not ended yet is kept; if there are too
//! many such tasks, the later tasks of a name are added up, and the sums are compared. There is a sum per
//! name at most. The caller limits the number of names.

use std::collections::BTreeMap;

use serde_json::Value;
use trapline::Exit;

/// The largest number of ended tasks of a run that are kept for their twins.
const UNPAIRED: usize = 1 << 16;
/// The largest number of rows.
pub(super) const ROWS: usize = 1000;

/// A task that both runs may have: its name, and its number among the tasks of that name.
pub(super) type Twin = (String, u64);

/// The totals of a task.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) turns: u64,
    pub(super) traps: u64,
    /// `None` if it was alive at the end.
    pub(super) exit: Option<Exit>,
}

/// The totals of the later tasks of a name.
#[derive(Clone, Default, PartialEq)]
struct Sum {
    tasks: u64,
    turns: u64,
    traps: u64,
    /// By their first word.
    exits: BTreeMap<&'static str, u64>,
}

/// The comparison of the tasks of two runs.
pub(super) struct Twins {
    most: usize,
    /// The tasks of each run that have ended, and whose twins have not.
    ended: [BTreeMap<Twin, Totals>; 2],
    /// The names whose tasks are added up, from this number on.
    summed: BTreeMap<String, (u64, [Sum; 2])>,
    /// The first twins that differ, and the number of the others.
    rows: BTreeMap<Twin, [Option<Totals>; 2]>,
    more: u64,
}

impl Default for Twins {
    fn default() -> Self {
        Self {
            most: UNPAIRED,
            ended: Default::default(),
            summed: BTreeMap::new(),
            rows: BTreeMap::new(),
            more: 0,
        }
    }
}

impl Twins {
    /// Takes a task of a run (0 or 1) that has ended, or that was alive when its run ended.
    pub(super) fn ended(&mut self, run: usize, twin: Twin, totals: Totals) {
        if let Some((from, sums)) = self.summed.get_mut(&twin.0)
            && twin.1 >= *from
        {
            return sums[run].add(&totals);
        }
        if let Some(other) = self.ended[1 - run].remove(&twin) {
            let mut pair = [Some(totals), Some(other)];
            pair.rotate_left(run);
            return self.compare(twin, pair);
        }
        self.ended[run].insert(twin.clone(), totals);
        if self.ended[run].len() > self.most {
            self.sum(twin);
        }
    }

    /// Adds up the tasks of a name from a number on.
    fn sum(&mut self, (name, from): Twin) {
        let (known, sums) = self
            .summed
            .entry(name.clone())
            .or_insert_with(|| (from, Default::default()));
        *known = from.min(*known);
        for (ended, sum) in self.ended.iter_mut().zip(sums) {
            let last = (name.clone(), u64::MAX);
            let later = ended.range((name.clone(), from)..=last);
            let later: Vec<u64> = later.map(|((_, number), _)| *number).collect();
            for number in later {
                let totals = ended.remove(&(name.clone(), number));
                totals.iter().for_each(|totals| sum.add(totals));
            }
        }
    }

    fn compare(&mut self, twin: Twin, pair: [Option<Totals>; 2]) {
        if pair[0] == pair[1] {
            return;
        }
        self.rows.insert(twin, pair);
        if self.rows.len() > ROWS {
            self.rows.pop_last();
            self.more += 1;
        }
    }

    /// Compares the tasks that have no twin in the other run: both runs have ended.
    pub(super) fn finish(&mut self) {
        for run in 0..2 {
            for (twin, totals) in std::mem::take(&mut self.ended[run]) {
                let mut pair = [Some(totals), None];
                pair.rotate_left(run);
                self.compare(twin, pair);
            }
        }
        self.summed.retain(|_, (_, [a, b])| a != b);
    }

    /// The rows of a table of what differs, and the number of the rows that are left out.
    pub(super) fn rows(&self) -> (Vec<[Value; 8]>, u64) {
        let mut rows: Vec<[Value; 8]> = Vec::new();
        for ((name, number), [a, b]) in &self.rows {
            let [a, b] = [a, b].map(Option::as_ref);
            rows.push(row(name, (*number).into(), [a, b].map(|of| of.map(cells))));
        }
        let room = ROWS - rows.len();
        let sums = self.summed.iter().take(room);
        rows.extend(sums.map(|(name, (from, sums))| {
            let later = format!("{from} and later");
            row(
                name,
                later.into(),
                sums.each_ref().map(|sum| Some(sum.cells())),
            )
        }));
        let more = self.summed.len().saturating_sub(room) as u64;
        (rows, self.more + more)
    }
}

impl Sum {
    fn add(&mut self, totals: &Totals) {
        self.tasks += 1;
        self.turns += totals.turns;
        self.traps += totals.traps;
        let exit = match totals.exit {
            None => "alive",
            Some(Exit::Done) => "done",
            Some(Exit::Failed(_)) => "failed",
            Some(Exit::Faulted(_)) => "faulted",
            Some(Exit::Killed) => "killed",
        };
        *self.exits.entry(exit).or_default() += 1;
    }

    fn cells(&self) -> [Value; 3] {
        let exits = self.exits.iter();
        let exits: Vec<String> = exits
            .map(|(exit, count)| format!("{count} {exit}"))
            .collect();
        let exits = match self.tasks {
            0 => "-".to_string(),
            _ => exits.join(", "),
        };
        [self.turns.into(), self.traps.into(), exits.into()]
    }
}

/// The turns, the traps and the exit of a task.
fn cells(totals: &Totals) -> [Value; 3] {
    let exit = match &totals.exit {
        None => "none: it was alive".to_string(),
        Some(exit) => exit.to_string(),
    };
    [totals.turns.into(), totals.traps.into(), exit.into()]
}

fn row(name: &str, number: Value, cells: [Option<[Value; 3]>; 2]) -> [Value; 8] {
    let none = || [(); 3].map(|()| Value::from("-"));
    let [a, b] = cells.map(|cells| cells.unwrap_or_else(none));
    let ([turns, traps, exit], [other_turns, other_traps, other_exit]) = (a, b);
    [
        name.into(),
        number,
        turns,
        other_turns,
        traps,
        other_traps,
        exit,
        other_exit,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(turns: u64) -> Totals {
        Totals {
            turns,
            traps: turns,
            exit: Some(Exit::Done),
        }
    }

    fn twin(number: u64) -> Twin {
        ("client".to_string(), number)
    }

    /// Twins that keep so many tasks; the totals of each are those of `turns` for its run and number.
    fn compared(most: usize, tasks: u64, turns: fn(usize, u64) -> u64) -> Twins {
        let mut twins = Twins {
            most,
            ..Twins::default()
        };
        // The second run is behind by all of its tasks.
        for run in 0..2 {
            for number in 1..=tasks {
                twins.ended(run, twin(number), totals(turns(run, number)));
                let kept: usize = twins.ended.iter().map(BTreeMap::len).sum();
                assert!(kept <= 2 * most + 1, "{kept} tasks are kept");
            }
        }
        twins.finish();
        twins
    }

    #[test]
    fn equal_tasks_are_equal_however_many_are_kept() {
        for most in [1, 10, 1000] {
            let twins = compared(most, 100, |_, number| number % 7);
            assert!(twins.rows().0.is_empty(), "{most}");
        }
    }

    #[test]
    fn a_task_that_differs_is_named_or_in_the_sum() {
        let differ = |run, number| if (run, number) == (1, 60) { 5 } else { 3 };
        let text = |most| format!("{:?}", compared(most, 100, differ).rows());
        let rows = |rows: Value| {
            format!(
                "([{:?}], 0)",
                serde_json::from_value::<[Value; 8]>(rows).unwrap()
            )
        };
        let named = serde_json::json!(["client", 60, 3, 5, 3, 5, "done", "done"]);
        assert_eq!(text(1000), rows(named));
        let summed = serde_json::json!([
            "client",
            "11 and later",
            270,
            272,
            270,
            272,
            "90 done",
            "90 done"
        ]);
        assert_eq!(text(10), rows(summed));
    }

    #[test]
    fn rows_are_bounded_and_the_others_are_counted() {
        let twins = compared(5000, 3000, |run, _| run as u64);
        let (rows, more) = twins.rows();
        assert_eq!((rows.len(), more), (ROWS, 2000));
        assert_eq!(rows[0][1], 1);
    }

    /// Twins that keep ten tasks, of runs in which each of 3,000 tasks has a name of its own.
    fn named(turns: fn(usize, u64) -> u64) -> Twins {
        let mut twins = Twins {
            most: 10,
            ..Twins::default()
        };
        for run in 0..2 {
            for number in 0..3000 {
                let twin = (format!("client-{number:04}"), 1);
                twins.ended(run, twin, totals(turns(run, number)));
                let kept: usize = twins.ended.iter().map(BTreeMap::len).sum();
                assert!(kept <= 21, "{kept} tasks are kept");
            }
        }
        twins.finish();
        twins
    }

    #[test]
    fn tasks_of_many_names_are_compared_by_name_in_a_bounded_table() {
        assert_eq!(named(|_, number| number % 7).rows(), (Vec::new(), 0));
        let (rows, more) = named(|run, number| u64::from((run, number) == (1, 2500))).rows();
        assert_eq!((rows.len(), more), (1, 0));
        assert_eq!(rows[0][..4], row_of("client-2500", "1 and later", 0, 1));
        // Ten of them have a row of their own, and the others are sums.
        let (rows, more) = named(|run, _| run as u64).rows();
        assert_eq!((rows.len(), more), (ROWS, 2000));
        assert_eq!(rows[10][..4], row_of("client-0010", "1 and later", 0, 1));
    }

    fn row_of(name: &str, number: &str, a: u64, b: u64) -> [Value; 4] {
        [name.into(), number.into(), a.into(), b.into()]
    }
}
