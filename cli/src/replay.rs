//! `replay`: a taped run again.

use std::{
    cell::Cell,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
};

use clap::{Args, ValueHint};
use trapline::{
    Event, KernelId, Tid,
    record::Recording,
    tape::{self, Playing},
};

use super::{
    app::Extend,
    as_test, boot,
    commands::Commands,
    cores::{self, Replayed},
    options::{BootLine, Watching},
    outfile,
    output::{Failure, Log, Verbosity, clean},
    reenact::{self, SearchOptions},
    together::Together,
    values::{usage, whole},
    words,
};

/// Run a taped run again
///
/// The tape holds the command line, and everything that came from outside. So the programs do the
/// same again, without a network and at full speed. A program that does something else is told so.
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
A tape holds no files, no environment and no clock of a program's own: run it in the same folder. \
A program's own I/O on an attached value (`echo --ready`) is not on it and happens again; a warning \
says so, and another one names a task that waits for it. What was sent to an attached standard output (`http-get`) is written again, except for \
`send_file`. \
Events have the times at which the kernel last read its clock, a little earlier than those \
that the run showed. \
A tape whose process was killed, or whose disk was full, runs to its end.

Exit codes: as of `boot` without a signal, and 1 if the programs do something else than on \
the tape, or if the file is no tape, is damaged, or lacks its end. With --explore: as of `explore`.

Examples:
  boot --tape run.tape gossip             tape a run; ^C ends that of a server
  replay run.tape                         run it again
  replay --trace run.tape                 with every trap shown
  replay --task 3 run.tape                with those of task 3
  replay --record run.trap run.tape       then: trace open run.trap
  replay --at-speed --top run.tape        as it was
  replay --as-test loses_a_line run.tape  a test of the crate in this folder
  replay --explore 1000 run.tape          in other orders, with scripted peers"
)]
pub(super) struct Replay {
    #[command(flatten)]
    verbosity: Verbosity,
    /// The tape, which `boot --tape` has written. Of several kernels each has a file, with its number behind
    /// the name; the name alone replays all of them together, each to its own end
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Wait as long as the run waited, instead of running at full speed
    #[arg(long)]
    at_speed: bool,
    /// Show the traps of this task alone, with every answer that it got
    #[arg(long = "task", alias = "only", value_name = "TID", value_parser = whole::<u64>,
          conflicts_with = "trace", help_heading = "Watching")]
    only: Option<u64>,
    /// Write a test of this name that replays the tape and compares what it prints and how its tasks
    /// end: tests/NAME.rs, with a copy of the tape as tests/NAME.tape
    #[arg(long, value_name = "NAME", value_parser = as_test::test_name,
          conflicts_with_all = ["at_speed", "only"])]
    as_test: Option<String>,
    #[command(flatten)]
    search: SearchOptions,
    #[command(flatten)]
    watching: Watching,
}

/// An error is a usage error.
pub(super) fn run(
    commands: Commands<'_>,
    replay: Replay,
    verbosity: &Verbosity,
    tracers: &[Extend],
) -> Result<ExitCode, clap::Error> {
    let log = Log::new(verbosity, &replay.verbosity, replay.watching.log_format);
    log.end(replayed(commands, replay, verbosity, tracers, log))
}

