//! The shortest first, with and without interruption.

use super::{Cause, Facts, Policy, Runnable, kept::Order};

/// Shortest job first: the ready task with the shortest computation. A computation is not
/// interrupted. Of equals, the one that arrived first. (OSTEP, chapter 7.)
#[derive(Debug, Default)]
pub struct Sjf(Order);

/// Shortest time to completion first: as [`Sjf`], and a task that becomes ready interrupts one that
/// has more left. (OSTEP, chapter 7.)
///
/// ```
/// use std::time::Duration;
/// use trapline::{Kernel, Os, SimWorld, sched::Stcf};
///
/// let builder = Kernel::builder().world(SimWorld::new(0)).policy(Stcf::default());
/// let mut kernel = builder.build()?;
/// kernel.spawn("main", async |os: &mut Os| {
///     for (name, arrival, length) in [("long", 0, 100), ("short", 10, 10)] {
///         let arrival = Duration::from_secs(arrival);
///         let job = async move |os: &mut Os| {
///             os.compute(Duration::from_secs(length)).await;
///             let now = os.now().await;
///             writeln!(os, "{name} {now:?}");
///         };
///         os.spawn_later(name, arrival, job).await?;
///     }
///     Ok::<(), trapline::Errno>(())
/// })?;
/// kernel.run()?;
/// assert_eq!(kernel.take_console(), "short 20s\nlong 110s\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Stcf(Order);

macro_rules! shortest {
    ($Policy:ident, $preempts:expr) => {
        impl Policy for $Policy {
            fn push(&mut self, task: Runnable, _: Cause) {
                *self.0.key(task) = 0;
                self.0.insert(task);
            }

            fn push_with(&mut self, _: Cause, facts: &Facts<'_>) {
                *self.0.key(facts.task) = facts.length.0;
                self.0.insert(facts.task);
            }

            fn pop(&mut self) -> Option<Runnable> {
                self.0.pop()
            }

            fn remove(&mut self, task: Runnable) {
                self.0.remove(task);
            }

            fn len(&self) -> usize {
                self.0.len()
            }

            fn preempts(&self, ready: &Facts<'_>, running: &Facts<'_>) -> bool {
                $preempts && ready.length < running.length
            }

            fn changed(&mut self, facts: &Facts<'_>) {
                if self.0.remove(facts.task) {
                    self.push_with(Cause::Preempted, facts);
                }
            }

            fn ended(&mut self, task: Runnable) {
                self.0.forget(task);
            }
        }
    };
}

shortest!(Sjf, false);
shortest!(Stcf, true);
