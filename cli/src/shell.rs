//! The program `shell`: a prompt that is a task. Its lines start the programs of the binary.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    io::{self, IsTerminal},
    mem,
    time::Duration,
};

use clap::{Args, FromArgMatches};
use trapline::{Errno, Exit, Os, Signal, Signals, Source, TaskInfo, TaskState, Tid};

use super::{
    program::{Entry, Placed, Programs, made},
    values::duration,
    words::{self, Token},
};

const HELP: &str = "\
PROGRAM [ARGS]..    run a program of `list`, and wait for it; PROGRAM --help has its arguments
A; B    A && B    A || B    one after the other: always, if A ended well, if A failed
PROGRAM &           run it behind the prompt, as a job
jobs                the jobs
fg [N]              wait for job N, or for the last one; an interrupt ends it
wait                wait for all jobs
kill TID            end a task
ps, tree            the tasks, with what they wait for
sleep TIME          wait: seconds, or a time such as 50ms
time PROGRAM ..     say how long it takes
run PROGRAM ..      run a program that has the name of one of these
exit                leave; it ends the jobs, if no script does it
";

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
        name: "shell",
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
    Terminal,
}

impl Lines {
    async fn next(&mut self, os: &mut Os) -> io::Result<Option<String>> {
        match self {
            Self::Text(lines) => return Ok(lines.next()),
            Self::Input => {}
            Self::Terminal => write!(os, "trapline> "),
        }
        os.read_line().await
    }
}

struct Job {
    line: String,
    tid: Tid,
}

struct Session {
    programs: Programs,
    signals: Signals,
    jobs: BTreeMap<usize, Job>,
}

/// A command of a line.
#[derive(Default)]
struct Step {
    words: Vec<String>,
    /// Whether the command before must have ended well, or have failed.
    after: Option<bool>,
    is_behind: bool,
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
            None if io::stdin().is_terminal() => Lines::Terminal,
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
            session.tell(os).await;
            let Some(line) = lines.next(os).await? else {
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
                os.kill(job.tid).await;
            }
        }
        last.map_err(|failure| failure.text.into())
    }
}

