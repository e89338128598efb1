//! A value that is made once, by the first task that needs it.

use std::{cell::OnceCell, fmt, rc::Rc};

use crate::{
    trap::{Kind, TrapFrame},
    user::{os::Os, queue::Queue},
};

/// A value that the first task to need it makes. The others wait meanwhile. Clones are handles to the same
/// value. (tokio's `OnceCell`.)
///
/// ```
/// # use trapline::{Kernel, Os, sync::Once};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let number = Once::new(os).await;
///     let draw = async |os: &mut Os| os.random().await;
///     let first = *number.get_or_init(os, draw).await;
///     assert_eq!(*number.get_or_init(os, draw).await, first);
///     assert_eq!(number.get(), Some(&first));
/// })?;
/// # kernel.run()?.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Once<T> {
    inner: Rc<Made<T>>,
}

struct Made<T> {
    /// Contains a token while no task makes the value, and is closed when the value is there.
    token: Queue<()>,
    value: OnceCell<T>,
    drop: fn(&TrapFrame, T),
}

impl<T: 'static> Once<T> {
    /// Makes one without a value. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self::maybe_named(os, None).await
    }

    /// Makes one with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str) -> Self {
        Self::maybe_named(os, Some(name)).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>) -> Self {
        let token = Queue::required(os, Kind::Once, name).await;
        token.store_token();
        let inner = Rc::new(Made {
            token,
            value: OnceCell::new(),
            drop: TrapFrame::drop_iteratively,
        });
        Self { inner }
    }

    /// Returns the value. The first caller makes it with `init`; *blocks* as `init` does, and while another
    /// caller makes it. If that one is killed, faults or is cut, the caller that has waited longest runs its
    /// own `init`.
    ///
    /// Faults a caller whose `init` asks for the same value: it would wait for itself.
    #[track_caller]
    pub fn get_or_init(
        &self,
        os: &mut Os,
        init: impl AsyncFnOnce(&mut Os) -> T,
    ) -> impl Future<Output = &T> {
        os.note_caller();
        async move {
            let Made { token, value, .. } = &*self.inner;
            token.require_home(os, "the value");
            assert!(
                !token.is_held_by_caller(),
                "the task makes this value already: it would wait for itself"
            );
            if token.take(os).await.is_ok() {
                token.set_held();
                // As a lock: whether it is held decides where others wait.
                token.touch_beside(false);
                let making = Making(token);
                let made = init(os).await;
                std::mem::forget(making);
                token.touch_beside(true);
                token.touch_unless_held();
                token.set_free();
                assert!(
                    value.set(made).is_ok(),
                    "the holder of the token alone sets it"
                );
                // In the same turn. If the call is cut, the others wake all the same.
                let _closing = token.closing();
                token.close(os).await;
            }
            value.get().expect("it is made before the queue is closed")
        }
    }

    /// Returns the value, if it is made.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.inner.token.touch_beside(false);
        self.inner.value.get()
    }

    /// Returns the queue that is closed when the value is there.
    pub(crate) fn token(&self) -> &Queue<()> {
        &self.inner.token
    }
}

/// The making of a value. A drop lets the next task do it.
struct Making<'a>(&'a Queue<()>);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.touch_unless_held();
        self.0.set_free();
        self.0.defer_put(());
    }
}

impl<T> Drop for Made<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            (self.drop)(self.token.frame(), value);
        }
    }
}

impl<T> Clone for Once<T> {
    fn clone(&self) -> Self {
        let inner = Rc::clone(&self.inner);
        Self { inner }
    }
}

impl<T> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Once({:?})", self.inner.token)
    }
}
