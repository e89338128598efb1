//! Output of the command line: messages on standard error, as text or as JSON lines; data on
//! standard output; exit codes.

use std::{io, process::ExitCode, time::Duration};

use anstream::stream::RawStream;
use anstyle::{AnsiColor, Style};
use clap::{ArgAction, Args, ColorChoice, ValueEnum, builder::StyledStr};
use serde_json::{Map, Value, json};
use tracing::Level;
use trapline::{Nanos, Tid};

use super::stdio::{self, Stream};

/// Something went wrong: a task failed, or the kernel met an I/O error.
pub(super) const FAILURE: u8 = 1;
/// The command line is wrong.
pub(super) const USAGE: u8 = 2;
/// A deadlock: no task could continue.
pub(super) const DEADLOCK: u8 = 3;
/// A limit of the kernel's was reached.
pub(super) const LIMIT: u8 = 4;

/// How much the command line prints, and in which format. The options are not global in `clap`'s
/// sense, since a program's options are its own.
#[derive(Args)]
pub(super) struct Verbosity {
    /// When to use colours; NO_COLOR is honoured
    #[arg(long, value_name = "WHEN")]
    pub(super) color: Option<ColorChoice>,
    /// Print less: no seed, and no warnings except for failed tasks
    #[arg(long, short, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Print more: the programs' log lines of level info; twice, of level debug as well
    #[arg(long, short, action = ArgAction::Count)]
    pub(super) verbose: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// The targets of the kernel's own events, which carry a time.
pub(super) const KERNEL: [&str; 4] = [
    "trapline::kernel",
    "trapline::device",
    "trapline::sched",
    "trapline::console",
];

/// Standard error, configured by the options.
#[derive(Clone, Copy)]
pub(super) struct Log {
    pub(super) format: Format,
    pub(super) colored: bool,
    pub(super) quiet: bool,
    pub(super) verbose: u8,
}

impl Log {
    /// Merges the options before `boot` with those after it; the latter win.
    pub(super) fn new(outer: &Verbosity, inner: &Verbosity, format: Format) -> Self {
        Self {
            format,
            colored: is_colored(inner.color.or(outer.color), &io::stderr()),
            quiet: inner.quiet || outer.quiet,
            verbose: inner.verbose.max(outer.verbose),
        }
    }

    /// For lines on a screen.
    pub(super) const PLAIN: Self = Self {
        format: Format::Text,
        colored: false,
        quiet: false,
        verbose: 0,
    };

    /// For what a run repeats: it prints no note and no warning.
    pub(super) const SILENT: Self = Self {
        quiet: true,
        ..Self::PLAIN
    };

    pub(super) fn of_errors(verbosity: &Verbosity) -> Self {
        Self::new(verbosity, verbosity, Format::Text)
    }

    pub(super) fn of_output(verbosity: &Verbosity) -> Self {
        Self {
            colored: is_colored(verbosity.color, &io::stdout()),
            quiet: verbosity.quiet,
            verbose: verbosity.verbose,
            ..Self::PLAIN
        }
    }

    /// Prints a message that `--quiet` hides.
    pub(super) fn note(self, message: &str) {
        if !self.quiet {
            tell(&self.message(Level::INFO, message));
        }
    }

    pub(super) fn warn(self, message: &str) {
        if !self.quiet {
            tell(&self.message(Level::WARN, message));
        }
    }

    pub(super) fn error(self, message: &str) {
        tell(&self.message(Level::ERROR, message));
    }

    pub(super) fn message(self, level: Level, message: &str) -> String {
        if self.is_json() {
            let (level, target) = (level.as_str(), "trapline::cli");
            return json!({ "level": level, "target": target, "message": message }).to_string()
                + "\n";
        }
        let red = self.style(AnsiColor::Red.on_default().bold());
        let dim = self.style(Style::new().dimmed());
        match level {
            Level::ERROR => format!("{red}error:{red:#} {message}\n"),
            Level::WARN => format!("warning: {message}\n"),
            _ => format!("{dim}{message}{dim:#}\n"),
        }
    }

    /// Prints the failure of a command. Returns its exit code, or the error of a wrong command line.
    pub(super) fn end(self, done: Result<ExitCode, Failure>) -> Result<ExitCode, clap::Error> {
        let (message, code) = match done {
            Ok(code) => return Ok(code),
            Err(Failure::Usage(error)) => return Err(error),
            Err(Failure::Unread) => return Ok(ExitCode::SUCCESS),
            Err(Failure::Said(message)) => (message, FAILURE),
            Err(Failure::Limit(message)) => (message, LIMIT),
        };
        self.error(&message);
        Ok(ExitCode::from(code))
    }

    /// Whether standard error may contain JSON lines only.
    pub(super) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    pub(super) fn json(self, line: &Value) {
        tell(&format!("{line}\n"));
    }

