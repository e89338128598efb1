//! The reruns of a search: a kernel whose schedule can be recorded and repeated.

use std::{
    cell::Cell,
    env, fs,
    io::{self, Write},
    path::Path,
    rc::Rc,
    thread,
};

use super::{
    audit::UNSEEN,
    cut::{Await, NOTHING},
    doom,
    explored::{Explored, Failure},
    guide::Guide,
    minimise::{minimise, nearest_passing},
    plan::{Decisions, Plan, Replay},
    story::Story,
    tally::Found,
    trial::{HIDDEN, THREADS, Test, Trial, Trials},
    twice::NONDETERMINISM,
};
use crate::{
    Builder, Call, Error, Event,
    record::{Header, Recorder},
};

/// The most departures in the text of a replay, where the name of a strategy can replace them.
const LONGEST: usize = 100;

/// The most turns of a schedule of which a search locates all calls in the source, and of which a
/// replay shows all turns.
const WHOLE: u32 = 2_000;

pub(super) struct Reruns<'a>(pub(super) Test<'a>);

/// A trial that can be repeated.
struct Recorded {
    trial: Trial,
    replay: Replay,
    plan: Plan,
    /// The numbers of the faults that chaos has drawn.
    chaos: Vec<u32>,
    turns: u32,
    /// Whether its cut was made, if it has one.
    is_cut: bool,
    /// Its turns as text, and how many of them the text leaves out.
    story: (String, usize),
    faults: Vec<String>,
}

impl Recorded {
    /// Returns how many turns are preempted, in words.
    fn preempted(&self) -> String {
        let preempted = match self.plan.preemptions() {
            0 => "none".to_string(),
            preempted => preempted.to_string(),
        };
        format!("{preempted} of its {} turns preempted", self.turns)
    }
}

