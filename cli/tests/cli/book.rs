//! The book in `docs/`: its blocks, commands, sessions and links; and the crate that `trapline new`
//! makes. The package in `book/` compiles the book's programs and compares what they print.
//!
//! In the book a block of `rust` with a `main` is a whole program, and the block of `text` that
//! follows it is what it prints. A block without a `main` is a part of a program of the same page,
//! or of a new crate's. A block of `diff` is what has changed since the listing before; if a block
//! of `text` follows, it changes a program into one that prints this. A block of
//! `rust,compile_fail` is a program with an error, and the compiler's message follows. In a block of
//! `console`, what follows a command is what it prints. A block of `session` is the same for
//! commands that need one another: they run in one shell, and their numbers may differ. Those of a
//! page share a folder.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

mod course;
mod pages;

use crate::support::{ROOT, at_once, command, trapline};
use pages::{Block, blocks, examples};

/// The program of a new crate.
const TEMPLATE: &str = include_str!("../../src/template/main.rs.in");
/// Programs that the book looks at.
const CASES: [&str; 8] = [
    include_str!("../../examples/extended.rs"),
    include_str!("../../../programs/cases/convoy.rs"),
    include_str!("../../../programs/cases/gossip.rs"),
    include_str!("../../../programs/cases/lost_wakeup.rs"),
    include_str!("../../../programs/cases/starved.rs"),
    include_str!("../../../programs/kv/db.rs"),
    include_str!("../../../programs/kv/mod.rs"),
    include_str!("../../../programs/wal/log.rs"),
];

// ---- tools

/// A directory of this test alone, empty at first.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("it can be made");
    dir
}

/// Makes a crate that depends on this trapline, and on what is locked for it.
fn crate_of(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    let place = path.to_str().expect("it is text");
    let made = trapline(&["--quiet", "new", name, "--path", place, "--trapline", ROOT]);
    assert_eq!(texts(made), (0, String::new(), String::new()));
    fs::copy(Path::new(ROOT).join("Cargo.lock"), path.join("Cargo.lock")).expect("it is there");
    path
}

fn texts(mut command: Command) -> (i32, String, String) {
    crate::support::texts(command.output().expect("it runs"))
}

/// Standard output of a command that ends well.
fn out(command: Command) -> String {
    let line = format!("{command:?}");
    let (code, out, err) = texts(command);
    assert_eq!(code, 0, "{line}\n{out}\n{err}");
    out
}

/// What a terminal would show of it.
fn terminal(mut command: Command) -> String {
    let (mut reader, writer) = io::pipe().expect("there is a pipe");
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().expect("it can be cloned"))
        .stderr(writer);
    let mut child = command.spawn().expect("it runs");
    drop(command); // and with it our ends of the pipe
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("it is text");
    child.wait().expect("it ends");
    text
}

// ---- the book

fn book() -> Vec<(String, Vec<Block>)> {
    pages::pages(&Path::new(ROOT).join("docs"))
}

fn readme() -> String {
    fs::read_to_string(Path::new(ROOT).join("README.md")).expect("there is one")
}

/// The book, and the README before it, whose programs are tested with the documentation.
fn book_and_readme() -> impl Iterator<Item = (String, Vec<Block>)> {
    let readme = ("README".to_string(), blocks(&readme()));
    [readme].into_iter().chain(book())
}

/// The lines of a text, wherever they are indented.
fn flat(text: &str) -> String {
    text.lines()
        .map(|line| line.trim().to_string() + "\n")
        .collect()
}

#[test]
fn every_block_is_of_a_kind_that_is_checked() {
    for (page, blocks) in book() {
        let examples = examples(&page, &blocks);
        for (at, Block { kind, line, text }) in blocks.iter().enumerate() {
            match kind.as_str() {
                "rust" if text.contains("fn main()") => {}
                "rust" => assert!(
                    examples
                        .iter()
                        .map(|example| example.source.as_str())
                        .chain([TEMPLATE])
                        .chain(CASES)
                        .any(|source| flat(source).contains(&flat(text))),
                    "{page}:{line}: this is in no program of the page, new crate or case"
                ),
                "text" => {
                    let before = at.checked_sub(1).map(|at| &blocks[at]);
                    assert!(
                        before.is_some_and(|block| {
                            block.kind == "diff" || block.text.contains("fn main()")
                        }),
                        "{page}:{line}: no program prints this"
                    );
                }
                // The packages in `book/` and `examples/guests` compare these.
                "diff" | "rust,compile_fail" => {}
                "console" | "session" => {}
                other => panic!("{page}:{line}: nothing checks a block of {other:?}"),
            }
        }
    }
}

