//! `trace dump`: the last events of a running kernel, as a recording.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::{Args, ValueHint};

use super::{
    client::Connection,
    protocol::{Answer, Request},
};
use crate::{
    outfile::cannot_write,
    output::{Failure, Log},
    signals, stdio,
};

/// Write the last events of a running kernel to a file, as a recording
///
/// The kernel keeps them if it was booted with --record-last. It runs on, and its own recording is
/// not changed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  boot --monitor run.sock --record end.trap --record-last 100000 echo   a flight recorder
  trace dump --attach run.sock -o now.trap                              what it holds now
  trace dump --attach run.sock -o - | trapline trace show -             the same, at once")]
pub(crate) struct Dump {
    /// The socket of a kernel that was booted with --monitor
    #[arg(long = "attach", value_name = "SOCKET")]
    socket: PathBuf,
    /// The file, which must not exist; - for standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Dump {
    pub(crate) fn run(&self, log: Log) -> Result<(), Failure> {
        let mut connection = Connection::open(&self.socket, false)?;
        if self.output == Path::new("-") {
            let mut out = stdio::out();
            connection.dump(&mut out, Failure::from)?;
            return Ok(out.flush()?);
        }
        let path = self.output.display();
        let failure = |error: io::Error| Failure::Said(cannot_write(&self.output, &error));
        let mut file = NewFile::check(&self.output).map_err(failure)?;
        let partial = Arc::clone(&file.partial);
        signals::at_end(move || {
            if partial.remove() {
                let path = partial.path.display();
                let why = format!("interrupted: the part of the recording in {path} is removed");
                let _ = signals::soon(move || log.error(&why));
            }
        });
        signals::end_at_once()?;
        let dumped = connection.dump(&mut file, failure);
        if dumped.is_err() {
            file.partial.remove();
        }
        dumped?;
        // Otherwise an interrupt has just removed it.
        if file.partial.complete() {
            log.note(&format!("written to {path}"));
        }
        Ok(())
    }
}

/// A file of which only a part may be there. A part of a recording is of no use.
struct Partial {
    path: PathBuf,
    is_there: AtomicBool,
}

impl Partial {
    /// Notes that the file is complete. Returns whether only a part was there.
    fn complete(&self) -> bool {
        self.is_there.swap(false, Ordering::AcqRel)
    }

    /// Removes the part that is there. Returns whether it has.
    fn remove(&self) -> bool {
        self.complete() && fs::remove_file(&self.path).is_ok()
    }
}

/// A file that appears when something is written to it. So an interrupt before that leaves none.
struct NewFile {
    partial: Arc<Partial>,
    file: Option<File>,
}

impl NewFile {
    /// Checks that the file can be created.
    fn check(path: &Path) -> io::Result<Self> {
        create(path)?;
        fs::remove_file(path)?;
        let partial = Partial {
            path: path.to_path_buf(),
            is_there: AtomicBool::new(false),
        };
        Ok(Self {
            partial: Arc::new(partial),
            file: None,
        })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = none.insert(create(&self.partial.path)?);
                self.partial.is_there.store(true, Ordering::Release);
                file
            }
        };
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // As other recordings: for its owner alone.
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let why = "it exists already: give another file, or remove it";
            io::Error::new(ErrorKind::AlreadyExists, why)
        }
        _ => error,
    })
}

impl Connection {
    /// Writes the kernel's last events.
    fn dump(
        &mut self,
        to: &mut impl Write,
        failure: impl Fn(io::Error) -> Failure,
    ) -> Result<(), Failure> {
        self.ask(&Request::Dump {})?;
        loop {
            match self.next()? {
                Some(Answer::Piece { base64 }) => {
                    let bytes = BASE64_STANDARD.decode(base64);
                    let bytes = bytes.map_err(|_| "the answer is no recording".to_string())?;
                    to.write_all(&bytes).map_err(&failure)?;
                }
                Some(Answer::End(_)) => return Ok(()),
                Some(_) => {}
                None => return Err(Failure::Said("the kernel has ended".into())),
            }
        }
    }
}
