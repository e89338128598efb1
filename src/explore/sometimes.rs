//! Claims that must hold in at least one schedule.

use super::notes;

/// A `sometimes!` in the source of the binary.
#[doc(hidden)]
#[derive(Debug)]
pub struct Site {
    pub text: &'static str,
    /// Returns the path of a function beside it.
    pub within: fn() -> &'static str,
}

/// Every `sometimes!` of the binary, whether it is reached or not.
#[doc(hidden)]
#[linkme::distributed_slice]
pub static SITES: [Site];

/// Returns the path of a function or a closure.
#[doc(hidden)]
#[must_use]
pub fn name_of<F>(_: &F) -> &'static str {
    std::any::type_name::<F>()
}

/// Notes that a claim holds.
#[doc(hidden)]
pub fn held(text: &'static str) {
    notes::note(|notes| {
        notes.held.insert(text);
    });
}

/// Claims that this line is reached in at least one schedule of a [`check`](crate::check). A test
/// that passes because its interesting case never occurs proves little.
///
/// The report of a check lists the claims that never held, and then
/// [`Check::run`](crate::Check::run) fails. It knows every claim in the function that calls `check`,
/// even one that is never reached. Outside of a check the macro does nothing.
///
/// ```
/// use trapline::{Os, Queue, sometimes};
///
/// trapline::check(|kernel| {
///     kernel.spawn("main", async |os: &mut Os| {
///         let queue = Queue::unbounded(os).await;
///         let source = queue.clone();
///         os.spawn("source", async move |os| source.put(os, 7).await).await?;
///         if queue.is_empty() {
///             sometimes!("the reader waits");
///         } else {
///             sometimes!("the message is there first");
///         }
///         let _ = queue.get(os).await;
///         Ok::<(), trapline::Errno>(())
///     })?;
///     kernel.run()?;
///     Ok(())
/// }).schedules(100).run();
/// ```
#[macro_export]
macro_rules! sometimes {
    ($text:literal) => {{
        fn here() {}
        #[$crate::linkme::distributed_slice($crate::explore::SITES)]
        #[linkme(crate = $crate::linkme)]
        static SITE: $crate::explore::Site = $crate::explore::Site {
            text: $text,
            within: || $crate::explore::name_of(&here),
        };
        $crate::explore::held(SITE.text);
    }};
}

/// Returns the claims in a function and its closures. `path` is that of one of these closures.
pub(super) fn claims_in(path: &str) -> impl Iterator<Item = &'static str> {
    let function = path.split("::{{closure}}").next().unwrap_or(path);
    let within = move |site: &&Site| {
        let rest = (site.within)().strip_prefix(function);
        rest.is_some_and(|rest| rest.starts_with("::"))
    };
    SITES.iter().filter(within).map(|site| site.text)
}
