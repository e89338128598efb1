//! What `--trace` shows: which events of a kernel, and the [`Layer`] that formats `tracing` events
//! as lines.

use std::{
    env, fmt, io, mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
    warn,
};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::LevelFilter,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};
use trapline::{Fact, Topic};

use super::{
    output::{Format, KERNEL, Log},
    signals,
    stdio::{self, Stream},
    values::usage,
};

/// What a bare `--trace` shows.
const TRACE: &str = "trapline::kernel=trace,trapline::device=trace";

/// Whether a trace shows events of this kind. A trace may be limited to calls, and may include
/// turns and console output.
pub(super) fn is_shown(fact: &Fact<'_>, calls_only: bool, sched: bool, console: bool) -> bool {
    match fact.topic() {
        Topic::Call => fact.call().is_none(),
        _ if calls_only => false,
        Topic::Sched => sched,
        Topic::Console => console,
        _ => true,
    }
}

/// The targets of a kernel, without the crate.
const TARGETS: [&str; 4] = ["kernel", "sched", "device", "console"];

/// Shows `tracing` events from now on, as the options and `RUST_LOG` select them.
pub(super) fn install(log: Log, filter: Option<&str>) -> Result<(), clap::Error> {
    let environment = env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let trace = match filter {
        Some("") => TRACE,
        filter => filter.unwrap_or_default(),
    };
    let has_whole = |filter: &str| filter.split(',').map(target_of).any(|of| of == "trapline");
    let level = match (log.quiet, log.verbose) {
        // A directive for the kernel alone would win over that for all of them.
        (true, _) if has_whole(&environment) || has_whole(trace) => "error",
        // The reason of a failed run is always shown.
        (true, _) => "error,trapline::kernel=warn",
        (_, 0) if filter.is_none() => "warn",
        // The programs' own log lines appear between their traps.
        (_, 0 | 1) => "info",
        _ => "debug",
    };
    for (origin, filter) in [("RUST_LOG", &*environment), ("--trace", trace)] {
        if let Err(error) = EnvFilter::builder().with_regex(false).parse(filter) {
            return Err(usage(format!(
                "{origin}={filter} is not a filter: {error}\n\n\
                 A filter is a list like `info,trapline::sched=trace`."
            )));
        }
    }
    // A later directive for the same target wins.
    let mut filters = vec![level, &environment, trace];
    filters.retain(|filter| !filter.is_empty());
    let filter = filters.join(",");
    let filter = EnvFilter::builder().with_regex(false).parse_lossy(filter);
    let at = Mutex::new(None);
    let registry = tracing_subscriber::registry().with(filter);
    // A binary that has installed a subscriber keeps it.
    let _ = tracing::subscriber::set_global_default(registry.with(Lines { log, at }));
    warn_of_unknown("RUST_LOG", &environment);
    warn_of_unknown("--trace", trace);
    *unseen() = trace.split(',').filter_map(foreign).collect();
    Ok(())
}

/// The targets of `--trace` that are none of the kernel's, and of which no event has come: with their
/// directives.
static UNSEEN: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

fn unseen() -> MutexGuard<'static, Vec<(String, String)>> {
    UNSEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The target of a directive that selects every event of a crate of the user's.
fn foreign(directive: &str) -> Option<(String, String)> {
    let target = target_of(directive);
    let level = directive
        .rsplit_once('=')
        .map_or("trace", |(_, level)| level);
    let is_level = target.parse::<LevelFilter>().is_ok();
    let is_known = target.starts_with("trapline") || TARGETS.contains(&target);
    let is_it = !target.is_empty() && !is_level && !is_known && level.eq_ignore_ascii_case("trace");
    is_it.then(|| (directive.to_string(), target.to_string()))
}

/// Says what of `--trace` has selected nothing in the run.
pub(super) fn finish() {
    let unseen = mem::take(&mut *unseen());
    for (directive, target) in unseen {
        let known = TARGETS.map(|name| format!("trapline::{name}")).join(", ");
        warn!(
            target: "trapline::cli",
            "--trace={directive} has shown nothing: no event had the target {target}; those of the \
             kernel have {known}"
        );
    }
}

fn target_of(directive: &str) -> &str {
    let target = directive.split(['=', '[']).next();
    target.unwrap_or(directive).trim()
}

fn warn_of_unknown(origin: &str, filter: &str) {
    for target in filter.split(',').map(target_of) {
        let unknown = target.strip_prefix("trapline::");
        if let Some(unknown) = unknown.filter(|name| !TARGETS.contains(name) && *name != "cli") {
            let known = TARGETS.map(|name| format!("trapline::{name}")).join(", ");
            warn!(
                target: "trapline::cli",
                "{origin}={filter} selects nothing by trapline::{unknown}: the targets are {known}"
            );
        }
        // The target may be a crate of the user's.
        if TARGETS.contains(&target) {
            warn!(
                target: "trapline::cli",
                "{origin}={filter} selects nothing of the kernel's: did you mean trapline::{target}?"
            );
        }
    }
}

struct Lines {
    log: Log,
    /// The time of the kernel's last event, since boot; later events carry it.
    at: Mutex<Option<Value>>,
}

struct Fields(Map<String, Value>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        see(attributes.metadata().target());
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
        if !of_kernel {
            see(target);
        }
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let Fields(mut line) = fields;
        if !of_kernel {
            make_way(&mut line);
        }
        // A kernel event names its task; a program's event happens within a span.
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
                Value::Object(line).to_string()
            }
            Format::Text => self.log.line(target, level, &line),
        };
        if let Err(error) = stdio::write(Stream::Err, (text + "\n").as_bytes())
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            // The reader closed the trace early, so the process ends without an error.
            signals::end(0);
        }
    }
}

/// Notes that there is an event of this target.
fn see(target: &str) {
    unseen().retain(|(_, unseen)| !target.starts_with(unseen.as_str()));
}

/// Renames a program's fields that collide with those of a line.
fn make_way(line: &mut Map<String, Value>) {
    for name in ["at", "kernel", "tid", "comm", "level", "target"] {
        if let Some(value) = line.remove(name) {
            line.insert(format!("fields.{name}"), value);
        }
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
