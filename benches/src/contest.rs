//! A contest: contenders that do the same work in turn, round by round.

use std::{fmt, io};

use serde_json::{Value, json};

/// A contender's run: the figures it came to, in the order of the contest's units.
type Run = Box<dyn FnMut() -> io::Result<Vec<f64>>>;

/// The same work for each contender. Ratios are to the first, which is ours unless it was left out.
pub(crate) struct Contest {
    name: String,
    rounds: usize,
    units: &'static [&'static str],
    contenders: Vec<(&'static str, Run)>,
}

impl Contest {
    pub(crate) fn new(
        name: impl Into<String>,
        rounds: usize,
        units: &'static [&'static str],
    ) -> Self {
        Self {
            name: name.into(),
            rounds,
            units,
            contenders: Vec::new(),
        }
    }

    /// Adds a contender that answers a single figure.
    pub(crate) fn enter(
        mut self,
        name: &'static str,
        mut run: impl FnMut() -> f64 + 'static,
    ) -> Self {
        self.contenders
            .push((name, Box::new(move || Ok(vec![run()]))));
        self
    }

    /// Adds a contender that answers a figure per unit, or fails.
    pub(crate) fn enter_many(
        mut self,
        name: &'static str,
        run: impl FnMut() -> io::Result<Vec<f64>> + 'static,
    ) -> Self {
        self.contenders.push((name, Box::new(run)));
        self
    }

    /// Keeps the contenders whose name contains `contender`; nothing of a contest without any, or
    /// whose own name does not contain `contest`.
    pub(crate) fn only(mut self, contest: &str, contender: &str) -> Option<Self> {
        self.contenders.retain(|(name, _)| name.contains(contender));
        (self.name.contains(contest) && !self.contenders.is_empty()).then_some(self)
    }

    /// Runs the rounds. Each round begins with another contender, so that nobody always follows
    /// the same one.
    pub(crate) fn run(mut self) -> io::Result<Results> {
        eprintln!("{} ...", self.name);
        let count = self.contenders.len();
        let mut figures = vec![vec![Vec::new(); self.units.len()]; count];
        for round in 0..self.rounds {
            for turn in 0..count {
                let at = (round + turn) % count;
                let run = (self.contenders[at].1)()?;
                for (figures, figure) in figures[at].iter_mut().zip(run) {
                    figures.push(figure);
                }
            }
        }
        let mut lines = Vec::new();
        for (at, unit) in self.units.iter().enumerate() {
            for ((name, _), figures) in self.contenders.iter().zip(&figures) {
                lines.push(Line::new(name, unit, &figures[at]));
            }
        }
        Ok(Results {
            name: self.name,
            lines,
        })
    }
}

/// What a contender came to in a unit.
struct Line {
    contender: &'static str,
    unit: &'static str,
    median: f64,
    least: f64,
    most: f64,
}

impl Line {
    fn new(contender: &'static str, unit: &'static str, figures: &[f64]) -> Self {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[half]
        } else {
            (sorted[half - 1] + sorted[half]) / 2.0
        };
        Self {
            contender,
            unit,
            median,
            least: sorted[0],
            most: sorted[sorted.len() - 1],
        }
    }
}

pub(crate) struct Results {
    name: String,
    lines: Vec<Line>,
}

impl Results {
    /// Ours by theirs: below 1 we need less of the unit than they do.
    fn ratio(&self, line: &Line) -> f64 {
        let ours = self.lines.iter().find(|ours| ours.unit == line.unit);
        ours.map_or(f64::NAN, |ours| ours.median / line.median)
    }

    fn to_json(&self) -> Value {
        let lines = self.lines.iter().map(|line| {
            json!({
                "contender": line.contender, "unit": line.unit, "median": line.median,
                "min": line.least, "max": line.most, "ours_by_this": self.ratio(line),
            })
        });
        json!({ "name": self.name, "results": lines.collect::<Vec<_>>() })
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = "";
        writeln!(f, "{}", self.name)?;
        for line in &self.lines {
            if line.unit != unit {
                unit = line.unit;
                writeln!(
                    f,
                    "  {:<24}{unit:>26}{:>12}{:>12}{:>14}",
                    "", "least", "most", "ours / this"
                )?;
            }
            writeln!(
                f,
                "  {:<24}{:>26.2}{:>12.2}{:>12.2}{:>14.2}",
                line.contender,
                line.median,
                line.least,
                line.most,
                self.ratio(line)
            )?;
        }
        writeln!(f)
    }
}

/// The results of a whole run.
#[derive(Default)]
pub(crate) struct Table(Vec<Results>);

impl Table {
    pub(crate) fn add(&mut self, results: Results) {
        self.0.push(results);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "contests": self.0.iter().map(Results::to_json).collect::<Vec<_>>() })
    }
}