fn replayed(
    commands: Commands<'_>,
    replay: Replay,
    verbosity: &Verbosity,
    tracers: &[Extend],
    log: Log,
) -> Result<ExitCode, Failure> {
    let several = first_of_several(&replay.file);
    let is_of_one =
        replay.search.explore.is_some() || replay.only.is_some() || replay.as_test.is_some();
    if let Some(first) = several.as_ref().filter(|_| is_of_one) {
        let why = of_several(
            &replay.file,
            "--explore, --task and --as-test are for one",
            first,
        );
        return Err(usage(why).into());
    }
    if let Some(name) = &replay.as_test {
        if replay.watching.is_any() {
            let why = "--as-test shows no run: leave out the options for watching";
            return Err(usage(why).into());
        }
        let path = as_test::write(&replay.file, commands.command.get_name(), name)?;
        let path = path.display();
        log.note(&format!("wrote {path}; next: cargo test {name}"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(record) = &replay.watching.record
        && outfile::is_same(&replay.file, record)
    {
        let tape = replay.file.display();
        return Err(usage(format!("--record would replace the tape {tape}")).into());
    }
    if let Some(first) = several {
        let (playing, line) = open(commands, &first)?;
        // All are checked before any runs.
        for index in 1..line.options.kernels {
            open(
                commands,
                &outfile::of_kernel(&replay.file, KernelId::at(index)),
            )?;
        }
        return Ok(together(
            replay,
            &playing.header().command,
            line,
            verbosity,
            tracers,
        )?);
    }
    let (playing, line) = open(commands, &replay.file)?;
    if replay.search.explore.is_none() {
        return Ok(again(replay, playing, line, verbosity, tracers, log)?);
    }
    if playing.header().kernel.is_some() {
        let why = "the tape is of one of several kernels, and --explore is for a kernel alone";
        return Err(usage(why).into());
    }
    if replay.watching.is_any_but_record() {
        let why = "--explore shows no run, and --record takes a folder there: leave out the other \
                   options for watching";
        return Err(usage(why).into());
    }
    let record = replay.watching.record.as_deref();
    reenact::run(playing, &line, &replay.search, &replay.file, record, log)
}

/// The tape of the first of several kernels, whose numbers are behind the name; `None` if there is a tape of
/// this name, or no such first.
pub(super) fn first_of_several(file: &Path) -> Option<PathBuf> {
    let first = outfile::of_kernel(file, KernelId::at(0));
    (!file.exists() && first.exists()).then_some(first)
}

/// Explains that this is for the tape of one kernel.
pub(super) fn of_several(file: &Path, why: &str, first: &Path) -> String {
    let (file, first) = (file.display(), first.display());
    format!("{file} is the tapes of several kernels, and {why}: name its file, such as {first}")
}

fn together(
    replay: Replay,
    command: &[String],
    mut line: BootLine,
    verbosity: &Verbosity,
    tracers: &[Extend],
) -> Result<ExitCode, clap::Error> {
    line.options.verbosity = replay.verbosity;
    line.options.watching = replay.watching;
    let together = (!replay.at_speed).then(|| Together::new(line.options.kernels));
    let replayed = Replayed {
        file: replay.file,
        together,
    };
    cores::boot(verbosity, &line, command, Some(&replayed), tracers)
}

fn again(
    replay: Replay,
    playing: Playing,
    mut line: BootLine,
    verbosity: &Verbosity,
    tracers: &[Extend],
    log: Log,
) -> Result<ExitCode, clap::Error> {
    let header = playing.header();
    line.options.verbosity = replay.verbosity;
    line.options.watching = replay.watching;
    if let Some(tid) = replay.only {
        line.options.watching.trace = Some(format!("[task{{tid={tid}}}]=trace"));
    }
    let playing = match replay.at_speed {
        true => playing.at_speed(),
        false => playing,
    };
    let bytes = fs::metadata(&replay.file).map_or(0, |file| file.len());
    let is_met = Rc::new(Cell::new(false));
    let meets = replay.only.map(|tid| meets(tid, &is_met));
    let tracers = tracers.iter().chain(&meets);
    let code = boot::boot(
        verbosity,
        &line,
        &header.command,
        Some((playing, bytes)),
        tracers,
    )?;
    if let Some(tid) = replay.only.filter(|_| !is_met.get()) {
        log.warn(&format!(
            "there was no task {tid}: replay --trace shows the tasks of the run"
        ));
    }
    Ok(code)
}

/// Adds a tracer that notes whether there is a task of this number.
fn meets(tid: u64, is_met: &Rc<Cell<bool>>) -> Extend {
    let (tid, is_met) = (Tid::from(tid), Rc::clone(is_met));
    Box::new(move |builder| {
        let is_met = Rc::clone(&is_met);
        builder.tracer(move |event: &Event<'_>| is_met.set(is_met.get() || event.tid == tid))
    })
}

/// Opens a tape, and reads the command line on it.
pub(super) fn open(commands: Commands<'_>, file: &Path) -> Result<(Playing, BootLine), Failure> {
    let playing = Playing::open(file).map_err(|error| {
        let hint = match &error {
            tape::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                " (`boot --tape FILE PROGRAM` makes one)"
            }
            tape::Error::Foreign if file.is_file() && Recording::open(file).is_ok() => {
                " (it is a recording, for `trace show`)"
            }
            _ => "",
        };
        format!("{}: {error}{hint}", file.display())
    })?;
    let header = playing.header();
    let args: Vec<OsString> = header.command.iter().map(OsString::from).collect();
    let foreign = |why: &str| {
        let (file, line) = (file.display(), clean(&words::command_line(&header.command)));
        usage(format!("in the command line of {file}, `{line}`: {why}"))
    };
    let line = BootLine::parse(commands, &args)
        .map_err(|error| foreign(error.to_string().trim_start_matches("error: ").trim_end()))?;
    let mut line = line.ok_or_else(|| foreign("only a run of `boot` can be replayed"))?;
    line.options.seed = Some(header.seed);
    line.options.tape = None;
    Ok((playing, line))
}
