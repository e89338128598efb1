//! What goes to standard error: messages of the command line, and the lines that a [`Layer`] makes
//! of `tracing` events. Both as text for people, or as a JSON object a line.

use std::{
    env, fmt, io, panic,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anstream::stream::RawStream;
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
    warn,
};
use tracing_subscriber::{
    EnvFilter, Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use super::{
    args::{Boot, Format, Tone},
    held::{self, Stream},
    interrupts, live,
};
use crate::{Fact, Nanos};

/// What a bare `--trace` shows.
const TRACE: &str = "trapline::kernel=trace,trapline::device=trace";
/// The targets of the kernel's own events, which carry a time.
const KERNEL: [&str; 4] = [
    "trapline::kernel",
    "trapline::device",
    "trapline::sched",
    "trapline::console",
];

/// The target of the bridge to `tracing` for events of this kind.
pub(super) fn target(fact: &Fact<'_>) -> &'static str {
    match fact {
        Fact::Resumed | Fact::Woken { .. } | Fact::ClockJumped { .. } => "trapline::sched",
        Fact::DeviceIo { .. } => "trapline::device",
        Fact::Console { .. } => "trapline::console",
        Fact::Spawned { .. }
        | Fact::Trapped { .. }
        | Fact::Blocked { .. }
        | Fact::Replied { .. }
        | Fact::Exited { .. }
        | Fact::Reaped => "trapline::kernel",
    }
}

/// Whether a trace shows facts of this kind, where it may be of calls alone, and may also have
/// whose turn it is and what is printed.
pub(super) fn is_shown(fact: &Fact<'_>, calls_only: bool, sched: bool, console: bool) -> bool {
    match fact {
        Fact::Trapped { .. } => false,
        Fact::Blocked { .. } | Fact::Replied { .. } => true,
        _ if calls_only => false,
        Fact::Resumed | Fact::Woken { .. } | Fact::ClockJumped { .. } => sched,
        Fact::Console { .. } => console,
        Fact::Spawned { .. } | Fact::DeviceIo { .. } | Fact::Exited { .. } | Fact::Reaped => true,
    }
}

/// Standard error, as the options want it.
#[derive(Clone, Copy)]
pub(super) struct Log {
    format: Format,
    colored: bool,
    quiet: bool,
    verbose: u8,
}

impl Log {
    /// As the options before `boot` and after it want it; the latter count more.
    pub(super) fn new(outer: &Tone, options: &Boot) -> Self {
        let inner = &options.tone;
        Self {
            format: options.log_format,
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

    /// For lines on standard output.
    pub(super) fn of_output(tone: &Tone) -> Self {
        Self {
            format: Format::Text,
            colored: is_colored(tone.color, &io::stdout()),
            quiet: tone.quiet,
            verbose: tone.verbose,
        }
    }

    /// Says something that may be kept quiet.
    pub(super) fn note(self, message: &str) {
        if self.quiet {
            return;
        }
        match self.format {
            Format::Json => self.json(&message_line(Level::INFO, message)),
            Format::Text => {
                let dim = self.style(Style::new().dimmed());
                tell(&format!("{dim}{message}{dim:#}\n"));
            }
        }
    }

    /// Says what is not as it should be, but no failure.
    pub(super) fn warn(self, message: &str) {
        if !self.quiet {
            tell(&format!("warning: {message}\n"));
        }
    }

    /// Says what went wrong.
    pub(super) fn error(self, message: &str) {
        match self.format {
            Format::Json => self.json(&message_line(Level::ERROR, message)),
            Format::Text => {
                let red = self.style(AnsiColor::Red.on_default().bold());
                tell(&format!("{red}error:{red:#} {message}\n"));
            }
        }
    }

    pub(super) fn is_colored(self) -> bool {
        self.colored
    }

    /// Whether standard error is to hold nothing but JSON.
    pub(super) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    pub(super) fn json(self, line: &Map<String, Value>) {
        tell(&(json(line) + "\n"));
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

/// Writes to standard error. There is nobody to tell that nobody listens.
pub(super) fn tell(text: &str) {
    let _ = held::write(Stream::Err, text.as_bytes());
}

/// Has panics said in a way that suits the rest of what is said.
pub(super) fn hook_panics(log: Log) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map_or("", panic::Location::file);
        // A generator's own panic says that a task awaited what is no trap; the kernel says it in
        // plain words.
        if file.contains("genawaiter") {
            return;
        }
        // This ends the process, and nobody will come to put the terminal back.
        let text = panic.payload().downcast_ref::<&str>();
        if text.is_some_and(|text| text.starts_with("panic in a destructor")) {
            live::leave();
        }
        if log.is_json() {
            log.error(&panic.to_string());
        } else if held::is_on() {
            tell(&format!("{panic}\n"));
        } else {
            hook(panic);
        }
    }));
}

fn message_line(level: Level, message: &str) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("level".into(), level.as_str().into());
    line.insert("target".into(), "trapline::cli".into());
    line.insert("message".into(), message.into());
    line
}

pub(super) fn json(line: &Map<String, Value>) -> String {
    serde_json::to_string(line).expect("a map of plain values is JSON")
}

/// The targets of a kernel, without the crate.
const TARGETS: [&str; 4] = ["kernel", "sched", "device", "console"];

/// Shows `tracing` events from now on, as far as the options and `RUST_LOG` want them.
pub(super) fn install(log: Log, options: &Boot) -> Result<(), String> {
    let level = match (log.quiet, log.verbose) {
        // Why a run failed is no news to be kept quiet.
        (true, _) => "error,trapline::kernel=warn",
        (_, 0) => "warn",
        (_, 1) => "info",
        _ => "debug",
    };
    let environment = env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let trace = options.trace.as_deref().map_or("", |filter| match filter {
        "" => TRACE,
        filter => filter,
    });
    for (origin, filter) in [("RUST_LOG", &*environment), ("--trace", trace)] {
        if let Err(error) = EnvFilter::builder().parse(filter) {
            return Err(format!(
                "{origin}={filter} is not a filter: {error}\n\n\
                 A filter is a list like `info,trapline::sched=trace`."
            ));
        }
    }
    // What is said later of the same target counts.
    let filters = [level, &environment, trace];
    let filters = filters.into_iter().filter(|filter| !filter.is_empty());
    let filter = filters.collect::<Vec<_>>().join(",");
    let filter = EnvFilter::builder().parse_lossy(filter);
    let lines = Lines {
        log,
        at: Mutex::new(None),
    };
    // A binary that has a subscriber of its own keeps it.
    let _ = tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(filter).with(lines),
    );
    for directive in trace.split(',') {
        let target = directive.split(['=', '[']).next().unwrap_or(directive);
        // It may be a crate of the user's.
        if TARGETS.contains(&target) {
            warn!(
                target: "trapline::cli",
                "--trace={trace} selects nothing of the kernel's: did you mean trapline::{target}?"
            );
        }
    }
    Ok(())
}

