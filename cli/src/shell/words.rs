//! What completes a word of a line.

use std::{fs, path::PathBuf, sync::Arc};

use clap::{Arg, Command};
use rustyline::{
    Context, Helper,
    completion::{Completer, Pair},
    hint::Hinter,
    validate::Validator,
};

use super::{
    super::{
        program::{Entry, Programs},
        words::{Token, quoted, tokens},
    },
    builtin::{self, Kind},
    line::OPERATORS,
};

/// The words that a line can have, as the task of the shell knows them when it asks for the line.
pub(super) struct Words {
    /// What is before the line.
    pub(super) prompt: String,
    pub(super) programs: Programs,
    pub(super) tids: Vec<String>,
    pub(super) jobs: Vec<String>,
    pub(super) hosts: Vec<String>,
    /// The files of the root of the disk, where it is no directory of the system.
    pub(super) files: Vec<String>,
    pub(super) disk: Option<Arc<PathBuf>>,
}

impl Helper for Words {}
impl Validator for Words {}

impl Hinter for Words {
    type Hint = String;
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..at];
        let start = typed.rfind(|c: char| c.is_whitespace() || OPERATORS.contains(c));
        let start = start.map_or(0, |start| start + 1);
        let partial = &typed[start..];
        let mut found = self.fitting(&typed[..start], partial);
        found.retain(|word| word.starts_with(partial));
        let pair = |word: String| Pair {
            replacement: match word.ends_with(['/', '=']) {
                true => word.clone(),
                false => format!("{} ", quoted(&word)),
            },
            display: word,
        };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Words {
    /// The words that may follow here, and those that cannot.
    fn fitting(&self, before: &str, partial: &str) -> Vec<String> {
        let Ok(tokens) = tokens(before, OPERATORS) else {
            return Vec::new();
        };
        let mut words = Vec::new();
        for token in &tokens {
            match token {
                Token::Word(word) => words.push(word.as_str()),
                Token::Operator(_) => words.clear(),
            }
        }
        if let Some(Token::Operator(operator)) = tokens.last()
            && operator.starts_with(['<', '>'])
        {
            return self.files(partial);
        }
        let commands = builtin::command();
        let mut own = true;
        while let ["time" | "run", rest @ ..] = &words[..] {
            own &= words[0] == "time";
            words = rest.to_vec();
        }
        let Some((name, args)) = words.split_first() else {
            let own = commands.get_subcommands().filter(|_| own);
            let own = own.map(|command| command.get_name().to_string());
            let programs = self.programs.iter().map(|entry| entry.name.to_string());
            return own.chain(programs).collect();
        };
        let program = self.programs.iter().find(|entry| entry.name == *name);
        let command = commands.find_subcommand(name).filter(|_| own).cloned();
        match command.or(program.map(Entry::command)) {
            Some(command) => self.args(&command, args, partial),
            None => Vec::new(),
        }
    }

    fn args(&self, command: &Command, args: &[&str], partial: &str) -> Vec<String> {
        if partial.starts_with('-') {
            let long = |arg: &Arg| arg.get_long().map(|name| format!("--{name}"));
            let help = Some("--help".into());
            return command
                .get_arguments()
                .filter_map(long)
                .chain(help)
                .collect();
        }
        let is_option = |arg: &&Arg| {
            args.last().is_some_and(|last| {
                arg.get_action().takes_values()
                    && arg.get_long().map(|name| format!("--{name}")).as_deref() == Some(*last)
            })
        };
        let given = args.iter().filter(|arg| !arg.starts_with('-')).count();
        let mut positionals = command.get_positionals();
        let arg = command
            .get_arguments()
            .find(is_option)
            .or_else(|| positionals.nth(given));
        let values = arg.map_or(Vec::new(), Arg::get_possible_values);
        if !values.is_empty() {
            return values
                .iter()
                .map(|value| value.get_name().to_string())
                .collect();
        }
        match arg.and_then(Kind::of) {
            Some(Kind::Task) => self.tids.clone(),
            Some(Kind::Job) => self.jobs.clone(),
            Some(Kind::Host) => self.hosts.clone(),
            None => self.files(partial),
        }
    }

    fn files(&self, partial: &str) -> Vec<String> {
        let Some(disk) = &self.disk else {
            return self.files.clone();
        };
        let dir = partial.rfind('/').map_or("", |at| &partial[..=at]);
        if dir.starts_with('/') || dir.split('/').any(|part| part == "..") {
            return Vec::new();
        }
        let found = fs::read_dir(disk.join(dir)).into_iter().flatten().flatten();
        let name = |entry: fs::DirEntry| {
            let end = if entry.path().is_dir() { "/" } else { "" };
            format!("{dir}{}{end}", entry.file_name().to_string_lossy())
        };
        let mut names: Vec<String> = found.map(name).collect();
        names.sort();
        names
    }
}
