//! `trace open`: the page of a recording, in a browser.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{self, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::{Args, ValueHint};

use super::{source::Failure, timeline::TimelineCommand};
use crate::{outfile::cannot_write, output::Log};

/// Commands that open a page. A desktop has one of them.
const OPENERS: [&str; 3] = ["xdg-open", "open", "wslview"];
/// A command that has not failed by then shows the page.
const PATIENCE: Duration = Duration::from_secs(2);

/// Draw a recording as a page in a temporary file, and open it in a browser
#[derive(Args)]
#[command(after_help = "\
The page is that of `trace timeline`, and only its owner can read the file. The browser is the command in \
the variable BROWSER, or else that of the desktop.

Examples:
  boot --virtual --record run.trap convoy   record a run
  trace open run.trap                       look at it
  BROWSER=firefox trapline trace open run.trap")]
pub(crate) struct OpenCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

impl OpenCommand {
    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        let page = place()?;
        let drawn = TimelineCommand::page(&self.file, &page).draw(log, out);
        let source = drawn.inspect_err(|_| {
            // The error says why there is no page, or no whole one.
            let _ = fs::remove_file(&page);
        })?;
        // Of a damaged recording there is a page.
        let ended = source.end(log);
        writeln!(out, "{}", page.display())?;
        out.flush()?;
        if browsers().iter().any(|browser| shows(browser, &page)) {
            return ended;
        }
        let why = "no browser could be started: open this page yourself, or set BROWSER";
        Err(why.to_string().into())
    }
}

/// Makes an empty file that only its owner can read.
fn place() -> Result<PathBuf, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    for number in 1.. {
        let name = format!("trapline-{}-{number}.html", process::id());
        let path = env::temp_dir().join(name);
        match options.open(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot_write(&path, &error).into()),
        }
    }
    unreachable!("there is a number that no file has")
}

/// The commands to try, in words.
fn browsers() -> Vec<Vec<String>> {
    let own = env::var("BROWSER").unwrap_or_default();
    let own: Vec<String> = own.split_whitespace().map(String::from).collect();
    match own.is_empty() {
        true => OPENERS.map(|opener| vec![opener.to_string()]).into(),
        false => vec![own],
    }
}

/// Starts a browser. One that is a window of its own goes on after this process.
fn shows(browser: &[String], page: &Path) -> bool {
    let mut command = Command::new(&browser[0]);
    command.args(&browser[1..]).arg(page);
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    let Ok(mut child) = quiet.stderr(Stdio::null()).spawn() else {
        return false;
    };
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(Duration::from_millis(10)),
            Err(_) => return false,
        }
    }
    true
}