/// The layer that makes a line of each event.
struct Lines {
    log: Log,
    /// The time since boot, of the kernel's last event: whatever comes next happens then.
    at: Mutex<Option<Value>>,
}

/// What a span says of the task it stands for.
struct Fields(Map<String, Value>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && KERNEL.contains(&span.metadata().target())
        {
            let mut fields = Fields(Map::new());
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let (target, level) = (event.metadata().target(), *event.metadata().level());
        let of_kernel = KERNEL.contains(&target);
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let Fields(mut line) = fields;
        if !of_kernel {
            make_way(&mut line);
        }
        // The kernel's events say which task they are about; a program's happen within a span.
        let spans = context.event_scope(event).filter(|_| !of_kernel);
        for span in spans.into_iter().flatten() {
            if let Some(Fields(task)) = span.extensions().get() {
                line.extend(task.clone());
            }
        }
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        match line.get("at") {
            Some(now) if of_kernel => *at = Some(now.clone()),
            _ => line.extend(at.clone().map(|at| ("at".into(), at))),
        }
        let text = match self.log.format {
            Format::Json => {
                line.insert("level".into(), level.as_str().into());
                line.insert("target".into(), target.into());
                json(&line)
            }
            Format::Text => self.log.line(target, level, &line),
        };
        if let Err(error) = held::write(Stream::Err, (text + "\n").as_bytes())
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            // Nobody reads the trace to its end: no reason to go on, and no error.
            interrupts::end(0);
        }
    }
}

impl Log {
    /// An event as a line for people.
    pub(super) fn line(self, target: &str, level: Level, line: &Map<String, Value>) -> String {
        let of_kernel = KERNEL.contains(&target);
        let mut text = match line.get("at").and_then(Value::as_f64) {
            Some(at) => {
                let at = Duration::try_from_secs_f64(at).unwrap_or_default();
                let at = Nanos::from(at);
                let tid = line.get("tid").and_then(Value::as_u64).unwrap_or(0);
                self.columns(&format!("{at:.6}"), tid, &field(line, "comm"))
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
        let message = field(line, "message");
        if of_kernel {
            text += &aligned(&message, &field(line, "reply"));
            return text;
        }
        text += &format!("{}: {message}", clean(target));
        for (key, value) in line {
            if !["at", "tid", "comm", "message"].contains(&key.as_str()) {
                text += &clean(&format!(" {key}={value}"));
            }
        }
        text
    }

    /// When, and which task.
    pub(super) fn columns(self, at: &str, tid: u64, comm: &str) -> String {
        const COLORS: [AnsiColor; 5] = [
            AnsiColor::Cyan,
            AnsiColor::Magenta,
            AnsiColor::Green,
            AnsiColor::Blue,
            AnsiColor::Yellow,
        ];
        let dim = self.style(Style::new().dimmed());
        let color = COLORS[(tid % COLORS.len() as u64) as usize].on_default();
        let color = self.style(color);
        format!("{dim}{at}{dim:#} {color}{tid:>4} {comm:<12}{color:#} ")
    }
}

/// Gives a program's own fields other names where a line has something else under theirs.
fn make_way(line: &mut Map<String, Value>) {
    for name in ["at", "tid", "comm", "level", "target"] {
        if let Some(value) = line.remove(name) {
            line.insert(format!("fields.{name}"), value);
        }
    }
}

/// Puts the replies below one another, like `strace`.
pub(super) fn aligned(message: &str, reply: &str) -> String {
    let call = message.strip_suffix(reply);
    match call.and_then(|call| call.strip_suffix(" = ")) {
        Some(call) => format!("{call:<28} = {reply}"),
        None => message.to_string(),
    }
}

/// Text that a terminal shows as it is, on one line.
pub(super) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_plain(letter) {
            clean.push(letter);
        } else if letter.is_control() {
            clean.extend(letter.escape_debug());
        } else {
            clean.extend(letter.escape_unicode());
        }
    }
    clean
}

/// Whether a terminal shows it as it is: neither a control character nor one that changes the
/// direction of the text.
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

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0
            .insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().into(), value.into());
    }
}
