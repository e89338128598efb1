//! Observation: the cost of a trap with an observer, and without one.
//!
//! A hundred tasks trap, in the simulated world. Each trap is three events: resumed, trapped,
//! replied. Making and ending the tasks is measured too, and is little. Files are written to the
//! page cache, not to a disk, since they are removed as soon as they are open.

use std::{
    fs::{File, remove_file},
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::Mutex,
};

use tracing_subscriber::{filter::LevelFilter, fmt::Subscriber, util::SubscriberInitExt};
use trapline::{
    Builder, Event, Fact, Kernel, Os, SimWorld,
    record::{Header, Recorder},
};

use crate::{
    Plan,
    contest::Contest,
    meter::{ns_each, process_time},
    ring::Ring,
    watched,
};

const TASKS: usize = 100;
const TRAPS: usize = 2_000_000;

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    vec![
        in_process(plan),
        watched::from_the_command_line(plan),
        watched::while_it_runs(plan),
    ]
}

fn in_process(plan: &Plan) -> Contest {
    let traps = plan.times(TRAPS);
    // Text is slow.
    let few = traps / 10;
    Contest::new("observation", plan.rounds, &["ns of CPU per trap"])
        .enter("trapline, no observer", move || {
            run(traps, |builder| builder)
        })
        .enter("counters", move || {
            let mut counts = [0u64; 4];
            run(traps, |builder| {
                builder.tracer(move |event: &Event<'_>| {
                    counts[match event.fact {
                        Fact::Resumed => 0,
                        Fact::Trapped { .. } => 1,
                        Fact::Replied { .. } => 2,
                        _ => 3,
                    }] += 1;
                    std::hint::black_box(&counts);
                })
            })
        })
        .enter("ring of typed records", move || {
            run(traps, |builder| builder.tracer(Ring::new()))
        })
        .enter_many("recording the last 100000", move || {
            let recorder = Recorder::last(100_000, "/dev/null", &Header::default())?;
            Ok(vec![run(traps, |builder| builder.tracer(recorder))])
        })
        .enter_many("recording to a file", move || {
            let path = path();
            let recorder = Recorder::create(&path, &Header::default())?;
            remove_file(path)?;
            Ok(vec![run(traps, |builder| builder.tracer(recorder))])
        })
        .enter("text to nowhere", move || {
            run(few, |builder| lines(builder, Nowhere))
        })
        .enter_many("text to a file", move || {
            let file = BufWriter::new(file()?);
            Ok(vec![run(few, |builder| lines(builder, file))])
        })
        .enter("tracing, text to nowhere", move || {
            let text = Subscriber::builder().with_max_level(LevelFilter::TRACE);
            let _guard = text.with_writer(|| Nowhere).set_default();
            run(few, |builder| builder)
        })
        .enter("tracing, JSON to nowhere", move || {
            let json = Subscriber::builder()
                .json()
                .with_max_level(LevelFilter::TRACE);
            let _guard = json.with_writer(|| Nowhere).set_default();
            run(few, |builder| builder)
        })
        .enter_many("tracing, JSON to a file", move || {
            let json = Subscriber::builder()
                .json()
                .with_max_level(LevelFilter::TRACE);
            let _guard = json.with_writer(Mutex::new(file()?)).set_default();
            Ok(vec![run(few, |builder| builder)])
        })
}

/// Writes each event as a line of the canonical log.
fn lines(builder: Builder, mut to: impl Write + 'static) -> Builder {
    builder.tracer(move |event: &Event<'_>| {
        writeln!(to, "{event}").expect("there is room on the disk");
    })
}

/// Accepts bytes; with [`io::sink`] the compiler would remove the formatting.
struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(std::hint::black_box(bytes).len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn path() -> PathBuf {
    std::env::temp_dir().join(format!("trapline-bench-{}.log", std::process::id()))
}

/// A file without a name.
fn file() -> io::Result<File> {
    let path = path();
    let file = File::create(&path)?;
    remove_file(path)?;
    Ok(file)
}

fn run(traps: usize, observed: impl FnOnce(Builder) -> Builder) -> f64 {
    let builder = observed(Kernel::builder().world(SimWorld::new(0)));
    let start = process_time();
    let mut kernel = builder.build().expect("a simulated world needs nothing");
    for _ in 0..TASKS {
        kernel
            .spawn("task", async move |os: &mut Os| {
                for _ in 0..traps / TASKS {
                    os.get_tid().await;
                }
            })
            .expect("there is room for the tasks");
    }
    kernel.run().expect("tasks that only trap come to an end");
    // Buffered bytes are written when the kernel is dropped.
    drop(kernel);
    ns_each(process_time() - start, traps)
}
