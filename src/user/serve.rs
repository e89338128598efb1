//! Serving: a task accepts clients until it is told to stop, and lets them finish.

use std::{cell::Cell, collections::BTreeMap, io, rc::Rc, time::Duration};

use super::{
    device::Device,
    net::{ListenerKind, StreamKind},
    os::{Os, io_checked},
    program::IntoExit,
    select::Source,
    sync::Group,
    time::Elapsed,
};
use crate::{
    abi::{DeviceId, Errno, SystemCall, Tid},
    trap::{Caller, Object},
};

/// How long a server waits after an error of `accept`. Most likely the process has no free descriptors:
/// a client must leave first.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a server says no more of such errors after one.
const QUIET: Duration = Duration::from_secs(10);

/// How long a peer that sends nothing is given to end its side, after a client's task has returned.
const FAREWELL: Duration = Duration::from_millis(500);

impl Os {
    /// Accepts clients, and runs `client` for each in a task of its own, until the source `stop` is ready.
    /// Then it drains: it closes the listener, and every client's stream
    /// [reads no more](crate::TcpStream::shutdown_read) than what has arrived. It waits for the clients' tasks
    /// for at most `drain`, kills the rest, and returns how many it killed. It takes nothing from `stop`.
    /// A [`UnixListener`](crate::UnixListener) is served in the same way; its clients have no address.
    /// (The graceful shutdown of hyper.)
    ///
    /// *Blocks* until then. A failure of a client ends only that client. When `accept` fails, or a
    /// client's task cannot be made, the server goes on. A warning says so, of `accept` at most one in
    /// ten seconds. If this call is cut, its clients are killed.
    ///
    /// A client's task that returns during the drain has ended its connection in order. What its peer
    /// sends yet is dropped until the peer ends its side or is silent for half a second.
    ///
    /// *Errors:* that of a listener that is closed, even while it stops, or is of another kernel. The
    /// clients are killed then.
    ///
    /// ```
    /// # use std::{io, time::Duration};
    /// use trapline::{Kernel, Os, Source, sync::Flag};
    ///
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("server", async |os: &mut Os| {
    ///     let stop = Flag::new(os).await;
    ///     let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
    ///     let (addr, theirs) = (listener.local_addr()?, stop.clone());
    ///     os.spawn("client", async move |os: &mut Os| {
    ///         let (stream, mut buf) = (os.connect(addr).await?, [0; 8]);
    ///         stream.send_all(os, b"hello").await?;
    ///         assert_eq!(stream.recv(os, &mut buf).await?, 5);
    ///         theirs.set(os).await;
    ///         assert_eq!(stream.recv(os, &mut buf).await?, 0);
    ///         io::Result::Ok(())
    ///     }).await?;
    ///     let echo = async |os: &mut Os, stream: trapline::TcpStream, _peer| {
    ///         let mut buf = [0; 8];
    ///         while let n @ 1.. = stream.recv(os, &mut buf).await? {
    ///             stream.send_all(os, &buf[..n]).await?;
    ///         }
    ///         io::Result::Ok(())
    ///     };
    ///     let span = Duration::from_secs(5);
    ///     assert_eq!(os.serve_until(&listener, Source::flag(&stop), span, echo).await?, 0);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn serve_until<T: IntoExit, L: ListenerKind>(
        &mut self,
        listener: &Device<L>,
        stop: Source,
        drain: Duration,
        client: impl AsyncFn(&mut Self, Device<L::Stream>, L::Peer) -> T + 'static,
    ) -> impl Future<Output = io::Result<usize>> {
        let place = self.note_caller();
        self.serve_at(place, listener, stop, drain, client)
    }

    async fn serve_at<T: IntoExit, L: ListenerKind>(
        &mut self,
        place: Caller,
        listener: &Device<L>,
        stop: Source,
        drain: Duration,
        client: impl AsyncFn(&mut Self, Device<L::Stream>, L::Peer) -> T + 'static,
    ) -> io::Result<usize> {
        let client = Rc::new(client);
        let mut group = Group::new(self).await;
        let mut streams: BTreeMap<Tid, DeviceId> = BTreeMap::new();
        let stops = Rc::new(Cell::new(false));
        // A search finds it beside the group.
        let flag = Object::Beside(group.ended().id());
        let (mut is_paused, mut quiet_until) = (false, Duration::ZERO);
        loop {
            let next = match is_paused {
                true => Source::after(PAUSE),
                false => Source::readable(listener),
            };
            self.frame().set_place(place);
            let sources = [stop, Source::member(&group), next];
            match self.select_noted(0, &sources).await {
                0 => break,
                1 => {
                    if let Some((tid, _)) = group.next(self).await {
                        streams.remove(&tid);
                    }
                    continue;
                }
                _ if is_paused => {
                    is_paused = false;
                    continue;
                }
                _ => {}
            }
            // The client may have left meanwhile: then this would wait for another, and not for `stop`.
            let accept = async |os: &mut Self| L::accept(listener, os).await;
            let (stream, peer) = match self.timeout(Duration::ZERO, accept).await {
                Ok(Ok(accepted)) => accepted,
                Err(Elapsed) => continue,
                Ok(Err(error)) if is_gone(&error) => return Err(error),
                Ok(Err(error)) => {
                    let now = self.now().await;
                    if now >= quiet_until {
                        tracing::warn!("cannot accept: {error}");
                        quiet_until = now + QUIET;
                    }
                    is_paused = true;
                    continue;
                }
            };
            let (device, client) = (stream.id(), Rc::clone(&client));
            let (last, stops) = (stream.clone(), Rc::clone(&stops));
            let member = async move |os: &mut Self| {
                let exit = client(os, stream, peer).await;
                os.frame().touch(flag, false);
                if stops.get() {
                    farewell(os, &last, FAREWELL.min(drain / 2)).await;
                }
                exit
            };
            self.frame().set_place(place);
            match group.spawn_noted(self, "client", member).await {
                Ok(tid) => drop(streams.insert(tid, device)),
                Err(errno) => tracing::warn!("cannot serve {peer:?}: {errno}"),
            }
        }
        self.frame().touch(flag, true);
        stops.set(true);
        // Another task may have closed it.
        let _ = listener.close(self).await;
        for device in streams.into_values() {
            // It fails if the client's task has closed it.
            let end = self.call(move |_| SystemCall::ShutdownRead(device), io_checked);
            let _ = end.await;
        }
        Ok(group.drain_at(place, self, drain).await)
    }
}

/// Ends a connection without a loss. If it were closed while its peer sends, the operating system would
/// discard what the peer has not received.
async fn farewell<S: StreamKind>(os: &mut Os, stream: &Device<S>, silence: Duration) {
    // It fails if the client's task has closed the stream, or the connection is lost.
    if stream.shutdown_write(os).await.is_ok() {
        let mut buf = [0; 4096];
        let mut rest = async |os: &mut Os| stream.recv(os, &mut buf).await;
        while let Ok(Ok(1..)) = os.timeout(silence, &mut rest).await {}
    }
}

/// Whether no call at the listener can succeed any more.
fn is_gone(error: &io::Error) -> bool {
    let errno = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(errno, Some(Errno::BadFd | Errno::Denied))
        || error.kind() == io::ErrorKind::PermissionDenied
}
