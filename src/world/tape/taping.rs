//! [`Taping`]: a world that writes down what another one answers.

use std::{
    cell::Cell,
    fmt,
    io::Result,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    Header, Writer,
    entry::{self, Asked, Context},
    kind, received,
};
use crate::{
    abi::{DeviceId, Tid},
    interrupt::Remote,
    trap::{Mail, pause::paused},
    world::{Answer, Happening, Request, World, forward_world, sequence::Sequence},
};

/// A world around another one that writes every answer to a tape. [`Playing`](super::Playing)
/// answers from the tape. See [`mod@crate::tape`].
///
/// It has no [`SimNet`](crate::SimNet): its kernel has one host.
///
/// The tape is complete once [`Writer::close`] has been called or the world is dropped. The latter
/// includes what the drop of a kernel asks. It is written before each sleep of the kernel, and every
/// 50 ms. So a process that is killed leaves everything up to there.
pub struct Taping<W> {
    inner: W,
    remote: Remote,
    writer: Writer,
    context: Context,
    /// What [`World::is_idle`] answered last.
    is_idle: Cell<bool>,
    /// The sequence that a replay computes from the seed.
    random: Sequence,
}

impl<W: World> Taping<W> {
    /// Tapes what `world` answers. The file is created for its owner alone, or replaced, and stays
    /// locked until the end of the tape. At `max` bytes the tape ends, and the run goes on. The
    /// header's `is_simulated` is set to whether the world spins ([`World::spins`]).
    ///
    /// *Errors:* `ResourceBusy` while another process writes to the file; `InvalidInput` for what
    /// is no file, and for a header of more than 32 MiB; the operating system's.
    pub fn create(
        world: W,
        path: impl AsRef<Path>,
        header: &Header,
        max: Option<u64>,
    ) -> Result<Self> {
        let seed = world.seed();
        // A replay must compute in the same way.
        let header = Header {
            is_simulated: !world.spins(),
            ..header.clone()
        };
        world.remote().note_tape(false);
        let writer = Writer::create(path.as_ref(), &header, max)?;
        writer.put(|out| entry::seed(out, seed));
        Ok(Self {
            remote: world.remote(),
            inner: world,
            writer,
            context: Context::default(),
            is_idle: Cell::new(false),
            random: Sequence::new(seed),
        })
    }

    /// Where it writes to. The kernel owns the world, so keep this to learn whether all went well.
    #[must_use]
    pub fn writer(&self) -> Writer {
        self.writer.clone()
    }

    /// Writes what there is to the file, if a wait until the deadline may sleep.
    fn write_before_sleep(&self, deadline: Option<Duration>) {
        if deadline.is_none_or(|deadline| self.context.is_to_come(deadline)) {
            self.writer.write();
        }
    }

    fn note_wait(&self, reports: &[Happening], result: &Result<Option<Duration>>) {
        self.writer.put(|out| entry::wait(out, reports, result));
    }

    fn note_io(&mut self, asked: Asked, result: &Result<Answer>, read: &[u8]) {
        let context = &mut self.context;
        self.writer.put(|out| context.io(out, asked, result, read));
    }
}

impl<W: World> World for Taping<W> {
    forward_world!(inner: now_for_log, seed, take_console, remote, spins, spin);

    fn now(&mut self) -> Duration {
        let now = self.inner.now();
        if !self.remote.running().is_daemon() {
            let context = &mut self.context;
            self.writer.put(|out| context.now(out, now));
        }
        now
    }

    fn random(&mut self) -> u64 {
        let number = self.inner.random();
        let is_as_seeded = self.random.next() == number;
        self.writer
            .put(|out| entry::random(out, number, is_as_seeded));
        number
    }

    fn choose(&mut self, of: u64, drawn: u64) -> u64 {
        let answer = self.inner.choose(of, drawn);
        let is_as_seeded = answer == drawn;
        self.writer
            .put(|out| entry::random(out, answer, is_as_seeded));
        answer
    }

