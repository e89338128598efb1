//! Standard input, and the time of day.

use std::{
    io,
    rc::Rc,
    time::{Duration, SystemTime},
};

use super::{
    device::{Device, opened},
    os::{Decode, Os, answer, io_error},
};
use crate::{
    abi::{Reply, SystemCall},
    trap::TrapFrame,
};

/// The standard input of the tasks, opened by [`Os::input`].
pub type Input = Device<StandardInput>;

/// What the device of an [`Input`] is.
#[derive(Debug)]
pub struct StandardInput(());

impl Os {
    /// Returns the standard input, to be read by [`Device::recv`] or waited for by a select. Never
    /// blocks.
    ///
    /// In the real world it is descriptor 0 of the process: a terminal, a pipe, a socket or a file. It is
    /// not made non-blocking, and the settings of a terminal stay: both belong to other processes, too. A
    /// read never blocks the kernel, whatever other processes read meanwhile. In the simulated world it
    /// is a text ([`Builder::input`](crate::Builder::input)), and otherwise ends at once.
    ///
    /// A kernel has one device for it: this returns the same one to every task. A second task that reads
    /// meanwhile gets `ResourceBusy`, as from every device. The drop of the last handle does not close
    /// it, and leaves descriptor 0 open. After [`Device::close`] the next call opens it again. What
    /// [`Os::read_line`] has read ahead comes first.
    ///
    /// *Errors:* `NotFound` if standard input is closed; Rust's runtime has opened `/dev/null` in its
    /// place if it was closed before the process began. `InvalidInput` if it cannot be read from.
    ///
    /// ```
    /// use trapline::{Kernel, Os, SimWorld};
    ///
    /// let mut kernel = Kernel::builder().world(SimWorld::new(1)).input("a\nbc").build()?;
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     assert_eq!(os.read_line().await?.as_deref(), Some("a"));
    ///     let mut buf = [0; 8];
    ///     let n = os.input().await?.recv(os, &mut buf).await?;
    ///     assert_eq!(&buf[..n], b"bc");
    ///     assert_eq!(os.read_line().await?, None);
    ///     std::io::Result::Ok(())
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn input(&mut self) -> impl Future<Output = io::Result<Input>> {
        self.call(
            |_| SystemCall::Input,
            |reply, frame| {
                let (handle, _) = opened(reply, frame)?;
                Ok(Device::new(handle, Rc::new(StandardInput(()))))
            },
        )
    }

    /// Reads a line of standard input, without its end (`\n` or `\r\n`). The last line needs no end.
    /// Returns `None` at the end of the input; a terminal may have more after it. *Blocks* until there is
    /// a line.
    ///
    /// Tasks share what was read ahead. A call that a timeout cuts takes no bytes: the next one has them.
    ///
    /// *Errors:* those of [`Os::input`] and [`Device::recv`]; `ResourceBusy` while another task reads.
    /// `InvalidData` for a line that is not UTF-8, which is taken, and for one of more than 1 MiB, whose
    /// bytes stay for [`Os::input`].
    #[track_caller]
    pub fn read_line(&mut self) -> impl Future<Output = io::Result<Option<String>>> {
        self.note_caller();
        self.call_undoing(|_| SystemCall::ReadLine, Line)
    }

    /// Returns the time of day on the clock of the task's host. It may step forward or back at any time:
    /// measure spans by [`Os::now`]. Never blocks.
    ///
    /// In the simulated world it begins at 2000-01-01T00:00:00Z, or as
    /// [`SimWorld::wall_clock`](crate::SimWorld::wall_clock) says, and advances with the virtual clock.
    /// [`SimNet::clock_back`](crate::SimNet::clock_back) and faults make it step. A tape has its
    /// readings. A world of another kind that has no such clock counts from 1970. Times before 1970 and
    /// after 2554 count as the nearest one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// let net = kernel.net();
    /// kernel.spawn("main", async move |os: &mut Os| {
    ///     let hour = Duration::from_secs(3600);
    ///     let (before, since) = (os.wall_clock().await, os.now().await);
    ///     net.clock_back(hour);
    ///     assert_eq!(os.wall_clock().await, before - hour);
    ///     assert_eq!(os.now().await, since);
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn wall_clock(&mut self) -> impl Future<Output = SystemTime> {
        self.call(
            |_| SystemCall::WallClock,
            answer!(Reply::Time(since) => SystemTime::UNIX_EPOCH + Duration::from(since)),
        )
    }
}

/// Takes a line from what was read ahead. One that its task does not take stays there.
struct Line;

impl Decode for Line {
    type Output = io::Result<Option<String>>;

    fn decode(&mut self, reply: Reply, frame: &Rc<TrapFrame>) -> Self::Output {
        let Reply::Bytes(len) = reply else {
            return Err(io_error(reply, frame));
        };
        if len == 0 {
            return Ok(None);
        }
        let mut line = frame.unread.borrow_mut().read_found(len as usize);
        if line.ends_with(b"\n") {
            line.pop();
            line.pop_if(|last| *last == b'\r');
        }
        let line = String::from_utf8(line).map_err(|error| {
            let why = format!("a line of standard input is not UTF-8: {error}");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        Ok(Some(line))
    }

    fn undo(&mut self, reply: Reply, frame: &Rc<TrapFrame>) {
        if let Reply::Io = reply {
            drop(frame.take());
        }
    }
}