    fn style(self, style: Style) -> Style {
        if self.colored { style } else { Style::new() }
    }
}

fn is_colored(choice: Option<ColorChoice>, stream: &impl RawStream) -> bool {
    match choice {
        None | Some(ColorChoice::Auto) => {}
        Some(ColorChoice::Always) => anstream::ColorChoice::Always.write_global(),
        Some(ColorChoice::Never) => anstream::ColorChoice::Never.write_global(),
    }
    anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never
}

/// Writes to standard error. A failure is ignored, since no other stream is left for a report.
pub(super) fn tell(text: &str) {
    let _ = stdio::write(Stream::Err, text.as_bytes());
}

impl Log {
    pub(super) fn line(self, target: &str, level: Level, line: &Map<String, Value>) -> String {
        let of_kernel = KERNEL.contains(&target);
        let mut text = match line.get("at").and_then(Value::as_f64) {
            Some(at) => {
                let at = Duration::try_from_secs_f64(at).unwrap_or_default();
                let at = Nanos::from(at);
                let number = |name| line.get(name).and_then(Value::as_u64);
                let tid = number("tid").unwrap_or(0);
                let task = match number("kernel") {
                    Some(kernel) => format!("{kernel}:{tid}"),
                    None => tid.to_string(),
                };
                self.columns_of(&format!("{at:.6}"), &task, tid, &field(line, "comm"))
            }
            None => String::new(),
        };
        if level != Level::TRACE || !of_kernel {
            let (name, color) = match level {
                Level::ERROR => ("error", AnsiColor::Red),
                Level::WARN => ("warning", AnsiColor::Yellow),
                Level::INFO => ("info", AnsiColor::Green),
                Level::DEBUG => ("debug", AnsiColor::Blue),
                Level::TRACE => ("trace", AnsiColor::Blue),
            };
            let style = self.style(color.on_default().bold());
            text += &format!("{style}{name}:{style:#} ");
        }
        if line.contains_key("report") && of_kernel {
            let report = line.get("message").and_then(Value::as_str);
            let lines: Vec<String> = report.into_iter().flat_map(str::lines).map(clean).collect();
            return text + &lines.join("\n");
        }
        let message = field(line, "message");
        if of_kernel {
            return text + &aligned(&message, &field(line, "reply"));
        }
        text += &format!("{}: {message}", clean(target));
        for (key, value) in line {
            if !["at", "kernel", "tid", "comm", "message"].contains(&key.as_str()) {
                text += &clean(&format!(" {key}={value}"));
            }
        }
        text
    }

    /// The instant and the task.
    pub(super) fn columns(self, at: &str, tid: Tid, comm: &str) -> String {
        self.columns_of(at, &tid.to_string(), tid.alone().into(), comm)
    }

    /// The same for a task with another text as its number.
    fn columns_of(self, at: &str, task: &str, tid: u64, comm: &str) -> String {
        const COLORS: [AnsiColor; 5] = [
            AnsiColor::Cyan,
            AnsiColor::Magenta,
            AnsiColor::Green,
            AnsiColor::Blue,
            AnsiColor::Yellow,
        ];
        let dim = self.style(Style::new().dimmed());
        let color = COLORS[(tid % COLORS.len() as u64) as usize];
        let color = self.style(color.on_default());
        format!("{dim}{at}{dim:#} {color}{task:>4} {comm:<12}{color:#} ")
    }
}

/// Aligns the replies in a column, like `strace`.
pub(super) fn aligned(message: &str, reply: &str) -> String {
    let call = message.strip_suffix(reply);
    match call.and_then(|call| call.strip_suffix(" = ")) {
        Some(call) => format!("{call:<28} = {reply}"),
        None => message.to_string(),
    }
}

/// Makes text safe for a terminal, on one line.
pub(super) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if is_plain(letter) => clean.push(letter),
            letter if letter.is_control() => clean.extend(letter.escape_debug()),
            letter => clean.extend(letter.escape_unicode()),
        }
    }
    clean
}

/// Whether a terminal shows the character as it is. It is neither a control character nor one that
/// changes the direction of the text.
pub(super) fn is_plain(letter: char) -> bool {
    !letter.is_control()
        && !matches!(
            letter,
            '\u{61c}'
                | '\u{200e}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

fn field(line: &Map<String, Value>, name: &str) -> String {
    match line.get(name) {
        Some(Value::String(text)) => clean(text),
        Some(other) => clean(&other.to_string()),
        None => String::new(),
    }
}

/// Writes a help, with the colours that the stream can show.
pub(super) fn print_help(help: &StyledStr) -> Result<ExitCode, Failure> {
    match is_colored(None, &io::stdout()) {
        true => print(help.ansi().to_string().as_bytes()),
        false => print(help.to_string().as_bytes()),
    }
}

/// Why a command ends early.
pub(super) enum Failure {
    /// The command line is wrong.
    Usage(clap::Error),
    /// What has failed, in a message.
    Said(String),
    /// The same for a limit that is reached.
    Limit(String),
    /// The reader closed the output early, which is no error.
    Unread,
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Said(message)
    }
}

/// The only stream that is written to is the output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        unwritten(&error).map_or(Self::Unread, Self::Said)
    }
}

pub(super) fn print(data: &[u8]) -> Result<ExitCode, Failure> {
    stdio::print(data)?;
    Ok(ExitCode::SUCCESS)
}

/// The same, where the exit code is a verdict: it is kept if the reader closed the output early.
pub(super) fn print_verdict(data: &[u8]) -> Result<(), Failure> {
    match print(data) {
        Ok(_) | Err(Failure::Unread) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// The message for a failed write to standard output. A reader that closed the output early is no
/// error.
pub(super) fn unwritten(error: &io::Error) -> Option<String> {
    let is_unread = error.kind() == io::ErrorKind::BrokenPipe;
    (!is_unread).then(|| format!("cannot write to standard output: {error}"))
}
