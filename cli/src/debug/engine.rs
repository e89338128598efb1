//! The engine: a run that goes forward by steps, and back by running again from its start.
//!
//! A run is a function of its seed, or of its tape. So the state after a number of steps is the
//! same each time, and a motion back is a run of fewer steps.

use std::{
    cell::{Ref, RefCell},
    mem,
    path::PathBuf,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Builder, Error, Kernel, SimWorld, Step, SystemCall, Tid,
    tape::{self, Playing, Progress},
};

use super::{condition::Condition, witness::Witness};
use crate::{
    attached::Attached,
    boot,
    inject::Rules,
    live::{
        feed,
        model::Snapshot,
        protocol::{Answers, Request},
        text,
    },
    options::BootLine,
    output::Log,
    outside::Outside,
    program::hosts,
    signals,
    stdio::Memory,
    tape::culprit,
    values::{given, text_of},
};

/// How many steps are made between two looks for an interrupt.
const LOOK: u64 = 1024;

/// What is debugged.
pub(super) struct Origin {
    pub(super) line: BootLine,
    pub(super) seed: u64,
    /// The tape; none for a simulated run.
    pub(super) tape: Option<PathBuf>,
    /// For warnings of a replay that waits.
    pub(super) log: Log,
    /// Why the tape has no end, or cannot be read there, once a run has come to that.
    pub(super) broken: Rc<RefCell<Option<String>>>,
}

/// A run, and the motions through it.
pub(super) struct Engine {
    origin: Origin,
    pub(super) run: Run,
    /// The breakpoints, by number.
    pub(super) breaks: Vec<(usize, Condition)>,
    next_break: usize,
    /// The first report of a motion, after so many steps, and where it goes.
    reports: Option<(u64, Report)>,
}

/// A run at one of its steps.
pub(super) struct Run {
    pub(super) kernel: Kernel,
    progress: Option<Progress>,
    /// That of the origin.
    broken: Rc<RefCell<Option<String>>>,
    witness: Rc<RefCell<Witness>>,
    /// How many steps have resumed a task: the place in the run.
    pub(super) calls: u64,
    /// How many steps have waited for the world since then.
    waits: u64,
    /// The task that was resumed last.
    last: Option<Tid>,
    /// The task that the last motion was about: that of the condition that is met, or the one that
    /// made the last call.
    pub(super) subject: Option<Tid>,
    quantum: u32,
    /// How many resumes the turn under way has had.
    in_turn: u32,
    /// What the programs have printed, or have sent to an attached standard output, since it was
    /// taken.
    printed: Memory,
    console: String,
    /// How it ended, if it has.
    pub(super) over: Option<String>,
}

/// Receives the place in a run, and its time, while a motion takes long.
type Report = Box<dyn Fn(u64, Duration)>;

/// Why a motion has ended.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// It is where it should go.
    There,
    /// A condition is met: a breakpoint's, or the motion's own. In words.
    Met(String),
    /// The run is over. The motion back has found nothing.
    Over,
    /// The user has interrupted it.
    Interrupted,
}

/// The number of the condition of a motion. Breakpoints have others.
const OWN: usize = 0;

impl Run {
    /// Boots a run, watches for these conditions, and stops before the first step. An error says why
    /// it cannot.
    fn boot(origin: &Origin, watched: Vec<(usize, Condition)>) -> Result<Self, String> {
        let BootLine {
            options, programs, ..
        } = &origin.line;
        let printed = Memory::default();
        let (world, progress) = match &origin.tape {
            Some(path) => {
                let playing = Playing::open(path);
                let playing = playing.map_err(|error| format!("{}: {error}", path.display()))?;
                let progress = playing.progress();
                let playing = playing.print_to(printed.clone());
                let silent = Log::SILENT;
                let world = Attached::replayed(playing, silent, printed.clone(), origin.log)?;
                (Outside::of(world), Some(progress))
            }
            None => {
                let net = options.net.network(&hosts(programs), options.max_time);
                let net = net.map_err(|error| error.to_string())?;
                let world = SimWorld::new(origin.seed).net(&net);
                (Outside::of(world.print_to(printed.clone())), None)
            }
        };
        let witness = Rc::new(RefCell::new(Witness::watching(watched)));
        let rules = Rules::new(&options.inject);
        let mut builder = boot::settings(&origin.line, origin.seed, &rules, world);
        // What a replay reads is on its tape.
        let input = options.stdin.as_deref().filter(|_| origin.tape.is_none());
        builder = given(builder, text_of(input)?, Builder::input);
        // With an injection no call takes the kernel's fast lane, which notes no place.
        builder = builder.inject(rules.injection());
        let kernel = builder.tracer(Witness::tracer(&witness)).build();
        let mut kernel = kernel.map_err(|error| format!("cannot boot: {error}"))?;
        let desk = boot::desk(&origin.line, &rules);
        boot::load(&mut kernel, &origin.line, desk, Log::SILENT)?;
        Ok(Self {
            kernel,
            progress,
            broken: Rc::clone(&origin.broken),
            witness,
            calls: 0,
            waits: 0,
            last: None,
            subject: None,
            quantum: options.quantum.get(),
            in_turn: 0,
            printed,
            console: String::new(),
            over: None,
        })
    }

