//! The connections of a client of the monitor of several kernels: one to each of them.

use std::{io, os::unix::net::UnixStream, path::PathBuf, rc::Rc, time::Duration};

use trapline::{KernelId, Os};

use super::{
    client::Link,
    model::missing,
    protocol::{Answer, Answers, Request},
    query::Query,
    row::Totals,
    text::SPINS,
};

/// The longest time for a kernel to answer. It is shorter than that of a client of this monitor.
const PATIENCE: Duration = Duration::from_secs(3);

/// The connections of a client to the kernels.
pub(super) struct Peers {
    kernels: Rc<[(KernelId, PathBuf)]>,
    links: Vec<Option<Link>>,
}

/// What a kernel says.
enum Said {
    Answers(Box<Result<Answers, String>>),
    /// It does not answer in time.
    Nothing,
    /// It has ended.
    Gone,
}

impl Peers {
    pub(super) fn new(kernels: Rc<[(KernelId, PathBuf)]>) -> Self {
        let links = kernels.iter().map(|_| None).collect();
        Self { kernels, links }
    }

    /// Asks the kernels that the request is about.
    ///
    /// *Errors:* a text that says why there is no answer.
    pub(super) async fn ask(&mut self, os: &mut Os, request: Request) -> Result<Answers, String> {
        let about = match &request {
            Request::Where { tid } | Request::Kill { tid } => match tid.kernel() {
                None => {
                    let why =
                        "there are several kernels: give the task's number with that of its kernel";
                    return Err(format!("{why}, such as 1:{tid}"));
                }
                Some(kernel) if kernel.index() >= self.kernels.len() => return Err(missing(*tid)),
                Some(kernel) => Some(kernel),
            },
            Request::Dump {} => {
                let (_, socket) = &self.kernels[0];
                let socket = socket.display();
                return Err(format!(
                    "each kernel keeps its own events: attach to one, such as {socket}"
                ));
            }
            _ => None,
        };
        let mut said = self.ask_each(os, &request, about).await;
        match (about, request) {
            (Some(kernel), _) => match said.pop() {
                Some((_, Said::Answers(answers))) => *answers,
                Some((_, Said::Nothing)) => {
                    Err(format!("kernel {kernel} does not answer: {SPINS}"))
                }
                Some((_, Said::Gone)) | None => Err(format!("kernel {kernel} has ended")),
            },
            (None, Request::Ps(query) | Request::Top(query)) => joined(said, &query),
            (None, _) => joined(said, &Query::default()),
        }
    }

    /// Asks all kernels at the same time, or one of them.
    async fn ask_each(
        &mut self,
        os: &mut Os,
        request: &Request,
        about: Option<KernelId>,
    ) -> Vec<(KernelId, Said)> {
        let mut asked = Vec::new();
        let kernels = self.kernels.iter().zip(&mut self.links);
        for ((kernel, socket), link) in kernels {
            if about.is_some_and(|about| about != *kernel) {
                continue;
            }
            let (old, socket, request) = (link.take(), socket.clone(), request.clone());
            let ask = async move |os: &mut Os| ask(os, old, socket, request).await;
            if let Ok(child) = os.spawn_child("asks", ask).await {
                asked.push((*kernel, child));
            }
        }
        let mut all = Vec::new();
        for (kernel, mut child) in asked {
            let (link, said) = child.wait(os).await.unwrap_or((None, Said::Gone));
            self.links[kernel.index()] = link;
            all.push((kernel, said));
        }
        all
    }

    /// Has events of all kernels handed over, until the receiver is gone.
    pub(super) async fn trace(
        &self,
        os: &mut Os,
        request: &Request,
        take: impl Fn(&Answer) -> bool + Clone + 'static,
    ) {
        for (_, socket) in self.kernels.iter() {
            let (socket, request, take) = (socket.clone(), request.clone(), take.clone());
            let relay = async move |os: &mut Os| {
                let mut link = Link::new(os, UnixStream::connect(socket)?).await?;
                link.send(os, &request).await?;
                while take(&link.next(os, &mut 0).await?) {}
                io::Result::Ok(())
            };
            // Its failure is the end of its kernel.
            let relay = async move |os: &mut Os| drop(relay(os).await);
            let _ = os.spawn_detached("relays", relay).await;
        }
    }
}

/// Asks a kernel, over a new connection if there is none. One that is in the middle of an answer is given up.
async fn ask(
    os: &mut Os,
    link: Option<Link>,
    socket: PathBuf,
    request: Request,
) -> (Option<Link>, Said) {
    let link = match link {
        Some(link) => Ok(link),
        None => match UnixStream::connect(socket) {
            Ok(stream) => Link::new(os, stream).await,
            Err(error) => Err(error),
        },
    };
    let Ok(mut link) = link else {
        return (None, Said::Gone);
    };
    let patience = link.pause + PATIENCE;
    match os
        .timeout(patience, async |os| link.ask(os, &request).await)
        .await
    {
        Ok(Ok(answers)) => (Some(link), Said::Answers(Box::new(answers))),
        Ok(Err(_)) => (None, Said::Gone),
        Err(_) => (None, Said::Nothing),
    }
}

/// The answers of all kernels as those of one.
fn joined(said: Vec<(KernelId, Said)>, query: &Query) -> Result<Answers, String> {
    let (mut all, mut rows, mut totals) = (Answers::default(), Vec::new(), Vec::new());
    for (kernel, said) in said {
        match said {
            Said::Gone => {}
            Said::Nothing => all.silent.push(kernel.into()),
            Said::Answers(answers) => {
                let answers = (*answers)?;
                rows.push(answers.tasks);
                all.cycles.extend(answers.cycles);
                all.behind.extend(answers.behind);
                totals.push(answers.totals);
            }
        }
    }
    if totals.is_empty() && all.silent.is_empty() {
        return Err("the kernels have ended".into());
    }
    let left_out;
    (all.tasks, left_out) = query.merge(rows);
    all.totals = Totals::together(&totals, left_out);
    Ok(all)
}
