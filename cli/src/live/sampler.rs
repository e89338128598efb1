//! CPU shares by sampling: a thread reads the running task's number a thousand times a second while
//! a view is open. A run without a view pays nothing.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use rustc_hash::FxHashMap;
use trapline::{Remote, Tid};

/// The number of samples kept: two seconds.
const SAMPLES: usize = 2000;
/// The number of samples needed for a result.
const ENOUGH: usize = 50;

/// A sampling thread, which ends when this is dropped.
pub(super) struct Sampler {
    samples: Arc<Mutex<VecDeque<Tid>>>,
}

/// The share of the time that each task took.
#[derive(Default)]
pub(super) struct Shares {
    by_task: FxHashMap<Tid, u32>,
    daemons: u32,
    idle: u32,
    all: u32,
}

impl Sampler {
    pub(super) fn start(kernel: Remote) -> io::Result<Self> {
        let samples = Arc::default();
        let theirs = Arc::downgrade(&samples);
        thread::Builder::new()
            .name("sampler".into())
            .spawn(move || sample(&kernel, &theirs))?;
        Ok(Self { samples })
    }

    /// The shares of the last two seconds, once there are enough samples.
    pub(super) fn shares(&self) -> Option<Shares> {
        let mut shares = Shares::default();
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() < ENOUGH {
            return None;
        }
        for &tid in samples.iter() {
            shares.all += 1;
            match tid {
                Tid::KERNEL => shares.idle += 1,
                daemon if daemon.is_daemon() => shares.daemons += 1,
                tid => *shares.by_task.entry(tid).or_default() += 1,
            }
        }
        Some(shares)
    }
}

impl Shares {
    pub(super) fn of(&self, tid: Tid) -> f64 {
        self.part(self.by_task.get(&tid).copied().unwrap_or(0))
    }

    pub(super) fn idle(&self) -> f64 {
        self.part(self.idle)
    }

    /// The share of the daemons, which are the views themselves.
    pub(super) fn daemons(&self) -> f64 {
        self.part(self.daemons)
    }

    fn part(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.all.max(1))
    }
}

fn sample(kernel: &Remote, samples: &Weak<Mutex<VecDeque<Tid>>>) {
    // The period varies, so that it never locks to tasks that sleep for whole milliseconds.
    let mut jitter = 1u64;
    while let Some(samples) = samples.upgrade() {
        {
            let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            if samples.len() == SAMPLES {
                samples.pop_front();
            }
            samples.push_back(kernel.running());
        }
        drop(samples);
        jitter = jitter
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        thread::sleep(Duration::from_micros(500 + (jitter >> 54)));
    }
}