    /// The number of the last step: of the call, and of the wait behind it. The waits of a run with
    /// threads of its own differ from time to time, and each call has the same number.
    fn step_number(&self) -> (u64, u64) {
        (self.calls, self.waits)
    }

    /// The condition that is met, if one is.
    fn found(&mut self) -> Option<Stop> {
        let found = self.witness.borrow_mut().found.take()?;
        let name = match found.number {
            OWN => String::new(),
            number => format!("breakpoint {number}: "),
        };
        let task = Some(found.task).filter(|task| *task != Tid::KERNEL);
        self.subject = task.or(self.last);
        Some(Stop::Met(format!("{name}{}", found.line)))
    }

    /// Makes a step. Returns `false` if the run is over.
    fn step(&mut self) -> bool {
        if self.over.is_some() {
            return false;
        }
        match self.kernel.step() {
            Ok(Step::Ran(tid)) => self.ran(tid),
            Ok(Step::Idle) => self.waits += 1,
            Ok(Step::Finished) => self.over = Some(self.finished()),
            Err(error) => self.over = Some(self.failed(&error)),
        }
        self.over.is_none()
    }

    fn ran(&mut self, tid: Tid) {
        self.calls += 1;
        self.waits = 0;
        self.in_turn = match self.last == Some(tid) {
            true => self.in_turn + 1,
            false => 1,
        };
        self.last = Some(tid);
        self.subject = self.last;
        let witness = self.witness.borrow();
        let has_ended = witness.ended.contains_key(&tid);
        let recent = witness.recent.borrow();
        let gives_up = recent
            .last(tid)
            .is_none_or(|call| call.reply().is_none() || call.call == SystemCall::Yield);
        if has_ended || gives_up || self.in_turn >= self.quantum {
            self.in_turn = 0;
        }
    }

    fn finished(&mut self) -> String {
        if let Some(Err(error)) = self.progress.as_ref().map(Progress::finish) {
            self.note(&error);
            return error.to_string();
        }
        match self.kernel.report().failures {
            0 => "all tasks have ended".into(),
            1 => "all tasks have ended, 1 of them with a failure".into(),
            failures => format!("all tasks have ended, {failures} of them with a failure"),
        }
    }

    /// Notes that the tape is cut or damaged.
    fn note(&self, error: &tape::Error) {
        if matches!(error, tape::Error::Full { .. } | tape::Error::Left(_)) {
            return;
        }
        self.broken.replace(Some(error.to_string()));
    }

    fn failed(&mut self, error: &Error) -> String {
        tape::Error::of(error)
            .into_iter()
            .for_each(|error| self.note(error));
        match (error, tape::Error::of(error)) {
            (_, Some(tape::Error::Left(left))) => match culprit(&self.kernel, left) {
                Some(culprit) => format!("{left}\n{culprit}"),
                None => left.to_string(),
            },
            (_, Some(error)) => error.to_string(),
            (Error::Limit(limit, blocked), None) => boot::at_limit(limit, blocked),
            (Error::Deadlock(deadlock), None) if deadlock.is_at_rest() => {
                boot::at_rest(deadlock, self.kernel.now())
            }
            (error, None) => error.to_string(),
        }
    }
}

impl Engine {
    /// Boots a run, and stops before its first step. An error says why it cannot.
    pub(super) fn new(origin: Origin) -> Result<Self, String> {
        Ok(Self {
            run: Run::boot(&origin, Vec::new())?,
            origin,
            breaks: Vec::new(),
            next_break: OWN + 1,
            reports: None,
        })
    }

