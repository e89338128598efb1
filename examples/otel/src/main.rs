//! Traces of a kernel for OpenTelemetry: a span for each task, with an event for each of its traps;
//! a program's own spans within it; and a link from a task to the one that spawned it.
//!
//! ```sh
//! cargo run -p trapline-otel
//! ```
//!
//! This prints the spans. To send them to a collector, replace the exporter.

use std::{error::Error, time::Duration};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use tracing::{Instrument, info, info_span};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt};
use trapline::{Errno, Kernel, Os};

fn main() -> Result<(), Box<dyn Error>> {
    let provider = provider(opentelemetry_stdout::SpanExporter::default());
    observed(&provider, run)??;
    provider.shutdown()?;
    Ok(())
}

/// The exporter of ended spans.
fn provider(exporter: impl SpanExporter + 'static) -> SdkTracerProvider {
    SdkTracerProvider::builder()
        .with_simple_exporter(exporter)
        // The traps of a task are events of its span. Events beyond the limit are counted and
        // dropped.
        .with_max_events_per_span(10_000)
        .build()
}

/// Runs a function with a subscriber that sends spans to `provider`.
fn observed<T>(provider: &SdkTracerProvider, run: impl FnOnce() -> T) -> Result<T, Box<dyn Error>> {
    // Without the kernel's target there would be no spans of tasks.
    let filter = EnvFilter::builder().parse("info,trapline::kernel=trace")?;
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("trapline"));
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    Ok(tracing::subscriber::with_default(subscriber, run))
}

/// A kernel whose programs have spans and events of their own.
fn run() -> Result<(), Box<dyn Error>> {
    let mut kernel = Kernel::real()?;
    kernel.spawn("main", async |os: &mut Os| {
        let child = os.spawn("cook", async |os: &mut Os| {
            // A span around calls has to be a future's span, since other tasks run meanwhile.
            boil(os, 3)
                .instrument(info_span!("boil", minutes = 3))
                .await;
        });
        let child = child.await?;
        let exit = os.wait(child).await?;
        info!(%exit, "the cook is back");
        Ok::<(), Errno>(())
    })?;
    kernel.run()?;
    Ok(())
}

async fn boil(os: &mut Os, minutes: u32) {
    info!("the water boils");
    os.sleep(minutes * Duration::from_millis(10)).await;
    info!("done");
}

#[cfg(test)]
mod tests {
    use opentelemetry::{Value, trace::SpanId};
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};

    use super::*;

    fn attribute(span: &SpanData, key: &str) -> String {
        let mut found = span
            .attributes
            .iter()
            .filter(|pair| pair.key.as_str() == key);
        let pair = found.next().unwrap_or_else(|| panic!("no {key}: {span:?}"));
        pair.value.to_string()
    }

    fn events(span: &SpanData) -> Vec<&str> {
        span.events.iter().map(|event| &*event.name).collect()
    }

    #[test]
    fn tasks_are_spans_traps_are_events_and_own_spans_are_within() {
        let exporter = InMemorySpanExporter::default();
        let provider = provider(exporter.clone());
        observed(&provider, run).unwrap().unwrap();
        let spans = exporter.get_finished_spans().unwrap();
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["boil", "task", "task", "task"]);
        let [boil, cook, main, kernel] = &spans[..] else {
            unreachable!("there are four");
        };
        assert_eq!(attribute(kernel, "comm"), "kernel");
        assert_eq!(attribute(cook, "comm"), "cook");
        assert_eq!(attribute(main, "comm"), "main");
        assert_eq!(boil.parent_span_id, cook.span_context.span_id());
        assert_eq!(main.parent_span_id, SpanId::INVALID);
        assert_eq!(
            cook.links.iter().next().unwrap().span_context,
            main.span_context
        );
        assert_eq!(events(boil), ["the water boils", "done"]);
        assert_eq!(
            events(cook),
            [
                "spawned by 1",
                "sleep(30ms) ...",
                "... sleep(30ms) = ok",
                "exited: done",
                "reaped"
            ]
        );
        assert_eq!(
            events(main),
            [
                "spawned by the host",
                "new_task(\"cook\") = 2",
                "wait_task(2) ...",
                "... wait_task(2) = done",
                "the cook is back",
                "exited: done",
                "reaped"
            ]
        );
        let slept = &cook.events[1].attributes;
        assert!(slept.iter().any(|pair| {
            pair.key.as_str() == "blocked_on"
                && matches!(&pair.value, Value::String(on) if on.as_str().starts_with("the timer"))
        }));
        let time = boil.end_time.duration_since(boil.start_time).unwrap();
        assert!(time >= Duration::from_millis(30), "{time:?}");
    }
}
