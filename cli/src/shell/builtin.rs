//! The commands of the shell, and their arguments.

use std::{path::PathBuf, time::Duration};

use clap::{Command, FromArgMatches, Subcommand, ValueHint};
use trapline::Tid;

use super::super::{
    inject,
    live::{View, protocol::Filter},
    net, policy,
    values::{duration, task, whole},
};

/// A command of the shell. A program of its name needs `run`.
#[derive(Subcommand)]
pub(super) enum BuiltIn {
    #[command(flatten)]
    Say(Say),
    /// Wait for a job, or for the last one; an interrupt ends it
    Fg {
        #[arg(value_parser = whole::<usize>)]
        job: Option<usize>,
    },
    /// Wait for all jobs
    Wait,
    #[command(flatten)]
    Change(Change),
    /// Sit on another host of the simulated network, until exit
    Host { host: String },
    /// Wait: so many seconds, or a time such as 50ms
    Sleep {
        #[arg(value_parser = span)]
        time: Duration,
    },
    /// Say how long a command takes
    Time {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run a program that has the name of one of these
    Run {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<String>,
    },
    /// Leave, with this exit code; it ends the jobs, if no script does it
    Exit {
        #[arg(value_parser = whole::<u8>)]
        code: Option<u8>,
    },
}

/// A command whose text a pipe can carry.
#[derive(Subcommand)]
pub(super) enum Say {
    /// Show this list
    Help,
    /// List the jobs
    Jobs,
    #[command(flatten)]
    View(View),
}

/// A command that changes the run.
#[derive(Subcommand)]
pub(super) enum Change {
    /// End a task; its children go on
    Kill {
        #[arg(value_parser = task)]
        tid: Tid,
    },
    /// Show each trap on standard error, or those that the options select
    Trace {
        #[arg(value_parser = ["on", "off"])]
        state: String,
        #[command(flatten)]
        filter: Filter,
    },
    /// Schedule by another policy, as boot --policy names them
    Policy {
        #[arg(help = policy::help())]
        name: String,
    },
    /// Inject a fault into calls from now on, as boot --inject does
    Inject {
        #[arg(value_parser = inject::rule)]
        rule: inject::Rule,
    },
    /// Change the simulated network and its disks, as boot --net does
    Net {
        #[arg(required = true, value_parser = net::setting)]
        setting: Vec<net::Setting>,
    },
    /// Make a fault happen, as boot --fault has it: fault cut server client
    Fault {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        fault: Vec<String>,
    },
    /// Record all events from now on in a file of the system, as boot --record
    Record {
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

impl BuiltIn {
    /// Reads a command; `None` if there is none of that name.
    pub(super) fn read(words: &[String]) -> Option<Result<Self, clap::Error>> {
        let command = command();
        command.find_subcommand(&words[0])?;
        let matches = command.try_get_matches_from(words);
        Some(matches.and_then(|matches| Self::from_arg_matches(&matches)))
    }

    /// Whether a task can do it, and not only the shell.
    pub(super) fn is_task(&self) -> bool {
        matches!(self, Self::Sleep { .. } | Self::Run { .. } | Self::Say(_))
    }
}

pub(super) fn command() -> Command {
    let command = Command::new("shell")
        .no_binary_name(true)
        .disable_help_subcommand(true);
    BuiltIn::augment_subcommands(command)
}

/// The text of `help`: what joins commands, and the commands.
pub(super) fn help() -> String {
    let line = |command: &Command| {
        let about = command.get_about().cloned().unwrap_or_default();
        format!("{:<7} {about}\n", command.get_name())
    };
    let commands: String = command().get_subcommands().map(line).collect();
    format!("{JOINED}\n{commands}\nCOMMAND --help has its arguments.\n")
}

const JOINED: &str = "\
PROGRAM ARGS   run a program of `list`, and wait for it
A; B           one after the other
A && B         B if A ended well; A || B: B if A failed
A | B          both, where B reads what A prints
A < FILE       read a file of the disk
A > FILE       write one; A >> FILE: append to it
A &            run it behind the prompt, as a job
";

fn span(text: &str) -> Result<Duration, String> {
    let has_no_unit = |text: &str| text.bytes().all(|byte| b".0123456789".contains(&byte));
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) if has_no_unit(text) => {
            let such = Some(format!("{text}s")).filter(|it| duration(it).is_ok());
            let such = such.unwrap_or_else(|| "1.5s".into());
            Err(format!(
                "it takes whole seconds, or a number and a unit, such as {such}"
            ))
        }
        Err(_) => duration(text),
    }
}