impl Session {
    /// Says which jobs have ended.
    async fn tell(&mut self, os: &mut Os) {
        for n in self.jobs.keys().copied().collect::<Vec<_>>() {
            let tid = self.jobs[&n].tid;
            let sources = [Source::exit(tid), Source::after(Duration::ZERO)];
            if os.select(&sources).await == 0 {
                let job = self.jobs.remove(&n).expect("it is a job");
                let end = os.wait(tid).await.unwrap_or(Exit::Killed);
                writeln!(os, "[{n}] {end}: {}", job.line);
            }
        }
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
            if step.words[0] == "exit" {
                return false;
            }
            *last = self.command(os, &step.words, step.is_behind).await;
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

    async fn command(&mut self, os: &mut Os, words: &[String], is_behind: bool) -> End {
        let (name, args) = words.split_first().expect("a command has a word");
        match (&**name, args) {
            ("help", _) => write!(os, "{HELP}"),
            ("jobs", _) => {
                self.tell(os).await;
                for (n, job) in &self.jobs {
                    writeln!(os, "[{n}] task {}: {}", job.tid, job.line);
                }
            }
            ("ps", _) => os.tasks().await.iter().for_each(|task| show(os, task, "")),
            ("tree", _) => {
                let tasks = os.tasks().await;
                let is_root =
                    |task: &&TaskInfo| !tasks.iter().any(|other| other.tid == task.parent);
                let roots = tasks.iter().filter(is_root);
                roots.for_each(|task| branch(os, &tasks, task, 0));
            }
            ("fg", args) => {
                let n = match args.first() {
                    None => self.jobs.keys().last().copied(),
                    Some(n) => n.parse().ok(),
                };
                let job = n.and_then(|n| self.jobs.remove(&n));
                return self
                    .front(os, job.ok_or("fg: there is no such job: see jobs")?)
                    .await;
            }
            ("wait", _) => {
                while let Some((_, job)) = self.jobs.pop_first() {
                    self.front(os, job).await?;
                }
            }
            ("kill", args) => {
                let tid = args.first().and_then(|tid| tid.parse::<u64>().ok());
                let tid =
                    tid.ok_or("kill: it needs the number of a task, such as kill 3: see ps")?;
                if !os.kill(tid.into()).await {
                    return Err(format!("kill: there is no task {tid}: see ps").into());
                }
            }
            ("sleep", args) => {
                let text = args.first().map_or("", |text| text);
                let span = match text.parse() {
                    Ok(seconds) => Duration::from_secs(seconds),
                    Err(_) => duration(text).map_err(|error| format!("sleep: {error}"))?,
                };
                let sleep = async move |os: &mut Os| os.sleep(span).await;
                let tid = os.spawn("sleep", sleep).await;
                return self.started(os, words, tid, is_behind).await;
            }
            ("time", args @ [_, ..]) => {
                let since = os.now().await;
                let end = Box::pin(self.command(os, args, is_behind)).await;
                let span = os.now().await - since;
                writeln!(os, "{span:.3?}");
                return end;
            }
            ("run", args @ [_, ..]) => return self.program(os, args, is_behind).await,
            _ => return self.program(os, words, is_behind).await,
        }
        Ok(())
    }

    /// Starts a program of the binary.
    async fn program(&mut self, os: &mut Os, words: &[String], is_behind: bool) -> End {
        let Some(entry) = self.programs.iter().find(|entry| entry.name == words[0]) else {
            let name = &words[0];
            return Err(format!("{name}: there is no such program or command: see help").into());
        };
        let command = entry.command();
        let matches = command.try_get_matches_from(words);
        let named = |matches| Placed::new(&self.programs, "", (entry.name, &matches));
        match matches.and_then(named) {
            Ok(placed) => {
                let tid = placed.start(os).await;
                self.started(os, words, tid, is_behind).await
            }
            Err(error) if error.use_stderr() => Err(error.to_string().trim_end().into()),
            Err(help) => {
                write!(os, "{help}");
                Ok(())
            }
        }
    }

    async fn started(
        &mut self,
        os: &mut Os,
        words: &[String],
        tid: Result<Tid, Errno>,
        is_behind: bool,
    ) -> End {
        let tid = tid.map_err(|errno| format!("{}: {errno}: raise --max-tasks", words[0]))?;
        let line = words::command_line(words);
        let job = Job { line, tid };
        if !is_behind {
            return self.front(os, job).await;
        }
        let n = self.jobs.keys().last().unwrap_or(&0) + 1;
        writeln!(os, "[{n}] task {tid}");
        self.jobs.insert(n, job);
        Ok(())
    }

    /// Waits for the job. An interrupt ends it, and not the shell.
    async fn front(&mut self, os: &mut Os, job: Job) -> End {
        let sources = [Source::exit(job.tid), Source::signal(&self.signals)];
        while os.select(&sources).await == 1 {
            self.signals.next(os).await;
            os.kill(job.tid).await;
        }
        match os.wait(job.tid).await {
            Ok(Exit::Done) => Ok(()),
            Ok(exit) => Err(Failure {
                is_told: exit != Exit::Killed,
                text: format!("{}: {exit}", job.line),
            }),
            // Another task has waited for it.
            Err(errno) => Err(format!("{}: {errno}", job.line).into()),
        }
    }
}

/// Reads a line. An error is a line for the user.
fn steps(line: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut step = Step::default();
    let tokens = words::tokens(line, "&;|<>").map_err(|error| format!("{error}: {line}"))?;
    for token in tokens {
        let operator = match token {
            // The rest of the line is a comment.
            Token::Word(word) if word.starts_with('#') => break,
            Token::Word(word) => {
                step.words.push(word);
                continue;
            }
            Token::Operator(operator) => operator,
        };
        let after = match &*operator {
            ";" | "&" => None,
            "&&" => Some(true),
            "||" => Some(false),
            _ => {
                return Err(format!(
                    "{operator} is no part of a line here: quote it, if it is text"
                ));
            }
        };
        step.is_behind = operator == "&";
        let before = mem::replace(
            &mut step,
            Step {
                after,
                ..Step::default()
            },
        );
        if before.words.is_empty() {
            return Err(format!("there is no command before {operator}"));
        }
        steps.push(before);
    }
    match (step.words.is_empty(), step.after) {
        (false, _) => steps.push(step),
        (true, None) => {}
        (true, Some(_)) => return Err("there is no command at the end of the line".into()),
    }
    Ok(steps)
}

fn show(os: &mut Os, task: &TaskInfo, indent: &str) {
    let state = match &task.state {
        TaskState::Ready => "ready".into(),
        TaskState::Running => "running".into(),
        TaskState::Blocked { .. } => task.blocked_on().unwrap_or_default(),
        TaskState::Zombie(exit) => format!("zombie: {exit}"),
    };
    writeln!(os, "{:>4} {indent}{:<12} {state}", task.tid, task.name);
}

fn branch(os: &mut Os, tasks: &[TaskInfo], task: &TaskInfo, depth: usize) {
    show(os, task, &"  ".repeat(depth));
    let children = tasks.iter().filter(|other| other.parent == task.tid);
    children.for_each(|child| branch(os, tasks, child, depth + 1));
}
