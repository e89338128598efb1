//! Splits a line into words as a shell does, with quotes and backslashes and nothing else; quotes
//! words for a shell.

use std::{borrow::Cow, env};

/// A part of a line that a shell reads.
pub(super) enum Token {
    Word(String),
    /// A character of the operators, or two that are equal, such as `&&`.
    Operator(String),
}

impl Token {
    pub(super) fn is_operator(&self) -> bool {
        matches!(self, Self::Operator(_))
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Operator(text) => text,
        }
    }
}

/// The words of `line`. Single quotes keep every character literally; elsewhere a backslash escapes
/// the next character.
pub(super) fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let tokens = tokens(line, "")?;
    Ok(tokens.iter().map(|token| token.text().into()).collect())
}

/// The same for a shell: each of these characters is an operator unless it is quoted, and `#` before a word
/// begins a comment.
pub(super) fn tokens(line: &str, operators: &str) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    // A word begins with its first character or quote, so that '' is a word.
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => tokens.extend(word.take().map(Token::Word)),
            (None, '#') if word.is_none() && !operators.is_empty() => break,
            (None, c) if operators.contains(c) => {
                tokens.extend(word.take().map(Token::Word));
                let operator = [Some(c), rest.next_if_eq(&c)];
                tokens.push(Token::Operator(operator.into_iter().flatten().collect()));
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                let next = rest.next().ok_or("nothing follows the last backslash")?;
                word.get_or_insert_default().push(next);
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed");
    }
    tokens.extend(word.map(Token::Word));
    Ok(tokens)
}

/// The word for a line that a user pastes into a shell: in single quotes, unless every character is
/// plain.
pub(super) fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

/// The words of a command as a line that a user pastes into a shell.
pub(super) fn command_line(words: &[String]) -> String {
    let words: Vec<Cow<'_, str>> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

/// The word that has started this binary, such as `trapline` or `target/debug/trapline`: a line that
/// begins with it runs the binary again.
pub(super) fn binary() -> String {
    let word = env::args_os().next().unwrap_or_default();
    quoted(&word.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Token, quoted, split, tokens};

    #[test]
    fn a_quoted_word_is_one_word() {
        for word in ["", "a b", "it's", "*", "~", "$HOME", r"a\b", "line\nline"] {
            let line = quoted(word);
            assert!(line.starts_with('\''), "{line}");
            assert_eq!(split(&line), Ok(vec![word.to_string()]), "{line}");
        }
        for word in ["--replay=7.1.0", "a@b:80/c_d.e", "1,2%+"] {
            assert_eq!(quoted(word), word);
        }
    }

    #[test]
    fn words_are_split_as_by_a_shell() {
        for (line, words) in [
            ("  alive --every  2s ", Ok("alive|--every|2s")),
            (r#"a 'b "c\' "d 'e" f\ g"#, Ok(r#"a|b "c\|d 'e|f g"#)),
            (r#"--prefix='' "" x"y"z"#, Ok("--prefix=||xyz")),
            ("", Ok("")),
            ("a 'b", Err("a quote is not closed")),
            ("a\\", Err("nothing follows the last backslash")),
            ("# a", Ok("#|a")),
        ] {
            let split = split(line).map(|words| words.join("|"));
            assert_eq!(split.as_deref().map_err(|why| *why), words);
        }
    }

    #[test]
    fn only_what_is_not_quoted_is_an_operator_or_a_comment() {
        for (line, parts) in [
            ("a;b# c", "a ; b# c"),
            ("a '#' b # 'c", "a # b"),
            (r"\# ;; ';' #;", "# ;; ;"),
            ("#", ""),
        ] {
            let tokens = tokens(line, ";").unwrap();
            let texts: Vec<&str> = tokens.iter().map(Token::text).collect();
            assert_eq!(texts.join(" "), parts, "{line}");
        }
    }
}
