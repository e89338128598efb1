//! The monitor of several kernels: the socket that `boot --kernels` opens for all of them.
//!
//! It is a monitor of a kernel of its own, on a thread. Its clients have a connection to the monitor of each
//! kernel. So a kernel that does not answer hides none of the others.

use std::{
    io,
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

use tracing::dispatcher::{self, Dispatch};
use trapline::{Kernel, KernelId, Os, Remote};

use super::{
    monitor::{self, Live},
    socket::SocketFile,
    watch::{Options, listen},
};
use crate::{outfile, signals};

/// The socket, and the thread behind it.
pub(crate) struct Front {
    kernels: Vec<(KernelId, PathBuf)>,
    state: Mutex<State>,
}

struct State {
    /// How many kernels have not booted. Before that none is missing.
    awaited: usize,
    socket: Option<(UnixListener, Arc<SocketFile>)>,
    running: Option<(Remote, JoinHandle<()>)>,
}

impl Front {
    /// Opens the socket of the options for so many kernels, if they name one.
    pub(crate) fn open(options: &Options, kernels: usize) -> Result<Option<Self>, String> {
        let Some(path) = options.socket() else {
            return Ok(None);
        };
        let (listener, file) = listen(path)?;
        let last = Arc::downgrade(&file);
        signals::at_end(move || {
            if let Some(file) = last.upgrade() {
                file.remove();
            }
        });
        let ids = (0..kernels).map(KernelId::at);
        Ok(Some(Self {
            kernels: ids.map(|id| (id, outfile::of_kernel(path, id))).collect(),
            state: Mutex::new(State {
                awaited: kernels,
                socket: Some((listener, file)),
                running: None,
            }),
        }))
    }

    /// Notes that a kernel has booted. The last of them has the clients served.
    pub(crate) fn booted(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.awaited -= 1;
        if state.awaited > 0 {
            return Ok(());
        }
        let Some((listener, file)) = state.socket.take() else {
            return Ok(());
        };
        let kernels = self.kernels.clone();
        let (tell, told) = mpsc::channel();
        let serve = move || {
            let kernel = Kernel::real();
            let Ok(mut kernel) = kernel.map_err(|error| tell.send(Err(error))) else {
                return;
            };
            let live = Live::Kernels(kernels.into());
            let serve = async move |os: &mut Os| monitor::serve(os, listener, file, live).await;
            let _ = kernel.spawn("monitor", serve);
            let _ = tell.send(Ok(kernel.remote()));
            // It ends when it is shut down.
            let _ = kernel.run();
        };
        // A trace of the run is not about this kernel.
        let serve = move || dispatcher::with_default(&Dispatch::none(), serve);
        let thread = thread::Builder::new().name("monitor".into()).spawn(serve)?;
        let remote = told
            .recv()
            .map_err(io::Error::other)?
            .map_err(io::Error::other)?;
        state.running = Some((remote, thread));
        Ok(())
    }

    /// Ends the service, and removes the socket's file.
    pub(crate) fn end(self) {
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((remote, thread)) = state.running {
            remote.shutdown();
            let _ = thread.join();
        }
    }
}
