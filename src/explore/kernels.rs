//! The search over kernels side by side: that of a kernel which conducts them.

use super::{
    check::{Check, check},
    clock::KERNELS,
};
use crate::{Error, Kernel, Kernels};

const _: () = assert!(KERNELS == Kernels::MOST_CONDUCTED);

/// Searches for an order of turns and of mail that breaks a program of several kernels, as
/// [`check`](crate::check()) does for one.
///
/// The closure is called once for each schedule, with kernels as [`Kernels::simulated`] makes them. The search
/// decides which task of which kernel has each turn, and so in which order mail arrives, by any strategy that there
/// is. A policy and a quantum that a kernel has of its own are replaced. The random numbers of all kernels follow from the seed.
/// Reports show a task with the number of its kernel, such as `2:1`.
///
/// A schedule fails by an error or a panic of the closure, so a test checks the results that [`Kernels::run`]
/// returns.
///
/// An exhaustive search sees what kernels send to each other by a [`Mailbox`](crate::Mailbox), and not what they
/// share otherwise, such as an [`Arc`](std::sync::Arc) of an atomic number: see
/// [`Check::exhaustive`].
///
/// Mail arrives with the turn that sends it. By seed and on threads, the receiver may have more turns before, up to its
/// next poll. If another of its tasks cuts a get there that waits, the mail is late: that outcome is not searched. Nor is
/// it searched that a kernel comes to its limit of time at the very instant at which another one shuts it down.
///
/// The end of a kernel, by its last task or by a failure, is a turn of its own: others may have turns before. All of
/// it happens at once. On threads, others may have turns after the tasks of a failed kernel are dropped, and before
/// its failure shuts them down.
///
/// What a search decides besides the order of turns is for a kernel alone: faults, chaos and networks, the time of turns,
/// injections, cuts, mutations and the limit of tasks. The search panics if it is asked for them.
///
/// *Panics* if there are more than 32 kernels.
///
/// ```
/// use trapline::{Error, Kernel, Kernels, Mailbox, Os, check_kernels};
///
/// /// Kernel 1 takes what the others send.
/// fn takes(kernels: &mut Kernels, expected: fn(u64, u64) -> bool) -> Result<(), Error> {
///     let (sender, mailbox) = Mailbox::<u64>::unbounded();
///     let results = kernels.run(move |id| {
///         let mut kernel = Kernel::simulated(0);
///         let (sender, mailbox) = (sender.clone(), mailbox.clone());
///         if id.index() > 0 {
///             kernel.spawn("sends", async move |os: &mut Os| sender.put(os, id.into()).await)?;
///             return Ok(kernel);
///         }
///         drop(sender);
///         kernel.spawn("takes", async move |os: &mut Os| {
///             let first = mailbox.get(os).await.unwrap();
///             let second = mailbox.get(os).await.unwrap();
///             assert!(expected(first, second));
///         })?;
///         Ok(kernel)
///     });
///     results.into_iter().try_for_each(|result| result?.check())
/// }
///
/// // Wrong: the mail of the other kernel can arrive first.
/// let explored = check_kernels(3, |kernels| takes(kernels, |first, _| first == 2)).explore();
/// let failure = explored.failure.unwrap();
/// assert!(failure.why.contains("task 1 \"takes\" faulted"), "{failure}");
///
/// let sum = |first, second| first + second == 5;
/// let explored = check_kernels(3, |kernels| takes(kernels, sum)).exhaustive().explore();
/// assert!(explored.proved, "{explored}");
/// ```
pub fn check_kernels<F>(count: usize, test: F) -> Check<impl Fn(&mut Kernel) -> Result<(), Error>>
where
    F: Fn(&mut Kernels) -> Result<(), Error>,
{
    assert!(
        count <= KERNELS,
        "a search takes at most {KERNELS} kernels, and not {count}"
    );
    let mut check = check(move |kernel: &mut Kernel| Kernels::under(kernel, count, &test));
    check.settings.kernels = Some(std::any::type_name::<F>());
    check
}
