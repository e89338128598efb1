//! What the commands of the shell do.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use trapline::{Event, Exit, Os, SimNet};

use super::{
    super::{
        desk::Desk,
        live::{View, feed, model::Snapshot, protocol::Filter, text},
        net,
        output::{Log, tell},
        record::Recorded,
        values::unknown,
    },
    End, Failure, Session,
    builtin::{self, BuiltIn},
    tasks,
};

impl Session {
    /// Carries out a command that is no part of a pipe. `None` for one that is a task.
    pub(super) async fn act(&mut self, os: &mut Os, command: BuiltIn) -> Option<End> {
        Some(match command {
            BuiltIn::Sleep { .. } | BuiltIn::Run { .. } | BuiltIn::Time { .. } | BuiltIn::Exit => {
                return None;
            }
            BuiltIn::Fg { job } => {
                let n = job.or(self.jobs.keys().last().copied());
                match n.and_then(|n| self.jobs.remove(&n)) {
                    Some(job) => self.front(os, job).await,
                    None => Err("fg: there is no such job: see jobs".into()),
                }
            }
            BuiltIn::Wait => {
                let mut end = Ok(());
                while end.is_ok()
                    && let Some((_, job)) = self.jobs.pop_first()
                {
                    end = self.front(os, job).await;
                }
                end
            }
            BuiltIn::Kill { tid } => match os.kill(tid.into()).await {
                true => Ok(()),
                false => Err(format!("kill: there is no task {tid}: see ps").into()),
            },
            BuiltIn::Trace { state, filter } => self.trace(os, state.then_some(filter)),
            BuiltIn::Policy { name } => self.policy(os, &name).await,
            BuiltIn::Inject { rule } => self.desk("inject").map(|desk| desk.rules.add(rule)),
            BuiltIn::Net { setting } => self.network("net").and_then(|network| {
                let mut settings = setting.into_iter();
                let done = settings.try_for_each(|setting| net::set(network, setting));
                done.map_err(|error| format!("net: {error}").into())
            }),
            BuiltIn::Fault { fault } => self.network("fault").and_then(|network| {
                let done =
                    net::fault(&fault.join(" ")).and_then(|fault| net::apply(network, &fault));
                done.map_err(|error| format!("fault: {error}").into())
            }),
            BuiltIn::Host { host } => self.sit(os, host).await,
            BuiltIn::Record { file } => self.record(os, file).await,
            command => match self.told(os, &command).await? {
                Ok(text) => {
                    write!(os, "{text}");
                    Ok(())
                }
                Err(error) => Err(error.into()),
            },
        })
    }

    /// Returns what a command says, if it is one that does no more than that.
    pub(super) async fn told(
        &mut self,
        os: &mut Os,
        command: &BuiltIn,
    ) -> Option<Result<String, String>> {
        let (name, view) = match command {
            BuiltIn::Help => return Some(Ok(builtin::help())),
            BuiltIn::Jobs => {
                let mut text = self.ended(os).await;
                for (n, job) in &self.jobs {
                    text += &format!("[{n}] {}: {}\n", tasks(job), job.line);
                }
                return Some(Ok(text));
            }
            BuiltIn::Ps(query) => ("ps", View::Ps(query.clone())),
            BuiltIn::Tree(tree) => ("tree", View::Tree(tree.query())),
            BuiltIn::Waits => ("waits", View::Waits),
            BuiltIn::Where { tid } => ("where", View::Where((*tid).into())),
            BuiltIn::Why { tid } => ("why", View::Why((*tid).into())),
            _ => return None,
        };
        let snapshot = Snapshot {
            now: os.now().await,
            tasks: os.tasks().await,
            recent: Rc::clone(&self.shared.recent),
            kernel: None,
        };
        let answers = snapshot.answer(&view.request());
        let text = answers.map(|all| view.text(&all, "", Log::PLAIN));
        Some(text.map_err(|error| format!("{name}: {error}: see ps")))
    }

    /// What the run offers to `command`.
    fn desk(&self, command: &str) -> Result<&Desk, Failure> {
        let desk = self.shared.desk.as_ref();
        desk.ok_or_else(|| format!("{command}: a search has an option for this").into())
    }

    fn network(&self, command: &str) -> Result<&SimNet, Failure> {
        let net = self.desk(command)?.net.as_ref();
        net.ok_or_else(|| {
            let why = "this world has no simulated network: boot with --virtual";
            format!("{command}: {why}").into()
        })
    }

    /// Shows the events that pass the filter from now on, or none.
    fn trace(&mut self, os: &mut Os, filter: Option<Filter>) -> End {
        let shown = self.desk("trace")?.shown;
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

    async fn policy(&mut self, os: &mut Os, name: &str) -> End {
        let desk = self.desk("policy")?;
        let policy = desk.policy(name).map_err(|why| format!("policy: {why}"))?;
        let policy = policy.make(desk.header.seed);
        let set = os.set_policy(policy).await;
        set.map_err(|errno| format!("policy: {errno}").into())
    }

    /// Runs a shell on another host, which takes over up to its end.
    async fn sit(&mut self, os: &mut Os, host: String) -> End {
        let hosts = self.network("host")?.hosts();
        if !hosts.contains(&host) {
            return Err(format!("host: {}", unknown("host", &host, &hosts)).into());
        }
        let mut there = Self {
            shared: self.shared.clone(),
            host: Some(host.clone()),
            jobs: BTreeMap::new(),
        };
        // Its own future is a part of it, so the compiler cannot know its size.
        let run = async move |os: &mut Os| {
            let run: Pin<Box<dyn Future<Output = _> + '_>> = Box::pin(there.run(os));
            run.await
        };
        let failed = |why: String| format!("host {host}: {why}");
        let tid = os.spawn_on(&host, "shell", run).await;
        let tid = tid.map_err(|errno| failed(errno.to_string()))?;
        match os.wait(tid).await {
            Ok(Exit::Done) => Ok(()),
            Ok(Exit::Failed(why)) => Err(Failure {
                text: why,
                is_told: true,
            }),
            Ok(exit) => Err(failed(exit.to_string()).into()),
            Err(errno) => Err(failed(errno.to_string()).into()),
        }
    }

    /// Records all events from now on. A replay finds on its tape whether the file could be opened, and
    /// leaves it as it is.
    async fn record(&mut self, os: &mut Os, file: PathBuf) -> End {
        let desk = self.desk("record")?;
        let (header, is_shown) = (desk.header.clone(), desk.shown.is_some());
        let slot = Arc::new(Mutex::new(None));
        let opened = Arc::clone(&slot);
        let open = move || {
            if is_shown {
                let recording = Recorded::create("record", &file, &header)?;
                *opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
            }
            Ok::<(), String>(())
        };
        self.shared.close_recording()?;
        os.run_recorded(open).await.map_err(|error| error.0)??;
        let (tasks, now) = (os.tasks().await, os.now().await);
        let opened = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((mut recorder, recorded)) = opened {
            feed::introduce(&mut recorder, &tasks, now);
            let recording = (os.observe(recorder), recorded);
            self.shared.recording.replace(Some(recording));
        }
        Ok(())
    }
}
