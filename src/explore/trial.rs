//! A trial: the body of a check under one schedule.

use super::{
    notes::{self, Notes},
    quiet,
    settings::Settings,
    timed::Watch,
};
use crate::{Error, Kernel};

/// What a search runs for each schedule.
pub(super) type Body<'a> = &'a dyn Fn(&mut Kernel) -> Result<(), Error>;

/// The result of a trial.
#[derive(Debug)]
pub(super) struct Trial {
    /// Why it failed.
    pub(super) failure: Option<String>,
    /// Whether it ran on after a deadlock.
    pub(super) is_late: bool,
    /// Whether it failed because another thread did not wake it.
    pub(super) has_stalled: bool,
    /// `None` if there are none.
    pub(super) notes: Option<Box<Notes>>,
    /// Whether another thread may have decided what happened.
    pub(super) counts_on_threads: bool,
}

impl Trial {
    /// Returns what the schedule came to.
    pub(super) fn outcomes(&self) -> &[String] {
        self.notes.as_ref().map_or(&[], |notes| &notes.outcomes)
    }

    /// Returns the same, and whether it failed, in a line.
    pub(super) fn in_a_line(&self) -> String {
        let outcomes = self.outcomes().join(", ");
        match &self.failure {
            None if outcomes.is_empty() => "passes".to_string(),
            None => format!("passes: {outcomes}"),
            Some(why) => format!("fails: {}", why.lines().next().unwrap_or_default()),
        }
    }

    /// Says what may have made another run of the same schedule differ.
    pub(super) fn hidden(&self) -> &'static str {
        match self.counts_on_threads {
            true => THREADS,
            false => HIDDEN,
        }
    }
}

/// What may have made two runs of a schedule differ.
pub(super) const HIDDEN: &str = "Something besides the world decides what the program does: the \
     order of a hash map, a static, a clock, a thread.";

/// What a search says of a program that another thread may decide.
pub(super) const THREADS: &str = "the program counts on threads of the operating system \
     (Setter::remote): no schedule decides when these run, and no search can repeat it. A test that \
     is searched sets its promises in tasks.";

/// Makes the kernel as new, or makes a new one.
pub(super) fn fresh<'a>(
    kernel: &'a mut Option<Kernel>,
    settings: &Settings,
    seed: u64,
    watch: &Watch,
) -> Result<&'a mut Kernel, Error> {
    let is_reset = kernel
        .as_mut()
        .is_some_and(|kernel| kernel.reset(seed).is_ok());
    if !is_reset {
        let builder = settings
            .strategy
            .set(settings.builder(seed, watch), seed, watch);
        *kernel = Some(builder.build()?);
    }
    Ok(kernel.as_mut().expect("it was just made"))
}

const NOT_RUN: &str = "the closure has made tasks, and has not run them: call kernel.run()";

/// Runs the body on a kernel that is as new. A trial fails if the body returns an error or panics,
/// or if one of its tasks faults, or if none of its tasks has had a turn.
pub(super) fn run(kernel: &mut Kernel, body: Body<'_>) -> Trial {
    notes::open();
    let result = quiet::contain(|| body(kernel));
    let notes = notes::close();
    let has_stalled = matches!(result, Ok(Err(Error::Stalled(_))));
    let mut failure = match result {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(panic),
    };
    if kernel.has_faults()
        && let Err(faults) = kernel.report().check_faults()
    {
        let faults = faults.to_string();
        failure = Some(match failure {
            Some(failure) if failure != faults => format!("{failure}\n{faults}"),
            _ => faults,
        });
    }
    if failure.is_none() && kernel.has_unrun_tasks() {
        failure = Some(NOT_RUN.to_string());
    }
    let late = kernel.take_late_deadlock();
    let is_late = late.is_some();
    if let Some((deadlock, false)) = late {
        // A limit that it met later is not the reason.
        failure = Some(Error::Deadlock(deadlock).to_string());
    }
    Trial {
        failure,
        is_late,
        has_stalled,
        notes,
        counts_on_threads: kernel.counts_on_threads(),
    }
}
