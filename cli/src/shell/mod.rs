//! The program `shell`: a prompt that is a task. Its lines start the programs of the binary.

mod job;
mod line;

use std::{
    collections::BTreeMap,
    error::Error,
    fmt::Write,
    fs,
    io::{self, IsTerminal},
    mem,
    time::Duration,
};

use clap::{Args, FromArgMatches};
use trapline::{Exit, Input, Os, Signal, Signals, Source, TaskInfo, TaskState};

use super::{
    options::Boot,
    program::{Entry, Placed, Programs, made},
    values::duration,
};
use job::{Job, Work};
use line::{Step, steps};

const PROMPT: &str = "trapline> ";

const HELP: &str = "\
PROGRAM [ARGS]..    run a program of `list`, and wait for it; PROGRAM --help has its arguments
A; B    A && B    A || B    one after the other: always, if A ended well, if A failed
A | B               both, where B reads what A prints
A < FILE            read a file of the disk; A > FILE and A >> FILE write one, or append to it
PROGRAM &           run it behind the prompt, as a job
jobs                the jobs
fg [N]              wait for job N, or for the last one; an interrupt ends it
wait                wait for all jobs
kill TID            end a task
ps, tree            the tasks, with what they wait for
where TID           the place in the source where a task waits, and where it was spawned
sleep TIME          wait: seconds, or a time such as 50ms
time PROGRAM ..     say how long it takes
run PROGRAM ..      run a program that has the name of one of these
exit                leave; it ends the jobs, if no script does it
";

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
         the same options and exit codes.\n\n\
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
/// commands. An interrupt ends the program in front. The shell fails if its last command does.
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
        run: |matches, programs| {
            let (shell, programs) = (made::<Shell>(matches), programs.clone());
            Box::new(move |os| Box::pin(shell.main(os, programs)))
        },
    }
}

/// Where lines come from.
enum Lines {
    Text(std::vec::IntoIter<String>),
    Input,
    /// With what tells that there is a line.
    Terminal(Input),
}

struct Session {
    programs: Programs,
    signals: Signals,
    jobs: BTreeMap<usize, Job>,
}

/// How a command has ended.
type End = Result<(), Failure>;

struct Failure {
    text: String,
    /// Whether the run warns of it.
    is_told: bool,
}

impl<T: Into<String>> From<T> for Failure {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            is_told: false,
        }
    }
}

impl Shell {
    async fn main(self, os: &mut Os, programs: Programs) -> Result<(), Box<dyn Error>> {
        let mut lines = match self.line.or(self.script) {
            Some(text) => {
                let lines: Vec<String> = text.lines().map(Into::into).collect();
                Lines::Text(lines.into_iter())
            }
            None if io::stdin().is_terminal() => Lines::Terminal(os.input().await?),
            None => Lines::Input,
        };
        let signals = os.catch(&[Signal::Interrupt]).await;
        let mut session = Session {
            programs,
            signals,
            jobs: BTreeMap::new(),
        };
        let mut last = Ok(());
        let mut was_asked = false;
        loop {
            let Some(line) = session.next(os, &mut lines).await? else {
                let is_over = matches!(lines, Lines::Text(_)) || session.jobs.is_empty();
                // At a terminal one may go on.
                if mem::replace(&mut was_asked, true) || is_over {
                    break;
                }
                writeln!(os, "Jobs run: end the input again to end them");
                continue;
            };
            was_asked = false;
            if !session.line(os, &line, &mut last).await {
                break;
            }
        }
        // Those of a script go on, as in other shells.
        if !matches!(lines, Lines::Text(_)) {
            for job in session.jobs.values() {
                job.kill(os).await;
            }
        }
        last.map_err(|failure| failure.text.into())
    }
}

