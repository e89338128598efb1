//! The pages of the book in `docs/`, taken apart: their blocks of code and their programs. The
//! build script of the package `trapline-book` uses this file as well as the tests.

#![allow(dead_code, reason = "each of its users needs a part of it")]

use std::{fs, path::Path};

/// A block of code. Its kind is what follows the fence.
pub(crate) struct Block {
    pub(crate) kind: String,
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A program of the book: its name, its source, and what it prints.
#[derive(Clone)]
pub(crate) struct Example {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) output: String,
}

/// The pages by name, with their blocks of code.
pub(crate) fn pages(docs: &Path) -> Vec<(String, Vec<Block>)> {
    let files = fs::read_dir(docs).expect("there is a book");
    let mut pages: Vec<_> = files
        .map(|file| file.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .map(|path| {
            let name = path.file_stem().expect("it has one").to_string_lossy();
            let text = fs::read_to_string(&path).expect("it is text");
            (name.into_owned(), blocks(&text))
        })
        .collect();
    pages.sort_by(|a, b| a.0.cmp(&b.0));
    pages
}

pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (line, text) in (1..).zip(page.lines()) {
        match (text.strip_prefix("```"), &mut open) {
            (Some(kind), None) => {
                let (kind, text) = (kind.into(), String::new());
                open = Some(Block { kind, line, text });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text += &format!("{text}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// The programs of a page: the whole ones, and those that a block of `diff` makes of one before it,
/// the last that has the lines. The block of `text` after each is what it prints.
pub(crate) fn examples(page: &str, blocks: &[Block]) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut listings: Vec<&str> = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let output = blocks.get(at + 1).filter(|next| next.kind == "text");
        let source = if block.kind == "rust" && block.text.contains("fn main()") {
            listings.push(&block.text);
            block.text.clone()
        } else if is_variant(blocks, at) {
            let hunks = hunks(page, block);
            let changed = listings.iter().rev().find_map(|old| changed(&hunks, old));
            changed.unwrap_or_else(|| panic!("{page}:{}: no program has this", block.line))
        } else {
            continue;
        };
        let output = output.unwrap_or_else(|| panic!("{page}:{}: no output", block.line));
        examples.push(Example {
            name: format!("{page}-{}", block.line),
            source,
            output: output.text.clone(),
        });
    }
    examples
}

/// Whether a block changes the whole program before it into one that prints the next block.
pub(crate) fn is_variant(blocks: &[Block], at: usize) -> bool {
    let next = blocks.get(at + 1);
    blocks[at].kind == "diff" && next.is_some_and(|next| next.kind == "text")
}

/// A change of a listing: the first of its lines and its place in the new listing, what goes and
/// what comes.
pub(crate) struct Hunk {
    pub(crate) line: usize,
    pub(crate) place: String,
    pub(crate) old: Vec<String>,
    pub(crate) new: Vec<String>,
    /// The first line that is not the same in both, counted from that of the hunk.
    pub(crate) first: usize,
}

pub(crate) fn hunks(page: &str, block: &Block) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for text in block.text.lines() {
        if let Some(head) = text.strip_prefix("@@ line ") {
            let head = head.strip_suffix(" @@").expect("a head ends in @@");
            let (line, place) = head.split_once(" in ").unwrap_or((head, ""));
            hunks.push(Hunk {
                line: line.parse().expect("a line has a number"),
                place: place.into(),
                old: Vec::new(),
                new: Vec::new(),
                first: usize::MAX,
            });
            continue;
        }
        let hunk = hunks.last_mut();
        let hunk = hunk.unwrap_or_else(|| panic!("{page}:{}: no head", block.line));
        let (mark, rest) = text.split_at_checked(1).unwrap_or((" ", ""));
        if mark != " " && !rest.trim().is_empty() {
            hunk.first = hunk.first.min(hunk.new.len());
        }
        match mark {
            " " => {
                hunk.old.push(rest.into());
                hunk.new.push(rest.into());
            }
            "-" => hunk.old.push(rest.into()),
            "+" => hunk.new.push(rest.into()),
            _ => panic!("{page}:{}: {text:?} has no mark", block.line),
        }
    }
    hunks
}

/// A listing with these changes, if it has the lines that they begin from.
fn changed(hunks: &[Hunk], listing: &str) -> Option<String> {
    let old: Vec<&str> = listing.lines().collect();
    let mut rest = &old[..];
    let mut new: Vec<&str> = Vec::new();
    for hunk in hunks {
        let same = (hunk.line - 1).checked_sub(new.len())?;
        let (before, from) = rest.split_at_checked(same)?;
        let (goes, after) = from.split_at_checked(hunk.old.len())?;
        if goes != hunk.old {
            return None;
        }
        new.extend(before);
        new.extend(hunk.new.iter().map(String::as_str));
        rest = after;
    }
    new.extend(rest);
    Some(new.join("\n") + "\n")
}
