//! The screen: a task that reads keys and draws, and a task that fetches snapshots of this kernel
//! or another.

use std::{
    cell::RefCell,
    convert::Infallible,
    error::Error,
    io::{self, ErrorKind},
    rc::Rc,
    time::Duration,
};

use trapline::{Os, Queue};

use super::{
    client::Link,
    draw::draw,
    model::{self, Gauge, Shared},
    protocol::{Answers, Request},
    query::Query,
    terminal::{self, Keyboard, Paper, Terminal},
    view::{View, Wish},
};
use crate::{output, stdio};

/// The largest number of lines of output.
const LINES: usize = 16;
/// The period for checking the size of the terminal and redrawing.
const BEAT: Duration = Duration::from_millis(100);
/// The time after which a connected kernel without an answer is called busy.
const PATIENCE: Duration = Duration::from_secs(3);

/// The source of the snapshots.
pub(super) enum Source {
    /// The kernel of this task.
    Here { shared: Shared, gauge: Gauge },
    /// Another, at the other end of this connection.
    There(Link),
}

/// How a screen ends without an error.
pub(super) enum End {
    /// The user quits, or the kernel that is shown has ended.
    Quit,
    /// The terminal has gone.
    Gone,
}

/// The state that both tasks of a screen share.
#[derive(Default)]
struct Desk {
    view: View,
    /// Whether the screen has to be redrawn.
    dirty: bool,
    /// The instant after which the awaited answer is late.
    late: Option<Duration>,
    /// The reason why no more snapshots arrive.
    over: Option<io::Error>,
}

/// Shows the screen until the user quits, or the terminal goes.
///
/// *Errors:* a text that says why the screen cannot continue.
pub(super) async fn show(
    os: &mut Os,
    source: Source,
    terminal: Terminal,
    every: Duration,
    colored: bool,
) -> Result<End, Box<dyn Error>> {
    let shown = show_on(os, source, terminal, every, colored).await;
    if shown.is_err() && terminal::is_gone() {
        // The signal of a hang-up, if this process gets it, comes before the caller raises one.
        os.sleep(BEAT).await;
        return Ok(End::Gone);
    }
    shown.map(|()| End::Quit)
}

async fn show_on(
    os: &mut Os,
    source: Source,
    terminal: Terminal,
    every: Duration,
    colored: bool,
) -> Result<(), Box<dyn Error>> {
    let desk = Rc::new(RefCell::new(Desk {
        view: View::new(colored),
        dirty: true,
        ..Desk::default()
    }));
    let asks = Queue::<()>::bounded(os, 1).await;
    let (theirs, pokes) = (Rc::clone(&desk), asks.clone());
    let news = async move |os: &mut Os| {
        let desk = Newsless(theirs);
        let Err(error) = follow(os, source, &desk.0, &pokes, every).await;
        desk.0.borrow_mut().over = Some(error);
    };
    os.spawn_detached("screen news", news).await?;
    let mut paper = Paper::take(terminal)?;
    // Through devices, a slow terminal delays no other task. Otherwise a program has attached the
    // stream as a device of its own: keys are polled then, and arrive a moment later.
    let out = os.attach(terminal.descriptor()).await.ok();
    let stdin = os.attach(io::stdin()).await.ok();
    let (mut keyboard, mut printed) = (Keyboard::default(), 0);
    loop {
        let count = stdio::count();
        if paper.is_resized() || count != printed || desk.borrow().dirty {
            printed = count;
            let text = {
                let mut desk = desk.borrow_mut();
                desk.dirty = false;
                let lines = stdio::tail(LINES);
                paper.draw(|frame| draw(frame, &mut desk.view, &lines))?
            };
            match &out {
                Some(out) => out.send_all(os, &text).await?,
                None => terminal.write(&text)?,
            }
        }
        match &stdin {
            Some(stdin) => drop(os.timeout(BEAT, async |os| os.read_wait(stdin).await).await),
            None => os.sleep(BEAT / 2).await,
        }
        if let Some(error) = desk.borrow_mut().over.take() {
            return farewell(error);
        }
        for key in keyboard.wait(Duration::ZERO)? {
            let wish = desk.borrow_mut().view.press(key);
            desk.borrow_mut().dirty = true;
            match wish {
                Wish::Redraw => {}
                Wish::Repaint => paper.forget(),
                // An existing one is used.
                Wish::Ask => drop(asks.try_put(os, ()).await),
                Wish::Quit => return Ok(()),
            }
        }
        let now = os.now().await;
        desk.borrow_mut().look_at_the_clock(now);
    }
}

