//! What is measured.

use std::{fs, io, time::Duration};

use cpu_time::ThreadTime;
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

/// The CPU time of this thread. Where every contender is a single busy thread this is its time,
/// whatever else the machine does.
pub(crate) fn cpu_time() -> Duration {
    // From libc: rustix's own clocks look for the vDSO, which valgrind hides.
    ThreadTime::now().as_duration()
}

/// Nanoseconds for each of `count` things.
pub(crate) fn ns_each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// The CPU time that another, single-threaded process has had.
pub(crate) fn cpu_time_of(pid: i32) -> io::Result<Duration> {
    let path = format!("/proc/{pid}/schedstat");
    let text = fs::read_to_string(&path)?;
    let first = text
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok());
    first
        .map(Duration::from_nanos)
        .ok_or_else(|| io::Error::other(format!("{path} holds {text:?}, and no CPU time")))
}

/// Keeps a process to one core; on a machine with a single core, to that.
pub(crate) fn pin(pid: Option<Pid>, core: usize) -> io::Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    let mut set = CpuSet::new();
    set.set(core % cores);
    Ok(sched_setaffinity(pid, &set)?)
}

/// The memory of this process.
pub(crate) struct Memory {
    /// What the heap has given out: each block with its header and its rounding, as glibc itself
    /// counts it. NaN where there is no glibc.
    pub(crate) heap: f64,
    /// What is resident.
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

/// Chunks in use: what the heap took from the system, less what lies free, plus what is mapped.
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
