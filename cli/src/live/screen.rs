//! The screen: a task that reads keys and draws, and a task that fetches snapshots of this kernel
//! or another.

use std::{
    cell::RefCell,
    convert::Infallible,
    error::Error,
    io::{self, ErrorKind},
    os::unix::net::UnixStream,
    rc::Rc,
    time::Duration,
};

use ratatui::{
    TerminalOptions, Viewport,
    backend::CrosstermBackend,
    crossterm::{
        QueueableCommand, cursor,
        terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate},
    },
    layout::Rect,
};
use trapline::{Device, Os, Queue};

use super::{
    draw::draw,
    model::{self, Model, Snapshot, Whereabouts},
    protocol::{ANSWER, Answer, Request},
    query::Query,
    row::Totals,
    shared::Shared,
    terminal::{self, Keyboard, Taken, Terminal},
    view::{View, Wish},
};
use crate::{
    output,
    stdio::{self, Memory},
};

/// The largest number of lines of output.
const LINES: usize = 16;
/// The period for checking the size of the terminal and redrawing.
const BEAT: Duration = Duration::from_millis(100);
/// The time after which a connected kernel without an answer is called busy.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest line that is kept.
const LINE: usize = 1 << 22;

/// The source of the snapshots.
pub(super) enum Source {
    /// The kernel of this task.
    Here { shared: Shared, model: Model },
    /// Another, at the other end of this connection.
    There(Link),
}

