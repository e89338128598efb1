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

    /// Whether it is one program, whose text no pipe and no file has.
    pub(super) fn is_alone(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.stages.len() == 1
    }

    fn redirect(&mut self, sign: &str, file: Option<Token>) -> Result<(), String> {
        let Some(Token::Word(file)) = file else {
            return Err(format!("there is no file behind {sign}"));
        };
        let is_second = match sign {
            "<" if !self.stages.is_empty() => {
                return Err("only the first program of a pipe reads a file: put < there".into());
            }
            "<" => self.from.replace(file).is_some(),
            _ => self.to.replace((file, sign == ">>")).is_some(),
        };
        match is_second {
            true => Err(format!("{sign} can be there once")),
            false => Ok(()),
        }
    }

    fn stage(&mut self, words: Vec<String>, place: &str) -> Result<(), String> {
        if words.is_empty() {
            return Err(format!("there is no command {place}"));
        }
        self.stages.push(words);
        Ok(())
    }
}

/// What joins the words of a line.
pub(super) const OPERATORS: &str = "&;|<>";

/// Reads a line. An error is a line for the user.
pub(super) fn steps(line: &str) -> Result<Vec<Step>, String> {
    let tokens = words::tokens(line, OPERATORS).map_err(|error| format!("{error}: {line}"))?;
    let mut tokens = tokens.into_iter();
    let (mut steps, mut step, mut words) = (Vec::new(), Step::default(), Vec::new());
    while let Some(token) = tokens.next() {
        let operator = match token {
            Token::Word(word) => {
                words.push(word);
                continue;
            }
            Token::Operator(operator) => operator,
        };
        let after = match &*operator {
            "<" | ">" | ">>" => {
                step.redirect(&operator, tokens.next())?;
                continue;
            }
            "|" | ";" | "&" => None,
            "&&" => Some(true),
            "||" => Some(false),
            _ => {
                return Err(format!(
                    "{operator} is no part of a line here: quote it, if it is text"
                ));
            }
        };
        step.stage(mem::take(&mut words), &format!("before {operator}"))?;
        if operator != "|" {
            step.is_behind = operator == "&";
            let next = Step {
                after,
                ..Step::default()
            };
            steps.push(mem::replace(&mut step, next));
        } else if step.to.is_some() {
            return Err("only the last program of a pipe writes a file: put > there".into());
        }
    }
    if !words.is_empty() || step != Step::default() {
        step.stage(words, "at the end of the line")?;
        steps.push(step);
    }
    Ok(steps)
}
