//! Mutations: at one place of the source a call does nothing. A search finds with them what a test does
//! not notice.
//!
//! The stubs ask, because a call of a user may take several traps. A call that is left out is a yield, so
//! other tasks have their turns where they had them before.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
};

use super::Caller;
use crate::{abi::Place, panic::lock};

/// What a call does that a [`Mutation`] can leave out. Its `Display` is the name of the call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// It takes a lock. Without that, a second task that uses the value of the lock at the same time panics.
    Lock,
    /// It takes permits of a semaphore.
    Acquire,
    /// It wakes tasks that wait for a condition.
    Notify,
    /// It sets a flag, a promise or a watched value.
    Set,
    /// It makes writes, or names in a directory, durable.
    Sync,
    /// It arms a timeout. Without that, the timeout never ends.
    Timeout,
    /// It waits for a condition. Without that, its first wait in a run ends without a signal. A caller that
    /// checks its condition again does not notice.
    Wait,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lock => "lock",
            Self::Acquire => "acquire",
            Self::Notify => "notify",
            Self::Set => "set",
            Self::Sync => "sync",
            Self::Timeout => "timeout",
            Self::Wait => "wait",
        })
    }
}

/// A call in the source whose effect a [`Mutation`] can leave out. Its `Display` is such as
/// `lock at src/server.rs:41`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallSite {
    place: Caller,
    effect: Effect,
}

impl CallSite {
    /// Returns what the call does.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Returns its column in its line.
    #[must_use]
    pub fn column(&self) -> u32 {
        self.place.column()
    }

    /// Returns its place in the source.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place.into()
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.effect, self.place())
    }
}

/// A change to a program: one call does nothing, wherever it is made. It notes the calls that it could
/// leave out. Clones are handles to the same mutation.
///
/// ```
/// use trapline::{Kernel, Mutation, Os, SimWorld, sync::Flag};
///
/// let run = |mutation: &Mutation| {
///     let kernel = Kernel::builder().world(SimWorld::new(0)).mutation(mutation);
///     let mut kernel = kernel.build()?;
///     kernel.spawn("main", async |os: &mut Os| {
///         let flag = Flag::new(os).await;
///         flag.set(os).await;
///         flag.wait(os).await;
///     })?;
///     kernel.run().map(drop)
/// };
/// let none = Mutation::default();
/// run(&none)?;
/// let set = none.sites().into_iter().next().expect("it sets the flag");
/// assert!(run(&Mutation::of(set)).is_err(), "it waits for ever");
/// # Ok::<(), trapline::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Mutation(Arc<Sites>);

#[derive(Debug, Default)]
struct Sites {
    left_out: Option<CallSite>,
    seen: Mutex<BTreeSet<CallSite>>,
}

impl Mutation {
    /// Returns the mutation that leaves this call out. The default leaves none out.
    #[must_use]
    pub fn of(site: CallSite) -> Self {
        Self(Arc::new(Sites {
            left_out: Some(site),
            ..Sites::default()
        }))
    }

    /// Returns the calls that it could leave out, among those that tasks have made. Of the calls within the
    /// library only the syncs of a [`Journal`](crate::Journal) are among them.
    #[must_use]
    pub fn sites(&self) -> BTreeSet<CallSite> {
        lock(&self.0.seen).clone()
    }
}

/// The mutation of a kernel.
#[derive(Default)]
pub(crate) struct Mutated {
    is_set: Cell<bool>,
    mutation: RefCell<Option<Mutation>>,
    /// Whether a wait of this run has ended without a signal.
    has_woken: Cell<bool>,
}

impl Mutated {
    pub(crate) fn set(&self, mutation: Option<Mutation>) {
        self.is_set.set(mutation.is_some());
        self.mutation.replace(mutation);
    }

    /// Begins another run.
    pub(super) fn reset(&self) {
        self.has_woken.set(false);
    }

    /// Returns whether the call at this place is to be left out.
    #[inline(always)]
    pub(crate) fn leaves_out(&self, effect: Effect, place: Caller) -> bool {
        self.is_set.get() && self.leaves_out_in_full(CallSite { place, effect })
    }

    #[cold]
    #[inline(never)]
    fn leaves_out_in_full(&self, site: CallSite) -> bool {
        let mutation = self.mutation.borrow();
        let Some(mutation) = &*mutation else {
            return false;
        };
        if is_own(&site) {
            return false;
        }
        lock(&mutation.0.seen).insert(site);
        let leaves_out = mutation.0.left_out == Some(site);
        // A wait that always ends at once would be a busy loop.
        leaves_out && (site.effect != Effect::Wait || !self.has_woken.replace(true))
    }

    /// Whether some lock is none, so that two tasks may use its value at the same time.
    #[inline(always)]
    pub(crate) fn breaks_locks(&self) -> bool {
        self.is_set.get() && self.leaves_out_a_lock()
    }

    #[cold]
    fn leaves_out_a_lock(&self) -> bool {
        let mutation = self.mutation.borrow();
        let left_out = mutation.as_ref().and_then(|mutation| mutation.0.left_out);
        left_out.is_some_and(|site| site.effect == Effect::Lock)
    }
}

/// Whether a call is one of the tasks' side of this crate. The syncs of a journal are not: a test may
/// miss them as it may miss those of a program.
fn is_own(site: &CallSite) -> bool {
    let root = file!().strip_suffix("trap/mutation.rs");
    let place = root.and_then(|root| site.place.file().strip_prefix(root));
    let is_journal = place == Some("user/journal.rs") && site.effect == Effect::Sync;
    place.is_some_and(|place| place.starts_with("user/")) && !is_journal
}
