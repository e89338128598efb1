//! The programs of the book, and the crate of page 13: each is compiled and prints what its page
//! says. `cli/tests/cli/book.rs` checks the commands, the sessions and the links.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

#[path = "../../cli/tests/cli/book/pages.rs"]
mod pages;

use pages::{Block, Hunk, hunks};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// The pages that build a kernel, each of which goes on from the one before.
const COURSE: usize = 8;
/// The page whose diff the package in `examples/guests` compares.
const MOVED: &str = "21-bring-your-own-crates";

fn book() -> Vec<(String, Vec<Block>)> {
    pages::pages(&Path::new(HERE).join("../docs"))
}

/// Exit code, standard output and standard error.
fn texts(command: &mut Command) -> (i32, String, String) {
    for variable in ["RUST_LOG", "NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
        command.env_remove(variable);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    let code = status.code().expect("no signal ended it");
    (code, text(stdout), text(stderr))
}

/// A file of this test alone.
fn scratch(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("it can be written");
    path
}

/// The output of a program whose file would be `src/main.rs`, instead of a generated one.
fn as_main(out: &str) -> String {
    let word = |word: &str| match word.rsplit_once("/page_") {
        Some((_, rest)) => rest
            .split_once(".rs")
            .map(|(_, line)| format!("src/main.rs{line}")),
        None => None,
    };
    let words = out.split_inclusive([' ', '\n']);
    let text: String = words
        .map(|text| word(text).unwrap_or_else(|| text.to_string()))
        .collect();
    joined(&text)
}

/// Joins the lines that were broken before the long name of the generated file.
fn joined(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        match (line.strip_prefix("    at src/main.rs:"), lines.last_mut()) {
            (Some(rest), Some(last)) if last.trim_end().len() + line.trim().len() < 80 => {
                last.truncate(last.trim_end().len());
                *last += &format!(" at src/main.rs:{rest}");
            }
            _ => lines.push(line.to_string()),
        }
    }
    lines.concat()
}

#[test]
fn the_programs_of_the_book_print_what_it_says() {
    let mut checked = 0;
    // Some of them sleep.
    thread::scope(|scope| {
        for (page, blocks) in book() {
            for pages::Example { name, output, .. } in pages::examples(&page, &blocks) {
                scope.spawn(move || {
                    let mut program = Command::new(env!("CARGO_BIN_EXE_trapline-book"));
                    let (code, out, err) = texts(program.arg(&name));
                    assert_eq!((code, as_main(&out)), (0, output), "{name}:\n{err}");
                });
                checked += 1;
            }
        }
    });
    assert!(checked > 20, "the book has more programs than {checked}");
}

#[test]
fn the_programs_of_the_book_are_formatted() {
    let template = Path::new(HERE).join("../cli/src/template/main.rs.in");
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024"]);
    rustfmt.arg(scratch(
        "new.rs",
        &fs::read_to_string(template).expect("it is there"),
    ));
    for (page, blocks) in book() {
        for pages::Example { name, source, .. } in pages::examples(&page, &blocks) {
            rustfmt.arg(scratch(&format!("{name}.rs"), &source));
        }
    }
    assert_eq!(texts(&mut rustfmt), (0, String::new(), String::new()));
}

// ---- what is new on a page

/// The items around a line, the outermost first.
fn place(listing: &[&str], line: usize) -> String {
    let indent = |text: &str| text.len() - text.trim_start().len();
    let mut limit = indent(listing[line]);
    let mut items = Vec::new();
    for text in listing[..line].iter().rev() {
        if text.is_empty() || indent(text) >= limit {
            continue;
        }
        limit = indent(text);
        let text = text.trim();
        let kind = text.strip_prefix("async ").unwrap_or(text);
        if kind.starts_with("fn ") {
            items.extend(text.split(['(', '<']).next());
        } else if ["impl ", "struct ", "enum "]
            .iter()
            .any(|item| kind.starts_with(item))
        {
            items.extend(text.split(['{', '(']).next().map(str::trim));
        }
    }
    items.reverse();
    items.join(", ")
}

/// What a listing of the course was before its changes. Checks the numbers and places of these.
fn unchanged(page: &str, changes: &[Hunk], source: &str) -> Vec<String> {
    let listing: Vec<&str> = source.lines().collect();
    let mut old: Vec<String> = Vec::new();
    let mut done = 0;
    for hunk in changes {
        let at = format!("{page}: line {}", hunk.line);
        let start = hunk.line - 1;
        assert!(start >= done, "{at}: the changes are in order");
        let end = start + hunk.new.len();
        assert_eq!(hunk.new, listing[start..end], "{at}");
        let first = (start + hunk.first).min(listing.len() - 1);
        assert_eq!(hunk.place, place(&listing, first), "{at}: its place");
        old.extend(listing[done..start].iter().map(|line| line.to_string()));
        old.extend(hunk.old.iter().cloned());
        done = end;
    }
    old.extend(listing[done..].iter().map(|line| line.to_string()));
    old
}

