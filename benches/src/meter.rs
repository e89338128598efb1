//! The measurements.

use std::{fs, io, time::Duration};

use cpu_time::{ProcessTime, ThreadTime};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

/// The CPU time of this thread. It is the figure where every contender is a single busy thread, and
/// does not depend on the machine's other load.
pub(crate) fn cpu_time() -> Duration {
    // From libc: rustix's own clocks use the vDSO, which valgrind hides.
    ThreadTime::now().as_duration()
}

/// The nanoseconds for each of `count` operations.
pub(crate) fn ns_each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// The CPU time of this process, for contenders with background threads.
pub(crate) fn process_time() -> Duration {
    ProcessTime::now().as_duration()
}

/// The CPU time of the threads of another process.
pub(crate) fn cpu_time_of(pid: i32) -> io::Result<Duration> {
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path().join("schedstat");
        let text = fs::read_to_string(&path)?;
        let first = text.split_whitespace().next();
        let nanos = first.and_then(|ns| ns.parse().ok()).ok_or_else(|| {
            let path = path.display();
            io::Error::other(format!("{path} holds {text:?}, and no CPU time"))
        })?;
        sum += Duration::from_nanos(nanos);
    }
    Ok(sum)
}

/// The same, with its children.
pub(crate) fn cpu_time_of_family(pid: i32) -> io::Result<Duration> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let mut sum = cpu_time_of(pid)?;
    for child in children.split_whitespace() {
        sum += cpu_time_of(child.parse().map_err(io::Error::other)?)?;
    }
    Ok(sum)
}

/// The numbers up to `count`, in an order that is the same each time.
pub(crate) fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    // Knuth's generator and shuffle.
    let mut state = 1u64;
    for at in (1..count).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

/// Pins a process to one core; on a machine with a single core, to that core.
pub(crate) fn pin(pid: Option<Pid>, core: usize) -> io::Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    let mut set = CpuSet::new();
    set.set(core % cores);
    Ok(sched_setaffinity(pid, &set)?)
}

/// The memory of this process.
pub(crate) struct Memory {
    /// The heap's allocated bytes: each block with its header and its rounding, as glibc counts it.
    /// NaN without glibc.
    pub(crate) heap: f64,
    /// The resident memory.
    pub(crate) resident: f64,
}

pub(crate) fn memory() -> io::Result<Memory> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(Memory {
        heap: heap()?,
        resident: 1024.0
            * kib.ok_or_else(|| io::Error::other("/proc/self/status has no line VmRSS in kB"))?,
    })
}

/// Chunks in use: the heap's memory from the system, without its free chunks, plus mapped chunks.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn heap() -> io::Result<f64> {
    use malloc_info::info::{SystemType, TotalType};
    let info = malloc_info::malloc_info().map_err(io::Error::other)?;
    let taken = info
        .system
        .iter()
        .filter(|s| s.r#type == SystemType::Current);
    let taken: f64 = taken.map(|s| s.size as f64).sum();
    let rest = info.total.iter().map(|total| match total.r#type {
        TotalType::Fast | TotalType::Rest => -(total.size as f64),
        TotalType::Mmap => total.size as f64,
        TotalType::Other => 0.0,
    });
    Ok(taken + rest.sum::<f64>())
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn heap() -> io::Result<f64> {
    Ok(f64::NAN)
}
