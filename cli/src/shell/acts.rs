//! What the commands of the shell do.

use std::{cell::Cell, path::PathBuf, pin::Pin, rc::Rc, sync::mpsc};

use serde_json::Value;
use trapline::{Event, Exit, Os, SimNet, TaskInfo, TaskState, Tid};

use super::{
    super::{
        desk::Desk,
        live::{feed, model::Snapshot, protocol::Filter, text},
        net,
        output::{FAILURE, Log, tell},
        record::Recorded,
    },
    End, Failure, Session,
    builtin::{self, BuiltIn, Change, Say},
};

impl Session {
    /// Carries out a command that is no part of a pipe. `None` for one that is a task.
    pub(super) async fn act(&mut self, os: &mut Os, own: BuiltIn) -> Result<Option<End>, String> {
        let end = match own {
            BuiltIn::Sleep { .. } | BuiltIn::Time { .. } | BuiltIn::Run { .. } => return Ok(None),
            BuiltIn::Exit { code } => self.exit(os, code).await,
            BuiltIn::Wait => self.wait(os).await,
            BuiltIn::Fg { job } => {
                let n = job.or(self.jobs.keys().last().copied());
                let job = n.and_then(|n| self.jobs.remove(&n));
                let job = job.ok_or("there is no such job: see jobs")?;
                self.front(os, job).await
            }
            BuiltIn::Host { host } => {
                net::check_host(self.network()?, &host)?;
                self.sit(os, &host).await
            }
            BuiltIn::Say(say) => {
                let text = self.say(os, &say).await?;
                write!(os, "{text}");
                Ok(())
            }
            BuiltIn::Change(change) => Ok(self.change(os, change).await?),
        };
        Ok(Some(end))
    }

    /// Leaves with this code, or as the last command has ended. If it is asked to do so again, that is this one.
    async fn exit(&mut self, os: &mut Os, code: Option<u8>) -> End {
        self.is_over = self.leaves(os).await;
        match code {
            Some(0) => Ok(()),
            Some(code) => Err(Failure::exit(code)),
            None => self.last.clone(),
        }
    }

    pub(super) async fn say(&mut self, os: &mut Os, say: &Say) -> Result<String, String> {
        let view = match say {
            Say::Help => return Ok(builtin::help()),
            Say::Jobs => {
                let ended = self.ended(os).await;
                let jobs = self.jobs.iter();
                let jobs = jobs.map(|(n, job)| format!("[{n}] {}: {}\n", job.tasks(), job.line));
                return Ok(ended + &jobs.collect::<String>());
            }
            Say::View(view) => view,
        };
        let snapshot = Snapshot {
            now: os.now().await,
            tasks: os.tasks().await,
            recent: Rc::clone(&self.shared.recent),
            kernel: None,
        };
        let answers = snapshot.answer(&view.request());
        let text = answers.map(|all| view.text(&all, "", Log::PLAIN));
        text.map_err(|error| format!("{error}: see ps"))
    }

    async fn change(&mut self, os: &mut Os, change: Change) -> Result<(), String> {
        match change {
            Change::Kill { tid } if self.shared.terminal() == Some(tid) => Err(format!(
                "task {tid} reads this terminal: exit leaves the shell"
            )),
            Change::Kill { tid } if self.is_shell(os, tid).await => {
                Err(format!("task {tid} is a shell: exit leaves it"))
            }
            Change::Kill { tid } => match os.kill(tid).await {
                true => Ok(()),
                false => Err(format!("there is no task {tid}: see ps")),
            },
            Change::Trace { state, filter } => self.trace(os, (state == "on").then_some(filter)),
            Change::Policy { name } => {
                let desk = self.desk()?;
                let policy = desk.policy(&name)?.make(desk.header.seed);
                let set = os.set_policy(policy).await;
                set.map_err(|errno| errno.to_string())
            }
            Change::Inject { rule } => self.desk().map(|desk| desk.rules.add(rule)),
            Change::Net { setting } => {
                let network = self.network()?;
                let mut settings = setting.into_iter();
                let set = settings.try_for_each(|setting| net::set(network, setting));
                set.map_err(|error| error.to_string())
            }
            Change::Fault { fault } => net::apply(self.network()?, &net::fault(&fault.join(" "))?),
            Change::Record { file } => self.record(os, file).await,
        }
    }

    /// Whether it is one of the shells that live: a crash ends one, too.
    async fn is_shell(&self, os: &mut Os, tid: Tid) -> bool {
        let is_it =
            |task: &TaskInfo| task.tid == tid && !matches!(task.state, TaskState::Zombie(_));
        let is_known = self.shared.shells.borrow().contains(&tid);
        is_known && os.tasks().await.iter().any(is_it)
    }

