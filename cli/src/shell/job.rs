//! Jobs: the programs of a step as tasks, and the tasks that carry text between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind},
    time::Duration,
};

use trapline::{Errno, Exit, File, Mode, Os, Queue, Source, Stdio, Tid, UnixStream};

use super::{
    super::{desk::Desk, program::Placed, values::given},
    line::Step,
};

/// The texts that wait between two programs. Each is what a program prints between two traps.
const ROOM: usize = 16;
const PIECE: usize = 64 << 10;

/// What a program of a step does.
pub(super) enum Work {
    Program(Box<Placed>),
    /// What a command of the shell says.
    Text(String),
    Sleep(Duration),
}

impl Work {
    async fn start(
        self,
        os: &mut Os,
        name: &str,
        stdio: Stdio,
        desk: Option<&Desk>,
    ) -> io::Result<Tid> {
        let tid = match self {
            Self::Program(placed) => placed.start(os, stdio, desk).await,
            Self::Text(text) => {
                let tell = async move |os: &mut Os| write!(os, "{text}");
                os.spawn_piped(stdio, name, tell).await
            }
            Self::Sleep(span) => {
                let sleep = async move |os: &mut Os| os.sleep(span).await;
                os.spawn_piped(stdio, name, sleep).await
            }
        };
        tid.map_err(|errno| no_task(name, errno))
    }
}

fn no_task(name: &str, errno: Errno) -> io::Error {
    io::Error::other(format!("{name}: {errno}: raise --max-tasks"))
}

/// The tasks of a step.
#[derive(Default)]
pub(super) struct Job {
    pub(super) line: String,
    /// Those of the programs.
    stages: Vec<Tid>,
    /// Those that carry text.
    carriers: Vec<Tid>,
    ends: BTreeMap<Tid, Exit>,
}

impl Job {
    /// Starts the programs of a step. An error is a line for the user, and no task is left.
    pub(super) async fn start(
        os: &mut Os,
        works: Vec<Work>,
        step: &Step,
        desk: Option<&Desk>,
    ) -> Result<Self, String> {
        let mut job = Self {
            line: step.text(),
            ..Self::default()
        };
        match job.start_all(os, works, step, desk).await {
            Ok(()) => Ok(job),
            Err(error) => {
                job.kill(os).await;
                while let Some(tid) = job.next() {
                    job.wait(os, tid).await;
                }
                Err(error.to_string())
            }
        }
    }

    async fn start_all(
        &mut self,
        os: &mut Os,
        works: Vec<Work>,
        step: &Step,
        desk: Option<&Desk>,
    ) -> io::Result<()> {
        let mut to = match &step.to {
            Some((name, appends)) => Some(open(os, name, *appends).await?),
            None => None,
        };
        let mut input = self.input(os, step).await?;
        let last = works.len() - 1;
        // A shell types at the terminal if it has nothing else to read and to print to.
        let is_alone = input.is_none() && to.is_none() && last == 0;
        let desk = desk.cloned().map(|desk| Desk {
            is_typed_at: desk.is_typed_at && is_alone,
            // A pipe and a file are inputs of their own.
            has_no_input: false,
            // The step fails with it, and the run does not.
            code: None,
            ..desk
        });
        for (n, (work, words)) in works.into_iter().zip(&step.stages).enumerate() {
            let text = match n < last || to.is_some() {
                true => Some(Queue::bounded(os, ROOM).await),
                false => None,
            };
            let stdio = given(Stdio::new(), input.as_ref(), Stdio::input);
            let stdio = given(stdio, text.as_ref(), Stdio::output);
            let stage = work.start(os, &words[0], stdio, desk.as_ref()).await?;
            self.stages.push(stage);
            if let Some(text) = text {
                input = self.join(os, text, to.take_if(|_| n == last)).await?;
            }
        }
        Ok(())
    }

    /// Returns what the first program reads, unless that is the input of the shell.
    async fn input(&mut self, os: &mut Os, step: &Step) -> io::Result<Option<UnixStream>> {
        if step.from.is_none() && !step.is_behind {
            return Ok(None);
        }
        // The prompt and the program in front have the input: without a file others find its end.
        let (ours, theirs) = os.socketpair().await?;
        if let Some(name) = &step.from {
            let file = os.disk().open(os, name, Mode::Read).await?;
            let feed = async move |os: &mut Os| feed(os, &file, &ours).await;
            self.carry(os, "<", feed).await?;
        }
        Ok(Some(theirs))
    }

