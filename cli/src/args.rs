//! The commands of the command line.

use clap::{
    Arg, Command, CommandFactory, Parser, Subcommand, builder::StringValueParser, error::ErrorKind,
};
use clap_complete::Shell;
use trapline::sched::POLICIES;

use super::{
    app::App,
    commands::{of_programs, with_negative_numbers},
    debug::{self, Debug},
    examples::{Example, examples},
    explore::{self, Explore},
    grade::{self, GradeLine},
    lab::{self, Lab},
    list::List,
    live::LiveCommand,
    new::New,
    options::{self, Boot},
    output::Verbosity,
    policy::{self, Policy},
    program::Entry,
    replay::Replay,
    shell::{self, ShellLine},
    tour::{self, Tour},
    trace::TraceCommand,
    values::completed,
    world::NamedWorld,
};

/// Boots programs on trapline, a tiny operating system inside one process
#[derive(Parser)]
#[command(arg_required_else_help = true)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

#[derive(Subcommand)]
pub(super) enum CliCommand {
    List(List),
    Boot(Box<Boot>),
    Shell(Box<ShellLine>),
    Replay(Replay),
    Debug(Debug),
    Explore(Box<Explore>),
    Grade(GradeLine),
    Lab(Lab),
    New(New),
    Tour(Tour),
    /// Look at traces: of a recording or of a running kernel
    #[command(
        subcommand,
        after_help = "\
Exit codes: 0, and 1 if a recording is missing, empty, something else, damaged or lacks its end: what there \
is of it is shown, and standard error says where it ends. diff has codes of its own."
    )]
    Trace(TraceCommand),
    #[command(flatten)]
    Live(LiveCommand),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  completions bash > ~/.local/share/bash-completion/completions/trapline
  completions fish > ~/.config/fish/completions/trapline.fish
  completions zsh > ~/.zfunc/_trapline")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page, for `man -l -`
    #[command(after_help = "\
Examples:
  man | man -l -               the first page
  man boot | man -l -          the page of a command
  man boot echo > echo.1")]
    Man {
        /// The command of the page, such as `boot` or `boot echo`; none for the first page
        #[arg(value_name = "COMMAND")]
        of: Vec<String>,
    },
}

/// Options of a run in the real world, or in a world of the binary. The simulated network is in neither.
const REAL: [&str; 5] = ["monitor", "top", "tape", "disk", "world"];

const FIRST: [Example; 5] = [
    Example::Of(&[], "list"),
    Example::Any("boot {}", "wait"),
    Example::Any("boot --virtual --seed 1 --trace {}", "wait"),
    Example::Any("explore {}", "lost-wakeup"),
    Example::Any("boot {} --help", "echo"),
];

const OF_LIST: [Example; 3] = [
    Example::Of(&[], "list"),
    Example::Of(&[], "list --json | jq -r .name"),
    Example::Any("boot {} --help", "multitask"),
];

pub(super) fn command(name: &str, app: &App) -> Command {
    let programs = &app.programs;
    let (policies, worlds) = (app.policies.clone(), app.worlds.clone());
    let built_in = POLICIES.iter().map(|policy| policy.name.to_string());
    let mine = policies.iter().map(|(name, _)| name.clone());
    let named: Vec<String> = built_in.chain(mine).collect();
    let policy = move |text: &str| Policy::parse(text, &policies);
    let policy = completed(policy, named);
    let names: Vec<&'static str> = programs.iter().map(|entry| entry.name).collect();
    let names_of_search = names.clone();
    let names_of_grade = names.clone();
    let (policy_of_lab, has_worlds) = (policy.clone(), !worlds.is_empty());
    let world = move |text: &str| NamedWorld::parse(text, &worlds);
    let version = match name {
        "trapline" => env!("CARGO_PKG_VERSION"),
        _ => concat!("on trapline ", env!("CARGO_PKG_VERSION")),
    };
    let options_of_boot = move |command: Command| {
        command
            .mut_args(|arg| match arg.get_id().as_str() {
                "on" | "net" | "fault" | "chaos" => arg.conflicts_with_all(REAL),
                _ => arg,
            })
            .mut_arg("policy", |arg| {
                arg.help(policy::help())
                    .value_parser(policy)
                    .hide_possible_values(true)
            })
            .mut_args(|arg| with_words(arg, &names))
            .mut_arg("world", |arg| arg.value_parser(world).hide(!has_worlds))
    };
    let options_of_shell = options_of_boot.clone();
    let has_shell = programs.iter().any(|entry| entry.name == shell::NAME);
    let command = Cli::command()
        .name(name.to_string())
        .version(version)
        .after_help(examples(name, programs, &FIRST))
        .mut_subcommand("list", |command| {
            command.after_help(examples(name, programs, &OF_LIST))
        })
        .mut_subcommand("explore", |command| {
            of_programs(command, name)
                .subcommands(explore::subcommands(programs))
                .after_help(explore::help(name, programs))
                .mut_args(|arg| with_words(arg, &names_of_search))
        })
        .mut_subcommand("grade", |command| {
            command
                .mut_args(|arg| with_words(arg, &names_of_grade))
                .after_help(grade::help(name, programs))
        })
        .mut_subcommand("debug", |command| {
            command.override_usage(debug::usage_of(name))
        })
        .mut_subcommand("lab", |command| {
            of_programs(command, name)
                .subcommand_required(true)
                .mut_arg("policies", |arg| {
                    arg.value_parser(policy_of_lab).hide_possible_values(true)
                })
                .subcommands(programs.iter().map(Entry::command))
                .after_help(lab::help(name, programs))
        })
        .mut_subcommand("boot", |command| {
            options_of_boot(of_programs(command, name))
                .subcommands(programs.iter().map(Entry::command))
                .after_help(options::help(name, programs))
        })
        .mut_subcommand("tour", |command| {
            command.hide(!tour::has_programs(programs))
        })
        .mut_subcommand(shell::NAME, |command| {
            options_of_shell(command)
                .hide(!has_shell)
                .after_help(shell::help(name))
        });
    with_negative_numbers(command)
}

/// Has a shell complete the values of some options: the names of programs.
fn with_words(arg: Arg, programs: &[&'static str]) -> Arg {
    match arg.get_id().as_str() {
        "with" | "task" | "reference" => arg.value_parser(completed(
            StringValueParser::new(),
            programs.iter().copied(),
        )),
        _ => return arg,
    }
    .hide_possible_values(true)
}

pub(super) fn find(mut command: Command, of: &[String]) -> Result<Command, clap::Error> {
    command.build();
    for name in of {
        let Some(next) = command.find_subcommand(name).cloned() else {
            let message = format!("there is no command '{name}', and so no page");
            return Err(command.error(ErrorKind::InvalidValue, message));
        };
        command = next;
    }
    Ok(command)
}