/// The error of a screen that gets no more snapshots.
fn farewell(error: io::Error) -> Result<(), Box<dyn Error>> {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            output::tell("the kernel has ended\n");
            Ok(())
        }
        _ => Err(error.into()),
    }
}

impl Desk {
    fn look_at_the_clock(&mut self, now: Duration) {
        let is_late = self.late.is_some_and(|late| now > late);
        self.dirty |= is_late != self.view.is_late;
        self.view.is_late = is_late;
    }
}

/// Reports the end of the snapshots when their task has panicked and cannot report it.
struct Newsless(Rc<RefCell<Desk>>);

impl Drop for Newsless {
    fn drop(&mut self) {
        // The unwinding has ended any borrow by now.
        if let Ok(mut desk) = self.0.try_borrow_mut() {
            let why = || io::Error::other("the task that fetches snapshots has ended");
            desk.over.get_or_insert_with(why);
        }
    }
}

/// Keeps the screen's snapshots up to date.
async fn follow(
    os: &mut Os,
    mut source: Source,
    desk: &RefCell<Desk>,
    pokes: &Queue<()>,
    every: Duration,
) -> io::Result<Infallible> {
    // When the next snapshot is due, and when it may be taken if the query has changed.
    let (mut due, mut free) = (Duration::ZERO, Duration::ZERO);
    let mut shown = Query::default();
    loop {
        let now = os.now().await;
        let victims = std::mem::take(&mut desk.borrow_mut().view.victims);
        for &tid in &victims {
            let killed = source.ask(os, desk, &Request::Kill { tid }).await?;
            let notice = killed.map_or_else(|why| why, |_| format!("task {tid} is killed"));
            desk.borrow_mut().view.notice = notice;
        }
        let query = desk.borrow().view.query.clone();
        let is_new = query != shown && now >= free;
        if now >= due || is_new || !victims.is_empty() {
            let request = Request::Top(query.clone());
            let snapshot = source.ask(os, desk, &request).await?;
            let snapshot = snapshot.map_err(io::Error::other)?;
            let pause = model::pause(snapshot.totals.tasks).max(source.pause());
            (due, free, shown) = (now + every.max(pause), now + pause, query);
            desk.borrow_mut().view.update(snapshot);
        }
        let subject = desk.borrow_mut().view.subject();
        let found = match subject {
            Some(tid) => source.ask(os, desk, &Request::Where { tid }).await?.ok(),
            None => None,
        };
        desk.borrow_mut().view.describe(subject, found);
        let now = os.now().await;
        let next = {
            let mut desk = desk.borrow_mut();
            desk.late = None;
            desk.dirty = true;
            if desk.view.query == shown { due } else { free }
        };
        let _ = os
            .timeout(next.saturating_sub(now), async |os| pokes.get(os).await)
            .await;
    }
}

impl Source {
    /// The time until the monitor reads the next request.
    fn pause(&self) -> Duration {
        match self {
            Self::Here { .. } => Duration::ZERO,
            Self::There(link) => link.pause,
        }
    }

    /// Asks the kernel, and sets the instant after which the answer is late. An error within is the
    /// kernel's.
    async fn ask(
        &mut self,
        os: &mut Os,
        desk: &RefCell<Desk>,
        request: &Request,
    ) -> io::Result<Result<Answers, String>> {
        let late = os.now().await + self.pause() + PATIENCE;
        desk.borrow_mut().late = Some(late);
        match self {
            Self::There(link) => link.ask(os, request).await,
            Self::Here { shared, gauge } => {
                if let Request::Kill { tid } = *request
                    && let Err(why) = shared.kill(os, tid).await
                {
                    return Ok(Err(why));
                }
                Ok(shared.snapshot(os).await.measured(request, Some(gauge)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::draw::foot;

    #[test]
    fn a_late_answer_ends_the_note_that_there_is_none() {
        let mut desk = Desk {
            late: Some(Duration::from_secs(1)),
            ..Desk::default()
        };
        desk.look_at_the_clock(Duration::from_secs(2));
        assert!(desk.dirty);
        assert!(foot(&desk.view, 80).to_string().starts_with("no answer"));
        // The answer.
        desk.late = None;
        desk.look_at_the_clock(Duration::from_secs(3));
        assert!(foot(&desk.view, 80).to_string().starts_with("q quit"));
    }
}
