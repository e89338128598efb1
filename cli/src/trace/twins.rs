//! What each task came to in two runs: for `trace diff`. The first task of a name in one run is the twin
//! of the first of that name in the other, and so on.
//!
//! Memory grows with the number of names, not with the number of tasks. Twins are compared when both have
//! ended, and then only differences are kept. A task whose twin has not ended yet is kept; if there are too
//! many such tasks, the later tasks of a name are added up, and the sums are compared. There is a sum per
//! name at most. The caller limits the number of names.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::table::ALIVE;

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
    pub(super) exit: Option<String>,
}

/// The totals of the later tasks of a name.
#[derive(Clone, Default, PartialEq)]
struct Sum {
    turns: u64,
    traps: u64,
    /// By their first word.
    exits: BTreeMap<String, u64>,
}

/// The comparison of the tasks of two runs.
#[derive(Default)]
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

impl Twins {
    /// Keeps at most so many ended tasks of a run for their twins.
    pub(super) fn keeping(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

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
            self.sum(&twin);
        }
    }

    /// Adds up the tasks of a name from a number on.
    fn sum(&mut self, first: &Twin) {
        let (name, from) = first;
        let summed = self.summed.entry(name.clone());
        let (known, sums) = summed.or_insert_with(|| (*from, Default::default()));
        *known = *from.min(known);
        let last = (name.clone(), u64::MAX);
        for (ended, sum) in self.ended.iter_mut().zip(sums) {
            let later = ended.range(first..=&last);
            let later: Vec<Twin> = later.map(|(twin, _)| twin.clone()).collect();
            let later = later.iter().filter_map(|twin| ended.remove(twin));
            later.for_each(|totals| sum.add(&totals));
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
        let rows = self.rows.iter().map(|((name, number), pair)| {
            let cells = pair.each_ref().map(|of| of.as_ref().map(Totals::cells));
            row(name, (*number).into(), cells)
        });
        let sums = self.summed.iter().map(|(name, (from, sums))| {
            let cells = sums.each_ref().map(|sum| Some(sum.cells()));
            row(name, format!("{from} and later").into(), cells)
        });
        let more = (self.rows.len() + self.summed.len()).saturating_sub(ROWS) as u64;
        (rows.chain(sums).take(ROWS).collect(), self.more + more)
    }
}

impl Totals {
    /// The turns, the traps and the exit.
    fn cells(&self) -> [Value; 3] {
        let exit = self.exit.as_deref().unwrap_or(ALIVE);
        [self.turns.into(), self.traps.into(), exit.into()]
    }
}

impl Sum {
    fn add(&mut self, totals: &Totals) {
        self.turns += totals.turns;
        self.traps += totals.traps;
        let exit = totals.exit.as_deref().unwrap_or("alive").split(':').next();
        *self
            .exits
            .entry(exit.unwrap_or_default().into())
            .or_default() += 1;
    }

    fn cells(&self) -> [Value; 3] {
        let exits = self.exits.iter();
        let exits: Vec<String> = exits
            .map(|(exit, count)| format!("{count} {exit}"))
            .collect();
        let exits = match &*exits {
            [] => "-".to_string(),
            exits => exits.join(", "),
        };
        [self.turns.into(), self.traps.into(), exits.into()]
    }
}

fn row(name: &str, number: Value, cells: [Option<[Value; 3]>; 2]) -> [Value; 8] {
    let name = name.into();
    let none = || [(); 3].map(|()| Value::from("-"));
    let [[turns, traps, exit], [b_turns, b_traps, b_exit]] =
        cells.map(|cells| cells.unwrap_or_else(none));
    [name, number, turns, b_turns, traps, b_traps, exit, b_exit]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Compares runs of tasks with these names, while so many are kept. The totals of the nth task are
    /// `turns` for its run and n.
    fn compared(
        most: usize,
        names: &(impl Iterator<Item = Twin> + Clone),
        turns: fn(usize, u64) -> u64,
    ) -> (Vec<[Value; 8]>, u64) {
        let mut twins = Twins::keeping(most);
        // The second run is behind by all of its tasks.
        for run in 0..2 {
            for (number, twin) in (1..).zip(names.clone()) {
                let turns = turns(run, number);
                let (traps, exit) = (turns, Some("done".to_string()));
                twins.ended(run, twin, Totals { turns, traps, exit });
                let kept: usize = twins.ended.iter().map(BTreeMap::len).sum();
                assert!(kept <= 2 * most + 1, "{kept} tasks are kept");
            }
        }
        twins.finish();
        twins.rows()
    }

    fn clients(tasks: u64) -> impl Iterator<Item = Twin> + Clone {
        (1..=tasks).map(|number| ("client".to_string(), number))
    }

    #[test]
    fn equal_tasks_are_equal_however_many_are_kept() {
        for most in [1, 10, 1000] {
            let rows = compared(most, &clients(100), |_, number| number % 7);
            assert_eq!(rows, (Vec::new(), 0), "{most}");
        }
    }

    #[test]
    fn a_task_that_differs_is_named_or_in_the_sum() {
        let differ = |run, number| if (run, number) == (1, 60) { 5 } else { 3 };
        let (rows, more) = compared(1000, &clients(100), differ);
        let named = json!([["client", 60, 3, 5, 3, 5, "done", "done"]]);
        assert_eq!((json!(rows), more), (named, 0));
        let (rows, more) = compared(10, &clients(100), differ);
        let later = "11 and later";
        let summed = json!([["client", later, 270, 272, 270, 272, "90 done", "90 done"]]);
        assert_eq!((json!(rows), more), (summed, 0));
    }

    #[test]
    fn rows_are_bounded_and_the_others_are_counted() {
        let (rows, more) = compared(5000, &clients(3000), |run, _| run as u64);
        assert_eq!((rows.len(), more), (ROWS, 2000));
        assert_eq!(rows[0][1], 1);
    }

    #[test]
    fn tasks_of_many_names_are_compared_by_name_in_a_bounded_table() {
        let named = (0..3000).map(|number| (format!("client-{number:04}"), 1));
        let compared = |turns| compared(10, &named, turns);
        assert_eq!(compared(|_, number| number % 7), (Vec::new(), 0));
        let (rows, more) = compared(|run, number| u64::from((run, number) == (1, 2501)));
        assert_eq!((rows.len(), more), (1, 0));
        assert_eq!(
            json!(rows[0][..4]),
            json!(["client-2500", "1 and later", 0, 1])
        );
        // Ten of them have a row of their own, and the others are sums.
        let (rows, more) = compared(|run, _| run as u64);
        assert_eq!((rows.len(), more), (ROWS, 2000));
        assert_eq!(
            json!(rows[10][..4]),
            json!(["client-0010", "1 and later", 0, 1])
        );
    }
}
