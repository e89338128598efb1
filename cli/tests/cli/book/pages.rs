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

/// The whole programs of a page.
pub(crate) fn examples(page: &str, blocks: &[Block]) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut next = blocks.iter().peekable();
    while let Some(block) = next.next() {
        if block.kind == "rust" && block.text.contains("fn main()") {
            let output = next.next_if(|next| next.kind == "text");
            let output = output.unwrap_or_else(|| panic!("{page}:{}: no output", block.line));
            examples.push(Example {
                name: format!("{page}-{}", block.line),
                source: block.text.clone(),
                output: output.text.clone(),
            });
        }
    }
    examples
}
