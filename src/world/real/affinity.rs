//! The cores: how many there are, and on which a thread runs. Linux alone can pin a thread.

use std::{sync::OnceLock, thread};

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What the process may use, before any thread was pinned.
struct Cores {
    count: usize,
    #[cfg(target_os = "linux")]
    set: Option<CpuSet>,
}

static CORES: OnceLock<Cores> = OnceLock::new();

fn cores() -> &'static Cores {
    CORES.get_or_init(|| Cores {
        count: thread::available_parallelism().map_or(1, usize::from),
        #[cfg(target_os = "linux")]
        set: sched_getaffinity(None).ok(),
    })
}

/// Returns how many cores the process may use. Asked before the first thread is pinned.
pub(crate) fn count() -> usize {
    cores().count
}

/// Pins the calling thread to the core at this place among those that the process may use. Returns
/// whether it did: another system cannot, and a core may be missing.
#[cfg(target_os = "linux")]
pub(crate) fn pin(place: usize) -> bool {
    let Some(set) = &cores().set else {
        return false;
    };
    let mut all = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
    let Some(core) = all.nth(place) else {
        return false;
    };
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).is_ok()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_place: usize) -> bool {
    false
}

/// Lets the calling thread run on every core. A thread begins on the core of the one that has started it.
pub(super) fn unpin() {
    #[cfg(target_os = "linux")]
    if let Some(set) = CORES.get().and_then(|cores| cores.set.as_ref()) {
        // If this fails, the thread shares the core of a kernel.
        let _ = sched_setaffinity(None, set);
    }
}
