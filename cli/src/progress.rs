//! The line on a terminal that says how far long work has come: one for all commands.
//!
//! It appears after a second, on standard error if that is a terminal, and disappears before anything
//! else is printed.

use std::{
    io::{self, IsTerminal},
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::termios::tcgetwinsize;
use trapline::{Event, Nanos};

use super::{
    signals, stdio,
    table::cut,
    units::{count, number, percent, span},
};

/// When the line appears, and the time between two of them.
const FIRST: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(100);

/// Shows how far work has come: on a line of the terminal, after a second. Without a terminal it does
/// nothing. Dropping it removes the line.
///
/// ```
/// use trapline_cli::Meter;
///
/// let meter = Meter::new("request", Some(1000));
/// for done in 0..1000 {
///     meter.show(done); // 500 of 1,000 requests, 250 a second, 2s left
/// }
/// ```
#[derive(Debug)]
pub struct Meter(Option<Arc<Work>>);

/// Work that is under way. A thread looks at it: it is shown though a part takes long, and its work does not
/// read the clock.
#[derive(Debug)]
struct Work {
    what: &'static str,
    of: Option<u64>,
    begin: Instant,
    done: AtomicU64,
    /// The part that is done, as the bits of an `f64`; 0 if it is not known.
    share: AtomicU64,
    /// The instant of a run, in nanoseconds; 0 without one.
    instant: AtomicU64,
    /// Whether the line on the terminal may be of this work.
    was_shown: AtomicBool,
}

/// All work, of which the last is shown that has taken a second. The terminal belongs to the process, and so does this.
static ALL: Mutex<Vec<Arc<Work>>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Arc<Work>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the last long work now and then.
fn watch() {
    loop {
        thread::sleep(PERIOD);
        let all = all();
        let line = |work: &Arc<Work>| Some((Arc::clone(work), work.line()?));
        if let Some((work, line)) = all.iter().rev().find_map(line) {
            work.was_shown.store(true, Relaxed);
            show(&line);
        }
    }
}

impl Meter {
    /// Returns a meter of work that has so many parts, if their number is known. `what` is one part.
    #[must_use]
    pub fn new(what: &'static str, of: Option<u64>) -> Self {
        static WATCHED: Once = Once::new();
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let work = Arc::new(Work {
            what,
            of,
            begin: Instant::now(),
            done: AtomicU64::new(0),
            share: AtomicU64::new(0),
            instant: AtomicU64::new(0),
            was_shown: AtomicBool::new(false),
        });
        all().push(Arc::clone(&work));
        WATCHED.call_once(|| {
            // An end by a second interrupt drops nothing.
            signals::at_end(|| drop(signals::soon(stdio::clear)));
            let watcher = thread::Builder::new().name("progress".into());
            // Without a thread there is no line, which is no failure of the work.
            let _ = watcher.spawn(watch);
        });
        Self(Some(work))
    }

    /// Notes that one more part is done.
    pub fn add(&self) {
        if let Some(work) = &self.0 {
            work.done.fetch_add(1, Relaxed);
        }
    }

    /// Notes that so many parts are done.
    pub fn show(&self, done: u64) {
        if let Some(work) = &self.0 {
            work.done.store(done, Relaxed);
        }
    }

    /// Notes the part that is done, where the number of all parts is not known.
    pub(super) fn share(&self, share: impl FnOnce() -> Option<f64>) {
        if let Some(work) = &self.0 {
            work.share.store(part(share()).to_bits(), Relaxed);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(work) = &self.0 {
            let mut all = all();
            all.retain(|other| !Arc::ptr_eq(other, work));
            if work.was_shown.load(Relaxed) {
                stdio::clear();
            }
        }
    }
}

impl Work {
    /// What is shown of it, once it has taken a second.
    fn line(&self) -> Option<String> {
        let elapsed = self.begin.elapsed();
        if elapsed < FIRST {
            return None;
        }
        let done = self.done.load(Relaxed);
        let share = match self.of {
            Some(of) => done as f64 / of.max(1) as f64,
            None => f64::from_bits(self.share.load(Relaxed)),
        };
        let head = match self.instant.load(Relaxed) {
            0 if self.of.is_none() && share > 0.0 => format!("{}: ", percent(share, 1.0)),
            0 => String::new(),
            nanos => format!("{}: ", Nanos::from(Duration::from_nanos(nanos))),
        };
        let left = (share > 0.0).then(|| {
            let rest = (1.0 - share) / share;
            elapsed.mul_f64(rest.clamp(0.0, 1e9))
        });
        Some(head + &line(done, self.of, self.what, elapsed) + &time_left("", left))
    }
}

/// A tracer that shows how far a run is: its instant, and how many ticks it has made. `share` is the part
/// that is done, if that is known.
pub(super) fn of_run(share: impl Fn(Duration, u64) -> Option<f64>) -> impl FnMut(&Event<'_>) {
    let meter = Meter::new("tick", None);
    let mut ticks = 0;
    move |event| {
        if event.fact.is_resumed() {
            ticks += 1;
            meter.show(ticks);
            meter.share(|| share(event.at, ticks));
            if let Some(work) = &meter.0 {
                let nanos = u64::try_from(event.at.as_nanos()).unwrap_or(u64::MAX);
                work.instant.store(nanos, Relaxed);
            }
        }
    }
}

/// A part from 0 to 1, where 0 is also a part that is not known.
fn part(share: Option<f64>) -> f64 {
    let share = share.filter(|share| !share.is_nan());
    share.unwrap_or(0.0).clamp(0.0, 1.0)
}

/// So many of all, and how many a second.
pub(super) fn line(done: u64, of: Option<u64>, what: &str, elapsed: Duration) -> String {
    let rate = number((done as f64 / elapsed.as_secs_f64().max(1e-9)).round());
    match of {
        Some(of) => format!("{} of {}, {rate} a second", number(done), count(of, what)),
        None => format!("{}, {rate} a second", count(done, what)),
    }
}

/// The time that the rest takes, in whole seconds; nothing for less than half of one.
pub(super) fn time_left(most: &str, left: Option<Duration>) -> String {
    let left = left.map(|left| Duration::from_secs(left.as_secs_f64().round() as u64));
    let left = left.filter(|left| !left.is_zero());
    left.map_or_else(String::new, |left| format!(", {most}{} left", span(left)))
}

/// Shows a line until anything else is printed.
pub(super) fn show(line: &str) {
    let columns = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    stdio::show_line(&cut(line, room(columns)));
}

/// The columns of a line on a terminal. A letter in its last column could begin another line.
fn room(columns: u16) -> usize {
    // A terminal may not know its size.
    match columns {
        0 => 79,
        _ => usize::from(columns - 1).min(79),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rate_and_the_time_left() {
        let seconds = Duration::from_secs;
        let text = line(1_500, Some(3_000), "run", seconds(3));
        assert_eq!(text, "1,500 of 3,000 runs, 500 a second");
        assert_eq!(line(1, None, "event", seconds(2)), "1 event, 1 a second");
        assert_eq!(
            time_left("at most ", Some(seconds(90))),
            ", at most 90s left"
        );
        assert_eq!(time_left("", None), "");
        assert_eq!(time_left("", Some(Duration::from_millis(400))), "");
    }

    #[test]
    fn a_part_is_no_less_than_nothing_and_no_more_than_all() {
        let shares = [f64::NAN, f64::INFINITY, -1.0, 0.25, 7.0].map(Some);
        assert_eq!(shares.map(part), [0.0, 1.0, 0.0, 0.25, 1.0]);
        assert_eq!(part(None), 0.0);
    }

    #[test]
    fn a_line_fits_the_terminal() {
        assert_eq!([0, 1, 40, 80, 500].map(room), [79, 0, 39, 79, 79]);
    }
}
