//! The program `shell`: a prompt that is a task. Its lines start the programs of the binary.

mod acts;
mod builtin;
mod job;
mod line;
mod terminal;
mod words;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    error::Error,
    fs, mem,
    rc::Rc,
};

use clap::{Args, FromArgMatches};
use trapline::{Exit, Ledger, Observer, Os, Queue, Signal, Signals, SimNet, Source, Tid};

use super::{
    commands::message,
    desk::Desk,
    live::feed,
    options::Boot,
    output::FAILURE,
    program::{Entry, Programs, made},
    record::Recorded,
    signals::exit_code_of,
};
use builtin::BuiltIn;
use job::{Job, Work};
use line::{Step, steps};
use terminal::Terminal;
use words::Words;

/// The name of the program, and of the command that boots it.
pub(super) const NAME: &str = "shell";

/// Boot a prompt, which is a task, and starts programs in its own kernel
#[derive(Args)]
pub(super) struct ShellLine {
    #[command(flatten)]
    pub(super) boot: Box<Boot>,
    #[command(flatten)]
    shell: Shell,
}

pub(super) fn help(name: &str) -> String {
    format!(
        "`help` at the prompt names the commands of the shell. It is the program `shell` of boot, with \
         the same options and exit codes, and that of `exit CODE`.\n\n\
         Examples:\n  \
         {name} shell\n  \
         {name} shell --virtual --seed 1 -c \"sleep 2h & ps; time wait\"\n  \
         {name} shell --disk . -c \"cat Cargo.toml | wc\"\n  \
         {name} shell --tape run.tape     then: {name} replay run.tape"
    )
}

/// A prompt: a task that starts programs and waits for them
///
/// Its lines come from standard input, on a terminal with a prompt before each. `help` names its own
/// commands. An interrupt ends the program in front. The shell ends as its last command, or with the code of
/// `exit`.
#[derive(Args)]
struct Shell {
    /// Run this line instead
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "script")]
    line: Option<String>,
    /// Run the lines of this file instead, of the real disk
    #[arg(long, value_name = "FILE", value_parser = script)]
    script: Option<String>,
}

fn script(name: &str) -> Result<String, String> {
    fs::read_to_string(name).map_err(|error| format!("cannot read it: {error}"))
}

/// The program `shell`, for the list of a binary's programs: a prompt that is a task, from which the other
/// programs of the list are started, beside each other or one after the other.
#[must_use]
pub fn shell() -> Entry {
    Entry {
        name: NAME,
        augment: Shell::augment_args,
        check: |matches| Shell::from_arg_matches(matches).map(drop),
        run: |matches, programs, desk| {
            let (shell, programs, desk) = (made::<Shell>(matches), programs.clone(), desk.cloned());
            Box::new(move |os| Box::pin(shell.main(os, programs, desk)))
        },
    }
}

/// Where further lines come from.
enum Lines {
    /// All lines of a script are there from the begin.
    Script,
    Input,
    /// A task that is asked for a text with the words that complete it.
    Terminal(Queue<Words>, Queue<Option<String>>, Tid),
}

/// What a shell and those on other hosts share: one of them has the prompt.
struct Shared {
    programs: Programs,
    desk: Option<Desk>,
    signals: Signals,
    lines: Lines,
    /// Whether the terminal was asked for a text that has not come.
    is_asked: Cell<bool>,
    /// What is left of a script, or of a text with several lines.
    left: RefCell<VecDeque<String>>,
    /// What is left of the line.
    steps: RefCell<VecDeque<Step>>,
    /// Whether no further line can be read, here or on any host.
    is_broken: Cell<bool>,
    /// The tasks of the shells: each but the first is on a host, and the one before waits for it.
    shells: RefCell<Vec<Tid>>,
    recent: Rc<RefCell<Ledger>>,
    trace: RefCell<Option<Observer>>,
    /// The events since the shell was told to record them.
    recording: RefCell<Option<(Observer, Recorded)>>,
}

