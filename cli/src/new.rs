//! `new`: makes a crate with a program in it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, builder::PossibleValuesParser};

use super::{
    output::{Failure, Log},
    words,
};

/// The files of each crate. Their placeholders are `{{name}}`, `{{trapline}}`, `{{trapline-cli}}` and
/// `{{exercise}}`. They end in `.in`, since Cargo would treat a directory with a Cargo.toml as a package.
const FILES: [(&str, &str); 2] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.in")),
    (".gitignore", "/target\n"),
];

/// The other files of a crate with a program.
const OF_PROGRAM: [(&str, &str); 2] = [
    ("README.md", include_str!("template/README.md.in")),
    ("src/main.rs", include_str!("template/main.rs.in")),
];

/// The other files of a crate with an exercise, without those of the exercise.
const OF_EXERCISE: [(&str, &str); 2] = [
    ("README.md", include_str!("template/exercise.md.in")),
    ("src/main.rs", include_str!("template/exercise.rs.in")),
];

/// An exercise: its name, what is handed out, and a solution.
type Exercise = (&'static str, &'static str, &'static str);

macro_rules! exercises {
    ($($name:literal)*) => {
        [$((
            $name,
            include_str!(concat!("exercises/", $name, "/task.rs")),
            include_str!(concat!("exercises/", $name, "/solution.rs")),
        )),*]
    };
}

const EXERCISES: &[Exercise] = &exercises! {
    "counter" "bounded-buffer" "readers-writers" "barrier" "philosophers" "rendezvous" "lock-order"
    "barber" "cache" "protocol"
};

/// Names that Cargo refuses for a package, and the crate's dependencies.
const TAKEN: &str = "alloc build clap core deps examples incremental proc-macro std test trapline \
    trapline-cli";

const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn \
    else enum extern false final fn for gen if impl in let loop macro match mod move mut \
    override priv pub ref return self static struct super trait true try type typeof unsafe \
    unsized use virtual where while yield";

/// Make a crate with a program of your own
#[derive(Args)]
#[command(after_help = "\
Examples:
  new hello                          makes the directory hello
  new hello --trapline ../trapline   the same, with the trapline in there
  cd hello && cargo run -- boot launch
  new hello --path examples/hello    makes another
  new week-1 --exercise counter      an exercise with its solution, for `grade`")]
pub(super) struct New {
    /// The name of the crate
    #[arg(value_parser = crate_name)]
    name: String,
    /// The directory to make; by default the crate's name
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Make a crate with this exercise: the program `task`, and the program `solution`
    #[arg(long, value_name = "EXERCISE", value_parser = exercise_names())]
    exercise: Option<String>,
    /// Depend on the trapline in this directory instead of the published one
    #[arg(long, value_name = "PATH")]
    trapline: Option<PathBuf>,
}

pub(super) fn new(command: &New, log: Log) -> Result<ExitCode, Failure> {
    let dir = command.path.as_deref();
    let dir = dir.unwrap_or(Path::new(&command.name));
    write(command, dir)?;
    let dir = dir.display();
    let next = match command.exercise {
        None => "boot launch",
        Some(_) => "grade task --reference solution",
    };
    let next = format!("cd {dir} && cargo run -- {next}");
    log.note(&match command.trapline {
        Some(_) => format!("made {dir}; next: {next}"),
        None => {
            let words: Vec<String> = env::args().skip(1).collect();
            let again = format!("{} {}", words::binary(), words::command_line(&words));
            let version = env!("CARGO_PKG_VERSION");
            format!(
                "made {dir}, which depends on trapline {version} of crates.io. Once that is published: \
                 {next}\n\
                 until then, with your copy of trapline: rm -r {dir} && {again} --trapline PATH"
            )
        }
    });
    Ok(ExitCode::SUCCESS)
}

fn write(command: &New, dir: &Path) -> Result<(), String> {
    let checkout = command.trapline.as_deref().map(checkout).transpose()?;
    let dependency = |folder: &str| match &checkout {
        None => format!("{:?}", env!("CARGO_PKG_VERSION")),
        Some(path) => format!("{{ path = \"{path}{folder}\" }}"),
    };
    let cannot = |path: &Path, error: io::Error| format!("cannot make {}: {error}", path.display());
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(|error| cannot(parent, error))?;
    }
    fs::create_dir(dir).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let dir = dir.display();
            format!("{dir} exists; another place can be given with --path")
        }
        _ => cannot(dir, error),
    })?;
    let src = dir.join("src");
    fs::create_dir(&src).map_err(|error| cannot(&src, error))?;
    let exercise = command.exercise.as_deref().unwrap_or_default();
    let values = [
        ("name", &*command.name),
        ("trapline", &dependency("")),
        ("trapline-cli", &dependency("/cli")),
        ("exercise", exercise),
    ];
    let found = EXERCISES.iter().find(|(name, ..)| *name == exercise);
    let others = found.map_or(OF_PROGRAM, |_| OF_EXERCISE);
    let own =
        found.map(|(_, task, solution)| [("src/task.rs", *task), ("src/solution.rs", *solution)]);
    let filled = FILES.into_iter().chain(others);
    let filled = filled.map(|(name, text)| (name, fill(text, &values)));
    let own = own.into_iter().flatten();
    let own = own.map(|(name, text)| (name, text.to_string()));
    for (name, text) in filled.chain(own) {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| cannot(&path, error))?;
    }
    Ok(())
}

