//! A line of the shell: its commands, and what joins them.

use std::mem;

use super::super::words::{self, Token};

/// Programs that run beside each other, each with the text of the one before it.
#[derive(Default, PartialEq)]
pub(super) struct Step {
    /// The words of each program.
    pub(super) stages: Vec<Vec<String>>,
    /// The file that the first one reads.
    pub(super) from: Option<String>,
    /// The file that has the text of the last one, and whether it is appended.
    pub(super) to: Option<(String, bool)>,
    /// Whether the step before must have ended well, or have failed.
    pub(super) after: Option<bool>,
    pub(super) is_behind: bool,
}

impl Step {
    /// The line of this step alone.
    pub(super) fn text(&self) -> String {
        let stages = self.stages.iter().map(|words| words::command_line(words));
        let mut text = stages.collect::<Vec<_>>().join(" | ");
        if let Some(name) = &self.from {
            text += &format!(" < {}", words::quoted(name));
        }
        if let Some((name, appends)) = &self.to {
            let sign = if *appends { ">>" } else { ">" };
            text += &format!(" {sign} {}", words::quoted(name));
        }
        text
    }
}

/// What joins the words of a line.
pub(super) const OPERATORS: &str = "&;|<>";

/// Reads a line. An error is a line for the user.
pub(super) fn steps(line: &str) -> Result<Vec<Step>, String> {
    let tokens = words::tokens(line, OPERATORS).map_err(|error| format!("{error}: {line}"))?;
    let mut reading = Reading::default();
    for token in tokens {
        match token {
            // The rest of the line is a comment.
            Token::Word(word) if word.starts_with('#') => break,
            Token::Word(word) => reading.word(word)?,
            Token::Operator(operator) => reading.operator(operator)?,
        }
    }
    reading.no_file()?;
    if !reading.words.is_empty() || reading.step != Step::default() {
        reading.stage("at the end of the line")?;
        reading.steps.push(reading.step);
    }
    Ok(reading.steps)
}

/// What was read of a line.
#[derive(Default)]
struct Reading {
    steps: Vec<Step>,
    step: Step,
    words: Vec<String>,
    /// `<`, `>` or `>>`, whose file comes next.
    file: Option<String>,
}

impl Reading {
    fn word(&mut self, word: String) -> Result<(), String> {
        let Some(sign) = self.file.take() else {
            self.words.push(word);
            return Ok(());
        };
        let is_second = match &*sign {
            "<" if !self.step.stages.is_empty() => {
                return Err("only the first program of a pipe reads a file: put < there".into());
            }
            "<" => self.step.from.replace(word).is_some(),
            _ => self.step.to.replace((word, sign == ">>")).is_some(),
        };
        match is_second {
            true => Err(format!("{sign} can be there once")),
            false => Ok(()),
        }
    }

    fn operator(&mut self, operator: String) -> Result<(), String> {
        self.no_file()?;
        let after = match &*operator {
            "<" | ">" | ">>" => {
                self.file = Some(operator);
                return Ok(());
            }
            "|" if self.step.to.is_some() => {
                return Err("only the last program of a pipe writes a file: put > there".into());
            }
            "|" => return self.stage("before |"),
            ";" | "&" => None,
            "&&" => Some(true),
            "||" => Some(false),
            _ => {
                return Err(format!(
                    "{operator} is no part of a line here: quote it, if it is text"
                ));
            }
        };
        self.stage(&format!("before {operator}"))?;
        self.step.is_behind = operator == "&";
        self.steps.push(mem::take(&mut self.step));
        self.step.after = after;
        Ok(())
    }

    /// Ends the words of a program.
    fn stage(&mut self, place: &str) -> Result<(), String> {
        if self.words.is_empty() {
            return Err(format!("there is no command {place}"));
        }
        self.step.stages.push(mem::take(&mut self.words));
        Ok(())
    }

    fn no_file(&self) -> Result<(), String> {
        match &self.file {
            Some(sign) => Err(format!("there is no file behind {sign}")),
            None => Ok(()),
        }
    }
}