#[test]
fn the_commands_of_the_book_print_and_draw_what_it_says() {
    let drawn = scratch("drawn");
    let mut checked = 0;
    for (page, blocks) in book_and_readme() {
        for block in blocks.iter().filter(|block| block.kind == "console") {
            let place = format!("{page}:{}", block.line);
            for step in format!("\n{}", block.text).split("\n$ ").skip(1) {
                let (line, output) = command_and_output(step);
                let words: Vec<&str> = line.split(' ').collect();
                let command = match words[..] {
                    ["trapline", ..] if line.contains(" | ") || line.contains('"') => {
                        if line.contains("jq") && !there_is("jq") {
                            continue;
                        }
                        let mut command = shell(line);
                        command.current_dir(&drawn);
                        command
                    }
                    ["trapline", "new", ..] => continue,
                    ["trapline", ref args @ ..] => {
                        let mut command = trapline(args);
                        // Reports repeat the word that has started the binary.
                        command.current_dir(&drawn).arg0("trapline");
                        command
                    }
                    // The package in `book/` checks what this prints.
                    ["cargo", "run", "-q", "--", ..] => continue,
                    _ => {
                        assert_eq!(output, "", "{place}: nothing checks what {line:?} prints");
                        continue;
                    }
                };
                let shown = terminal(command);
                assert_eq!(shown.trim_end(), output.trim_end(), "{place}: {line}");
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "the book shows commands");
    let failing = out(shell(&format!("{ROOT}/docs/failing.sh")));
    fs::write(drawn.join("failing.svg"), failing).expect("it can be written");
    let (drawn, shown) = (svgs(&drawn), svgs(&Path::new(ROOT).join("docs/pictures")));
    assert!(drawn.keys().eq(shown.keys()), "{:?}", drawn.keys());
    for (name, picture) in drawn {
        let same = shown[&name] == picture;
        assert!(same, "{name} is drawn otherwise: see docs/pictures.sh");
    }
}

/// Splits a step of a console. A command goes on in the next line after a backslash.
fn command_and_output(step: &str) -> (&str, &str) {
    let mut ends = step.match_indices('\n').map(|(end, _)| end);
    let end = ends.find(|end| !step[..*end].ends_with('\\'));
    let end = end.unwrap_or(step.len());
    (&step[..end], step[end..].trim_start_matches('\n'))
}

/// The pictures in a directory.
fn svgs(dir: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(dir).expect("there is one");
    files
        .map(|file| file.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "svg"))
        .map(|path| {
            let name = path.file_name().expect("it has one").to_string_lossy();
            let text = fs::read_to_string(&path).expect("it is text");
            (name.into_owned(), text)
        })
        .collect()
}

/// A line for a shell that knows trapline.
fn shell(line: &str) -> Command {
    let mut command = command("sh", &["-c", line]);
    let ours = Path::new(env!("CARGO_BIN_EXE_trapline")).parent();
    let theirs = env::var_os("PATH").unwrap_or_default();
    let paths = ours.map(Path::to_path_buf).into_iter();
    let paths = env::join_paths(paths.chain(env::split_paths(&theirs)));
    command.env("PATH", paths.expect("they are paths"));
    command
}

fn there_is(tool: &str) -> bool {
    shell(&format!("{tool} --version"))
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A word without its time, if it is one: its unit may differ as its number may.
fn timeless(word: &str) -> String {
    let time = word.trim_matches(['(', ')', ',', '.']);
    let number = time.trim_end_matches(['s', 'm', 'µ', 'n']);
    match time.ends_with('s') && number.parse::<f64>().is_ok() {
        true => word.replace(time, "TIME"),
        false => word.to_string(),
    }
}

/// A text whose numbers do not matter, nor how wide they are.
fn numberless(text: &str) -> String {
    let mut steady = String::new();
    for line in text.lines() {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| {
                let word = timeless(word);
                let parts = word.split(|c: char| c.is_ascii_digit());
                let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
                parts.join("0")
            })
            .collect();
        steady += words.join(" ").trim();
        steady += "\n";
    }
    steady
}

#[test]
fn the_sessions_of_the_book_go_as_it_says() {
    let pages = book_and_readme().filter(|(_, blocks)| {
        let mut kinds = blocks.iter().map(|block| &block.kind);
        kinds.any(|kind| kind == "session")
    });
    let pages: Vec<_> = pages.collect();
    assert!(!pages.is_empty(), "the book shows sessions");
    at_once(pages, |(page, blocks)| {
        // The sessions of a page go on from one another.
        let folder = scratch(&format!("session-{page}"));
        for block in blocks.iter().filter(|block| block.kind == "session") {
            let mut command = shell(&script(&block.text));
            command.current_dir(&folder);
            let shown = terminal(command);
            let place = format!("{page}:{}", block.line);
            assert_eq!(
                numberless(&shown),
                numberless(&block.text),
                "{place}:\n{shown}"
            );
        }
    });
}

/// What a shell does in a session: it prints each command and runs it.
fn script(session: &str) -> String {
    let mut script = String::new();
    for line in session.lines().filter_map(|line| line.strip_prefix("$ ")) {
        script += &format!("echo '$ {line}'\n{line}\n");
        if let Some(place) = line.split("--monitor ").nth(1) {
            let socket = place.split(' ').next().expect("split gives one");
            // It takes a second until its tasks have done anything worth showing: until one of
            // them has been blocked since then.
            let ps = format!("trapline ps --attach {socket} 2>/dev/null");
            let since = "00:0[1-9][.0-9]* *[0-9]*$";
            script += &format!("until {ps} | grep -q '{since}'; do sleep 0.02; done\n");
        }
    }
    script
}

#[test]
fn the_readme_is_short_and_its_commands_its_blocks_and_its_links_are_checked() {
    let text = readme();
    assert!(
        text.lines().count() <= 160,
        "it has a page of the book for that"
    );
    let blocks = blocks(&text);
    let commands = blocks.iter().filter(|block| block.kind == "sh");
    let commands = commands.flat_map(|block| block.text.lines());
    let commands: Vec<&str> = commands.map(|line| before(line, "#")).collect();
    assert_eq!(commands, ["cargo run -- boot echo", "cargo test"]);
    for block in &blocks {
        let checked = ["sh", "console", "session", "rust"].contains(&block.kind.as_str());
        assert!(checked, "README:{}: nothing checks this", block.line);
    }
    for link in text.split("](").skip(1) {
        let link = link.split(')').next().expect("split gives one");
        let is_there = link.starts_with("https://") || Path::new(ROOT).join(link).exists();
        assert!(is_there, "{link} leads nowhere");
    }
}

fn before<'a>(text: &'a str, end: &str) -> &'a str {
    text.split(end).next().expect("split gives one").trim_end()
}

