//! `trace export`: converts a recording to formats of other programs.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueEnum, ValueHint};
use trapline::{Call, Detail, Doing, Event, Fact, Ledger, On, Span, Tracer};

use super::{
    chrome::{self, Clock},
    source::{Failure, Source},
    spans::{Spans, What},
};
use crate::output::{self, Log, USAGE, clean};

/// Write a recording to standard output in a format that other programs read
#[derive(Args)]
#[command(after_help = "\
Formats:
  chrome  Chrome's trace events, as JSON: for https://ui.perfetto.dev, speedscope and
          chrome://tracing. A track for each task, with a slice while it runs and one while it is
          blocked; answers, input and output are instants; arrows lead from a waking task to the
          woken one
  csv     a row for each event: seconds,tid,task,event,call,detail,error. Control characters are
          escaped as \\n, and ' precedes a text that a spreadsheet would take for a formula
  folded  a line for each stack of a flame graph, with its nanoseconds: the task's name, its state,
          the call, and what it was blocked on

Examples:
  trace export --format folded run.trap | grep ';blocked;' \\
    | inferno-flamegraph > blocked.svg
  trace export --format chrome run.trap > run.json
  trace export --format chrome --turns simulated.trap > run.json
  trace export --format csv run.trap \\
    | sqlite3 :memory: '.import --csv /dev/stdin events' \\
    'select call, count(*) from events
    where event = \"replied\" and error group by call'")]
pub(crate) struct ExportCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Which format
    #[arg(long, value_name = "FORMAT")]
    format: Format,
    /// For chrome: give each turn a microsecond, and ignore the clock. This shows the order of
    /// events where a virtual clock does not move
    #[arg(long)]
    turns: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Chrome,
    Csv,
    Folded,
}

impl ExportCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        if self.turns && !matches!(self.format, Format::Chrome) {
            output::tell("error: --turns is for --format chrome\n");
            return Ok(ExitCode::from(USAGE));
        }
        let mut source = Source::open(&self.file)?;
        source.prints();
        match (self.format, self.turns) {
            (Format::Chrome, true) => chrome::write(out, &mut source, Clock::Turns)?,
            (Format::Chrome, false) => chrome::write(out, &mut source, Clock::World)?,
            (Format::Csv, _) => write_csv(out, &mut source)?,
            (Format::Folded, _) => write_folded(out, &mut source)?,
        }
        // The readable events come before the error message.
        out.flush()?;
        source.warn_of_gaps(log);
        source.end(log)
    }
}

/// A line per stack: how long the tasks of a name were in a state, by call and resource.
fn write_folded(out: &mut impl Write, source: &mut Source) -> Result<(), Failure> {
    let mut spans = Spans::default();
    let mut stacks: BTreeMap<String, u128> = BTreeMap::new();
    let mut add = |span: Span, tasks: &Ledger| {
        let nanos = span.time().as_nanos();
        if nanos > 0 && !span.tid.is_kernel() {
            *stacks.entry(stack(&span, tasks)).or_default() += nanos;
        }
    };
    while let Some(event) = source.next() {
        if source.gap().is_some() {
            spans.gap();
        }
        let ended = spans.event(&event);
        ended.for_each(|span| add(span, spans.tasks()));
    }
    let open = spans.finish().into_iter();
    open.for_each(|span| add(span, spans.tasks()));
    for (stack, nanos) in stacks {
        writeln!(out, "{stack} {nanos}")?;
    }
    Ok(())
}

/// The frames of a span, from the task's name on. A semicolon would begin a frame.
fn stack(span: &Span, tasks: &Ledger) -> String {
    let comm = clean(tasks.comm(span.tid)).replace(';', ",");
    let last = tasks.last(span.tid).map(|call| call.call.name());
    let call = last.unwrap_or(match span.doing {
        // It waits before its first turn.
        Doing::Blocked(_) => "start",
        _ => "exit",
    });
    match span.doing {
        Doing::Running => format!("{comm};running;{call}"),
        Doing::InCall => format!("{comm};in call;{call}"),
        Doing::Ready => format!("{comm};ready"),
        Doing::Blocked(on) => {
            let object = match on {
                On::Queue(queue, _) => tasks.object(queue),
                _ => None,
            };
            let on = object.map_or_else(|| What::from(on).to_string(), |object| clean(&object));
            format!("{comm};blocked;{call};{}", on.replace(';', ","))
        }
        Doing::Idle => format!("{comm};idle"),
    }
}

fn write_csv(out: &mut impl Write, source: &mut Source) -> Result<(), Failure> {
    let mut tasks = Ledger::new();
    let mut rows = csv::Writer::from_writer(out);
    rows.write_record(["seconds", "tid", "task", "event", "call", "detail", "error"])
        .map_err(unwrap)?;
    for event in source {
        tasks.event(&event);
        rows.write_record(row(&event, &tasks)).map_err(unwrap)?;
    }
    rows.flush()?;
    Ok(())
}

fn row(event: &Event<'_>, tasks: &Ledger) -> [String; 7] {
    let call = match event.fact.word() {
        "trapped" | "injected" | "replied" => tasks.last(event.tid),
        "spawned" | "fault" | "resumed" | "deferred" | "console" | "accessed" | "reaped" => None,
        _ => tasks.pending(event.tid),
    };
    [
        seconds(event.at),
        event.tid.to_string(),
        cell(tasks.comm(event.tid)),
        event.fact.word().to_string(),
        call.map_or("", |call| call.call.name()).to_string(),
        cell(&detail(&event.fact)),
        u8::from(tasks.is_error(event)).to_string(),
    ]
}

/// What a fact says besides its name.
fn detail(fact: &Fact<'_>) -> String {
    let parent = fact.spawned().map(|(parent, _)| parent.to_string());
    let deferred = fact.deferred().map(|call| Call(call, &Detail::None));
    let instant = fact.left().or(fact.jumped_from());
    let said = parent
        .or(fact.call().or(deferred).map(arguments))
        .or(fact.blocked_on().map(|on| on.to_string()))
        .or(fact.woken_by().map(|by| by.to_string()))
        .or(fact.printed().map(ToString::to_string))
        .or(fact.processor().map(|processor| processor.to_string()))
        .or(instant.map(seconds))
        .or(fact.device_io().map(|_| fact.to_string()));
    // Its text begins with its name.
    said.unwrap_or_else(|| match fact.to_string().split_once(' ') {
        Some((_, rest)) => rest.to_string(),
        None => String::new(),
    })
}

/// A text that is safe for a terminal and not a formula for a spreadsheet.
fn cell(text: &str) -> String {
    // The wide forms come from East Asian keyboards. Leading white space does not count.
    const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    let text = clean(text);
    match text.trim_start().starts_with(FORMULA) {
        true => format!("'{text}"),
        false => text,
    }
}

/// The inner error, which tells a closed pipe from other failures.
fn unwrap(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

fn arguments(call: Call<'_>) -> String {
    let text = call.to_string();
    let arguments = text.get(call.0.name().len() + 1..text.len() - 1);
    arguments.unwrap_or_default().to_string()
}

fn seconds(instant: Duration) -> String {
    format!("{}.{:09}", instant.as_secs(), instant.subsec_nanos())
}
