//! The settings of what a search varies besides the order of turns: [`Check::turns_take`] and
//! [`Check::faults`].

use std::{ops::RangeInclusive, time::Duration};

use super::{check::Check, may::MayFault};
use crate::{Error, Kernel};

impl<F> Check<F>
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    /// Lets turns take time: from zero up to the end of the range on average. Then the clock may go on to the
    /// next deadline while tasks are ready: a timer fires, or a packet arrives. After n turns the clock
    /// has advanced at most n times the end of the range beyond the waits of the kernel; so a turn may take
    /// what earlier ones have left. Default: turns take no time.
    ///
    /// In a search by seeds the seed decides. An exhaustive search runs the orders of the clock's steps
    /// and the turns that depend on them: those that read the clock, arm or disarm timers, use the
    /// network, or are woken. With [`Check::preemptions`] a step of the clock counts as one.
    ///
    /// *Panics* if the range does not begin at zero, or is nothing but zero.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Os, Shared, check};
    ///
    /// let race = |kernel: &mut trapline::Kernel| {
    ///     let first = Shared::new("");
    ///     let (one, other) = (first.clone(), first.clone());
    ///     kernel.spawn("sleeper", async move |os: &mut Os| {
    ///         os.sleep(Duration::from_millis(1)).await;
    ///         one.update(|first| if first.is_empty() { *first = "sleeper" });
    ///     })?;
    ///     kernel.spawn("worker", async move |os: &mut Os| {
    ///         for _ in 0..3 {
    ///             os.yield_now().await;
    ///         }
    ///         other.update(|first| if first.is_empty() { *first = "worker" });
    ///     })?;
    ///     kernel.run()?;
    ///     kernel.outcome(first.get());
    ///     Ok(())
    /// };
    /// let at_once = check(race).exhaustive().explore();
    /// assert!(at_once.outcomes.iter().eq(["worker"]));
    /// let slow = Duration::ZERO..=Duration::from_millis(5);
    /// let slow = check(race).exhaustive().turns_take(slow).explore();
    /// assert!(slow.outcomes.iter().eq(["sleeper", "worker"]));
    /// ```
    pub fn turns_take(mut self, span: RangeInclusive<Duration>) -> Self {
        let (from, most) = span.into_inner();
        assert!(
            from.is_zero(),
            "a turn may also take no time: the range begins at zero"
        );
        assert!(
            !most.is_zero(),
            "turns take no time by default: the range ends above zero"
        );
        self.settings.space.turn = Some(most);
        self
    }

    /// Lets up to `most` of these faults happen in each schedule, each at any trap, in the words of
    /// `--fault` without a time, or of `--inject` without `when`: see [`MayFault`]. A fault of the list
    /// may happen more than once. One that lasts, such as `cut`, `crash` or `disk:full`, may end at any
    /// later trap, which does not count. Default: none.
    ///
    /// In a search by seeds the seed decides. An exhaustive search, and one with
    /// [`Check::preemptions`], runs every place at which it makes a difference, and each of
    /// [`SimDisk::images`](crate::SimDisk::images) that a crash may leave. The report of a failure
    /// names its faults, and what has felt them. Its schedule has none that does not matter.
    ///
    /// *Panics* if a text is no fault. A search with an empty list panics when it begins, unless `most` is 0.
    ///
    /// ```
    /// use std::io;
    /// use trapline::{Error, Kernel, Os, check};
    ///
    /// /// Counts on a disk that never fails.
    /// fn saves(kernel: &mut Kernel) -> Result<(), Error> {
    ///     kernel.spawn("saves", async |os: &mut Os| {
    ///         let file = os.disk().open(os, "data", trapline::Mode::Write).await?;
    ///         file.append(os, b"text").await.expect("there is room");
    ///         io::Result::Ok(())
    ///     })?;
    ///     kernel.run()?.check()
    /// }
    /// let full = ["append:error=StorageFull"];
    /// let failure = check(saves).exhaustive().faults(1, full).explore().failure.unwrap();
    /// assert!(failure.details.contains("append:error=StorageFull at turn 2"));
    /// assert!(check(saves).exhaustive().explore().proved);
    /// ```
    pub fn faults<T: AsRef<str>>(
        mut self,
        most: usize,
        faults: impl IntoIterator<Item = T>,
    ) -> Self {
        let parsed = |text: T| text.as_ref().parse::<MayFault>();
        let faults: Result<Vec<_>, String> = faults.into_iter().map(parsed).collect();
        let space = &mut self.settings.space;
        space.faults = faults.unwrap_or_else(|why| panic!("{why}")).into();
        space.most = most;
        self
    }
}