impl Shared {
    /// Says why a command has failed, unless the run does: on standard error, where there is a run and
    /// no terminal that has both streams. A debugger shows nothing, and makes the same calls.
    async fn tell(&self, os: &mut Os, failure: &mut Failure) {
        if mem::replace(&mut failure.is_told, true) {
            return;
        }
        match self.desk.as_ref().filter(|_| self.terminal().is_none()) {
            Some(desk) => {
                // What was printed before comes first.
                os.yield_now().await;
                if let Some(log) = desk.shown {
                    log.error(&failure.text);
                }
                *failure = Failure::exit(failure.code);
            }
            None => writeln!(os, "{}", failure.text),
        }
    }

    /// The task that reads the terminal.
    fn terminal(&self) -> Option<Tid> {
        match self.lines {
            Lines::Terminal(_, _, tid) => Some(tid),
            Lines::Script | Lines::Input => None,
        }
    }

    /// Waits for the tasks of a job. Returns `false` at an interrupt, which drops what was to follow the
    /// command under way: the rest of the line, of a script, and of a text that was pasted at a terminal.
    async fn wait_for(&self, os: &mut Os, job: &mut Job) -> bool {
        while let Some(tid) = job.next() {
            let sources = [Source::exit(tid), Source::signal(&self.signals)];
            if os.select(&sources).await == 1 {
                self.signals.next(os).await;
                self.left.borrow_mut().clear();
                self.steps.borrow_mut().clear();
                return false;
            }
            job.wait(os, tid).await;
        }
        true
    }

    /// Ends a recording. An error says why it is not complete.
    fn close_recording(&self) -> Result<(), String> {
        let recording = self.recording.take();
        recording.map_or(Ok(()), |(_, recorded)| recorded.close())
    }
}

struct Session {
    shared: Rc<Shared>,
    prompt: String,
    jobs: BTreeMap<usize, Job>,
    /// How the last command has ended.
    last: End,
    /// Whether it was said that jobs run, and nothing was done since.
    was_asked: bool,
    is_over: bool,
}

/// How a command has ended.
type End = Result<(), Failure>;

#[derive(Clone)]
struct Failure {
    text: String,
    /// Whether the user knows of it.
    is_told: bool,
    code: u8,
}

impl Failure {
    /// The end of this line, whose last task has ended so.
    fn check(line: &str, exit: Exit) -> End {
        match exit {
            Exit::Done => Ok(()),
            // The run warns of others than those that were killed.
            exit => Err(Self {
                is_told: exit != Exit::Killed,
                ..format!("{line}: {exit}").into()
            }),
        }
    }

    fn interrupt(text: String) -> Self {
        Self {
            code: exit_code_of(Signal::Interrupt),
            ..text.into()
        }
    }

    /// An end with this exit code, which says nothing more.
    fn exit(code: u8) -> Self {
        Self {
            text: format!("exit code {code}"),
            is_told: true,
            code,
        }
    }
}

impl<T: Into<String>> From<T> for Failure {
    fn from(text: T) -> Self {
        Self {
            text: text.into().trim_end().into(),
            is_told: false,
            code: FAILURE,
        }
    }
}

impl Shell {
    async fn main(
        self,
        os: &mut Os,
        programs: Programs,
        desk: Option<Desk>,
    ) -> Result<(), Box<dyn Error>> {
        let text = self.line.or(self.script);
        let lines = match text {
            Some(_) => Lines::Script,
            None => Lines::typed(os, desk.as_ref()).await?,
        };
        let left = text.iter().flat_map(|text| text.lines().map(Into::into));
        let recent = feed::ledger();
        let _follows = feed::join(os, feed::follow(&recent)).await;
        let shared = Rc::new(Shared {
            programs,
            desk,
            signals: os.catch(&[Signal::Interrupt]).await,
            lines,
            is_asked: Cell::default(),
            left: RefCell::new(left.collect()),
            steps: RefCell::default(),
            is_broken: Cell::default(),
            shells: RefCell::default(),
            recent,
            trace: RefCell::default(),
            recording: RefCell::default(),
        });
        let mut session = Session::new(Rc::clone(&shared), "trapline> ".into());
        let end = session.run(os).await;
        shared.close_recording()?;
        let code = shared.desk.as_ref().and_then(|desk| desk.code.as_ref());
        match (end, code) {
            // The run says nothing of it, as a system that runs a shell.
            (Err(failure), Some(code)) => {
                code.set(code.get().max(failure.code));
                Ok(())
            }
            (end, _) => end.map_err(|failure| failure.text.into()),
        }
    }
}