#[test]
fn the_links_the_files_and_what_is_in_them_are_as_the_book_says() {
    let mut checked = 0;
    let docs = Path::new(ROOT).join("docs");
    for (page, _) in book() {
        let text = fs::read_to_string(docs.join(format!("{page}.md"))).expect("it is text");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().expect("split gives one");
            let (file, part) = link.split_once('#').unwrap_or((link, ""));
            if !link.starts_with("https://") {
                assert!(docs.join(file).exists(), "{page}: {link} leads nowhere");
            }
            if file.ends_with(".md") && !part.is_empty() {
                let text = fs::read_to_string(docs.join(file)).expect("it is text");
                let mut heads = text.lines().filter(|line| line.starts_with('#'));
                let head = |line: &str| line.trim_start_matches('#').trim().to_lowercase();
                let found = heads.any(|line| head(line).replace(' ', "-") == part);
                assert!(found, "{page}: {link}: there is no such part");
            }
        }
        for name in text.split('`').skip(1).step_by(2) {
            let ours = ["book/", "cli/", "examples/", "programs/", "src/", "tests/"];
            // These two are in the reader's own crate.
            let theirs = ["examples/try.rs", "src/main.rs"].contains(&name);
            if ours.iter().any(|dir| name.starts_with(dir)) && !theirs {
                let path = Path::new(ROOT).join(name);
                assert!(path.exists(), "{page}: there is no {name}");
            }
        }
        for (item, file) in items_in_files(&text) {
            let source = fs::read_to_string(Path::new(ROOT).join(&file)).expect("it is text");
            assert!(
                defines(&source, &item),
                "{page}: there is no {item} in {file}"
            );
            checked += 1;
        }
    }
    assert!(checked > 10, "the book names what is in files");
}

