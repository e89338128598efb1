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
    outfile::{cannot_write, is_stdout},
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
  boot --monitor run.sock --record end.trap --record-last 100000 echo
  trace dump --attach run.sock -o now.trap                    what it holds now
  trace dump --attach run.sock -o - | trapline trace show -   the same, at once")]
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
        if is_stdout(&self.output) {
            let mut out = stdio::out();
            connection.dump(|bytes| Ok(out.write_all(bytes)?))?;
            return Ok(out.flush()?);
        }
        let path = self.output.clone();
        let failure = |error: io::Error| Failure::Said(cannot_write(&self.output, &error));
        let checked = create(&path).and_then(|_| fs::remove_file(&path));
        checked.map_err(failure)?;
        // Whether a part of the recording is there, which is of no use.
        let is_partial = Arc::new(AtomicBool::new(false));
        let partial = Arc::clone(&is_partial);
        let remove =
            move || partial.swap(false, Ordering::AcqRel) && fs::remove_file(&path).is_ok();
        let (interrupted, path) = (remove.clone(), self.output.clone());
        signals::at_end(move || {
            if interrupted() {
                let path = path.display();
                let why = format!("interrupted: the part of the recording in {path} is removed");
                let _ = signals::soon(move || log.error(&why));
            }
        });
        signals::end_at_once()?;
        // It appears when something is written to it. So an interrupt before that leaves none.
        let mut file = None;
        let dumped = connection.dump(|bytes| {
            let file = match &mut file {
                Some(file) => file,
                none => {
                    let new = create(&self.output).map_err(failure)?;
                    is_partial.store(true, Ordering::Release);
                    none.insert(new)
                }
            };
            file.write_all(bytes).map_err(failure)
        });
        if dumped.is_err() {
            remove();
        }
        dumped?;
        // Otherwise an interrupt has just removed it.
        if is_partial.swap(false, Ordering::AcqRel) {
            log.note(&format!("written to {}", self.output.display()));
        }
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
    /// Passes on the kernel's last events, piece by piece.
    fn dump(&mut self, mut take: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        self.ask(&Request::Dump {})?;
        while let Some(answer) = self.next()? {
            match answer {
                Answer::Piece { base64 } => {
                    let bytes = BASE64_STANDARD.decode(base64);
                    take(&bytes.map_err(|_| "the answer is no recording".to_string())?)?;
                }
                Answer::End(_) => return Ok(()),
                _ => {}
            }
        }
        Err(Failure::Said("the kernel has ended".into()))
    }
}