    /// Has each motion report after so many steps, a power of two, and then whenever their number has
    /// doubled.
    pub(super) fn report_from(&mut self, steps: u64, report: impl Fn(u64, Duration) + 'static) {
        self.reports = Some((steps, Box::new(report)));
    }

    /// Why the tape has no end, or cannot be read there, if a motion has come to that.
    pub(super) fn broken(&self) -> Option<String> {
        self.origin.broken.borrow().clone()
    }

    // ---- where the run is

    /// Answers a request about the tasks.
    pub(super) fn answer(&mut self, request: &Request) -> Result<Answers, String> {
        let snapshot = Snapshot {
            now: self.run.kernel.now(),
            tasks: self.run.kernel.tasks().collect(),
            recent: Rc::clone(&self.witness().recent),
            kernel: None,
        };
        snapshot.answer(request)
    }

    pub(super) fn witness(&self) -> Ref<'_, Witness> {
        self.run.witness.borrow()
    }

    /// What the programs have printed so far.
    pub(super) fn console(&mut self) -> &str {
        let printed = self.run.printed.take();
        self.run.console += &String::from_utf8_lossy(&printed);
        &self.run.console
    }

    /// The place in the run in lines: its number, the last call in the manner of `--trace`, and how the
    /// run has ended.
    pub(super) fn here(&self) -> String {
        let number = format!("#{}", self.run.calls);
        let over = self.run.over.as_ref();
        let over = over.map_or_else(String::new, |over| format!("the run is over: {over}\n"));
        let Some(tid) = self.run.last else {
            return format!("{number} before the first call\n{over}");
        };
        let witness = self.witness();
        if let Some(end) = witness.ended.get(&tid) {
            return format!("{number} {end}\n{over}");
        }
        let recent = witness.recent.borrow();
        let line = match feed::calls(None, &recent, tid).pop() {
            Some(line) => text::event(Log::PLAIN, &line),
            None => format!("{tid} {}", recent.comm(tid)),
        };
        let place = self.run.kernel.place_of_call(tid);
        let place = place.map_or_else(String::new, |place| format!("  at {place}"));
        format!("{number} {line}{place}\n{over}")
    }

    // ---- breakpoints

    /// Sets a breakpoint, and returns its number.
    pub(super) fn set_break(&mut self, condition: Condition) -> usize {
        let number = self.next_break;
        self.next_break += 1;
        self.breaks.push((number, condition));
        number
    }

    // ---- forward

    /// Goes on by so many calls, or to a breakpoint.
    pub(super) fn forward(&mut self, calls: u64) -> Stop {
        let target = self.run.calls.saturating_add(calls);
        self.run(self.breaks.clone(), |run| run.calls >= target)
    }

    /// Goes on to the end of so many turns, or to a breakpoint.
    pub(super) fn forward_turns(&mut self, turns: u64) -> Stop {
        let here = |run: &Run| (run.calls, run.last, run.in_turn);
        let (mut left, mut before) = (turns, here(&self.run));
        self.run(self.breaks.clone(), |run| {
            let (calls, last, in_turn) = mem::replace(&mut before, here(run));
            // A policy may end a turn early: the next call shows it.
            let is_cut = in_turn > 0 && run.last != last;
            if run.calls > calls && (run.in_turn == 0 || is_cut) {
                left = left.saturating_sub(1);
            }
            left == 0
        })
    }

    /// Goes on to a breakpoint, to this condition or to the end.
    pub(super) fn forward_to(&mut self, condition: Option<&Condition>) -> Stop {
        let own = condition.map(|condition| (OWN, condition.clone()));
        let watched = own.into_iter().chain(self.breaks.clone());
        self.run(watched.collect(), |_| false)
    }

    // ---- back

    /// Goes to the place after so many calls, in either direction. Stops at no breakpoint.
    pub(super) fn go_to(&mut self, calls: u64) -> Result<Stop, String> {
        if calls < self.run.calls || self.run.over.is_some() {
            self.run = Run::boot(&self.origin, Vec::new())?;
        }
        Ok(self.run(Vec::new(), |run| run.calls >= calls))
    }

    /// Goes back to the last step before this one at which the condition was met. Stays, and returns
    /// [`Stop::Over`], if there is none.
    pub(super) fn back_to(&mut self, condition: &Condition) -> Result<Stop, String> {
        let mut here = self.run.step_number();
        // The end of a run is behind its last step.
        here.1 += u64::from(self.run.over.is_some());
        let watched = vec![(OWN, condition.clone())];
        self.run = Run::boot(&self.origin, watched.clone())?;
        let mut met = None;
        // The first may be met while the run boots.
        let mut stop = self.run.found().unwrap_or(Stop::There);
        while self.run.step_number() < here {
            match stop {
                Stop::Met(_) => met = Some((self.run.step_number(), stop, self.run.subject)),
                Stop::Interrupted | Stop::Over => break,
                Stop::There => {}
            }
            stop = self.run(watched.clone(), |run| run.step_number() >= here);
        }
        if stop == Stop::Interrupted {
            return Ok(stop);
        }
        self.run = Run::boot(&self.origin, Vec::new())?;
        let there = met.as_ref().map_or(here, |(there, ..)| *there);
        if self.run(Vec::new(), |run| run.step_number() >= there) == Stop::Interrupted {
            return Ok(Stop::Interrupted);
        }
        let Some((_, stop, subject)) = met else {
            return Ok(Stop::Over);
        };
        self.run.subject = subject;
        Ok(stop)
    }

    /// Makes steps until it is `there`, one of the watched conditions is met or the run is over. An
    /// interrupt since the command was given stops it.
    fn run(
        &mut self,
        watched: Vec<(usize, Condition)>,
        mut there: impl FnMut(&Run) -> bool,
    ) -> Stop {
        self.run.witness.borrow_mut().watched = watched;
        let mut made = 0_u64;
        while !there(&self.run) {
            if !self.run.step() {
                return Stop::Over;
            }
            if let Some(met) = self.run.found() {
                return met;
            }
            made += 1;
            if made.is_multiple_of(LOOK) && signals::take() {
                return Stop::Interrupted;
            }
            if made.is_power_of_two()
                && let Some((from, report)) = &self.reports
                && made >= *from
            {
                report(self.run.calls, self.run.kernel.now());
            }
        }
        Stop::There
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{error::Error, ffi::OsString};

    use super::{super::command, *};
    use crate::{App, Program, args, commands::Commands, program};
    use trapline::Os;

    /// Yields for ever
    #[derive(clap::Args)]
    struct Spins {}

    impl Program for Spins {
        async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
            loop {
                os.yield_now().await;
            }
        }
    }

    /// A debugger at the start of a program.
    pub(in crate::debug) fn engine<P: Program>() -> Engine {
        let app = App::new([program::<P>("program")]);
        let commands = Commands {
            command: &args::command("test", &app),
            programs: &app.programs,
            policies: &app.policies,
        };
        let words = ["test", "boot", "--virtual", "program"].map(OsString::from);
        let line = BootLine::parse(commands, &words).expect("it is right");
        let origin = Origin {
            line: line.expect("it is boot"),
            seed: 1,
            tape: None,
            log: Log::SILENT,
            broken: Rc::default(),
        };
        Engine::new(origin).expect("it boots")
    }

    #[test]
    fn a_long_motion_reports_where_it_is() {
        let mut engine = engine::<Spins>();
        let reports = Rc::<RefCell<Vec<u64>>>::default();
        let told = Rc::clone(&reports);
        engine.report_from(64, move |calls, _| told.borrow_mut().push(calls));
        engine.forward(63);
        engine.forward(300);
        assert_eq!(*reports.borrow(), [63 + 64, 63 + 128, 63 + 256]);
    }

    #[test]
    fn an_interrupt_stops_the_motion_during_which_it_comes_and_no_more() {
        let mut engine = engine::<Spins>();
        assert_eq!(engine.forward(2 * LOOK), Stop::There);
        signals::raise();
        assert_eq!(engine.forward(1 << 40), Stop::Interrupted);
        assert_eq!(engine.run.calls, 3 * LOOK);
        // A motion that is over before it looks.
        signals::raise();
        assert!(command::perform(&mut engine, "step").is_ok());
        assert!(!signals::take());
        // A motion back has several runs.
        signals::raise();
        let stop = engine.go_to(LOOK + 1);
        assert_eq!(stop, Ok(Stop::Interrupted));
    }
}
