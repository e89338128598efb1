//! Programs that can be booted, under their names.

use std::{error::Error, fmt};

use clap::{ArgMatches, Command};

use crate::{Errno, Kernel, Os, Tid};

/// A program that can be booted from the command line.
///
/// The arguments are its fields; the struct's doc comment is its `--help`, whose first line
/// `list` shows.
pub trait Program: clap::Args + 'static {
    /// Runs the program. An error ends its task with [`Exit::Failed`](crate::Exit::Failed).
    #[expect(
        async_fn_in_trait,
        reason = "a kernel and its tasks live on one thread"
    )]
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>>;
}

/// A [`Program`] under its name, made by [`program`].
#[derive(Clone, Copy)]
pub struct Entry {
    pub(super) name: &'static str,
    command: fn(Command) -> Command,
    pub(super) load: fn(&'static str, &ArgMatches) -> Result<Image, clap::Error>,
}

/// A program with its arguments, ready to start.
pub(super) type Image = Box<dyn FnOnce(&mut Kernel) -> Result<Tid, Errno>>;

/// Names a program, for [`main`](super::main).
#[must_use]
pub fn program<P: Program>(name: &'static str) -> Entry {
    Entry {
        name,
        command: P::augment_args,
        load: |name, matches| {
            let program = P::from_arg_matches(matches)?;
            Ok(Box::new(move |kernel| {
                // A user did it, and no line of the source.
                kernel.spawn_from(None, name, async move |os| program.main(os).await)
            }))
        },
    }
}

impl Entry {
    pub(super) fn command(&self) -> Command {
        (self.command)(Command::new(self.name))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name).finish()
    }
}
