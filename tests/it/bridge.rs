//! The bridge to `tracing`: what subscribers are told, and how a program's own events and spans
//! stand among the kernel's.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use tracing::{
    Instrument, Subscriber,
    field::{Field, Visit},
    info, info_span,
    span::{Attributes, Id},
    subscriber::NoSubscriber,
};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::filter_fn,
    layer::Context,
    prelude::*,
    registry,
    registry::{LookupSpan, Scope},
};
use trapline::{Kernel, Os};

/// A layer that keeps a line per event: the spans around it, and its message.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

/// The name of a span with its fields, and an event's message.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let result = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        result.expect("a text takes text");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut text = Text(attributes.metadata().name().to_string());
        attributes.record(&mut text);
        let span = context.span(id).expect("it is new");
        span.extensions_mut().replace(text);
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut line = String::new();
        let scope = context.event_scope(event);
        for span in scope.into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            let text = extensions.get::<Text>().expect("it was new once");
            line += &format!("[{}] ", text.0);
        }
        if event.metadata().target().starts_with("trapline::") {
            let mut text = Message::default();
            event.record(&mut text);
            line += &text.0;
        } else {
            let mut text = Text::default();
            event.record(&mut text);
            line += &format!("own: {}", text.0);
        }
        self.0.lock().unwrap().push(line);
    }
}

/// The message alone.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// What two tasks with events and spans of their own come to, through a filter.
fn lines<S: Subscriber + Send + Sync + 'static>(filtered: impl FnOnce(Lines) -> S) -> Vec<String> {
    lines_of(filtered, || {
        let mut kernel = Kernel::simulated(1);
        for name in ["ann", "bob"] {
            kernel.spawn(name, program).unwrap();
        }
        kernel.run().unwrap();
    })
}

/// What a run comes to, through a filter.
fn lines_of<S: Subscriber + Send + Sync + 'static>(
    filtered: impl FnOnce(Lines) -> S,
    run: impl FnOnce(),
) -> Vec<String> {
    let lines = Lines::default();
    // With one subscriber alone, tracing lets the first thread that comes to an event decide for
    // all threads whether anybody wants it.
    let _second = tracing::Dispatch::new(NoSubscriber::default());
    tracing::subscriber::with_default(filtered(lines.clone()), run);
    let lines = lines.0.lock().unwrap();
    lines.clone()
}

async fn program(os: &mut Os) {
    info!(count = 1, "before");
    os.yield_now().await;
    let work = async {
        info!("at work");
        os.sleep(Duration::from_secs(1)).await;
        info!("done");
    };
    work.instrument(info_span!("work", n = 3)).await;
    info!("after");
}

#[test]
fn own_events_stand_between_the_traps_of_their_task() {
    let all = lines(|lines| {
        let filter = EnvFilter::new("info,trapline::kernel=trace");
        registry().with(filter).with(lines)
    });
    let of = |name: &str| -> Vec<&str> {
        let task = format!("comm={name}] ");
        let lines = all
            .iter()
            .filter_map(|line| Some(line.split_once(&task)?.1));
        lines.collect()
    };
    let expected = [
        "spawned by the host",
        "own: before count=1",
        "yield() = ok",
        "[work n=3] own: at work",
        "sleep(1s) ...",
        "... sleep(1s) = ok",
        "[work n=3] own: done",
        "own: after",
        "exited: done",
        "reaped",
    ];
    assert_eq!(of("ann"), expected);
    assert_eq!(of("bob"), expected);
    assert_eq!(
        all.len(),
        2 * expected.len(),
        "each within its task: {all:#?}"
    );
    assert_eq!(all[2], "[task tid=1 comm=ann] own: before count=1");
    assert_eq!(all[4], "[task tid=2 comm=bob] own: before count=1");
}

#[test]
fn a_filter_by_a_field_of_the_span_chooses_a_task() {
    let with = |filter: &str| lines(|lines| registry().with(EnvFilter::new(filter)).with(lines));
    for filter in [
        "[task{comm=bob}]=trace",
        "trapline::kernel[task{tid=2}]=trace",
    ] {
        let lines = with(filter);
        let of_bob = |line: &String| line.starts_with("[task tid=2 comm=bob] ");
        assert!(lines.iter().all(of_bob), "{filter}: {lines:#?}");
        let has = |text: &str| lines.iter().any(|line| line.ends_with(text));
        assert!(
            has("] own: before count=1") && has("yield() = ok") && has("resumed"),
            "{lines:#?}"
        );
    }
}