    fn reseed(&mut self, seed: u64) {
        self.inner.reseed(seed);
        self.random = Sequence::new(seed);
        self.writer.put(|out| entry::seed(out, seed));
    }

    fn print(&mut self, text: &[u8]) -> Result<usize> {
        let result = self.inner.print(text);
        self.writer
            .put(|out| entry::print(out, text.len(), &result));
        result
    }

    fn wait(&mut self, deadline: Option<Duration>, happened: &mut Vec<Happening>) -> Result<()> {
        // A virtual clock does not sleep.
        if self.inner.spins() {
            self.write_before_sleep(deadline);
        }
        let before = happened.len();
        let result = self.inner.wait(deadline, happened).map(|()| None);
        self.note_wait(&happened[before..], &result);
        result.map(drop)
    }

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> Result<Duration> {
        self.write_before_sleep(deadline);
        let before = happened.len();
        let result = self.inner.wait_for_threads(deadline, patience, happened);
        let result = result.map(Some);
        self.note_wait(&happened[before..], &result);
        result.map(Option::unwrap_or_default)
    }

    fn is_idle(&self) -> bool {
        let is_idle = self.inner.is_idle();
        if self.is_idle.replace(is_idle) != is_idle {
            self.writer.put(|out| entry::flag(out, kind::IDLE, is_idle));
        }
        is_idle
    }

    fn submit(&mut self, task: Tid, job: Box<dyn FnOnce() + Send>) {
        if task.is_daemon() {
            return self.inner.submit(task, job);
        }
        let in_place = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&in_place);
        let job = move || {
            told.store(paused().is_some(), Ordering::Relaxed);
            job();
        };
        self.inner.submit(task, Box::new(job));
        let in_place = in_place.load(Ordering::Relaxed);
        self.writer
            .put(|out| entry::flag(out, kind::SUBMIT, in_place));
    }

    fn mail(&mut self, mail: &mut dyn Mail) -> Result<()> {
        let mut taken = Vec::new();
        mail.take(Some(&mut taken));
        self.note_io(Asked::MAIL, &Ok(Answer::Bytes(taken.len())), &taken);
        Ok(())
    }

    fn io(&mut self, device: DeviceId, mut request: Request<'_>) -> Result<Answer> {
        if entry::is_apart(device, &self.remote) || matches!(request, Request::Feed(_)) {
            return self.inner.io(device, request);
        }
        let asked = Asked::of(device, &request);
        match &mut request {
            Request::Recv(buf) => {
                let result = self.inner.io(device, Request::Recv(buf));
                let read = match result {
                    Ok(Answer::Bytes(n)) => buf.get(..n).unwrap_or_default(),
                    Ok(_) | Err(_) => &[],
                };
                self.note_io(asked, &result, read);
                result
            }
            Request::RecvFrom { buf, from } => {
                let result = self.inner.io(device, Request::RecvFrom { buf, from });
                let read = match result {
                    Ok(Answer::Bytes(n)) => {
                        received::datagram(**from, buf.get(..n).unwrap_or_default())
                    }
                    Ok(_) | Err(_) => Vec::new(),
                };
                self.note_io(asked, &result, &read);
                result
            }
            Request::Finish(into) => {
                let result = self.inner.io(device, Request::Finish(into));
                self.note_io(asked, &result, into);
                result
            }
            Request::Resolve { name, addresses } => {
                let request = Request::Resolve { name, addresses };
                let result = self.inner.io(device, request);
                self.note_io(asked, &result, &received::addresses(addresses));
                result
            }
            _ => {
                let result = self.inner.io(device, request);
                self.note_io(asked, &result, &[]);
                result
            }
        }
    }
}

/// Ends the tape, so that it is complete.
impl<W> Drop for Taping<W> {
    fn drop(&mut self) {
        // The writer returns the error to a caller that asks for it.
        let _ = self.writer.close();
    }
}

impl<W: fmt::Debug> fmt::Debug for Taping<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taping")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