/// Whether a source defines a function, a type or a trait of this name.
fn defines(source: &str, name: &str) -> bool {
    let words = source.split(|c: char| !c.is_alphanumeric() && c != '_');
    let words: Vec<&str> = words.collect();
    let kinds = ["fn", "struct", "enum", "trait", "type"];
    let mut pairs = words.windows(2);
    pairs.any(|pair| kinds.contains(&pair[0]) && pair[1] == name)
}

/// The items that a text says to be in a file, as in "`Kernel::run` in `src/kernel.rs`": the last
/// part of the name, and the file. Several items may share a file: "`Os`, `Queue` and `Tid` in ..".
fn items_in_files(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut items: Vec<String> = Vec::new();
    let parts: Vec<&str> = text.split('`').collect();
    for at in (1..parts.len()).step_by(2) {
        let between = parts[at - 1]
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let is_path = parts[at].contains('/') && parts[at].ends_with(".rs");
        if is_path && between == "in" {
            found.extend(items.drain(..).map(|item| (item, parts[at].to_string())));
        }
        if ![",", "and", ", and"].contains(&between.as_str()) {
            items.clear();
        }
        let name = parts[at].rsplit("::").next().unwrap_or_default();
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(is_name) {
            items.push(name.to_string());
        }
    }
    found
}

// ---- trapline new

/// The package in `book/` compiles and runs the program of a new crate. Here Cargo reads the rest of
/// the crate, and finds what it depends on among what is locked for this trapline. `.ci/run` checks a
/// whole new crate as its owner would.
#[test]
fn a_new_crate_is_complete_and_its_dependencies_are_there() {
    let dir = crate_of(&scratch("new"), "my-kernel");
    let name = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = ["tree", "--offline", "--depth=1", "--prefix=none"];
    let mut tree = command(name, &[&tree[..], &["--format={p} {f}"]].concat());
    tree.current_dir(&dir);
    let tree = out(tree);
    for (name, features) in [
        ("clap v4.", "derive"),
        ("trapline v", "serde"),
        ("trapline-cli v", ""),
    ] {
        let line = tree.lines().find(|line| line.starts_with(name));
        assert!(line.is_some_and(|line| line.contains(features)), "{tree}");
    }
    let main = fs::read_to_string(dir.join("src/main.rs")).expect("it was made");
    assert_eq!(main, TEMPLATE);
    let readme = fs::read_to_string(dir.join("README.md")).expect("it was made");
    assert!(readme.starts_with("# my-kernel\n"), "{readme}");
    let ignored = fs::read_to_string(dir.join(".gitignore")).expect("it was made");
    assert_eq!(ignored, "/target\n");
}

#[test]
fn a_new_crate_depends_on_the_published_trapline_and_says_how_to_go_on() {
    let dir = scratch("published");
    let mut new = trapline(&["new", "fresh"]);
    new.current_dir(&dir);
    let version = env!("CARGO_PKG_VERSION");
    let (code, out, err) = texts(new);
    assert_eq!((code, &*out), (0, ""));
    let said = format!(
        "made fresh, which depends on trapline {version} of crates.io. Once that is published: cd fresh \
         && cargo run -- boot launch\nuntil then, with your copy of trapline: rm -r fresh && "
    );
    let again = err.strip_prefix(&said).unwrap_or_else(|| panic!("{err}"));
    assert!(
        again.ends_with("trapline new fresh --trapline PATH\n"),
        "{err}"
    );
    let manifest = fs::read_to_string(dir.join("fresh/Cargo.toml")).expect("it was made");
    assert!(
        manifest.contains(&format!(
            "\ntrapline = \"{version}\"\ntrapline-cli = \"{version}\"\n"
        )),
        "{manifest}"
    );
    let main = fs::read_to_string(dir.join("fresh/src/main.rs")).expect("it was made");
    assert!(!(manifest + &main).contains("{{"));
}

