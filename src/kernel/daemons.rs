//! Daemons: their turns, and their own random numbers.

use std::panic::Location;

use super::{Kernel, ready::POLL_AFTER, task::OnExit};
use crate::{
    abi::Tid,
    trap::{Note, Start},
    user::{
        os::Os,
        program::{self, IntoExit},
    },
};

/// The number of polls with ready daemons, without a ready task and without progress of the clock.
/// After these the daemons count as spinning, and the run continues without them.
const PATIENCE: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct Daemons {
    ticks: u64,
    pub(super) idle: u32,
    /// The polls since the last turn of a task or the last progress of the clock.
    pub(super) still: u32,
    random: Mixed,
}

/// A sequence of numbers beside that of the world's random ones, which so does not change.
/// (SplitMix64.)
#[derive(Debug, Default)]
pub(super) struct Mixed {
    drawn: u64,
}

impl Mixed {
    pub(super) fn draw(&mut self, seed: u64) -> u64 {
        self.drawn += 1;
        let mut z = seed.wrapping_add(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

impl Daemons {
    pub(super) fn random(&mut self, seed: u64) -> u64 {
        self.random.draw(seed)
    }
}

impl Kernel {
    /// Starts a program as a daemon: a task that serves the host, such as a monitor, and stays
    /// hidden from the other tasks. The tasks that it spawns are daemons too.
    ///
    /// A run ends when only daemons are left, and a deadlock is reported in spite of them. A daemon
    /// is in no list of tasks and counts towards no limit. Tracers do not receive its events. Its
    /// number is in a range apart ([`Tid::is_daemon`]). While other tasks are ready, the readiness
    /// of its devices may reach it a millisecond late.
    ///
    /// A daemon lives until it returns, until a shutdown, or until the kernel is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// kernel.spawn_daemon("watch", async |os: &mut Os| loop {
    ///     let tasks = os.tasks().await;
    ///     writeln!(os, "{} to go", tasks.len());
    ///     os.sleep(Duration::from_secs(2)).await;
    /// });
    /// for span in [1, 3] {
    ///     let span = Duration::from_secs(span);
    ///     kernel.spawn("sleeper", async move |os: &mut Os| os.sleep(span).await)?;
    /// }
    /// kernel.run()?;
    /// assert_eq!(kernel.take_console(), "2 to go\n1 to go\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn spawn_daemon<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Tid {
        self.frame.set_place_of_spawn(Some(Location::caller()));
        let birth = self.frame.birth(name.as_ref());
        let program = program::program(&self.frame, program);
        let task = self.admit(birth, program, None, OnExit::Nothing, true, Start::First);
        task.expect("there is no limit on daemons").tid
    }

    /// Gives each ready daemon a turn; if no task is ready, a pass of turns. These are no ticks.
    pub(super) fn run_daemons(&mut self) {
        let ticks = self.stats.ticks;
        if ticks != self.daemons.ticks {
            (self.daemons.idle, self.daemons.still) = (0, 0);
            self.daemons.ticks = ticks;
        }
        if self.ready.daemons() == 0 {
            return;
        }
        // They have their turns between those of tasks, when a pass ends.
        self.frame.note(Note::Barrier);
        self.daemons.idle += 1;
        self.daemons.still += 1;
        let turns = if self.ready.is_empty() {
            POLL_AFTER
        } else {
            self.ready.daemons() as u64
        };
        self.run_apart(ticks + turns, |kernel| kernel.ready.pop_daemon());
        self.remote.runs(Tid::KERNEL);
        self.stats.ticks = ticks;
    }

    #[inline]
    pub(super) fn may_daemons_help(&self) -> bool {
        self.ready.daemons() > 0 && self.daemons.idle < PATIENCE
    }

    #[inline]
    pub(super) fn do_daemons_hurry(&self) -> bool {
        self.ready.daemons() > 0 && self.daemons.still < PATIENCE
    }
}
