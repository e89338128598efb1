//! `replay --explore`: the inputs of a taped run under other schedules.
//!
//! A replay of the tape notes what came over each connection. Then the programs run in the simulated
//! world, under many schedules, and each connection has a peer that does what the one of the run did.
//! Before the search, runs with one peer each tell what each gets for what it sends itself.

mod answers;
mod noting;
mod peers;
mod script;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell, fs, io, num::NonZeroU64, path::Path, process::ExitCode, rc::Rc, sync::Arc,
};

use clap::Args;

use super::{
    attached::Attached,
    boot,
    explore::report::{code, report, searched, set_outcome},
    inject::Rules,
    options::BootLine,
    output::{Failure, Log, print_verdict},
    outside::Outside,
    panics::Panics,
    program::Placed,
    progress::{self, Meter},
    signals,
    tape::culprit,
    values::{given, usage, whole},
    words::{self, quoted},
};
use answers::{Answer, Heard};
use noting::{Notes, Noting};
use peers::{Course, Expect, Tally};
use script::{Peer, Script};
use trapline::{
    Builder, Check, Error, Kernel, Report, SimWorld, check,
    tape::{self, Playing},
};

/// The most clients whose answers are looked up, of those that send the same: each takes a run.
const MOST: usize = 100;
/// How often the answers are looked up again after a failure: a part of them may have changed.
const AGAIN: usize = 3;

/// The options of the search.
#[derive(Args)]
#[command(next_help_heading = "Search")]
pub(super) struct SearchOptions {
    /// Run the programs under N other schedules, in the simulated world. Each connection of the tape
    /// has a peer there. It sends what came over the connection, after as many bytes as then, or a
    /// second later than then. A schedule fails if a task fails, in a deadlock, or if a peer does not
    /// get what it has to: see --expect. --record DIR records it. The run's --inject and --max-tasks
    /// apply. Its --policy, --quantum, --share and --processors do not: the search chooses the schedule
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroU64>,
          conflicts_with_all = ["at_speed", "only", "as_test"])]
    pub(super) explore: Option<NonZeroU64>,
    /// Run this schedule of an earlier report, and no other
    #[arg(
        long = "replay",
        alias = "schedule",
        value_name = "SEED.DELAYS.HASH",
        requires = "explore"
    )]
    schedule: Option<String>,
    /// What each peer of a search has to get
    #[arg(
        long,
        value_name = "WHAT",
        requires = "explore",
        default_value = "answers"
    )]
    expect: Expect,
}

impl SearchOptions {
    fn again(&self, tape: &Path) -> String {
        let (binary, tape) = (words::binary(), tape.to_string_lossy());
        let expect = match self.expect {
            Expect::Answers => "",
            Expect::Ends => "--expect ends ",
            Expect::Bytes => "--expect bytes ",
        };
        let tape = quoted(&tape);
        format!("{binary} replay --explore 1 {expect}--replay {{replay}} {tape}")
    }
}

pub(super) fn run(
    playing: Playing,
    line: &BootLine,
    wanted: &SearchOptions,
    tape: &Path,
    record: Option<&Path>,
    log: Log,
) -> Result<ExitCode, Failure> {
    let _guard = Panics::hide();
    signals::catch(signals::END)?;
    let bytes = fs::metadata(tape).map_or(0, |file| file.len());
    let playing = playing.stop_when(signals::is_raised);
    let script = script_of(playing, bytes, line, log);
    if let Some(code) = signals::signal() {
        log.warn("interrupted before the first schedule");
        return Ok(code.into());
    }
    let script = Arc::new(script?);
    // For its errors.
    script.network().map_err(usage)?;
    let mut answers = answers_of(&script, line, wanted.expect);
    let mut again = AGAIN;
    let explored = loop {
        let body = |kernel: &mut Kernel| {
            let course = Course::Tape(wanted.expect, Arc::clone(&answers));
            trial(kernel, &line.programs, &script, course)
        };
        let search = search(body, &script, line, wanted).map_err(usage)?;
        let search = given(search, record, Check::record);
        let search = given(
            search,
            line.programs.first().map(Placed::name),
            Check::named,
        );
        let explored = searched(search, wanted.again(tape));
        if explored.failure.is_none() || again == 0 || signals::is_raised() {
            break explored;
        }
        // The world outside, such as the date, is no part of a schedule.
        let now = answers_of(&script, line, wanted.expect);
        if now == answers {
            break explored;
        }
        (answers, again) = (now, again - 1);
    };
    print_verdict(report(&explored).as_bytes())?;
    if wanted.expect == Expect::Answers {
        print_verdict(compared(&script, &answers).as_bytes())?;
    }
    Ok(code(&explored))
}

