//! [`forward_world!`](crate::forward_world): the methods that a world leaves to the one within it.

/// Writes methods of a [`World`](crate::World) that ask the world in a field. It takes the name of
/// the field and those of the methods. A wrapper so has to write only what it changes.
///
/// ```
/// use std::time::Duration;
/// use trapline::{RealWorld, World, forward_world};
///
/// /// The real world, where each random number is 4.
/// struct Fair {
///     inner: RealWorld,
/// }
///
/// impl World for Fair {
///     forward_world!(inner: now, now_for_log, reseed, seed, print, take_console, wait);
///     forward_world!(inner: wait_for_threads, is_idle, remote, submit, io, spins, spin);
///
///     fn random(&mut self) -> u64 {
///         4
///     }
/// }
///
/// let mut world = Fair { inner: RealWorld::new()? };
/// assert_eq!(world.random(), 4);
/// # Ok::<(), std::io::Error>(())
/// ```
#[macro_export]
macro_rules! forward_world {
    ($field:tt: $($method:ident),+ $(,)?) => {
        $crate::forward_world!(@all this, this.$field; $($method),+);
    };
    (@all $this:ident, $inner:expr; $($method:ident),+) => {
        $($crate::forward_world!(@$method $this, $inner);)+
    };
    (@now $this:ident, $inner:expr) => {
        fn now(&mut self) -> ::std::time::Duration {
            let $this = self;
            $crate::World::now(&mut $inner)
        }
    };
    (@now_for_log $this:ident, $inner:expr) => {
        fn now_for_log(&mut self) -> ::std::time::Duration {
            let $this = self;
            $crate::World::now_for_log(&mut $inner)
        }
    };
    (@random $this:ident, $inner:expr) => {
        fn random(&mut self) -> u64 {
            let $this = self;
            $crate::World::random(&mut $inner)
        }
    };
    (@reseed $this:ident, $inner:expr) => {
        fn reseed(&mut self, seed: u64) {
            let $this = self;
            $crate::World::reseed(&mut $inner, seed)
        }
    };
    (@seed $this:ident, $inner:expr) => {
        fn seed(&self) -> u64 {
            let $this = self;
            $crate::World::seed(&$inner)
        }
    };
    (@reset $this:ident, $inner:expr) => {
        fn reset(&mut self, seed: u64) -> bool {
            let $this = self;
            $crate::World::reset(&mut $inner, seed)
        }
    };
    (@print $this:ident, $inner:expr) => {
        fn print(&mut self, text: &[u8]) -> ::std::io::Result<usize> {
            let $this = self;
            $crate::World::print(&mut $inner, text)
        }
    };
    (@take_console $this:ident, $inner:expr) => {
        fn take_console(&mut self) -> ::std::string::String {
            let $this = self;
            $crate::World::take_console(&mut $inner)
        }
    };
    (@wait $this:ident, $inner:expr) => {
        fn wait(
            &mut self,
            deadline: ::std::option::Option<::std::time::Duration>,
            happened: &mut ::std::vec::Vec<$crate::Happening>,
        ) -> ::std::io::Result<()> {
            let $this = self;
            $crate::World::wait(&mut $inner, deadline, happened)
        }
    };
    (@wait_for_threads $this:ident, $inner:expr) => {
        fn wait_for_threads(
            &mut self,
            deadline: ::std::option::Option<::std::time::Duration>,
            patience: ::std::time::Duration,
            happened: &mut ::std::vec::Vec<$crate::Happening>,
        ) -> ::std::io::Result<::std::time::Duration> {
            let $this = self;
            $crate::World::wait_for_threads(&mut $inner, deadline, patience, happened)
        }
    };
    (@holds_tasks $this:ident, $inner:expr) => {
        fn holds_tasks(&self) -> bool {
            let $this = self;
            $crate::World::holds_tasks(&$inner)
        }
    };
    (@is_idle $this:ident, $inner:expr) => {
        fn is_idle(&self) -> bool {
            let $this = self;
            $crate::World::is_idle(&$inner)
        }
    };
    (@remote $this:ident, $inner:expr) => {
        fn remote(&self) -> $crate::Remote {
            let $this = self;
            $crate::World::remote(&$inner)
        }
    };
    (@submit $this:ident, $inner:expr) => {
        fn submit(&mut self, task: $crate::Tid, job: ::std::boxed::Box<dyn FnOnce() + Send>) {
            let $this = self;
            $crate::World::submit(&mut $inner, task, job)
        }
    };
    (@io $this:ident, $inner:expr) => {
        fn io(
            &mut self,
            device: $crate::DeviceId,
            request: $crate::Request<'_>,
        ) -> ::std::io::Result<$crate::Answer> {
            let $this = self;
            $crate::World::io(&mut $inner, device, request)
        }
    };
    (@spins $this:ident, $inner:expr) => {
        fn spins(&self) -> bool {
            let $this = self;
            $crate::World::spins(&$inner)
        }
    };
    (@spin $this:ident, $inner:expr) => {
        fn spin(&mut self, until: ::std::time::Duration) {
            let $this = self;
            $crate::World::spin(&mut $inner, until)
        }
    };
    (@net $this:ident, $inner:expr) => {
        fn net(&self) -> ::std::option::Option<$crate::SimNet> {
            let $this = self;
            $crate::World::net(&$inner)
        }
    };
}