#[test]
fn spans_can_be_had_without_the_kernels_events() {
    let lines = lines(|lines| {
        let own = filter_fn(|data| data.is_span() || !data.target().starts_with("trapline::"));
        registry().with(lines.with_filter(own))
    });
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[1], "[task tid=2 comm=bob] own: before count=1");
    assert_eq!(lines[7], "[task tid=2 comm=bob] own: after");
}

#[test]
fn layers_with_filters_of_their_own_each_get_their_part() {
    let traps = Lines::default();
    let own = lines(|lines| {
        let own = filter_fn(|data| data.is_span() || !data.target().starts_with("trapline::"));
        let kernel = EnvFilter::new("trapline::kernel=trace");
        registry()
            .with(lines.with_filter(own))
            .with(traps.clone().with_filter(kernel))
    });
    assert_eq!(own[0], "[task tid=1 comm=ann] own: before count=1");
    assert_eq!(own.len(), 8);
    let traps = traps.0.lock().unwrap();
    assert_eq!(traps[0], "[task tid=1 comm=ann] spawned by the host");
    assert_eq!(traps.len(), 12);
}

#[test]
fn who_wants_nothing_of_the_kernel_gets_no_spans_either() {
    let lines = lines(|lines| registry().with(EnvFilter::new("info")).with(lines));
    assert_eq!(lines[0], "own: before count=1");
    assert_eq!(lines[2], "[work n=3] own: at work");
}

#[test]
fn the_host_is_in_no_tasks_span() {
    let lines = lines_of(
        |lines| registry().with(EnvFilter::new("trace")).with(lines),
        || {
            let mut kernel = Kernel::builder().max_ticks(2).build().unwrap();
            let busy = async |os: &mut Os| {
                for _ in 0..10 {
                    os.yield_now().await;
                }
            };
            kernel.spawn("ann", busy).unwrap();
            info!("after a spawn");
            kernel.step().unwrap();
            info!("after a step");
            kernel.run().unwrap_err();
            info!("after a limit");
        },
    );
    for after in ["a spawn", "a step", "a limit"] {
        let said = format!("own: after {after}");
        assert!(lines.contains(&said), "{said}: {lines:#?}");
    }
}

/// Counts how often the span of each task is entered.
#[derive(Clone, Default)]
struct Entries(Arc<Mutex<BTreeMap<String, u32>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Entries {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Text::default();
        attributes.record(&mut fields);
        let span = context.span(id).expect("it is new");
        span.extensions_mut().insert(fields);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).expect("it is entered");
        let extensions = span.extensions();
        let Text(fields) = extensions.get().expect("it has fields");
        *self.0.lock().unwrap().entry(fields.clone()).or_default() += 1;
    }
}

#[test]
fn the_span_of_a_task_is_entered_once_a_turn() {
    for names in [&["ann"][..], &["ann", "bob"]] {
        let entries = Entries::default();
        let _second = tracing::Dispatch::new(NoSubscriber::default());
        let filtered = registry()
            .with(EnvFilter::new("trapline=trace"))
            .with(entries.clone());
        tracing::subscriber::with_default(filtered, || {
            let mut kernel = Kernel::simulated(1);
            for &name in names {
                let program = async |os: &mut Os| {
                    for _ in 0..10 {
                        os.yield_now().await;
                    }
                    for _ in 0..5 {
                        os.sleep(Duration::from_secs(1)).await;
                    }
                };
                kernel.spawn(name, program).unwrap();
            }
            kernel.run().unwrap();
        });
        let entries = entries.0.lock().unwrap();
        let of_tasks = entries.iter().filter(|(task, _)| !task.contains("kernel"));
        for (task, count) in of_tasks {
            // The spawn, sixteen turns, and the reaping. A wake-up is entered with the turn after it,
            // unless another task comes between.
            let wakes = if names.len() > 1 { 5 } else { 0 };
            assert_eq!(*count, 1 + 16 + 1 + wakes, "{task} of {names:?}");
        }
        assert_eq!(entries.len(), names.len() + 1, "{entries:?}");
    }
}
