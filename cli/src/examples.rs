//! The examples at the end of a command's help, which are of programs that the binary has.

use super::program::Entry;

/// An example, without the word that starts the binary.
pub(super) enum Example {
    /// Any program takes the place of `{}`: this one, with its arguments, if the binary has it.
    Any(&'static str, &'static str),
    /// These programs are in it. A binary that lacks one of them does not show it.
    Of(&'static [&'static str], &'static str),
}

/// The last part of a help. An example may have several commands; `{name}` starts the binary in those after
/// the first.
pub(super) fn examples(name: &str, programs: &[Entry], examples: &[Example]) -> String {
    let has = |wanted: &str| programs.iter().any(|entry| entry.name == wanted);
    let line = |example: &Example| match example {
        Example::Any(line, program) => {
            let of = program.split(' ').next().unwrap_or_default();
            let other = programs.first().map_or("PROGRAM", |entry| entry.name);
            Some(line.replace("{}", if has(of) { program } else { other }))
        }
        Example::Of(needed, line) => {
            let has_all = needed.iter().all(|needed| has(needed));
            has_all.then(|| line.to_string())
        }
    };
    let lines = examples.iter().filter_map(line);
    let lines = lines.map(|line| format!("\n  {name} {}", line.replace("{name}", name)));
    format!("Examples:{}", lines.collect::<String>())
}
