//! Programs that can be booted, under their names.

use std::{error::Error, fmt, path::Path, pin::Pin, sync::Arc};

use clap::{ArgMatches, Command, error::ErrorKind};
use trapline::{Errno, Kernel, Limits, Os, Report, Tid};

use super::desk::Desk;

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
    pub(super) augment: fn(Command) -> Command,
    pub(super) check: fn(&ArgMatches) -> Result<(), clap::Error>,
    pub(super) run: fn(&ArgMatches, &Programs, Option<&Desk>) -> Run,
}

/// The programs of a binary.
pub(super) type Programs = Arc<[Entry]>;

/// A program with its arguments, to be spawned.
pub(super) type Run = Box<dyn FnOnce(&mut Os) -> Running<'_>>;
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>> + 'a>>;

/// Names a program, for [`main`](super::main).
#[must_use]
pub fn program<P: Program>(name: &'static str) -> Entry {
    Entry {
        name,
        augment: P::augment_args,
        check: |matches| P::from_arg_matches(matches).map(drop),
        run: |matches, _, _| {
            let program = made::<P>(matches);
            Box::new(move |os| Box::pin(program.main(os)))
        },
    }
}

/// The arguments, which have been checked.
pub(super) fn made<P: clap::Args>(matches: &ArgMatches) -> P {
    P::from_arg_matches(matches).expect("the same arguments were right before")
}

/// A program with arguments that are right, on its host.
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) host: String,
    entry: Entry,
    matches: ArgMatches,
    /// What the program can start.
    programs: Programs,
    pub(super) limits: Option<Limits>,
}

impl Placed {
    /// The program of these that is named. Its arguments are checked.
    pub(super) fn new(
        programs: &[Entry],
        host: &str,
        (name, matches): (&str, &ArgMatches),
    ) -> Result<Self, clap::Error> {
        let entry = programs.iter().find(|entry| entry.name == name);
        // clap knows the programs, and `shell`, which not every binary has.
        let Some(&entry) = entry else {
            let why = format!("this binary has no program '{name}'; its list has the programs");
            return Err(clap::Error::raw(ErrorKind::InvalidSubcommand, why + "\n"));
        };
        (entry.check)(matches)?;
        Ok(Self {
            host: host.to_string(),
            entry,
            matches: matches.clone(),
            programs: programs.into(),
            limits: None,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The file that an option of the program names, as it was given.
    pub(super) fn file(&self, option: &str) -> Option<&Path> {
        let mut given = self.matches.try_get_raw(option).ok()??;
        given.next().map(Path::new)
    }

    fn run(&self, desk: Option<&Desk>) -> Run {
        (self.entry.run)(&self.matches, &self.programs, desk)
    }

    /// Starts the program on its host.
    pub(super) fn spawn(&self, kernel: &mut Kernel, desk: Option<&Desk>) -> Result<Tid, Errno> {
        self.spawn_on(kernel, &self.host, desk)
    }

    /// Starts the program on another host.
    pub(super) fn spawn_on(
        &self,
        kernel: &mut Kernel,
        host: &str,
        desk: Option<&Desk>,
    ) -> Result<Tid, Errno> {
        let (name, run) = (self.name(), self.run(desk));
        // A user did it, and no line of the source.
        kernel.spawn_from(
            None,
            Some(host),
            self.limits,
            name,
            async move |os: &mut Os| run(os).await,
        )
    }
}

/// Runs a kernel until no task is left, or only servers for which nothing can come.
pub(super) fn run_to_rest(kernel: &mut Kernel) -> Result<Report, trapline::Error> {
    match kernel.run() {
        Err(trapline::Error::Deadlock(deadlock)) if deadlock.is_at_rest() => Ok(kernel.report()),
        ran => ran,
    }
}

/// The host of each program.
pub(super) fn hosts(programs: &[Placed]) -> Vec<String> {
    programs.iter().map(|placed| placed.host.clone()).collect()
}

impl Entry {
    pub(super) fn command(&self) -> Command {
        (self.augment)(Command::new(self.name))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name).finish()
    }
}