impl Session {
    /// Returns the next line. On a terminal it says meanwhile which jobs end.
    async fn next(&mut self, os: &mut Os, lines: &mut Lines) -> io::Result<Option<String>> {
        self.tell(os).await;
        let input = match lines {
            Lines::Text(lines) => return Ok(lines.next()),
            Lines::Input => return os.read_line().await,
            Lines::Terminal(input) => input,
        };
        write!(os, "{PROMPT}");
        loop {
            let ends = self.jobs.values().filter_map(Job::next).map(Source::exit);
            let sources: Vec<Source> = [Source::readable(input)].into_iter().chain(ends).collect();
            if os.select(&sources).await == 0 {
                return os.read_line().await;
            }
            let told = self.ended(os).await;
            if !told.is_empty() {
                write!(os, "\n{told}{PROMPT}");
            }
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

    /// Runs a line. Returns `false` if the shell is to end.
    async fn line(&mut self, os: &mut Os, line: &str, last: &mut End) -> bool {
        let steps = match steps(line) {
            Ok(steps) => steps,
            Err(error) => {
                writeln!(os, "{error}");
                *last = Err(error.into());
                return true;
            }
        };
        for step in steps {
            if step.after.is_some_and(|well| well != last.is_ok()) {
                continue;
            }
            if step.stages == [["exit"]] {
                return false;
            }
            *last = self.step(os, step).await;
            if let Err(Failure {
                text,
                is_told: false,
            }) = last
            {
                writeln!(os, "{text}");
            }
        }
        true
    }

    async fn step(&mut self, os: &mut Os, mut step: Step) -> End {
        if let [first, ..] = &mut *step.stages
            && first.len() > 1
            && first[0] == "time"
        {
            first.remove(0);
            let since = os.now().await;
            let end = Box::pin(self.step(os, step)).await;
            let span = os.now().await - since;
            writeln!(os, "{span:.3?}");
            return end;
        }
        let is_alone = step.from.is_none() && step.to.is_none() && step.stages.len() == 1;
        if is_alone && let Some(end) = self.command(os, &step.stages[0]).await {
            return end;
        }
        let mut works = Vec::new();
        for words in &step.stages {
            works.push(self.work(os, words).await?);
        }
        let job = Job::start(os, works, &step).await?;
        if !step.is_behind {
            return self.front(os, job).await;
        }
        let n = self.jobs.keys().last().unwrap_or(&0) + 1;
        writeln!(os, "[{n}] {}", tasks(&job));
        self.jobs.insert(n, job);
        Ok(())
    }

    /// Carries out a command of the shell that is no part of a pipe. Returns `None` if there is no such
    /// command.
    async fn command(&mut self, os: &mut Os, words: &[String]) -> Option<End> {
        let (name, args) = words.split_first().expect("a command has a word");
        Some(match (&**name, args) {
            ("fg", args) => {
                let n = match args.first() {
                    None => self.jobs.keys().last().copied(),
                    Some(n) => n.parse().ok(),
                };
                match n.and_then(|n| self.jobs.remove(&n)) {
                    Some(job) => self.front(os, job).await,
                    None => Err("fg: there is no such job: see jobs".into()),
                }
            }
            ("wait", _) => {
                let mut end = Ok(());
                while end.is_ok()
                    && let Some((_, job)) = self.jobs.pop_first()
                {
                    end = self.front(os, job).await;
                }
                end
            }
            ("kill", args) => match number(args) {
                None => Err("kill: it needs the number of a task, such as kill 3: see ps".into()),
                Some(tid) if os.kill(tid.into()).await => Ok(()),
                Some(tid) => Err(format!("kill: there is no task {tid}: see ps").into()),
            },
            _ => match self.told(os, words).await? {
                Ok(text) => {
                    write!(os, "{text}");
                    Ok(())
                }
                Err(error) => Err(error.into()),
            },
        })
    }

    /// Returns what a command says, if it is one that does no more than that.
    async fn told(&mut self, os: &mut Os, words: &[String]) -> Option<Result<String, String>> {
        let mut text = String::new();
        match &*words[0] {
            "help" => text += HELP,
            "jobs" => {
                text += &self.ended(os).await;
                for (n, job) in &self.jobs {
                    text += &format!("[{n}] {}: {}\n", tasks(job), job.line);
                }
            }
            "ps" => os
                .tasks()
                .await
                .iter()
                .for_each(|task| show(&mut text, task, 0)),
            "tree" => {
                let tasks = os.tasks().await;
                let is_root =
                    |task: &&TaskInfo| !tasks.iter().any(|other| other.tid == task.parent);
                let roots = tasks.iter().filter(is_root);
                roots.for_each(|task| branch(&mut text, &tasks, task, 0));
            }
            "where" => {
                let Some(tid) = number(&words[1..]) else {
                    return Some(Err(
                        "where: it needs the number of a task, such as where 3: see ps".into(),
                    ));
                };
                let tasks = os.tasks().await;
                let Some(task) = tasks.iter().find(|task| task.tid == tid.into()) else {
                    return Some(Err(format!("where: there is no task {tid}: see ps")));
                };
                show(&mut text, task, 0);
                for (what, place) in [("waits", &task.wait.place), ("spawned", &task.spawned)] {
                    if let Some(place) = place {
                        text += &format!("     {what} at {place}\n");
                    }
                }
            }
            _ => return None,
        }
        Some(Ok(text))
    }

    /// Returns what a program of a step does. An error is a line for the user.
    async fn work(&mut self, os: &mut Os, words: &[String]) -> Result<Work, String> {
        if let Some(text) = self.told(os, words).await {
            return text.map(Work::Text);
        }
        match &*words[0] {
            name @ ("fg" | "wait" | "kill" | "exit") => {
                Err(format!("{name} is a command of the shell: write it alone"))
            }
            "sleep" => {
                let text = words.get(1).map_or("", |text| text);
                Ok(Work::Sleep(match text.parse() {
                    Ok(seconds) => Duration::from_secs(seconds),
                    Err(_) => duration(text).map_err(|error| format!("sleep: {error}"))?,
                }))
            }
            "run" if words.len() > 1 => self.program(&words[1..]),
            _ => self.program(words),
        }
    }

    fn program(&self, words: &[String]) -> Result<Work, String> {
        let Some(entry) = self.programs.iter().find(|entry| entry.name == words[0]) else {
            let name = &words[0];
            return Err(format!(
                "{name}: there is no such program or command: see help"
            ));
        };
        let matches = entry.command().try_get_matches_from(words);
        let named = |matches| Placed::new(&self.programs, "", (entry.name, &matches));
        match matches.and_then(named) {
            Ok(placed) => Ok(Work::Program(Box::new(placed))),
            Err(error) if error.use_stderr() => Err(error.to_string().trim_end().into()),
            Err(help) => Ok(Work::Text(help.to_string())),
        }
    }

    /// Waits for the job. An interrupt ends it, and not the shell.
    async fn front(&mut self, os: &mut Os, mut job: Job) -> End {
        while let Some(tid) = job.next() {
            let sources = [Source::exit(tid), Source::signal(&self.signals)];
            if os.select(&sources).await == 0 {
                job.wait(os, tid).await;
            } else {
                self.signals.next(os).await;
                job.kill(os).await;
            }
        }
        match job.end() {
            Exit::Done => Ok(()),
            exit => Err(Failure {
                is_told: exit != Exit::Killed,
                text: format!("{}: {exit}", job.line),
            }),
        }
    }
}

/// The number of a task.
fn number(args: &[String]) -> Option<u64> {
    args.first().and_then(|tid| tid.parse().ok())
}

/// The tasks of the programs of a job.
fn tasks(job: &Job) -> String {
    let tids: Vec<String> = job.stages.iter().map(ToString::to_string).collect();
    let word = if tids.len() == 1 { "task" } else { "tasks" };
    format!("{word} {}", tids.join(", "))
}

fn show(text: &mut String, task: &TaskInfo, depth: usize) {
    let state = match &task.state {
        TaskState::Ready => "ready".into(),
        TaskState::Running => "running".into(),
        TaskState::Blocked { .. } => task.blocked_on().unwrap_or_default(),
        TaskState::Zombie(exit) => format!("zombie: {exit}"),
    };
    let indent = "  ".repeat(depth);
    let line = writeln!(text, "{:>4} {indent}{:<12} {state}", task.tid, task.name);
    line.expect("a text takes every line");
}

fn branch(text: &mut String, tasks: &[TaskInfo], task: &TaskInfo, depth: usize) {
    show(text, task, depth);
    let children = tasks.iter().filter(|other| other.parent == task.tid);
    children.for_each(|child| branch(text, tasks, child, depth + 1));
}
