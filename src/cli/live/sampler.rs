//! Who uses the time: a thread asks the kernel a thousand times a second who runs, as long as
//! somebody wants to know. A run pays nothing for that.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use rustc_hash::FxHashMap;

use crate::{Remote, Tid};

/// How many samples are kept: of two seconds.
const SAMPLES: usize = 2000;
/// How many say anything.
const ENOUGH: usize = 50;

/// A thread that samples; it ends when this is dropped.
pub(super) struct Sampler {
    samples: Arc<Mutex<VecDeque<Tid>>>,
}

/// Which part of the time went where.
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

    /// What the last two seconds went to, once that can be said.
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

    /// Of those who ask.
    pub(super) fn daemons(&self) -> f64 {
        self.part(self.daemons)
    }

    fn part(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.all.max(1))
    }
}

fn sample(kernel: &Remote, samples: &Weak<Mutex<VecDeque<Tid>>>) {
    // Never in step with tasks that sleep for whole milliseconds.
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
