//! Programs that can be booted, under their names.

use std::{error::Error, fmt, rc::Rc};

use clap::{ArgMatches, Command};
use trapline::{Errno, Kernel, Os, Tid};

/// A program that can be booted from the command line.
///
/// The arguments are its fields; the struct's doc comment is its `--help`, whose first line
/// `list` shows.
pub trait Program: clap::Args + 'static {
    /// Runs the program. An error ends its task with [`Exit::Failed`](trapline::Exit::Failed).
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
    load: fn(&'static str, &ArgMatches) -> Result<Image, clap::Error>,
}

/// A program with arguments that are right. Unlike an [`Image`], it can go to another thread.
#[derive(Clone)]
pub(super) struct Named {
    entry: Entry,
    matches: ArgMatches,
}

impl Named {
    /// Loads the program once, for its errors.
    pub(super) fn new(entry: &Entry, matches: &ArgMatches) -> Result<Self, clap::Error> {
        (entry.load)(entry.name, matches)?;
        Ok(Self {
            entry: *entry,
            matches: matches.clone(),
        })
    }

    pub(super) fn image(&self) -> Image {
        let image = (self.entry.load)(self.entry.name, &self.matches);
        image.expect("the same arguments were right before")
    }
}

/// A program with its arguments, which starts on this host as often as it is called.
pub(super) type Image = Rc<dyn Fn(&mut Kernel, &str) -> Result<Tid, Errno>>;

/// Names a program, for [`main`](super::main).
#[must_use]
pub fn program<P: Program>(name: &'static str) -> Entry {
    Entry {
        name,
        command: P::augment_args,
        load: |name, matches| {
            P::from_arg_matches(matches)?;
            let matches = matches.clone();
            Ok(Rc::new(move |kernel, host| {
                let program = P::from_arg_matches(&matches);
                let program = program.expect("the same arguments were right before");
                let main = async move |os: &mut Os| program.main(os).await;
                // A user did it, and no line of the source.
                kernel.spawn_from(None, Some(host), name, main)
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
