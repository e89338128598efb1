//! [`App`]: the programs, policies, worlds and tracers of a binary.

use std::{error::Error, fmt, sync::Arc};

use trapline::{Builder, Policy, Tracer, World};

use super::{policy::Register, program::Entry, world::MakeWorld};

/// The command line of a binary, with what the binary adds to it.
///
/// ```no_run
/// use std::process::ExitCode;
/// use trapline::{Cause, Event, Policy, Runnable, SimWorld};
/// use trapline_cli::App;
///
/// /// The youngest first.
/// #[derive(Default)]
/// struct Lifo(Vec<Runnable>);
///
/// impl Policy for Lifo {
///     fn push(&mut self, task: Runnable, _: Cause) { self.0.push(task) }
///     fn pop(&mut self) -> Option<Runnable> { self.0.pop() }
///     fn remove(&mut self, task: Runnable) { self.0.retain(|other| *other != task) }
///     fn len(&self) -> usize { self.0.len() }
/// }
///
/// fn main() -> ExitCode {
///     App::new([])
///         .policy("lifo", |params: &str| match params {
///             "" => Ok(Box::new(Lifo::default())),
///             _ => Err("lifo takes no parameters".into()),
///         })
///         .world("fixed", |params: &str| Ok(Box::new(SimWorld::new(params.parse()?))))
///         .tracer(|| |event: &Event<'_>| if event.fact.exit().is_some() {
///             eprintln!("{event}");
///         })
///         .main()
/// }
/// ```
#[must_use]
pub struct App {
    pub(super) programs: Vec<Entry>,
    /// The groups of the programs, each with the place of its first.
    groups: Vec<(usize, &'static str)>,
    pub(super) policies: Vec<(String, Register)>,
    pub(super) worlds: Vec<(String, MakeWorld)>,
    pub(super) tracers: Vec<Extend>,
}

/// Adds a tracer to the settings of a kernel.
pub(super) type Extend = Box<dyn Fn(Builder) -> Builder>;

impl App {
    /// Returns the command line with these programs.
    pub fn new(programs: impl IntoIterator<Item = Entry>) -> Self {
        Self {
            programs: programs.into_iter().collect(),
            groups: Vec::new(),
            policies: Vec::new(),
            worlds: Vec::new(),
            tracers: Vec::new(),
        }
    }

    /// Adds programs, which `list` shows under the name of their group.
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # use trapline::Os;
    /// # use trapline_cli::{App, Program, program};
    /// # #[derive(clap::Args)] struct Echo {}
    /// # impl Program for Echo {
    /// #     async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> { Ok(()) }
    /// # }
    /// App::new([]).group("Servers", [program::<Echo>("echo")]).main();
    /// ```
    pub fn group(mut self, name: &'static str, programs: impl IntoIterator<Item = Entry>) -> Self {
        self.groups.push((self.programs.len(), name));
        self.programs.extend(programs);
        self
    }

    /// Each program with the name of its group, which is empty before the first group.
    pub(super) fn grouped(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.programs.iter().enumerate().map(|(at, entry)| {
            let group = self.groups.iter().rfind(|(first, _)| *first <= at);
            (group.map_or("", |(_, name)| *name), entry)
        })
    }

    /// Adds a policy for `boot --policy` and `lab --policy`. `make` gets the parameters, which
    /// follow the name and a colon; without them an empty text. A policy with the name of one of
    /// the library's replaces it.
    ///
    /// *Errors:* a text of `make` is shown as the error of the option.
    pub fn policy(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&str) -> Result<Box<dyn Policy>, String> + Send + Sync + 'static,
    ) -> Self {
        self.policies.push((name.into(), Arc::new(make)));
        self
    }

    /// Adds a world for `boot --world`. `make` gets the parameters, which follow the name and a
    /// colon; without them an empty text. `boot --tape` tapes such a world too. `replay` does not
    /// make it, because the tape answers in its place. It prints for itself: a world around
    /// [`RealWorld`](trapline::RealWorld) prints to standard output.
    ///
    /// *Errors:* an error of `make` is shown as the error of the option.
    pub fn world(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&str) -> Result<Box<dyn World>, Box<dyn Error>> + Send + Sync + 'static,
    ) -> Self {
        self.worlds.push((name.into(), Arc::new(make)));
        self
    }

    /// Adds a tracer to each kernel that `boot` boots.
    pub fn tracer<T: Tracer + 'static>(mut self, make: impl Fn() -> T + 'static) -> Self {
        let extend = move |builder: Builder| builder.tracer(make());
        self.tracers.push(Box::new(extend));
        self
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies: Vec<&str> = self.policies.iter().map(|(name, _)| &**name).collect();
        let worlds: Vec<&str> = self.worlds.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("App")
            .field("programs", &self.programs)
            .field("policies", &policies)
            .field("worlds", &worlds)
            .finish_non_exhaustive()
    }
}
