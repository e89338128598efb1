//! The steps with families of tasks: groups, children, callbacks, and tasks with a pipe.

use trapline::{Exit, Os, Queue, Stdio, sync::Group};

use super::{Actor, Step, note};

impl Actor {
    /// What a member does: it has two turns, leaves the number, and ends well if the number was even.
    fn body(&self) -> impl AsyncFnOnce(&mut Os) + 'static {
        let (number, at) = (self.world.number.clone(), self.at);
        async move |os: &mut Os| {
            let before = number.get();
            os.yield_now().await;
            number.set(at);
            if before % 2 == 1 {
                os.exit(Exit::Killed).await;
            }
        }
    }

    pub(super) async fn family(&mut self, os: &mut Os, step: Step) -> String {
        let (world, at) = (&self.world, self.at);
        match step {
            Step::SetPromise => world.setter.set(os, at).await.is_ok().to_string(),
            Step::Wait(task) => format!("{:?}", os.wait(world.tids[task]).await),
            Step::Kill(task) => os.kill(world.tids[task]).await.to_string(),
            Step::Group(_) | Step::GroupFirst | Step::GroupDropped => self.group(os, step).await,
            Step::Child(_) | Step::ChildDropped | Step::Grandchild => self.child(os, step).await,
            _ => self.apart(os, step).await,
        }
    }

    async fn group(&self, os: &mut Os, step: Step) -> String {
        match step {
            Step::Group(count) => {
                let mut group = Group::new(os).await;
                for _ in 0..=count {
                    if let Err(error) = group.spawn(os, "member", self.body()).await {
                        return error.to_string();
                    }
                }
                match group.join(os).await {
                    Ok(()) => "joined".into(),
                    Err(failure) => failure.exit.to_string(),
                }
            }
            Step::GroupFirst => {
                let mut group = Group::new(os).await;
                for _ in 0..2 {
                    if let Err(error) = group.spawn(os, "member", self.body()).await {
                        return error.to_string();
                    }
                }
                let first = group.first(os).await;
                first.map_or("none".into(), |(_, exit)| exit.to_string())
            }
            Step::GroupDropped => {
                let mut group = Group::new(os).await;
                let spawned = group.spawn(os, "member", self.body()).await;
                os.yield_now().await;
                spawned.is_ok().to_string()
            }
            _ => unreachable!("it is of another kind"),
        }
    }

    async fn child(&mut self, os: &mut Os, step: Step) -> String {
        let (number, at) = (self.world.number.clone(), self.at);
        match step {
            Step::Child(yields) => {
                let read = async move |os: &mut Os| {
                    for _ in 0..yields {
                        os.yield_now().await;
                    }
                    number.get()
                };
                match os.spawn_child("child", read).await {
                    Ok(mut child) => format!("{:?}", child.wait(os).await),
                    Err(error) => error.to_string(),
                }
            }
            Step::ChildDropped => {
                let write = async move |os: &mut Os| {
                    os.yield_now().await;
                    number.set(at);
                    at
                };
                self.child = os.spawn_child("child", write).await.ok();
                String::new()
            }
            Step::Grandchild => {
                let parent = async move |os: &mut Os| {
                    let write = async move |os: &mut Os| {
                        os.yield_now().await;
                        number.set(at);
                    };
                    match os.spawn("grandchild", write).await {
                        Ok(tid) => format!("{:?}", os.wait(tid).await),
                        Err(error) => error.to_string(),
                    }
                };
                match os.spawn_child("child", parent).await {
                    Ok(mut child) => format!("{:?}", child.wait(os).await),
                    Err(error) => error.to_string(),
                }
            }
            _ => unreachable!("it is of another kind"),
        }
    }

    /// Callbacks, and a task with a pipe.
    async fn apart(&self, os: &mut Os, step: Step) -> String {
        let (number, at) = (self.world.number.clone(), self.at);
        match step {
            Step::OnDone => {
                let logs = self.world.logs.clone();
                let callback = async move |_: &mut Os, value| {
                    let seen = number.get();
                    number.set(at);
                    note(
                        &logs,
                        &format!("callback {at}"),
                        &format!("{value:?} {seen}"),
                    );
                };
                let added = self.world.promise.on_done(os, callback).await;
                added.is_ok().to_string()
            }
            Step::Soon => {
                os.call_soon(async move |_: &mut Os| number.update(|number| *number += 100))
                    .await;
                String::new()
            }
            Step::Piped(room) => {
                let text = Queue::bounded(os, room).await;
                let prints = async move |os: &mut Os| {
                    for _ in 0..2 {
                        write!(os, "{} ", number.get());
                        os.yield_now().await;
                    }
                };
                let stdio = Stdio::new().output(&text);
                if let Err(error) = os.spawn_piped(stdio, "prints", prints).await {
                    return error.to_string();
                }
                let (mut all, mut most) = (String::new(), 1 + at % 2);
                while most > 0
                    && let Ok(text) = text.get(os).await
                {
                    all += &text;
                    most -= 1;
                }
                all
            }
            _ => unreachable!("it is of another kind"),
        }
    }
}