/// A connection to a monitor.
pub(super) struct Link {
    device: Device<UnixStream>,
    input: Vec<u8>,
    /// The number of bytes that have been read.
    read: usize,
    /// The longest time until the monitor reads the next request.
    pause: Duration,
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
    // On an earlier error, the caller gives the terminal back.
    let _taken = Taken;
    terminal.enter()?;
    let mut paper = Paper::new(os, terminal).await?;
    let (stdin, mut keyboard) = (os.attach(io::stdin()).await.ok(), Keyboard::default());
    loop {
        paper.draw(os, &desk).await?;
        wait_for_input(os, stdin.as_ref()).await;
        if let Some(error) = desk.borrow_mut().over.take() {
            return farewell(error);
        }
        for key in keyboard.wait(Duration::ZERO)? {
            let wish = desk.borrow_mut().view.press(key);
            desk.borrow_mut().dirty = true;
            match wish {
                Wish::Redraw => {}
                Wish::Repaint => paper.size = (0, 0),
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

async fn wait_for_input(os: &mut Os, stdin: Option<&Device<io::Stdin>>) {
    match stdin {
        Some(stdin) => drop(os.timeout(BEAT, async |os| os.read_wait(stdin).await).await),
        // Another task has attached it, so keys are polled and arrive a moment later.
        None => os.sleep(BEAT / 2).await,
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
            source.hurry(os, desk).await;
            let notice = source.kill(os, tid).await?;
            desk.borrow_mut().view.notice = notice;
        }
        let query = desk.borrow().view.query.clone();
        let is_new = query != shown && now >= free;
        if now >= due || is_new || !victims.is_empty() {
            source.hurry(os, desk).await;
            let snapshot = source.snapshot(os, &query).await?;
            let pause = model::pause(snapshot.totals.tasks).max(source.pause());
            (due, free, shown) = (now + every.max(pause), now + pause, query);
            desk.borrow_mut().view.update(snapshot);
        }
        let subject = desk.borrow_mut().view.subject();
        let found = if let Some(tid) = subject {
            source.hurry(os, desk).await;
            source.whereabouts(os, tid).await?
        } else {
            None
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

    /// Sets the deadline of the next answer.
    async fn hurry(&self, os: &mut Os, desk: &RefCell<Desk>) {
        let late = os.now().await + self.pause() + PATIENCE;
        desk.borrow_mut().late = Some(late);
    }

    /// A snapshot of the tasks that a query lists.
    async fn snapshot(&mut self, os: &mut Os, query: &Query) -> io::Result<Snapshot> {
        match self {
            Self::Here { model, .. } => Ok(model.snapshot(os, query).await),
            Self::There(link) => {
                let mut tasks = Vec::new();
                let request = Request::Top(query.clone());
                let answer = link.ask(os, &request, |answer| {
                    if let Answer::Task(row) = answer {
                        tasks.push(row);
                    }
                });
                let totals = answer.await?.map_err(io::Error::other)?;
                Ok(Snapshot { tasks, totals })
            }
        }
    }

    async fn whereabouts(&mut self, os: &mut Os, tid: u64) -> io::Result<Option<Whereabouts>> {
        match self {
            Self::Here { shared, .. } => {
                let tasks = os.tasks().await;
                Ok(model::whereabouts(&tasks, &shared.recent.borrow(), tid))
            }
            Self::There(link) => {
                let (mut chain, mut traps) = (Vec::new(), Vec::new());
                let request = Request::Where { tid };
                let answer = link.ask(os, &request, |answer| match answer {
                    Answer::Task(row) => chain.push(row),
                    Answer::Trap(line) => traps.push(line),
                    _ => {}
                });
                Ok(answer.await?.ok().map(|_| (chain, traps)))
            }
        }
    }

    /// Kills a task, and returns the message about it.
    async fn kill(&mut self, os: &mut Os, tid: u64) -> io::Result<String> {
        let outcome = match self {
            Self::Here { shared, .. } => shared.kill(os, tid).await,
            Self::There(link) => {
                let answer = link.ask(os, &Request::Kill { tid }, drop).await?;
                answer.map(drop)
            }
        };
        Ok(outcome.map_or_else(|why| why, |()| format!("task {tid} is killed")))
    }
}

impl Link {
    pub(super) async fn new(os: &mut Os, stream: UnixStream) -> io::Result<Self> {
        let device = os.attach(stream).await?;
        Ok(Self {
            device,
            input: Vec::new(),
            read: 0,
            pause: Duration::ZERO,
        })
    }

    /// Sends a request, and passes on every answer except the last: an end, or the monitor's error.
    async fn ask(
        &mut self,
        os: &mut Os,
        request: &Request,
        mut each: impl FnMut(Answer),
    ) -> io::Result<Result<Totals, String>> {
        let mut line = serde_json::to_vec(request).expect("plain values are JSON");
        line.push(b'\n');
        self.device.send_all(os, &line).await?;
        let mut kept = 0;
        while kept <= ANSWER {
            let answer = self.next(os, &mut kept).await?;
            match answer {
                Answer::End(totals) => {
                    let pause = totals.pause.unwrap_or_default();
                    self.pause = Duration::try_from_secs_f64(pause).unwrap_or_default();
                    return Ok(Ok(totals));
                }
                Answer::Error { message } => return Ok(Err(message)),
                answer => each(answer),
            }
        }
        Err(io::Error::other("an answer is too long"))
    }

    /// Returns the next line; adds its length to `kept`.
    async fn next(&mut self, os: &mut Os, kept: &mut usize) -> io::Result<Answer> {
        let mut buf = [0; 8192];
        loop {
            let rest = &self.input[self.read..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                self.read += end + 1;
                *kept += end + 1;
                let strange = "the server there is no monitor of a kernel";
                return serde_json::from_slice(&rest[..end]).map_err(|_| io::Error::other(strange));
            }
            self.input.drain(..self.read);
            self.read = 0;
            if self.input.len() > LINE {
                return Err(io::Error::other("an answer is too long"));
            }
            match self.device.recv(os, &mut buf).await? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => self.input.extend_from_slice(&buf[..n]),
            }
        }
    }
}

/// The surface to draw on. It writes as a task does, so a slow terminal delays no other task.
struct Paper {
    terminal: Terminal,
    size: (u16, u16),
    /// The amount of output at the last drawing.
    printed: u64,
    ink: Memory,
    pages: ratatui::Terminal<CrosstermBackend<Memory>>,
    out: Option<Device<terminal::Handle>>,
}

impl Paper {
    async fn new(os: &mut Os, terminal: Terminal) -> io::Result<Self> {
        let ink = Memory::default();
        let viewport = Viewport::Fixed(Rect::default());
        let backend = CrosstermBackend::new(ink.clone());
        let pages = ratatui::Terminal::with_options(backend, TerminalOptions { viewport })?;
        Ok(Self {
            terminal,
            size: (0, 0),
            printed: 0,
            ink,
            pages,
            out: os.attach(terminal.handle()).await.ok(),
        })
    }

    /// Draws what has changed, if anything.
    async fn draw(&mut self, os: &mut Os, desk: &RefCell<Desk>) -> io::Result<()> {
        let (size, printed) = (self.terminal.size(), stdio::count());
        if size == self.size && printed == self.printed && !desk.borrow().dirty {
            return Ok(());
        }
        self.ink.queue(BeginSynchronizedUpdate)?;
        if size != self.size {
            self.size = size;
            self.pages.resize(Rect::new(0, 0, size.0, size.1))?;
        }
        self.printed = printed;
        {
            let mut desk = desk.borrow_mut();
            desk.dirty = false;
            let lines = stdio::tail(LINES);
            self.pages
                .draw(|frame| draw(frame, &mut desk.view, &lines))?;
        }
        // Output of other processes on the terminal must not scroll the screen away.
        self.ink
            .queue(cursor::MoveTo(0, 0))?
            .queue(EndSynchronizedUpdate)?;
        let text = self.ink.take();
        match &self.out {
            Some(out) => out.send_all(os, &text).await,
            // A program has attached it as a device of its own.
            None => self.terminal.write(&text),
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