impl Reruns<'_> {
    pub(super) fn replay(&self, replay: &Replay) -> Result<Explored, Error> {
        let run = self.run(replay.seed, &replay.decisions, true)?;
        // The watchdog knows no hash.
        let is_same = replay.hash == 0 || run.replay.hash == replay.hash;
        let changed = (!is_same).then(|| self.difference(&run, replay));
        let lead = changed.as_deref().unwrap_or_default();
        let failure = if let Some(why) = run.trial.failure.clone() {
            let preempted = run.preempted();
            let failure = self.describe(&run, why, &format!("it fails with {preempted}"))?;
            let details = lead.to_string() + &failure.details;
            Some(Failure { details, ..failure })
        } else {
            // Past the test harness, which shows no output of a test that passes.
            let _ = writeln!(io::stderr(), "{lead}the schedule {replay} passes");
            None
        };
        Ok(Explored {
            schedules: 1,
            outcomes: run.trial.outcomes().iter().cloned().collect(),
            turns: failure
                .is_none()
                .then(|| run.story.0.trim_end().to_string()),
            changed,
            failure,
            ..Explored::default()
        })
    }

    /// Says why a replay makes other traps than the schedule of the report.
    fn difference(&self, run: &Recorded, replay: &Replay) -> String {
        if let Decisions::Plan(plan) = &replay.decisions
            && let Some(lacks) = self.0.settings.lacks(plan)
        {
            return format!("{replay} has faults, and this search has none: give it {lacks}\n");
        }
        let steps = self.0.settings.steps();
        let reaches_limit = run.trial.failure.is_some() && u64::from(run.turns) >= steps;
        let cut = format!("{replay} is cut at turn {steps}: a higher limit shows its end\n");
        match &replay.decisions {
            _ if !reaches_limit => format!(
                "the program has changed since {replay}, or that is mistyped: the traps are others in \
                 this schedule\n"
            ),
            Decisions::Plan(plan) if plan.last_turn() > run.turns => cut,
            _ => format!("the program has changed since {replay}, or {cut}"),
        }
    }

    /// Describes a schedule that has failed: minimised, and with its turns.
    pub(super) fn explain(&self, found: Found) -> Result<Failure, Error> {
        found.tell(self.0.settings);
        let (seed, decisions) = found.decided(self.0.settings);
        let Found {
            schedule,
            name,
            why,
            beside,
            note,
            cut: found_cut,
            ..
        } = found;
        let found = self.run(seed, &decisions, false)?;
        let name = name.unwrap_or_else(|| format!("schedule {schedule}"));
        let fails = self.0.settings.fails();
        let first = match why.starts_with(NOTHING) {
            true => format!("{name}, seed {seed}"),
            false => format!("{name} {fails}, seed {seed}"),
        };
        let note = note.map_or(String::new(), |note| format!("\n{note}"));
        if let Some(plan) = beside {
            let beside = self.run(seed, &Decisions::Plan(plan), false)?.replay;
            let first = format!("{first}; schedule {beside} should not differ from it");
            return self.describe(&found, why, &first);
        }
        if why.starts_with(UNSEEN) || why.starts_with(NOTHING) {
            return self.describe(&found, why, &first);
        }
        if found.trial.has_stalled {
            // Each run of a minimisation would wait as long.
            return self.describe(&found, format!("{why}\n{THREADS}"), &first);
        }
        let is_hidden = why.starts_with(NONDETERMINISM);
        if found.trial.failure.is_none() || is_hidden {
            // Two runs of it differ, or the body is not repeatable.
            let hidden = match is_hidden {
                true => String::new(),
                false => format!("\n{HIDDEN} These are the turns of the run that passes:"),
            };
            let ends = found.trial.failure.as_ref().map_or("passes", |_| fails);
            let first = format!("{first}; it {ends} when it runs again{hidden}");
            return self.describe(&found, why, &first);
        }
        let fewest = minimise(self.0, seed, &found.plan.with_chaos(&found.chaos))?;
        let locates = found.turns <= WHOLE;
        let (mut run, story) = self.tell(seed, &Decisions::Plan(fewest.plan), locates)?;
        if is_long(&run.plan) && matches!(decisions, Decisions::Strategy(_)) {
            // The text can name the strategy, whose schedule is the one that was found.
            let first = format!("{first}; it {fails} with {}", found.preempted());
            return self.describe(&found, why + &note, &first);
        }
        let Some(why) = run.trial.failure.clone() else {
            return self.describe(&found, why + &note, &first);
        };
        if found_cut.is_none() && self.0.settings.dooms() {
            // Those before it have the same seed, and pass.
            let some_pass = schedule > 0 && self.0.settings.is_exhaustive();
            run.story.0 += &self.doom(&run, &story, some_pass)?;
        }
        let preempted = run.preempted();
        let fewer = match (fewest.is_least, run.plan.preemptions() == 0) {
            (_, true) => String::new(),
            (true, _) => format!("; no schedule of this seed {fails} with fewer"),
            (false, _) => "; fewer may suffice".to_string(),
        };
        let first = format!("{first}; one {fails} with {preempted}{fewer}");
        self.describe(&run, why + &note, &first)
    }

    /// Names the turn from which a schedule fails, however it goes on.
    fn doom(&self, run: &Recorded, story: &Story, some_pass: bool) -> Result<String, Error> {
        let seed = run.replay.seed;
        let found = doom::find(self.0, seed, &run.plan, run.turns)?;
        let found = found.filter(|found| !(some_pass && found.is_drawn_from_the_start()));
        let Some(found) = found else {
            return Ok(String::new());
        };
        let turn = match story.turn(found.turn) {
            Some(turn) if found.turn > 0 => turn,
            None if found.turn > 0 => {
                return Ok(format!("doomed from turn {}: {found}\n", found.turn));
            }
            _ => return Ok(format!("doomed from the start: {found}\n")),
        };
        let saved = match &found.before.passing {
            Some(plan) => self.saves(seed, plan, found.turn, &turn)?,
            None => String::new(),
        };
        let head = format!("doomed from turn {}, {turn}", found.turn);
        Ok(format!("{}\n  {found}\n{saved}", narrow(head)))
    }

    /// Names the turn of a schedule that passes, in the place of the one that dooms.
    fn saves(&self, seed: u64, passing: &Plan, turn: u32, doomed: &str) -> Result<String, Error> {
        let (run, story) = self.tell(seed, &Decisions::Plan(passing.clone()), true)?;
        let sibling = story.turn(turn).filter(|_| run.trial.failure.is_none());
        // The same call with another answer says nothing.
        let sibling = sibling.filter(|sibling| sibling != doomed);
        Ok(sibling.map_or(String::new(), |sibling| {
            let line = format!("  in its place, one that passes has {sibling}");
            narrow(line) + "\n"
        }))
    }

    fn describe(&self, run: &Recorded, why: String, first: &str) -> Result<Failure, Error> {
        let replay = run.replay.to_string();
        self.0.settings.tell(&why, &replay);
        let again = self.0.settings.command.replacen("{replay}", &replay, 1);
        let (story, left_out) = &run.story;
        let whole = match *left_out > 0 && run.turns <= WHOLE {
            true => ", with all its turns",
            false => "",
        };
        let faults = run.faults.iter().map(|fault| format!("  fault: {fault}\n"));
        let faults: String = faults.collect();
        let mut details = format!("{first}\n{faults}{story}to see it again{whole}:  {again}");
        if let Some(folder) = &self.0.settings.record {
            details += &self.record(folder, run).unwrap_or_else(|error| {
                let why = match error {
                    // The world did not fail.
                    Error::Io(error) => error.to_string(),
                    error => error.to_string(),
                };
                format!("\ncannot record it in {}: {why}", folder.display())
            });
        }
        Ok(Failure {
            why,
            preemptions: run.plan.preemptions(),
            faults: run.faults.clone(),
            replay,
            details,
        })
    }

    /// Records a failing schedule in a folder, and the nearest that passes. Returns a line for each.
    fn record(&self, folder: &Path, run: &Recorded) -> Result<String, Error> {
        fs::create_dir_all(folder).map_err(|error| no_folder(folder, &error))?;
        let thread = thread::current();
        let test = self.0.settings.name.as_deref().or(thread.name());
        let test = test.unwrap_or("main").replace("::", "-");
        let Replay {
            seed, decisions, ..
        } = &run.replay;
        let fails = folder.join(format!("{test}-fails.trap"));
        self.record_to(&fails, *seed, decisions)?;
        let mut text = format!("\nrecorded:  {}", fails.display());
        let passes = folder.join(format!("{test}-passes.trap"));
        // One of an earlier failure would not belong to this one.
        let _ = fs::remove_file(&passes);
        let Decisions::Plan(plan) = decisions else {
            return Ok(text);
        };
        if let Some(plan) = nearest_passing(self.0, *seed, plan)? {
            self.record_to(&passes, *seed, &Decisions::Plan(plan))?;
            let passes = passes.display();
            text += &format!("\n           {passes}, the nearest schedule that passes");
        }
        Ok(text)
    }

    fn record_to(&self, path: &Path, seed: u64, decisions: &Decisions) -> Result<(), Error> {
        let header = Header {
            command: env::args().collect(),
            seed,
            policy: decisions.policy(),
            is_simulated: true,
            ..Header::default()
        };
        let recorder = Recorder::create(path, &header)?;
        let handle = recorder.handle();
        let guide = Guide::of(seed, decisions);
        let policy = guide.clone();
        let mut trials = self.trials(seed, decisions, &guide, |it| {
            it.policy(policy).tracer(recorder)
        })?;
        trials.run();
        // Before the kernel is dropped: the end of the last tasks is no part of the run.
        handle.close()?;
        Ok(())
    }

    /// Returns a kernel for a schedule, which is run to its end.
    fn trials(
        &self,
        seed: u64,
        decisions: &Decisions,
        guide: &Guide,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Result<Trials<'_>, Error> {
        let mut trials = Trials::new(self.0, self.0.settings.watch_without_end());
        trials.watch.decide(decisions);
        trials.space.decide_by(guide.clone());
        trials.prepare(seed, |builder, _| set(builder))?;
        if let Decisions::Plan(plan) = decisions {
            trials.keep_chaos(plan);
        }
        Ok(trials)
    }

    /// Returns the traps of the schedule that is first in, first out, and why it fails if it does.
    pub(super) fn awaits(&self, seed: u64) -> Result<(Vec<Await>, Option<String>), Error> {
        let fifo = Decisions::Plan(Plan::default());
        let turns = self.run(seed, &fifo, false)?.turns;
        let (run, story) = self.tell(seed, &fifo, turns <= WHOLE)?;
        Ok((story.awaits(), run.trial.failure))
    }

    /// Returns whether the cut of a schedule was made, and why the schedule fails if it does.
    pub(super) fn result(
        &self,
        seed: u64,
        decisions: &Decisions,
    ) -> Result<(bool, Option<String>), Error> {
        let run = self.run(seed, decisions, false)?;
        Ok((run.is_cut, run.trial.failure))
    }

    fn run(&self, seed: u64, decisions: &Decisions, locates: bool) -> Result<Recorded, Error> {
        Ok(self.tell(seed, decisions, locates)?.0)
    }

    /// Runs a schedule, and records its decisions, its traps and its turns.
    ///
    /// `locates` finds the source line of every call, which takes a backtrace for each turn.
    fn tell(
        &self,
        seed: u64,
        decisions: &Decisions,
        locates: bool,
    ) -> Result<(Recorded, Story), Error> {
        let guide = Guide::of(seed, decisions);
        let hash = Rc::new(Cell::new(FNV));
        let traps = Rc::clone(&hash);
        let story = Story::of(&guide);
        let (cut, made) = (self.0.settings.cut, Rc::new(Cell::new(false)));
        let is_made = Rc::clone(&made);
        let tracer = move |event: &Event<'_>| {
            let is_it = cut.is_some_and(|cut| cut.is(event));
            made.set(made.get() || is_it);
            if let Some(Call(call, _)) = event.fact.call() {
                let hash = hashed(traps.get(), event.tid.into());
                traps.set(hashed(hash, call.number().into()));
            }
        };
        let mut trials = self.trials(seed, decisions, &guide, |builder| {
            let builder = builder.policy(guide.clone());
            builder.tracer(story.tracer()).tracer(tracer)
        })?;
        let kernel = trials.kernel();
        story.locate(match locates {
            true => kernel.located_footprints(),
            false => kernel.footprints(),
        });
        let trial = trials.run();
        let chaos = trials.kernel().net().chaos_drawn();
        let (plan, turns, hash) = (guide.made(), guide.turns(), hash.get());
        let decisions = match decisions {
            Decisions::Strategy(_) if is_long(&plan) => decisions.clone(),
            _ => Decisions::Plan(plan.clone()),
        };
        let recorded = Recorded {
            trial,
            replay: Replay {
                seed,
                decisions,
                cut,
                hash: (hash >> 32) as u32 ^ hash as u32,
            },
            plan,
            chaos,
            turns,
            is_cut: is_made.get(),
            story: story.text(self.0.settings.replay.is_some() && turns <= WHOLE),
            faults: story.faults(),
        };
        Ok((recorded, story))
    }
}

/// Whether a plan has too many departures for a line of text.
fn is_long(plan: &Plan) -> bool {
    plan.0.len() > LONGEST
}

/// Breaks a line of a turn before the place in the source, if it is wider than a terminal.
fn narrow(line: String) -> String {
    match line.rsplit_once(" at ") {
        Some((call, place)) if line.chars().count() > 80 => format!("{call}\n    at {place}"),
        _ => line,
    }
}

/// Explains why a folder cannot be made: names what is in its place, or the folder above it.
fn no_folder(folder: &Path, error: &io::Error) -> io::Error {
    let found = folder.ancestors().find(|above| above.exists());
    let found = found.unwrap_or(Path::new("."));
    let why = match found.is_dir() {
        true => format!("no folder can be made in {}: {error}", found.display()),
        false => format!("{} is no folder", found.display()),
    };
    io::Error::new(error.kind(), why)
}

/// The begin of a hash that is the same in every build. (FNV-1a, by words.)
const FNV: u64 = 0xcbf2_9ce4_8422_2325;

fn hashed(hash: u64, word: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    word.to_le_bytes().into_iter().fold(hash, step)
}
