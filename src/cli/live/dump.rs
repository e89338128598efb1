//! `trace dump`: the last events of a running kernel, as a recording.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::{Args, ValueHint};

use super::{
    client::{Connection, Failure},
    protocol::{Answer, Request},
};
use crate::cli::{
    output::{Log, unwritten},
    stdio,
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
pub(in crate::cli) struct Dump {
    /// The socket of a kernel that was booted with --monitor
    #[arg(long = "attach", value_name = "SOCKET")]
    socket: PathBuf,
    /// The file, which must not exist; - for standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Dump {
    pub(super) fn run(&self, log: Log) -> Result<(), Failure> {
        let mut connection = Connection::open(&self.socket, false)?;
        if self.output == Path::new("-") {
            let mut out = stdio::out();
            connection.dump(&mut out, unread)?;
            return out.flush().map_err(|error| unread(&error));
        }
        let path = self.output.display();
        let file = create(&self.output);
        let mut file = file.map_err(|why| format!("cannot write {path}: {why}"))?;
        let dumped = connection.dump(&mut file, |error| {
            Failure::Said(format!("cannot write {path}: {error}"))
        });
        if dumped.is_err() {
            // Half of a recording is of no use.
            let _ = fs::remove_file(&self.output);
        }
        dumped?;
        log.note(&format!("written to {path}"));
        Ok(())
    }
}

fn create(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    // As other recordings: for its owner alone.
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            "it exists already: give another file, or remove it".to_string()
        }
        _ => error.to_string(),
    })
}

/// The failure to write to standard output.
fn unread(error: &io::Error) -> Failure {
    unwritten(error).map_or(Failure::Unread, Failure::Said)
}

impl Connection {
    /// Writes the kernel's last events.
    fn dump(
        &mut self,
        to: &mut impl Write,
        failure: impl Fn(&io::Error) -> Failure,
    ) -> Result<(), Failure> {
        self.ask(&Request::Dump {})?;
        loop {
            match self.next()? {
                Some(Answer::Piece { base64 }) => {
                    let bytes = BASE64_STANDARD.decode(base64);
                    let bytes = bytes.map_err(|_| "the answer is no recording".to_string())?;
                    to.write_all(&bytes).map_err(|error| failure(&error))?;
                }
                Some(Answer::End(_)) => return Ok(()),
                Some(_) => {}
                None => return Err(Failure::Said("the kernel has ended".into())),
            }
        }
    }
}