/// The path of a checkout of trapline, for a TOML string.
fn checkout(path: &Path) -> Result<String, String> {
    let trouble = |what: &str| format!("--trapline {}: {what}", path.display());
    let full = path
        .canonicalize()
        .map_err(|error| trouble(&error.to_string()))?;
    let manifest = fs::read_to_string(full.join("Cargo.toml"))
        .map_err(|error| trouble(&format!("cannot read its Cargo.toml: {error}")))?;
    if !manifest.lines().any(|line| line == "name = \"trapline\"") {
        return Err(trouble("its Cargo.toml is of another crate than trapline"));
    }
    if !full.join("cli/Cargo.toml").exists() {
        let why = "it has no cli/Cargo.toml: name the checkout's own folder";
        return Err(trouble(why));
    }
    let text = full
        .to_str()
        .filter(|text| !text.contains(char::is_control));
    let text = text.ok_or_else(|| trouble("a Cargo.toml cannot hold such a path"))?;
    Ok(text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn exercise_names() -> PossibleValuesParser {
    PossibleValuesParser::new(EXERCISES.iter().map(|(name, ..)| *name))
}

fn crate_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !text.starts_with(|c: char| c.is_ascii_lowercase()) || !text.chars().all(plain) {
        let why = "a crate's name begins with a small letter, and goes on with small letters, \
                   digits, - and _: such as my-kernel";
        return Err(why.into());
    }
    if text.len() > 64 {
        return Err("a crate's name has no more than 64 characters".into());
    }
    if has_word(TAKEN, &text.replace('_', "-")) {
        return Err(format!("Cargo needs the name {text} for something else"));
    }
    no_keyword(text)?;
    Ok(text.into())
}

pub(super) fn no_keyword(text: &str) -> Result<(), String> {
    match has_word(KEYWORDS, text) {
        true => Err(format!("{text} is a keyword of Rust")),
        false => Ok(()),
    }
}

fn has_word(words: &str, text: &str) -> bool {
    words.split(' ').any(|word| word == text)
}

/// Fills the placeholders of a template, in one pass: a value may look like a placeholder.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("a placeholder ends");
        let value = values.iter().find(|(known, _)| *known == name);
        let (_, value) = value.expect("a placeholder has a value");
        text += value;
        text += rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_look_like_a_placeholder() {
        let values = [("console", "{{code}}"), ("code", "0")];
        assert_eq!(fill("a {{console}} {{code}} b", &values), "a {{code}} 0 b");
    }
}
