//! The standard streams of a task, where they are not those of the process.

use std::{fmt, rc::Rc};

use super::{device::Device, os::Os, program::IntoExit, queue::Queue};
use crate::{
    abi::{Errno, SystemCall, Tid},
    trap::{Options, Streams},
};

/// What a task has in place of the console and of standard input, for [`Os::spawn_piped`]. What is not
/// given here is that of the parent.
#[derive(Clone, Default)]
#[must_use]
pub struct Stdio {
    streams: Streams,
}

impl Stdio {
    /// The streams of the parent.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has what is printed go to this queue: a text for each trap before which the task has printed. It
    /// is put at that trap, or at the task's end, which *blocks* while the queue is full. A text of a task
    /// that is killed meanwhile, or cut by a timeout, is stored beyond the queue's room.
    ///
    /// When the last task that prints there has ended, the queue is closed, so that its reader finds the
    /// end. A task that prints to a closed queue, or to one whose last handle is dropped, is killed at its
    /// next trap: that is the SIGPIPE of Unix.
    pub fn output(mut self, text: &Queue<String>) -> Self {
        self.streams.output = Some(text.texts());
        self
    }

    /// Has this device be the standard input: [`Os::input`] and [`Os::read_line`] read from it. It is
    /// kept open up to the end of the last task that has it.
    pub fn input<S>(mut self, from: &Device<S>) -> Self {
        self.streams.input = Some((from.id(), Rc::new(from.reference())));
        self
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Streams { input, output } = &self.streams;
        f.debug_struct("Stdio")
            .field("input", &input.as_ref().map(|(device, _)| device))
            .field("output", &output.as_ref().map(|queue| queue.id()))
            .finish()
    }
}

impl Os {
    /// Like [`Os::spawn`], with standard streams of its own, which the tasks that it spawns have as well.
    /// (The pipes and redirections of a Unix shell.)
    ///
    /// *Errors:* as [`Os::spawn`].
    ///
    /// ```
    /// # use trapline::{Kernel, Os, Queue, Stdio};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let text = Queue::bounded(os, 4).await;
    ///     let (ours, theirs) = os.socketpair().await?;
    ///     let stdio = Stdio::new().input(&theirs).output(&text);
    ///     os.spawn_piped(stdio, "shout", async |os: &mut Os| {
    ///         while let Some(line) = os.read_line().await? {
    ///             writeln!(os, "{}", line.to_uppercase());
    ///         }
    ///         std::io::Result::Ok(())
    ///     }).await?;
    ///     drop(theirs);
    ///     ours.send_all(os, b"hello\n").await?;
    ///     ours.shutdown_write(os).await?;
    ///     assert_eq!(text.get(os).await, Ok("HELLO\n".into()));
    ///     // It has ended.
    ///     assert!(text.get(os).await.is_err());
    ///     std::io::Result::Ok(())
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_piped<T: IntoExit>(
        &mut self,
        stdio: Stdio,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        self.note_caller();
        let options = Options {
            streams: Some(stdio.streams),
            ..Options::default()
        };
        self.new_task(SystemCall::NewTask, name.as_ref(), program, Some(options))
    }
}
