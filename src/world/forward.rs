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
    (@read $this:ident, $inner:expr, $method:ident -> $Answer:ty) => {
        fn $method(&self) -> $Answer {
            let $this = self;
            $crate::World::$method(&$inner)
        }
    };
    (@ask $this:ident, $inner:expr, $method:ident($($name:ident: $Type:ty),*) -> $Answer:ty) => {
        fn $method(&mut self, $($name: $Type),*) -> $Answer {
            let $this = self;
            $crate::World::$method(&mut $inner, $($name),*)
        }
    };
    (@now $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, now() -> ::std::time::Duration);
    };
    (@now_for_log $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, now_for_log() -> ::std::time::Duration);
    };
    (@random $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, random() -> u64);
    };
    (@choose $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, choose(of: u64, drawn: u64) -> u64);
    };
    (@is_asked $this:ident, $inner:expr) => {
        $crate::forward_world!(@read $this, $inner, is_asked -> bool);
    };
    (@before_turn $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner,
            before_turn(at: $crate::BeforeTurn) -> ::std::option::Option<::std::time::Duration>);
    };
    (@reseed $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, reseed(seed: u64) -> ());
    };
    (@seed $this:ident, $inner:expr) => {
        $crate::forward_world!(@read $this, $inner, seed -> u64);
    };
    (@reset $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, reset(seed: u64) -> bool);
    };
    (@print $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, print(text: &[u8]) -> ::std::io::Result<usize>);
    };
    (@take_console $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, take_console() -> ::std::string::String);
    };
    (@wait $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, wait(
            deadline: ::std::option::Option<::std::time::Duration>,
            happened: &mut ::std::vec::Vec<$crate::Happening>
        ) -> ::std::io::Result<()>);
    };
    (@wait_for_threads $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, wait_for_threads(
            deadline: ::std::option::Option<::std::time::Duration>,
            patience: ::std::time::Duration,
            happened: &mut ::std::vec::Vec<$crate::Happening>
        ) -> ::std::io::Result<::std::time::Duration>);
    };
    (@holds_tasks $this:ident, $inner:expr) => {
        $crate::forward_world!(@read $this, $inner, holds_tasks -> bool);
    };
    (@is_idle $this:ident, $inner:expr) => {
        $crate::forward_world!(@read $this, $inner, is_idle -> bool);
    };
    (@remote $this:ident, $inner:expr) => {
        $crate::forward_world!(@read $this, $inner, remote -> $crate::Remote);
    };
    (@submit $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner,
            submit(task: $crate::Tid, job: ::std::boxed::Box<dyn FnOnce() + Send>) -> ());
    };
    (@io $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, io(
            device: $crate::DeviceId,
            request: $crate::Request<'_>
        ) -> ::std::io::Result<$crate::Answer>);
    };
    (@recv $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, recv(
            device: $crate::DeviceId,
            buf: &mut [u8]
        ) -> ::std::io::Result<(usize, bool)>);
    };
    (@mail $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner,
            mail(mail: &mut dyn $crate::Mail) -> ::std::io::Result<()>);
    };
    (@spins $this:ident, $inner:expr) => {
        $crate::forward_world!(@read $this, $inner, spins -> bool);
    };
    (@spin $this:ident, $inner:expr) => {
        $crate::forward_world!(@ask $this, $inner, spin(until: ::std::time::Duration) -> ());
    };
    (@net $this:ident, $inner:expr) => {
        $crate::forward_world!(@read $this, $inner, net -> ::std::option::Option<$crate::SimNet>);
    };
}

pub(crate) use forward_world;