/// Replays the tape, and writes down what the peers did. An error says what cannot be scripted.
fn script_of(playing: Playing, bytes: u64, line: &BootLine, log: Log) -> Result<Script, String> {
    let progress = playing.progress();
    let share = move |_, _| Some(progress.offset() as f64 / bytes.max(1) as f64);
    let seed = playing.header().seed;
    let notes: Rc<RefCell<Notes>> = Rc::default();
    let world = Noting::new(playing, Rc::clone(&notes));
    let rules = Rules::new(&line.options.inject);
    // Of its warnings, only that of a task that waits.
    let world = Attached::replayed(world, Log::SILENT, io::sink(), log)?;
    let builder = boot::settings(line, seed, &rules, Outside::of(world));
    let opened = Rc::default();
    let mut kernel = builder
        .tracer(peers::listening(&opened))
        .tracer(progress::of_run(share))
        .build()
        .map_err(|error| format!("cannot boot: {error}"))?;
    let desk = boot::desk(line, &rules);
    boot::load(&mut kernel, line, desk, Log::SILENT)?;
    if let Err(error) = kernel.run() {
        match tape::Error::of(&error) {
            Some(tape::Error::Left(left)) => {
                let culprit = culprit(&kernel, left).unwrap_or_default();
                return Err(format!("the replay leaves the tape: {left}\n{culprit}"));
            }
            Some(ended) if ended.is_short() => {
                log.warn(&ended.to_string());
                // The programs had not ended, and what is open now was open then.
                notes.borrow_mut().stop();
            }
            Some(other) => return Err(other.to_string()),
            None if matches!(error, Error::Limit(..)) => notes.borrow_mut().stop(),
            // So ended the run.
            None => {}
        }
    }
    let report = kernel.report();
    drop(kernel);
    let notes = Rc::into_inner(notes).expect("the kernel is gone");
    let script = notes.into_inner().script(&report, opened.take());
    script.map_err(|why| format!("this tape has no script: {why}"))
}

/// The limit on the turns of a schedule, if the run had so many. The peers have turns too, and another
/// schedule may need more; only a schedule that never ends reaches the limit.
fn most_turns(ticks: u64) -> u64 {
    ticks.saturating_mul(16).max(1_000_000)
}

/// The limit on the tasks of a schedule: that of the run, and those of the peers.
fn max_tasks(script: &Script, line: &BootLine) -> Option<usize> {
    let tasks = line.options.max_tasks?;
    Some(tasks.saturating_add(peers::most_tasks(script)))
}

fn search<F>(
    body: F,
    script: &Arc<Script>,
    line: &BootLine,
    wanted: &SearchOptions,
) -> Result<Check<F>, String>
where
    F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
{
    let (shared, options) = (Arc::clone(script), &line.options);
    let mut search = check(body)
        .without_environment()
        .random()
        .schedules(wanted.explore.map_or(1, NonZeroU64::get))
        .steps(most_turns(script.ticks))
        .threads(0)
        .net(move || shared.network().expect("it was right before"));
    if !options.inject.is_empty() {
        search = search.inject(Rules::new(&options.inject).injection());
    }
    search = given(search, max_tasks(script, line), Check::max_tasks);
    match &wanted.schedule {
        Some(schedule) => search.replay(schedule),
        None => Ok(search),
    }
}

fn answers_of(script: &Arc<Script>, line: &BootLine, expect: Expect) -> Arc<[Option<Answer>]> {
    if expect != Expect::Answers {
        return Arc::default();
    }
    let heard = |course| heard(script, line, course);
    let reversed = heard(Course::Reversed);
    let staying = heard(Course::Staying);
    // Clients that send the same get the same when they are alone.
    let mut known: Vec<(usize, &Peer, Heard)> = Vec::new();
    let mut answers = vec![None; script.peers.len()];
    let meter = Meter::new("client", Some(script.clients().count() as u64));
    for (done, (place, peer, number)) in (0..).zip(script.clients()) {
        meter.show(done);
        let is_same =
            |(of, other, _): &&(usize, &Peer, Heard)| *of == number && peer.does_as(other);
        let alone = match known.iter().find(is_same) {
            Some((.., alone)) => alone.clone(),
            None if known.len() == MOST || signals::is_raised() => continue,
            None => {
                let alone = heard(Course::Alone(place)).swap_remove(place);
                known.push((number, peer, alone.clone()));
                alone
            }
        };
        let end = peer.first_end().unwrap_or(usize::MAX);
        let others = [(&reversed[place], usize::MAX), (&staying[place], end)];
        answers[place] = Answer::agreed(&alone, &peer.heard, script.is_stopped, &others);
    }
    answers.into()
}

fn compared(script: &Script, answers: &[Option<Answer>]) -> String {
    let (known, clients) = (answers.iter().flatten().count(), script.clients().count());
    format!("compared: the answers to {known} of {clients} clients\n")
}

/// What each peer gets in a run of the programs. How the run ends does not matter.
fn heard(script: &Arc<Script>, line: &BootLine, course: Course) -> Vec<Heard> {
    let net = script.network().expect("it was right before");
    let tally = Tally::new(script, net.clone(), course);
    let builder = Kernel::builder()
        .world(SimWorld::new(0).net(&net))
        .max_ticks(most_turns(script.ticks))
        .inject(Rules::new(&line.options.inject).injection());
    let builder = given(builder, max_tasks(script, line), Builder::max_tasks);
    if let Ok(mut kernel) = builder.build() {
        let _ = with_peers(&mut kernel, &line.programs, &tally);
    }
    tally.heard.take()
}

/// Runs the programs once, with the peers of the script.
fn trial(
    kernel: &mut Kernel,
    programs: &[Placed],
    script: &Arc<Script>,
    course: Course,
) -> Result<(), Error> {
    let tally = Tally::new(script, kernel.net(), course);
    let report = with_peers(kernel, programs, &tally)?;
    let text = kernel.take_console();
    set_outcome(kernel, text);
    report.check()
}

fn with_peers(
    kernel: &mut Kernel,
    programs: &[Placed],
    tally: &Rc<Tally>,
) -> Result<Report, Error> {
    peers::listen(kernel, tally)?;
    for placed in programs {
        placed.spawn_on(kernel, tally.script.home(), None)?;
    }
    peers::connect(kernel, tally)?;
    match kernel.run() {
        Err(Error::Deadlock(deadlock)) if deadlock.is_at_rest() && tally.is_over.get() => {
            Ok(kernel.report())
        }
        ran => ran,
    }
}
