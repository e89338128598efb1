//! `replay --as-test`: a taped run as a test of its crate.

use std::{
    env,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{
    exits::MARK,
    new::{fill, no_keyword},
};

const TEMPLATE: &str = include_str!("template/replay.rs.in");

/// Reads the name of a test: that of a function and of a file.
pub(super) fn test_name(text: &str) -> Result<String, String> {
    let letter = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_plain = |c: char| letter(c) || c.is_ascii_digit();
    let is_name = text.starts_with(letter) && text.chars().all(is_plain);
    if !is_name || !text.contains(char::is_alphabetic) {
        let why =
            "it takes the name of a function: small letters, digits and _, such as loses_a_line";
        return Err(why.into());
    }
    no_keyword(text)?;
    Ok(text.into())
}

/// Replays the tape as the test will, and writes the test beside a copy of the tape. Returns the path
/// of the test.
pub(super) fn write(tape: &Path, binary: &str, name: &str) -> Result<PathBuf, String> {
    let manifest = fs::read_to_string("Cargo.toml").map_err(|_| {
        "--as-test writes into the folder tests of a crate: there is no Cargo.toml here".to_string()
    })?;
    let exists = |path| Path::new(path).exists();
    let [lib, main, more] = ["src/lib.rs", "src/main.rs", "src/bin"].map(exists);
    if lib && !main && !more && !manifest.lines().any(|line| line.trim() == "[[bin]]") {
        return Err(format!(
            "the test runs {binary}, and the crate here has no binary: go to the folder of its crate"
        ));
    }
    if fs::metadata(tape).is_ok_and(|found| !found.is_file()) {
        let tape = tape.display();
        return Err(format!(
            "{tape} is no file, and the test takes a copy of it"
        ));
    }
    let [test, copy] = ["rs", "tape"].map(|kind| Path::new("tests").join(format!("{name}.{kind}")));
    for path in [&test, &copy] {
        if path.exists() {
            return Err(format!("{} exists: give another name", path.display()));
        }
    }
    let output = replay(tape).map_err(|error| format!("cannot replay the tape: {error}"))?;
    let err = String::from_utf8_lossy(&output.stderr);
    let exits: Vec<&str> = err.lines().filter(|line| line.starts_with(MARK)).collect();
    let code = output.status.code().filter(|_| !exits.is_empty());
    let Some(code) = code else {
        return Err(format!(
            "the tape has no run to hold on to\n{}",
            err.trim_end()
        ));
    };
    let console = literal(&String::from_utf8_lossy(&output.stdout));
    let values = [
        ("console", &*console),
        ("exits", &literal(&(exits.join("\n") + "\n"))),
        ("code", &code.to_string()),
        ("mark", MARK),
        ("binary", binary),
        ("name", name),
    ];
    let text = fill(TEMPLATE, &values);
    let cannot = |path: &Path, error| format!("cannot write {}: {error}", path.display());
    fs::create_dir_all("tests").map_err(|error: io::Error| cannot(Path::new("tests"), error))?;
    fs::copy(tape, &copy).map_err(|error| cannot(&copy, error))?;
    fs::write(&test, text).map_err(|error| cannot(&test, error))?;
    Ok(test)
}

/// Runs the command of the test: this binary, on this tape.
fn replay(tape: &Path) -> io::Result<Output> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["replay", "--quiet", "--exits"]).arg(tape);
    command.env_remove("RUST_LOG").output()
}

/// A text in Rust, a line for each of its lines.
fn literal(text: &str) -> String {
    let mut literal = String::new();
    for line in text.split_inclusive('\n') {
        let _ = write!(literal, "\n    {line:?},");
    }
    match literal.is_empty() {
        true => "\"\"".into(),
        false => format!("concat!({literal}\n)"),
    }
}
