//! `trace show`: a line per trap, in the format of `boot --trace`, for the selected events.

use std::{io::Write, mem, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, ValueHint};
use serde_json::{Value, json};
use trapline::{
    Answered, DeviceId, Event, Fact, Ledger, Nanos, On, Reply, SystemCall, Tracer, Wake,
};

use super::source::{Failure, Source, unknown};
use crate::{
    live::{
        feed::{self, is_task},
        protocol::safe_json,
    },
    log,
    output::{Log, aligned, clean},
    values::{calls, instant, whole},
};

/// Show a recording, a line per trap
#[derive(Args)]
#[command(after_help = "\
Times are counted from boot. With several filters, an event has to match all of them.

Examples:
  boot --virtual --record run.trap convoy   record a run
  trace show run.trap | less                all of it
  trace show --task worker-1 --relative run.trap
  trace show --call sleep --from 10ms run.trap
  trace show --from 00:00.010 --to 20ms --sched run.trap")]
pub(crate) struct ShowCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Only this task, by its number or name; can be repeated
    #[arg(long = "task", value_name = "TASK")]
    tasks: Vec<String>,
    /// Only this call, such as recv or new_task; can be repeated
    #[arg(long = "call", value_name = "CALL", value_parser = calls(), hide_possible_values = true)]
    calls: Vec<String>,
    /// Only the events of this device, by its number
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    device: Option<u64>,
    /// Only the events of this message queue, by its number
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    queue: Option<u64>,
    /// Only from this time on
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<Duration>,
    /// Only up to this time
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Option<Duration>,
    /// Only failures: errors that were answered, tasks that failed or faulted
    #[arg(long)]
    errors: bool,
    /// Also turns, wake-ups and jumps of the clock
    #[arg(long)]
    sched: bool,
    /// Also the programs' output
    #[arg(long)]
    console: bool,
    /// Show the time since the previous line
    #[arg(long)]
    relative: bool,
    /// Show a JSON object a line, as `trace live` does
    #[arg(long, conflicts_with = "relative")]
    json: bool,
}

impl ShowCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            let (from, to) = (Nanos::from(from), Nanos::from(to));
            return Err(format!("--from {from} is after --to {to}: nothing is in between").into());
        }
        let mut source = Source::open(&self.file)?;
        source.prints();
        let mut tasks = Ledger::new();
        let mut unseen: Vec<&String> = self.tasks.iter().collect();
        let mut since = self.relative.then_some(Duration::ZERO);
        let (mut missing, mut is_cut) = (0, false);
        while let Some(event) = source.next() {
            // A gap lasts until the event after it.
            let gap_before = source.gap().unwrap_or_default();
            if self.from.is_none_or(|from| event.at >= from) {
                missing += gap_before;
            }
            tasks.event(&event);
            is_cut = self.to.is_some_and(|to| event.at > to);
            if is_cut {
                // Later events cannot match.
                break;
            }
            unseen.retain(|task| !is_task(task, event.tid, &tasks));
            if self.selects(&event, &tasks) {
                if self.json {
                    objects(out, &mut missing, &event, &tasks)?;
                    continue;
                }
                gap(out, &mut missing)?;
                write(out, log, &mut since, &event, &tasks)?;
            }
        }
        match self.json {
            true => lost(out, &mut missing)?,
            false => gap(out, &mut missing)?,
        }
        source.end(log)?;
        for task in unseen {
            log.warn(&unknown(task, &self.file, is_cut));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn selects(&self, event: &Event<'_>, tasks: &Ledger) -> bool {
        let fact = &event.fact;
        let call = tasks.call_of(event);
        let is_its = |task: &String| is_task(task, event.tid, tasks);
        let has_call = |call: SystemCall| self.calls.iter().any(|name| name == call.name());
        let has_device = |n| is_about_device(fact, call, DeviceId::from_raw(n));
        log::is_shown(fact, !self.calls.is_empty(), self.sched, self.console)
            && self.from.is_none_or(|from| event.at >= from)
            && (self.tasks.is_empty() || self.tasks.iter().any(is_its))
            && (self.calls.is_empty() || call.is_some_and(has_call))
            && (!self.errors || tasks.is_error(event))
            && self.device.is_none_or(has_device)
            && self.queue.is_none_or(|n| is_about_queue(fact, call, n))
    }
}

