//! Blocking work and mail whose values a tape holds: the feature `serde`.
//!
//! The value of work crosses the world as bytes of a socket whose other end the task holds itself. So it is
//! on a tape, as all bytes that a device delivers.

use std::{
    fmt::Display,
    future::Future,
    io::{self, Write},
    os::unix::net::UnixStream,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    blocking::Panicked,
    mailbox::{Codec, Mailbox, Sender},
    os::Os,
};
use crate::trap::{Carrier, pause::is_again};

const CHUNK: usize = 4096;

impl Os {
    /// Runs `work` as [`Os::run_blocking`] does. A [tape](mod@crate::tape) holds its value, and a replay
    /// returns that without the work. This is for work that a replay cannot repeat: it reads a file, a
    /// clock or a database, or it has effects. Needs the feature `serde`.
    ///
    /// The value travels as JSON: floats must be finite, and the keys of maps must be texts or
    /// numbers. In a world without devices, such as the simulated one, it does not travel.
    ///
    /// *Blocks* as [`Os::run_blocking`] does.
    ///
    /// *Errors:* [`Panicked`] with the message, if the work panicked; if the process has no
    /// descriptor left; and if the value is not what JSON or the replayed program can represent.
    ///
    /// ```
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::real()?;
    /// let main = kernel.spawn("main", async |os: &mut Os| {
    ///     let read = || std::fs::read_to_string("Cargo.toml").map_err(|error| error.to_string());
    ///     let text = os.run_recorded(read).await?;
    ///     text.map(|text| assert!(text.contains("[package]"))).map_err(trapline::Panicked)
    /// })?;
    /// assert_eq!(kernel.run()?.exits()[&main], trapline::Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn run_recorded<T: Serialize + DeserializeOwned + Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Panicked>> {
        let place = self.note_caller();
        async move {
            let work = || (!is_again()).then(work);
            let value = self.run_blocking_at(place, work).await.transpose();
            // A replay has no value of its own. The one on the tape arrives.
            let bytes = value.as_ref().map_or_else(Vec::new, encode);
            match (self.cross(&bytes).await, value) {
                (Ok(bytes), _) => decode(&bytes),
                (Err(error), Some(value)) if error.kind() == io::ErrorKind::Unsupported => value,
                (Err(error), _) => Err(unrecorded(error)),
            }
        }
    }

    /// Sends bytes to this task itself, through the world, and returns those that arrive.
    async fn cross(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let (near, mut far) = UnixStream::pair()?;
        let near = self.attach(Carrier(near)).await?;
        let framed = [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
        let mut chunks = framed.chunks(CHUNK);
        let (mut arrived, mut buf) = (Vec::new(), [0; CHUNK]);
        loop {
            if let Some(chunk) = chunks.next() {
                far.write_all(chunk)?;
            }
            let n = near.recv(self, &mut buf).await?;
            arrived.extend_from_slice(&buf[..n]);
            let Some((len, rest)) = arrived.split_first_chunk() else {
                continue;
            };
            if n == 0 || rest.len() as u64 >= u64::from_le_bytes(*len) {
                return Ok(rest.to_vec());
            }
        }
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Mailbox<T> {
    /// A mailbox as [`Mailbox::named`] makes it, whose messages a [tape](mod@crate::tape) holds. So a kernel
    /// that takes from it is replayed alone, without those that sent to it. Needs the feature `serde`.
    ///
    /// The values are on the tape as JSON: floats must be finite, and the keys of maps must be texts or
    /// numbers. A value that JSON cannot represent is not on the tape, as those of other mailboxes.
    ///
    /// ```
    /// use trapline::{Kernel, Mailbox, Os};
    ///
    /// let mut kernel = Kernel::real()?;
    /// let (sender, mailbox) = Mailbox::<u32>::recorded("orders", 8);
    /// std::thread::spawn(move || sender.try_put(7).unwrap());
    /// kernel.spawn("main", async move |os: &mut Os| assert_eq!(mailbox.get(os).await, Ok(7)))?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[must_use]
    pub fn recorded(name: &str, capacity: usize) -> (Sender<T>, Self) {
        let codec = Codec {
            encode: |value| serde_json::to_vec(value).ok(),
            decode: |bytes| serde_json::from_slice(bytes).ok(),
        };
        Self::make(Some(name.into()), capacity.max(1), Some(codec))
    }
}

fn encode<T: Serialize>(value: &Result<T, Panicked>) -> Vec<u8> {
    let value = value.as_ref().map_err(|Panicked(why)| why.clone());
    let bytes = serde_json::to_vec(&value);
    bytes.unwrap_or_else(|error| {
        let Panicked(why) = unrecorded(error);
        serde_json::to_vec(&Err::<(), _>(why)).expect("a text is JSON")
    })
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Panicked> {
    match serde_json::from_slice::<Result<T, String>>(bytes) {
        Ok(value) => value.map_err(Panicked),
        Err(error) => Err(Panicked(format!("the recorded value is another: {error}"))),
    }
}

fn unrecorded(why: impl Display) -> Panicked {
    Panicked(format!("the value cannot be recorded: {why}"))
}
