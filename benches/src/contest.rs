//! A contest: contenders that do the same work in turn, round by round.

use std::{fmt, io, iter};

use serde_json::{Value, json};

/// A contender's run: its figures, in the order of the contest's units.
type Run = Box<dyn FnMut() -> io::Result<Vec<f64>>>;

struct Contender {
    name: &'static str,
    /// The number of rounds in which it runs, from the first on.
    rounds: usize,
    run: Run,
}

/// The same work for each contender. Ratios are to the first, which is ours unless it was left out.
pub(crate) struct Contest {
    name: String,
    rounds: usize,
    /// The units; in each of them less is better.
    units: &'static [&'static str],
    contenders: Vec<Contender>,
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

    /// Adds a contender that returns a single figure.
    pub(crate) fn enter(self, name: &'static str, mut run: impl FnMut() -> f64 + 'static) -> Self {
        self.enter_many(name, move || Ok(vec![run()]))
    }

    /// Adds a contender that returns a figure per unit, or fails.
    pub(crate) fn enter_many(
        mut self,
        name: &'static str,
        run: impl FnMut() -> io::Result<Vec<f64>> + 'static,
    ) -> Self {
        self.contenders.push(Contender {
            name,
            rounds: self.rounds,
            run: Box::new(run),
        });
        self
    }

    /// Limits the contender that was added last to the first `rounds`.
    pub(crate) fn sits_out_after(mut self, rounds: usize) -> Self {
        if let Some(last) = self.contenders.last_mut() {
            last.rounds = rounds;
        }
        self
    }

    /// The number of figures of a contender.
    pub(crate) fn figures(&self) -> usize {
        self.units.len()
    }

    /// Keeps the contenders whose names contain `contender`. A contest without any, or whose own
    /// name does not contain `contest`, is emptied.
    pub(crate) fn only(mut self, contest: &str, contender: &str) -> Option<Self> {
        self.contenders.retain(|c| c.name.contains(contender));
        (self.name.contains(contest) && !self.contenders.is_empty()).then_some(self)
    }

    /// Runs the rounds. Each round begins with another contender, so that no contender always
    /// follows the same one.
    pub(crate) fn run(mut self) -> io::Result<Results> {
        eprintln!("{} ...", self.name);
        let count = self.contenders.len();
        let mut figures = vec![vec![Vec::new(); self.units.len()]; count];
        for round in 0..self.rounds {
            for turn in 0..count {
                let at = (round + turn) % count;
                let contender = &mut self.contenders[at];
                if round >= contender.rounds {
                    continue;
                }
                let name = contender.name;
                let run = (contender.run)()
                    .map_err(|error| io::Error::other(format!("{}: {name}: {error}", self.name)))?;
                for (figures, figure) in figures[at].iter_mut().zip(run) {
                    figures.push(figure);
                }
            }
        }
        let mut lines = Vec::new();
        for (at, unit) in self.units.iter().enumerate() {
            for (contender, figures) in iter::zip(&self.contenders, &figures) {
                lines.push(Line::new(contender.name, unit, &figures[at]));
            }
        }
        Ok(Results {
            name: self.name,
            lines,
        })
    }
}

/// A contender's result in a unit. Not a number where it cannot be measured.
pub(crate) struct Line {
    pub(crate) contender: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
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
    pub(crate) name: String,
    pub(crate) lines: Vec<Line>,
}

impl Results {
    /// Our figure divided by theirs: below 1, ours needs less of the unit.
    pub(crate) fn ratio(&self, line: &Line) -> f64 {
        let ours = self.lines.iter().find(|ours| ours.unit == line.unit);
        ours.map_or(f64::NAN, |ours| ours.median / line.median)
    }

    pub(crate) fn to_json(&self) -> Value {
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
                    "  {:<28}{unit:>26}{:>12}{:>12}{:>14}",
                    "", "least", "most", "ours / this"
                )?;
            }
            write!(f, "  {:<28}", line.contender)?;
            if line.median.is_nan() {
                writeln!(f, "{:>26}", "-")?;
                continue;
            }
            writeln!(
                f,
                "{:>26.2}{:>12.2}{:>12.2}{:>14.2}",
                line.median,
                line.least,
                line.most,
                self.ratio(line)
            )?;
        }
        writeln!(f)
    }
}