/// Says how many events are missing between two lines.
fn gap(out: &mut impl Write, missing: &mut u64) -> Result<(), Failure> {
    if *missing > 0 {
        writeln!(out, "... {missing} events are missing here ...")?;
    }
    *missing = 0;
    Ok(())
}

/// The same as an object.
fn lost(out: &mut impl Write, missing: &mut u64) -> Result<(), Failure> {
    if *missing > 0 {
        writeln!(out, "{}", json!({ "missing": *missing }))?;
    }
    *missing = 0;
    Ok(())
}

fn objects(
    out: &mut impl Write,
    missing: &mut u64,
    event: &Event<'_>,
    tasks: &Ledger,
) -> Result<(), Failure> {
    lost(out, missing)?;
    for line in feed::lines(None, event, tasks) {
        let line = Value::Object(line).to_string();
        out.write_all(safe_json(line.as_bytes()).as_bytes())?;
    }
    Ok(())
}

fn is_about_device(fact: &Fact<'_>, call: Option<SystemCall>, wanted: DeviceId) -> bool {
    let device = match (fact.blocked_on(), fact.woken_by()) {
        (Some(On::Device(device, _)), _) => Some(device),
        (_, Some(Wake::Device(device, _) | Wake::Closed(device))) => Some(device),
        _ => fact.device_io().map(|(device, ..)| device),
    };
    let is_new = |Answered(reply, _)| reply == Reply::Device(wanted);
    let is_of_call = is_call(fact) && call.and_then(SystemCall::device) == Some(wanted);
    device == Some(wanted) || is_of_call || fact.answer().is_some_and(is_new)
}

/// Whether an event is a whole call: its answer, or one without a trap.
fn is_call(fact: &Fact<'_>) -> bool {
    fact.answer().is_some() || fact.deferred().is_some()
}

fn is_about_queue(fact: &Fact<'_>, call: Option<SystemCall>, wanted: u64) -> bool {
    let queue = match (fact.blocked_on(), fact.woken_by(), fact.answer()) {
        (Some(On::Queue(queue, _)), ..) | (_, Some(Wake::Queue(queue)), _) => Some(queue),
        (.., Some(Answered(Reply::Queue(queue), _))) => Some(queue),
        _ => call.filter(|_| is_call(fact)).and_then(SystemCall::queue),
    };
    queue.is_some_and(|queue| queue.number() == wanted)
}

/// Writes an event as a line; a time `since` the previous line is relative.
fn write(
    out: &mut impl Write,
    log: Log,
    since: &mut Option<Duration>,
    event: &Event<'_>,
    tasks: &Ledger,
) -> Result<(), Failure> {
    let (at, tid) = (event.at, event.tid);
    let at = match since.as_mut().map(|since| mem::replace(since, at)) {
        None => format!("{:.6}", Nanos::from(at)),
        Some(since) => format!("+{:.6}", Nanos::from(at.saturating_sub(since))),
    };
    let columns = log.columns(&at, tid, &clean(tasks.comm(tid)));
    if let (Some(_), Some(call)) = (event.fact.exit(), tasks.unseen(tid)) {
        writeln!(out, "{columns}{} = ?", clean(&call.to_string()))?;
    }
    let line = tasks.line(&event.fact, tid);
    let reply = line.answer().map(|reply| clean(&reply));
    let message = aligned(&clean(&line.to_string()), &reply.unwrap_or_default());
    writeln!(out, "{columns}{message}")?;
    Ok(())
}