#[test]
fn the_pages_of_the_course_show_every_line_that_changes_with_its_place() {
    let book = book();
    let mut before = Vec::new();
    for (page, blocks) in &book[..COURSE] {
        let mut changes: Vec<Hunk> = Vec::new();
        let mut steps = 0;
        for (at, block) in blocks.iter().enumerate() {
            if pages::is_variant(blocks, at) {
                // A solution changes a listing of the page, and no step goes on from it.
                let variant = format!("{page}-{}", block.line);
                let examples = pages::examples(page, blocks);
                let found = examples.into_iter().find(|example| example.name == variant);
                let source = found.expect("it is an example").source;
                unchanged(&variant, &hunks(page, block), &source);
            } else if block.kind == "diff" {
                changes.extend(hunks(page, block));
            } else if block.kind == "rust" && (before.is_empty() || !changes.is_empty()) {
                let old = unchanged(page, &std::mem::take(&mut changes), &block.text);
                if !before.is_empty() {
                    assert_eq!(old, before, "{page}:{}", block.line);
                }
                before = block.text.lines().map(str::to_string).collect();
                steps += 1;
            }
        }
        assert!(changes.is_empty(), "{page}: the changed program follows");
        assert!(steps > 0, "{page}: each page is a step of the course");
    }
    for (page, blocks) in &book[COURSE..] {
        let is_checked = |at| page == MOVED || pages::is_variant(blocks, at);
        for (at, block) in blocks.iter().enumerate() {
            assert!(
                block.kind != "diff" || is_checked(at),
                "{page}:{}: nothing checks a diff",
                block.line
            );
        }
    }
}

#[test]
fn the_pocket_kernel_is_the_last_listing_and_no_longer_than_it_says() {
    let pocket = Path::new(HERE).join("../examples/pocket.rs");
    let pocket = fs::read_to_string(pocket).expect("it is there");
    let (page, blocks) = &book()[COURSE - 1];
    assert_eq!(pages::examples(page, blocks)[0].source, pocket);
    assert!(pocket.lines().count() <= 300, "it says 300 lines");
}

// ---- what does not compile

/// The newest build of trapline for these tests.
fn library() -> PathBuf {
    let here = env::current_exe().expect("it runs");
    let deps = here.parent().expect("it is in a directory");
    let files = fs::read_dir(deps).expect("it can be read");
    files
        .map(|file| file.expect("it can be read").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libtrapline-") && name.ends_with(".rlib")
        })
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
        .expect("these tests depend on it")
}

/// What stays the same from one version of the compiler to the next: the errors and their places.
fn steady(message: &str) -> Vec<&str> {
    let lines = message.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with("error") || line.starts_with("--> "))
        .filter(|line| !line.starts_with("error: aborting"))
        .collect()
}

#[test]
fn what_the_book_says_does_not_compile_fails_with_the_message_that_it_shows() {
    let library = library();
    let deps = library.parent().expect("it is in a directory");
    let mut checked = 0;
    for (page, blocks) in book() {
        for pair in blocks.windows(2) {
            let [block, message] = pair else { continue };
            if block.kind != "rust,compile_fail" {
                continue;
            }
            let at = format!("{page}:{}", block.line);
            let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{page}-{}", block.line));
            fs::create_dir_all(dir.join("src")).expect("it can be made");
            fs::write(dir.join("src/main.rs"), &block.text).expect("it can be written");
            let mut rustc = Command::new("rustc");
            rustc.current_dir(&dir);
            rustc.args(["--edition", "2024", "--emit=metadata", "-o", "main.rmeta"]);
            rustc.arg("--extern");
            rustc.arg(format!("trapline={}", library.display()));
            rustc
                .arg("-L")
                .arg(format!("dependency={}", deps.display()));
            rustc.arg("src/main.rs");
            let (code, out, err) = texts(&mut rustc);
            assert_eq!((code, &*out), (1, ""), "{at}:\n{err}");
            assert_eq!(message.kind, "text", "{at}: the message follows");
            assert_eq!(steady(&err), steady(&message.text), "{at}:\n{err}");
            assert!(!steady(&err).is_empty(), "{at}: there is an error");
            checked += 1;
        }
    }
    assert!(checked > 0, "the book shows a message of the compiler");
}

// ---- a new crate

/// Runs the program of a new crate, as page 13 does. `cargo test` runs that crate's own test, too.
#[test]
fn the_commands_of_a_new_crate_print_what_the_book_says() {
    let mut checked = 0;
    for (page, blocks) in book() {
        for block in blocks.iter().filter(|block| block.kind == "console") {
            for step in format!("\n{}", block.text).split("\n$ ").skip(1) {
                let (line, output) = step.split_once('\n').unwrap_or((step, ""));
                if let Some(line) = line.strip_prefix("cargo run -q -- ") {
                    let mut mine = Command::new(env!("CARGO_BIN_EXE_mine"));
                    let (reader, writer) = std::io::pipe().expect("there is a pipe");
                    mine.args(line.split(' ')).stdin(Stdio::null());
                    mine.stdout(writer.try_clone().expect("it can be cloned"));
                    mine.stderr(writer);
                    let mut child = mine.spawn().expect("it runs");
                    drop(mine); // and with it our ends of the pipe
                    let shown = std::io::read_to_string(reader).expect("it is text");
                    // Where the file is in a crate that is made of it.
                    let shown = shown.replace("cli/src/template/main.rs.in", "src/main.rs");
                    assert!(child.wait().expect("it ends").success(), "{line}");
                    let place = format!("{page}:{}", block.line);
                    assert_eq!(shown.trim_end(), output.trim_end(), "{place}: {line}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 2, "page 13 shows more than {checked} commands");
}