#[test]
fn a_new_crate_with_an_exercise_has_the_task_and_the_solution() {
    let dir = scratch("exercise");
    let mut new = trapline(&["new", "week-1", "--exercise", "counter", "--trapline", ROOT]);
    new.current_dir(&dir);
    let said = "made week-1; next: cd week-1 && cargo run -- grade task --reference solution\n";
    assert_eq!(texts(new), (0, String::new(), said.to_string()));
    let of = |name: &str| fs::read_to_string(dir.join("week-1").join(name)).expect("it was made");
    let folder = Path::new(ROOT).join("cli/src/exercises/counter");
    for name in ["task.rs", "solution.rs"] {
        let mine = fs::read_to_string(folder.join(name)).expect("it is there");
        assert_eq!(of(&format!("src/{name}")), mine);
    }
    let readme = of("README.md");
    assert!(
        readme.starts_with("# week-1\n\nThe exercise counter, "),
        "{readme}"
    );
    assert!(!(readme + &of("src/main.rs") + &of("Cargo.toml")).contains("{{"));
}

#[test]
fn what_is_no_name_for_a_crate_is_refused() {
    let name = "a crate's name begins with a small letter";
    for (bad, why) in [
        ("", name),
        ("9lives", name),
        ("-x", "unexpected argument"),
        ("My", name),
        ("a b", name),
        ("a/b", name),
        ("../up", name),
        ("straße", name),
        ("fn", "fn is a keyword of Rust"),
        ("test", "Cargo needs the name test for something else"),
        ("proc_macro", "Cargo needs the name proc_macro"),
        ("trapline", "Cargo needs the name trapline"),
        ("trapline_cli", "Cargo needs the name trapline_cli"),
        (&"x".repeat(65), "no more than 64 characters"),
    ] {
        let dir = scratch("names");
        let mut new = trapline(&["new", bad]);
        new.current_dir(&dir);
        let (code, out, err) = texts(new);
        assert_eq!((code, &*out), (2, ""), "{bad}: {err}");
        assert!(err.contains(why), "{bad}: {err}");
        assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 0, "{bad}");
    }
}

#[test]
fn a_new_crate_takes_the_place_of_nothing_and_says_what_is_in_its_way() {
    let dir = scratch("ways");
    fs::write(dir.join("file"), "mine").expect("it can be written");
    fs::create_dir(dir.join("there")).expect("it can be made");
    fs::create_dir(dir.join("other")).expect("it can be made");
    let other = "[package]\nname = \"foo\"\n";
    fs::write(dir.join("other/Cargo.toml"), other).expect("it can be written");
    for (args, why) in [
        (
            &["there"][..],
            "there exists; another place can be given with --path",
        ),
        (
            &["file"],
            "file exists; another place can be given with --path",
        ),
        (&["fresh", "--path", "there"], "there exists"),
        (&["fresh", "--path", "file/fresh"], "cannot make file"),
        (
            &["fresh", "--trapline", "nowhere"],
            "--trapline nowhere: No such file",
        ),
        (
            &["fresh", "--trapline", "there"],
            "--trapline there: cannot read its Cargo.toml: No such file",
        ),
        (
            &["fresh", "--trapline", "other"],
            "--trapline other: its Cargo.toml is of another crate than trapline",
        ),
        (
            &["fresh", "--trapline", env!("CARGO_MANIFEST_DIR")],
            "it has no cli/Cargo.toml: name the checkout's own folder",
        ),
    ] {
        let mut new = trapline(&[&["new"], args].concat());
        new.current_dir(&dir);
        let (code, out, err) = texts(new);
        assert_eq!((code, &*out), (1, ""), "{args:?}: {err}");
        assert!(
            err.starts_with("error: ") && err.contains(why),
            "{args:?}: {err}"
        );
    }
    assert_eq!(
        fs::read_to_string(dir.join("file")).expect("it is there"),
        "mine"
    );
    assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 3);
}
