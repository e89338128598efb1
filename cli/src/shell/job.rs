//! Jobs: the programs of a step as tasks, and the tasks that carry text between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind},
    time::Duration,
};

use trapline::{Errno, Exit, File, Mode, Os, Queue, Source, Stdio, Tid, UnixStream};

use super::{
    super::{program::Run, values::given},
    line::Step,
};

/// The texts that wait between two programs. Each is what a program prints between two traps.
const ROOM: usize = 16;
const PIECE: usize = 64 << 10;

/// The program of a stage, under the name of its task.
pub(super) type Work = (String, Run);

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
    /// Starts the programs of its step. An error leaves those that were started.
    pub(super) async fn start(
        &mut self,
        os: &mut Os,
        works: Vec<Work>,
        step: &Step,
    ) -> io::Result<()> {
        self.line = step.text();
        let mut to = None;
        if let Some((name, appends)) = &step.to {
            let file = to.insert(os.disk().open(os, name, Mode::Append).await?);
            if !appends {
                file.truncate(os, 0).await?;
            }
        }
        let mut input = self.input(os, step).await?;
        let last = works.len() - 1;
        for (n, (name, run)) in works.into_iter().enumerate() {
            let text = match n < last || to.is_some() {
                true => Some(Queue::bounded(os, ROOM).await),
                false => None,
            };
            let stdio = given(Stdio::new(), input.as_ref(), Stdio::input);
            let stdio = given(stdio, text.as_ref(), Stdio::output);
            let run = async move |os: &mut Os| run(os).await;
            let stage = os.spawn_piped(stdio, &name, run).await;
            self.stages
                .push(stage.map_err(|errno| no_task(&name, errno))?);
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
        let (to, input) = os.socketpair().await?;
        if let Some(name) = &step.from {
            let file = os.disk().open(os, name, Mode::Read).await?;
            let feed = async move |os: &mut Os| {
                let (mut piece, mut at) = (vec![0; PIECE], 0);
                loop {
                    let read = file.read_at(os, &mut piece, at).await?;
                    if read == 0 {
                        return Ok(());
                    }
                    to.send_all(os, &piece[..read]).await?;
                    at += read as u64;
                }
            };
            self.carry(os, "<", feed).await?;
        }
        Ok(Some(input))
    }

    /// Has a text go to a file, or to the next program, whose input this returns.
    async fn join(
        &mut self,
        os: &mut Os,
        text: Queue<String>,
        file: Option<File>,
    ) -> io::Result<Option<UnixStream>> {
        if let Some(file) = file {
            let write = async move |os: &mut Os| {
                while let Ok(text) = text.get(os).await {
                    file.append(os, text.as_bytes()).await?;
                }
                Ok(())
            };
            return self.carry(os, ">", write).await.map(|()| None);
        }
        let (to, input) = os.socketpair().await?;
        let send = async move |os: &mut Os| {
            while let Ok(text) = text.get(os).await {
                to.send_all(os, text.as_bytes()).await?;
            }
            Ok(())
        };
        self.carry(os, "|", send).await.map(|()| Some(input))
    }

    /// Starts a task that carries text. It ends well with its reader.
    async fn carry(
        &mut self,
        os: &mut Os,
        name: &str,
        carrier: impl AsyncFnOnce(&mut Os) -> io::Result<()> + 'static,
    ) -> io::Result<()> {
        let carry = async move |os: &mut Os| {
            carrier(os).await.or_else(|error| match error.kind() {
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Ok(()),
                _ => Err(error),
            })
        };
        let tid = os.spawn(name, carry).await;
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
