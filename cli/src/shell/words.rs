//! What completes a word of a line.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

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
    builtin,
    line::OPERATORS,
};

/// The words that a line can have, as the task of the shell knows them when it asks for the line.
pub(super) struct Words {
    /// What is before the line.
    pub(super) prompt: String,
    pub(super) programs: Programs,
    /// The values of the arguments that have these names.
    pub(super) values: BTreeMap<&'static str, Vec<String>>,
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
        let is_end = |c: char| c.is_whitespace() || OPERATORS.contains(c);
        let partial = line[..at].rsplit(is_end).next().unwrap_or_default();
        let start = at - partial.len();
        let mut found = self.fitting(&line[..start], partial);
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
        // A pasted text has several lines.
        let line = before.rsplit('\n').next().unwrap_or_default();
        // Within a quoted word nothing is completed.
        let Ok(tokens) = tokens(line, OPERATORS) else {
            return Vec::new();
        };
        if let Some(Token::Operator(sign)) = tokens.last()
            && sign.starts_with(['<', '>'])
        {
            return self.files(partial);
        }
        let words = tokens.rsplit(Token::is_operator).next();
        let words: Vec<&str> = words.unwrap_or_default().iter().map(Token::text).collect();
        let (mut words, mut is_own) = (&words[..], true);
        while let [name @ ("time" | "run"), rest @ ..] = words {
            is_own &= *name == "time";
            words = rest;
        }
        let own = builtin::command();
        let own = own.get_subcommands().filter(|_| is_own).cloned();
        let mut commands = own.chain(self.programs.iter().map(Entry::command));
        match words {
            [] => commands.map(|command| command.get_name().into()).collect(),
            [name, args @ ..] => {
                let command = commands.find(|command| command.get_name() == *name);
                command.map_or(Vec::new(), |command| self.args(&command, args, partial))
            }
        }
    }

    fn args(&self, command: &Command, args: &[&str], partial: &str) -> Vec<String> {
        if partial.starts_with('-') {
            let names = command.get_arguments().filter_map(Arg::get_long);
            let names = names.chain(["help"]);
            return names.map(|name| format!("--{name}")).collect();
        }
        let option = args.last().and_then(|last| last.strip_prefix("--"));
        let is_option = |arg: &&Arg| {
            option.is_some() && arg.get_long() == option && arg.get_action().takes_values()
        };
        let given = args.iter().filter(|arg| !arg.starts_with('-')).count();
        let arg = command.get_arguments().find(is_option);
        let arg = arg.or_else(|| command.get_positionals().nth(given));
        let choices = arg.map_or(Vec::new(), Arg::get_possible_values);
        if !choices.is_empty() {
            let names = choices.iter().map(|choice| choice.get_name().into());
            return names.collect();
        }
        let values = arg.and_then(|arg| self.values.get(arg.get_id().as_str()));
        values.map_or_else(|| self.files(partial), Vec::clone)
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
