//! Plain words in comments, docs and pages: a task is not "who", and the field's terms are used.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::ROOT;

/// Words and phrases that no comment and no page contains.
const FORBIDDEN: [&str; 25] = [
    "who",
    "whom",
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "but for",
    "for to",
    "for want of",
    "for all that",
    "come of",
    "comes of",
    "came of",
    "has it that",
    "have it that",
    "stands",
    "hear",
    "hears",
    "heard",
    "mutely",
    "answers to",
    "to be had",
    "looks at the world",
];

/// What is checked: comments of `.rs` files, and pages.
const CHECKED: [&str; 5] = ["src", "cli/src", "programs", "docs", "README.md"];

#[test]
fn comments_and_pages_are_in_plain_words() {
    let root = Path::new(ROOT);
    let mut files = Vec::new();
    for path in CHECKED {
        collect(&root.join(path), &mut files);
    }
    assert!(files.len() > 50, "{} files", files.len());
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let is_page = name.ends_with(".md");
        found.extend(
            violations(&text, is_page)
                .into_iter()
                .map(|(line, phrase)| format!("{name}:{line}: \"{phrase}\"")),
        );
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn every_forbidden_phrase_is_found_across_lines_and_in_comments_alone() {
    for phrase in FORBIDDEN {
        let comment = format!(
            "let who = 1;\n/// A line {}.",
            phrase.replace(' ', "\n/// ")
        );
        assert_eq!(violations(&comment, false), [(2, phrase)], "{comment}");
        let page = format!("```\nwho\n```\n`who` and {phrase}");
        assert_eq!(violations(&page, true), [(4, phrase)], "{page}");
    }
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        for entry in entries {
            collect(&entry, files);
        }
    } else if path.extension().is_some_and(|e| e == "rs" || e == "md") {
        files.push(path.to_path_buf());
    }
}

/// The forbidden phrases of a text, with the lines where they begin.
fn violations(text: &str, is_page: bool) -> Vec<(usize, &'static str)> {
    let words = words(text, is_page);
    let phrases = FORBIDDEN.map(|phrase| (phrase, phrase.split(' ').collect::<Vec<_>>()));
    let mut found = Vec::new();
    for (at, (line, first)) in words.iter().enumerate() {
        for (phrase, parts) in phrases.iter().filter(|(_, parts)| parts[0] == first) {
            let rest = words[at..].iter().map(|(_, word)| word.as_str());
            if rest.take(parts.len()).eq(parts.iter().copied()) {
                found.push((*line, *phrase));
            }
        }
    }
    found
}

/// The words of the prose in a text, in lower case, with their lines. Punctuation is an empty word,
/// so that no phrase extends over it.
fn words(text: &str, is_page: bool) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(prose) = prose(line, is_page) else {
            words.push((number, String::new()));
            continue;
        };
        if prose.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code {
            continue;
        }
        // Every other part is between backticks.
        for part in prose.split('`').step_by(2) {
            for word in part.split_whitespace() {
                let bare = word.trim_matches(|letter: char| !letter.is_alphanumeric());
                words.push((number, bare.to_lowercase()));
                if word.ends_with([',', '.', ';', ':', ')']) {
                    words.push((number, String::new()));
                }
            }
            words.push((number, String::new()));
        }
        // A phrase may continue on the next line.
        words.pop();
    }
    words
}

/// The prose of a line: a line of a page, or a comment that is a line of its own.
fn prose(line: &str, is_page: bool) -> Option<&str> {
    if is_page {
        return Some(line);
    }
    let comment = line.trim_start().strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!']))
}
