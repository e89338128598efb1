//! A program under one policy: its runs, and what was measured.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use trapline::{Errno, Error, Event, Kernel, SimWorld, Tid};

use crate::{
    measures::{Measured, Stretch},
    policy::{NamedShare, Policy},
    program::run_to_rest,
    progress::Meter,
    signals,
};

pub(super) struct Settings<'a> {
    pub(super) processors: usize,
    pub(super) seed: u64,
    /// How many seeds: at least one.
    pub(super) seeds: u64,
    pub(super) shares: &'a [NamedShare],
    pub(super) max_time: Duration,
}

pub(super) struct Trial {
    pub(super) policy: String,
    /// With each seed: at least one.
    pub(super) runs: Vec<Run>,
}

pub(super) struct Run {
    /// The tasks that computed, by their numbers.
    pub(super) tasks: Vec<TaskRun>,
    /// How often a processor went from one task to another.
    pub(super) switches: u64,
    pub(super) end: Duration,
    processors: usize,
    /// The names of `--share` that no task had.
    unused_shares: Vec<String>,
}

/// A task that computed.
#[derive(Default)]
pub(super) struct TaskRun {
    pub(super) measured: Measured,
    /// For the chart; of the first run alone.
    pub(super) stretches: Vec<Stretch>,
}

pub(super) const FIGURES: [&str; 5] = ["arrival", "response", "turnaround", "waiting", "computed"];

impl TaskRun {
    /// Its measures in seconds, those that it has.
    pub(super) fn figures(&self) -> [Option<f64>; 5] {
        let Self { measured, .. } = self;
        let spans = [
            measured.arrival,
            measured.response(),
            measured.turnaround(),
            Some(measured.waiting),
            Some(measured.computed),
        ];
        spans.map(|span| span.as_ref().map(Duration::as_secs_f64))
    }
}

/// The mean, the median and the 99th percentile of a measure, in seconds.
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) median: f64,
    pub(super) most: f64,
}

/// What is measured while a kernel runs.
#[derive(Default)]
struct Gauge {
    /// Whether this run is the first, which keeps its stretches.
    is_first: bool,
    tasks: BTreeMap<Tid, TaskRun>,
    last: BTreeMap<usize, Tid>,
    switches: u64,
}

impl Gauge {
    fn event(&mut self, event: &Event<'_>) {
        if event.tid == Tid::KERNEL {
            return;
        }
        if let Some(processor) = event.fact.processor() {
            let before = self.last.insert(processor, event.tid);
            self.switches += u64::from(before.is_some_and(|before| before != event.tid));
        }
        let task = self.tasks.entry(event.tid).or_default();
        let stretch = task.measured.event(event);
        task.stretches.extend(stretch.filter(|_| self.is_first));
    }
}

impl Trial {
    pub(super) fn run(
        policy: &Policy,
        image: &dyn Fn(&mut Kernel) -> Result<(), Errno>,
        settings: &Settings<'_>,
        meter: &Meter,
    ) -> Result<Self, Error> {
        let mut runs = Vec::new();
        for number in 0..settings.seeds {
            if signals::is_raised() {
                break;
            }
            // Behind the largest seed comes the smallest.
            let seed = settings.seed.wrapping_add(number);
            runs.push(run(policy, image, settings, seed, number == 0)?);
            meter.add();
        }
        Ok(Self {
            policy: policy.to_string(),
            runs,
        })
    }

    pub(super) fn mean(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(figure).sum::<f64>() / self.runs.len() as f64
    }

    /// Returns whether no task of any run had this name of `--share`.
    pub(super) fn has_unused(&self, name: &str) -> bool {
        let mut unused = self.runs.iter().map(|run| &run.unused_shares);
        unused.all(|names| names.iter().any(|other| other == name))
    }

    /// Returns response, turnaround and waiting, over the tasks of all runs.
    pub(super) fn measures(&self) -> [Spread; 3] {
        let spread = |of: fn(&Measured) -> Option<Duration>| {
            let tasks = self.runs.iter().flat_map(|run| &run.tasks);
            Spread::of(tasks.filter_map(|task| of(&task.measured)).collect())
        };
        [
            spread(Measured::response),
            spread(Measured::turnaround),
            spread(|measured| Some(measured.waiting)),
        ]
    }
}

impl Spread {
    fn of(mut spans: Vec<Duration>) -> Self {
        spans.sort_unstable();
        let [median, most] = [50, 99].map(|percent| {
            let rank = (spans.len() * percent).div_ceil(100);
            let span = spans.get(rank.saturating_sub(1));
            span.map_or(0.0, |span| span.as_nanos() as f64 / 1e9)
        });
        let sum: f64 = spans.iter().map(Duration::as_secs_f64).sum();
        Self {
            mean: sum / spans.len().max(1) as f64,
            median,
            most,
        }
    }
}

fn run(
    policy: &Policy,
    image: &dyn Fn(&mut Kernel) -> Result<(), Errno>,
    settings: &Settings<'_>,
    seed: u64,
    is_first: bool,
) -> Result<Run, Error> {
    let meter = Rc::new(RefCell::new(Gauge {
        is_first,
        ..Gauge::default()
    }));
    let metered = Rc::clone(&meter);
    let mut builder = Kernel::builder()
        .world(SimWorld::new(seed))
        .processors(settings.processors)
        .max_time(settings.max_time)
        .tracer(move |event: &Event<'_>| metered.borrow_mut().event(event));
    for NamedShare { name, share } in settings.shares {
        builder = builder.share(name, *share);
    }
    let mut kernel = policy.set(builder, seed).build()?;
    image(&mut kernel)?;
    run_to_rest(&mut kernel)?.check()?;
    let end = kernel.now();
    let meter = meter.take();
    let mut tasks: Vec<TaskRun> = meter.tasks.into_values().collect();
    for task in &mut tasks {
        let stretch = task.measured.close(end);
        task.stretches.extend(stretch.filter(|_| is_first));
    }
    tasks.retain(|task| !task.measured.computed.is_zero());
    Ok(Run {
        tasks,
        switches: meter.switches,
        end,
        processors: settings.processors,
        unused_shares: kernel.unused_shares().map(ToString::to_string).collect(),
    })
}

impl Run {
    /// Returns the part of the processors' time in which they computed.
    pub(super) fn utilisation(&self) -> f64 {
        let computed: Duration = self.tasks.iter().map(|task| task.measured.computed).sum();
        let all = self.end.as_secs_f64() * self.processors as f64;
        match all {
            0.0 => 0.0,
            all => computed.as_secs_f64() / all,
        }
    }

    /// Returns Jain's index of the parts of their time that tasks had a processor, of the time that
    /// they wanted one: 1 if all are equal, 1/n if one of n has everything. (Jain, Chiu and Hawe,
    /// 1984.)
    pub(super) fn fairness(&self) -> f64 {
        let parts = self.tasks.iter().map(|TaskRun { measured, .. }| {
            let wanted = measured.computed + measured.waiting;
            measured.computed.as_secs_f64() / wanted.as_secs_f64()
        });
        let (sum, squares) = parts.fold((0.0, 0.0), |(sum, squares), part| {
            (sum + part, squares + part * part)
        });
        if squares == 0.0 {
            return 1.0;
        }
        sum * sum / (self.tasks.len() as f64 * squares)
    }
}