impl Lines {
    /// Lines that are typed at the terminal, or come from the input.
    async fn typed(os: &mut Os, desk: Option<&Desk>) -> Result<Self, Box<dyn Error>> {
        let Some(desk) = desk else {
            return Ok(Self::Input);
        };
        // A tape says so of a replay.
        let is_typed_at = desk.is_typed_at;
        if !os.run_recorded(move || is_typed_at).await? {
            if let (true, Some(log)) = (desk.has_no_input, desk.shown) {
                log.warn(
                    "the shell has no line to run: a virtual run does not read the standard input of the \
                     process; give it --stdin FILE, or -c LINE",
                );
            }
            return Ok(Self::Input);
        }
        let asks = Queue::<Words>::bounded(os, 1).await;
        let typed = Queue::<Option<String>>::bounded(os, 1).await;
        let (asked, answer) = (asks.clone(), typed.clone());
        let types = async move |os: &mut Os| {
            while let Ok(words) = asked.get(os).await {
                let edit = move || Terminal::of_process().edit(words);
                let text = os.run_recorded(edit).await.unwrap_or_default();
                if answer.put(os, text).await.is_err() {
                    break;
                }
            }
        };
        let tid = os.spawn_daemon("terminal", types).await?;
        Ok(Self::Terminal(asks, typed, tid))
    }
}

impl Session {
    fn new(shared: Rc<Shared>, prompt: String) -> Self {
        Self {
            shared,
            prompt,
            jobs: BTreeMap::new(),
            last: Ok(()),
            was_asked: false,
            is_over: false,
        }
    }

    /// Runs all lines, and ends as the last command.
    async fn run(&mut self, os: &mut Os) -> End {
        let own = os.running();
        self.shared.shells.borrow_mut().push(own);
        while !self.is_over
            && !self.shared.is_broken.get()
            && let Some(step) = self.next(os).await
        {
            self.last = match step {
                Ok(step) if step.after.is_some_and(|well| well != self.last.is_ok()) => continue,
                Ok(step) => self.step(os, step).await,
                Err(error) => Err(error.into()),
            };
            if let Err(failure) = &mut self.last {
                self.shared.tell(os, failure).await;
            }
        }
        // Those of a script go on, as in other shells.
        if !matches!(self.shared.lines, Lines::Script) {
            for job in self.jobs.values() {
                job.kill(os).await;
            }
        }
        self.last.clone()
    }

    /// Whether the shell may end. At a terminal it says the first time that jobs run: one may go on there.
    async fn leaves(&mut self, os: &mut Os) -> bool {
        self.tell(os).await;
        if self.was_asked || self.shared.terminal().is_none() || self.jobs.is_empty() {
            return true;
        }
        writeln!(os, "Jobs run: end the input or exit again to end them");
        self.was_asked = true;
        false
    }