    /// What the run offers.
    fn desk(&self) -> Result<&Desk, String> {
        let desk = self.shared.desk.as_ref();
        desk.ok_or_else(|| "a search has an option for this".into())
    }

    fn network(&self) -> Result<&SimNet, String> {
        let net = self.desk()?.net.as_ref();
        net.ok_or_else(|| "this world has no simulated network: boot with --virtual".into())
    }

    /// Waits for all jobs, up to one that fails. An interrupt ends the wait, and no job.
    async fn wait(&mut self, os: &mut Os) -> End {
        while let Some(mut job) = self.jobs.first_entry() {
            if !self.shared.wait_for(os, job.get_mut()).await {
                return Err(Failure::interrupt("wait: interrupted: see jobs".into()));
            }
            let job = job.remove();
            Failure::check(&job.line, job.end())?;
        }
        Ok(())
    }

    /// Runs a shell on another host, which takes over up to its end.
    async fn sit(&mut self, os: &mut Os, host: &str) -> End {
        let mut there = Self::new(Rc::clone(&self.shared), format!("trapline@{host}> "));
        let code = Rc::new(Cell::new(FAILURE));
        let left = Rc::clone(&code);
        // Its own future is a part of it, so the compiler cannot know its size.
        let run = async move |os: &mut Os| {
            let run: Pin<Box<dyn Future<Output = _> + '_>> = Box::pin(there.run(os));
            run.await.map_err(|failure| {
                left.set(failure.code);
                failure.text
            })
        };
        let line = format!("host {host}");
        let outer = self.shared.shells.borrow().len();
        let end = match os.spawn_on(host, "shell", run).await {
            Ok(tid) => Failure::check(&line, os.wait(tid).await.unwrap_or(Exit::Killed)),
            Err(errno) => Err(format!("{line}: {errno}").into()),
        };
        // A crash of its host may have ended it, and not those behind it, of which one has the prompt. That one may
        // begin another one, and be ended by a crash as well.
        let shells = &self.shared.shells;
        let known = |at: usize| shells.borrow().get(at).copied();
        let mut at = outer;
        while let Some(shell) = known(at) {
            let _ = os.wait(shell).await;
            at += 1;
        }
        shells.borrow_mut().truncate(outer);
        end.map_err(|failure| Failure {
            code: code.get(),
            ..failure
        })
    }

    /// Shows the events that pass the filter from now on, or none.
    fn trace(&mut self, os: &mut Os, filter: Option<Filter>) -> Result<(), String> {
        let shown = self.desk()?.shown;
        drop(self.shared.trace.take());
        let Some(filter) = filter else {
            return Ok(());
        };
        let recent = Rc::clone(&self.shared.recent);
        let observer = os.observe(move |event: &Event<'_>| {
            let lines = filter.lines(event, &recent.borrow());
            for (line, log) in lines.into_iter().zip(shown) {
                tell(&match log.is_json() {
                    true => format!("{}\n", Value::Object(line)),
                    false => text::event(log, &line) + "\n",
                });
            }
        });
        self.shared.trace.replace(Some(observer));
        Ok(())
    }

    /// Records all events from now on. A replay finds on its tape whether the file could be opened, and
    /// leaves it as it is.
    async fn record(&mut self, os: &mut Os, file: PathBuf) -> Result<(), String> {
        let desk = self.desk()?;
        let (header, is_shown) = (desk.header.clone(), desk.shown.is_some());
        let is_again = {
            let before = self.shared.recording.borrow();
            before
                .as_ref()
                .is_some_and(|(_, before)| before.is_to(&file))
        };
        let (opened, recording) = mpsc::channel();
        let open = move || {
            if is_again {
                let file = file.display();
                return Err(format!("{file} is being recorded to: name another file"));
            }
            if is_shown {
                // The other end is waiting for this thread.
                let _ = opened.send(Recorded::create("the file", &file, &header)?);
            }
            Ok(())
        };
        os.run_recorded(open).await.map_err(|error| error.0)??;
        // An error of the one before is no reason not to record.
        let closed = self.shared.close_recording();
        match recording.try_recv() {
            Ok((recorder, recorded)) => {
                let recording = (feed::join(os, recorder).await, recorded);
                self.shared.recording.replace(Some(recording));
            }
            // A replay makes the same calls.
            Err(_) => drop(feed::join(os, |_: &Event<'_>| {}).await),
        }
        closed
    }
}
