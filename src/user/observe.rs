//! [`Os::observe`], which attaches a tracer while the kernel runs.

use std::{fmt, rc::Rc};

use super::os::Os;
use crate::{
    abi::SystemCall,
    log::Tracer,
    trap::{Payload, TrapFrame},
};

/// A tracer that a task has attached with [`Os::observe`]. Dropping this detaches it.
pub struct Observer {
    frame: Rc<TrapFrame>,
    number: u64,
}

impl Os {
    /// Attaches `tracer`, which receives every event from this task's next trap on. Dropping the
    /// returned [`Observer`] detaches it. This makes no trap, and never blocks. [`Os::tasks`] as the
    /// next call returns the state at the begin: no event is lost in between.
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc};
    /// use trapline::{Event, Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("watch", async |os: &mut Os| {
    ///     let ends = Rc::new(Cell::new(0));
    ///     let count = Rc::clone(&ends);
    ///     let observer = os.observe(move |event: &Event<'_>| {
    ///         count.set(count.get() + u32::from(event.fact.exit().is_some()));
    ///     });
    ///     for _ in 0..3 {
    ///         os.spawn_detached("short", async |_: &mut Os| ()).await?;
    ///     }
    ///     drop(observer);
    ///     os.yield_now().await;
    ///     assert_eq!(ends.get(), 3);
    ///     Ok::<(), trapline::Errno>(())
    /// })?;
    /// # assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe(&mut self, tracer: impl Tracer + 'static) -> Observer {
        let frame = Rc::clone(self.frame());
        let number = frame.next_observer();
        let tracer = Payload::Tracer(Box::new(tracer));
        frame.defer_payload(SystemCall::Observe(number), tracer);
        Observer { frame, number }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.frame.defer(SystemCall::Unobserve(self.number));
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("number", &self.number)
            .finish()
    }
}
