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
pub(super) struct Shares {
    samples: FxHashMap<Tid, u32>,
    daemons: u32,
    all: usize,
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
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shares = Shares {
            samples: FxHashMap::default(),
            daemons: 0,
            all: samples.len(),
        };
        for &tid in samples.iter() {
            match tid.is_daemon() {
                true => shares.daemons += 1,
                false => *shares.samples.entry(tid).or_default() += 1,
            }
        }
        (shares.all >= ENOUGH).then_some(shares)
    }
}

impl Shares {
    /// That of [`Tid::KERNEL`] is the time in which it waited for the world.
    pub(super) fn of(&self, tid: Tid) -> f64 {
        let count = self.samples.get(&tid).copied().unwrap_or(0);
        f64::from(count) / self.all as f64
    }

    /// The share of the daemons, which are the views themselves.
    pub(super) fn daemons(&self) -> f64 {
        f64::from(self.daemons) / self.all as f64
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