    /// Returns the next step, of a new line if none is left. An error says what is wrong with that line.
    async fn next(&mut self, os: &mut Os) -> Option<Result<Step, String>> {
        let shared = Rc::clone(&self.shared);
        loop {
            if let Some(step) = shared.steps.borrow_mut().pop_front() {
                return Some(Ok(step));
            }
            self.tell(os).await;
            if shared.left.borrow().is_empty() {
                let text = match &shared.lines {
                    Lines::Script => Ok(None),
                    Lines::Input => os.read_line().await,
                    Lines::Terminal(asks, typed, _) => Ok(self.typed(os, asks, typed).await),
                };
                match text {
                    // One that was pasted may have several.
                    Ok(Some(text)) => {
                        let lines = text.lines().map(Into::into);
                        shared.left.borrow_mut().extend(lines);
                    }
                    Ok(None) if self.leaves(os).await => return None,
                    Ok(None) => {}
                    Err(error) => {
                        shared.is_broken.set(true);
                        return Some(Err(format!("cannot read the next line: {error}")));
                    }
                }
            }
            let line = shared.left.borrow_mut().pop_front();
            match steps(&line.unwrap_or_default()) {
                Ok(steps) => shared.steps.borrow_mut().extend(steps),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Returns the next text of the terminal. While one is typed it says which jobs end.
    async fn typed(
        &mut self,
        os: &mut Os,
        asks: &Queue<Words>,
        typed: &Queue<Option<String>>,
    ) -> Option<String> {
        if !self.shared.is_asked.replace(true) {
            let words = self.words(os).await;
            // It is closed if the task of the terminal was killed.
            asks.put(os, words).await.ok()?;
        }
        loop {
            let ends = self.jobs.values().filter_map(Job::next).map(Source::exit);
            let signals = &self.shared.signals;
            let own = [Source::message(typed), Source::signal(signals)];
            let sources: Vec<Source> = own.into_iter().chain(ends).collect();
            match os.select(&sources).await {
                0 => break,
                // It has found no job in front.
                1 => drop(self.shared.signals.next(os).await),
                _ => self.tell(os).await,
            }
        }
        self.shared.is_asked.set(false);
        typed.get(os).await.ok().flatten()
    }

    /// What completes the next line.
    async fn words(&mut self, os: &mut Os) -> Words {
        let Shared { programs, desk, .. } = &*self.shared;
        let disk = desk.as_ref().and_then(|desk| desk.disk.clone());
        let net = desk.as_ref().and_then(|desk| desk.net.as_ref());
        let files = match (&disk, net) {
            (None, Some(_)) => os.disk().list(os, ".").await.unwrap_or_default(),
            _ => Vec::new(),
        };
        let tasks = os.tasks().await;
        let tids = tasks.iter().map(|task| task.tid.to_string()).collect();
        let jobs = self.jobs.keys().map(ToString::to_string).collect();
        let hosts = net.map_or(Vec::new(), SimNet::hosts);
        Words {
            prompt: self.prompt.clone(),
            programs: programs.clone(),
            values: [("tid", tids), ("job", jobs), ("host", hosts)].into(),
            files,
            disk,
        }
    }

    /// Says which jobs have ended.
    async fn tell(&mut self, os: &mut Os) {
        let told = self.ended(os).await;
        write!(os, "{told}");
    }

    async fn ended(&mut self, os: &mut Os) -> String {
        let mut told = String::new();
        for n in self.jobs.keys().copied().collect::<Vec<_>>() {
            let job = self.jobs.get_mut(&n).expect("it is a job");
            if job.is_over(os).await {
                told += &format!("[{n}] {}: {}\n", job.end(), job.line);
                self.jobs.remove(&n);
            }
        }
        told
    }

    async fn step(&mut self, os: &mut Os, mut step: Step) -> End {
        if let Some(Ok(BuiltIn::Time { command })) = BuiltIn::read(&step.stages[0]) {
            if step.is_behind {
                return Err(
                    "time: it waits for its command, so that cannot be behind the prompt".into(),
                );
            }
            step.stages[0] = command;
            let since = os.now().await;
            let end = Box::pin(self.step(os, step)).await;
            let span = os.now().await - since;
            writeln!(os, "{span:.3?}");
            return end;
        }
        let command = BuiltIn::read(&step.stages[0]).filter(|_| step.is_alone());
        self.was_asked &= matches!(command, Some(Ok(BuiltIn::Exit { .. })));
        let name = &step.stages[0][0];
        match command {
            // A task says it.
            Some(Ok(BuiltIn::Say(_))) if step.is_behind => {}
            Some(Ok(command)) if step.is_behind && !command.is_task() => {
                let why =
                    format!("{name} is a command of the shell, and cannot be behind the prompt");
                return Err(why.into());
            }
            Some(Ok(command)) => {
                let acted = self.act(os, command).await;
                if let Some(end) = acted.map_err(|why| format!("{name}: {why}"))? {
                    return end;
                }
            }
            Some(Err(_)) | None => {}
        }
        let desk = self.shared.desk.as_ref().map(|desk| Desk {
            // A shell types at the terminal if it has nothing else to read and to print to.
            is_typed_at: desk.is_typed_at && step.is_alone() && !step.is_behind,
            // A pipe and a file are inputs of their own.
            has_no_input: false,
            // The step fails with it, and the run does not.
            code: None,
            ..desk.clone()
        });
        let mut works = Vec::new();
        for words in &step.stages {
            works.push(self.work(os, words, desk.as_ref()).await?);
        }
        let mut job = Job::default();
        if let Err(error) = job.start(os, works, &step).await {
            job.kill(os).await;
            // Those that were started have ended then.
            let _ = self.front(os, job).await;
            return Err(error.to_string().into());
        }
        if !step.is_behind {
            return self.front(os, job).await;
        }
        let n = self.jobs.keys().last().unwrap_or(&0) + 1;
        writeln!(os, "[{n}] {}", job.tasks());
        self.jobs.insert(n, job);
        Ok(())
    }

    /// Returns what a program of a step does. An error is a line for the user.
    async fn work(
        &mut self,
        os: &mut Os,
        words: &[String],
        desk: Option<&Desk>,
    ) -> Result<Work, String> {
        let name = &words[0];
        match BuiltIn::read(words) {
            None => self.program(words, desk),
            Some(Err(error)) => answer(name, error),
            Some(Ok(BuiltIn::Sleep { time })) => {
                Ok(task(name, async move |os: &mut Os| os.sleep(time).await))
            }
            Some(Ok(BuiltIn::Run { program })) => self.program(&program, desk),
            Some(Ok(BuiltIn::Say(say))) => match self.say(os, &say).await {
                Ok(text) => Ok(task(name, async move |os: &mut Os| write!(os, "{text}"))),
                Err(why) => Err(format!("{name}: {why}")),
            },
            Some(Ok(_)) => Err(format!("{name} is a command of the shell: write it alone")),
        }
    }

    fn program(&self, words: &[String], desk: Option<&Desk>) -> Result<Work, String> {
        let (name, programs) = (&words[0], &self.shared.programs);
        let entry = programs.iter().find(|entry| entry.name == name);
        let entry = entry
            .ok_or_else(|| format!("{name}: there is no such program or command: see help"))?;
        let matches = entry.command().try_get_matches_from(words);
        let checked = |matches| (entry.check)(&matches).map(|()| matches);
        match matches.and_then(checked) {
            Ok(matches) => Ok((name.clone(), (entry.run)(&matches, programs, desk))),
            Err(error) => answer(name, error),
        }
    }

    /// Waits for the job. An interrupt ends it, and not the shell.
    async fn front(&mut self, os: &mut Os, mut job: Job) -> End {
        let mut is_interrupted = false;
        while !self.shared.wait_for(os, &mut job).await {
            is_interrupted = true;
            job.kill(os).await;
        }
        match is_interrupted {
            true => Err(Failure::interrupt(format!("{}: killed", job.line))),
            false => Failure::check(&job.line, job.end()),
        }
    }
}

/// What `clap` says of the arguments of a command: its help, or an error.
fn answer(name: &str, error: clap::Error) -> Result<Work, String> {
    match error.use_stderr() {
        true => Err(message(error)),
        false => Ok(task(name, async move |os: &mut Os| write!(os, "{error}"))),
    }
}

fn task(name: &str, work: impl AsyncFnOnce(&mut Os) + 'static) -> Work {
    let run = async move |os: &mut Os| {
        work(os).await;
        Ok(())
    };
    (name.into(), Box::new(move |os| Box::pin(run(os))))
}