    /// Has a text go to a file, or to the next program, whose input this returns.
    async fn join(
        &mut self,
        os: &mut Os,
        text: Queue<String>,
        file: Option<File>,
    ) -> io::Result<Option<UnixStream>> {
        if let Some(file) = file {
            let write = async move |os: &mut Os| write(os, &text, &file).await;
            return self.carry(os, ">", write).await.map(|()| None);
        }
        let (ours, theirs) = os.socketpair().await?;
        let send = async move |os: &mut Os| send(os, &text, &ours).await;
        self.carry(os, "|", send).await.map(|()| Some(theirs))
    }

    async fn carry(
        &mut self,
        os: &mut Os,
        name: &str,
        program: impl AsyncFnOnce(&mut Os) -> io::Result<()> + 'static,
    ) -> io::Result<()> {
        let tid = os.spawn(name, program).await;
        self.carriers
            .push(tid.map_err(|errno| no_task(name, errno))?);
        Ok(())
    }

    fn tids(&self) -> impl Iterator<Item = Tid> {
        self.stages.iter().chain(&self.carriers).copied()
    }

    /// The tasks of its programs, in words.
    pub(super) fn tasks(&self) -> String {
        let tids: Vec<String> = self.stages.iter().map(ToString::to_string).collect();
        let word = if tids.len() == 1 { "task" } else { "tasks" };
        format!("{word} {}", tids.join(", "))
    }

    /// Returns a task of the job that was not waited for.
    pub(super) fn next(&self) -> Option<Tid> {
        self.tids().find(|tid| !self.ends.contains_key(tid))
    }

    /// Waits for a task of the job. *Blocks* up to its end.
    pub(super) async fn wait(&mut self, os: &mut Os, tid: Tid) {
        // Another task may have waited for it.
        let end = os.wait(tid).await.unwrap_or(Exit::Killed);
        self.ends.insert(tid, end);
    }

    /// Waits for those of its tasks that have ended. Returns whether all have.
    pub(super) async fn is_over(&mut self, os: &mut Os) -> bool {
        while let Some(tid) = self.next() {
            let sources = [Source::exit(tid), Source::after(Duration::ZERO)];
            if os.select(&sources).await == 1 {
                return false;
            }
            self.wait(os, tid).await;
        }
        true
    }

    /// Ends its tasks, and all that they have spawned: a server has tasks that would go on as orphans.
    pub(super) async fn kill(&self, os: &mut Os) {
        let mut doomed: BTreeSet<Tid> = self.tids().collect();
        for task in os.tasks().await {
            // In the order of their numbers, so each comes behind its parent.
            if doomed.contains(&task.parent) {
                doomed.insert(task.tid);
            }
        }
        for tid in doomed.into_iter().rev() {
            if !self.ends.contains_key(&tid) {
                os.kill(tid).await;
            }
        }
    }

    /// The end of its last program, or of what carries the text of that one.
    pub(super) fn end(&self) -> Exit {
        let ends = self.stages.last().into_iter().chain(&self.carriers);
        let mut ends = ends.filter_map(|tid| self.ends.get(tid));
        let last = ends.next().unwrap_or(&Exit::Done);
        let failed = ends.find(|end| matches!(end, Exit::Failed(_)));
        failed
            .filter(|_| *last == Exit::Killed || *last == Exit::Done)
            .unwrap_or(last)
            .clone()
    }
}

/// Opens a file for the text of a program.
async fn open(os: &mut Os, name: &str, appends: bool) -> io::Result<File> {
    let file = os.disk().open(os, name, Mode::Append).await?;
    if !appends {
        file.truncate(os, 0).await?;
    }
    Ok(file)
}

/// Carries what a program prints to the next one, as long as that reads.
async fn send(os: &mut Os, text: &Queue<String>, to: &UnixStream) -> io::Result<()> {
    while let Ok(text) = text.get(os).await {
        if !is_sent(to.send_all(os, text.as_bytes()).await)? {
            break;
        }
    }
    Ok(())
}

async fn write(os: &mut Os, text: &Queue<String>, to: &File) -> io::Result<()> {
    while let Ok(text) = text.get(os).await {
        to.append(os, text.as_bytes()).await?;
    }
    Ok(())
}

/// Carries a file to a program, as long as that reads.
async fn feed(os: &mut Os, from: &File, to: &UnixStream) -> io::Result<()> {
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        let read = from.read_at(os, &mut piece, at).await?;
        if read == 0 || !is_sent(to.send_all(os, &piece[..read]).await)? {
            return Ok(());
        }
        at += read as u64;
    }
}

/// Returns whether the reader is still there.
fn is_sent(result: io::Result<()>) -> io::Result<bool> {
    match result.as_ref().map_err(io::Error::kind) {
        Err(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(false),
        _ => result.map(|()| true),
    }
}
