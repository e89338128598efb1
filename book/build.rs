//! Writes each program of the book into a module of its own, and a list of all of them.

#[path = "../cli/tests/cli/book/pages.rs"]
mod pages;

use std::{env, fmt::Write, fs, path::Path};

/// What starts a module's program as Rust would start a binary's.
const START: &str = "
#[allow(clippy::unit_arg)]
pub(super) fn start() -> std::process::ExitCode {
    std::process::Termination::report(main())
}
";

fn main() {
    let docs = Path::new("../docs");
    println!("cargo::rerun-if-changed=../docs");
    println!("cargo::rerun-if-changed=../cli/tests/cli/book/pages.rs");
    let out = env::var("OUT_DIR").expect("Cargo says where");
    let mut modules = String::new();
    let mut list = String::new();
    for (page, blocks) in pages::pages(docs) {
        for pages::Example { name, source, .. } in pages::examples(&page, &blocks) {
            let module = format!("page_{}", name.replace('-', "_"));
            let path = Path::new(&out).join(format!("{module}.rs"));
            fs::write(&path, source + START).expect("it can be written");
            writeln!(modules, "#[path = {path:?}]\nmod {module};").expect("memory takes it");
            writeln!(list, "    ({name:?}, {module}::start),").expect("memory takes it");
        }
    }
    let list = format!("{modules}\nconst PROGRAMS: &[(&str, Start)] = &[\n{list}];\n");
    fs::write(Path::new(&out).join("programs.rs"), list).expect("it can be written");

    // `tests/pocket.rs` includes this, and an included file can have no attributes of its own.
    let pocket = "../examples/pocket.rs";
    println!("cargo::rerun-if-changed={pocket}");
    let pocket = fs::read_to_string(pocket).expect("it is there");
    let lines = pocket.lines().map(|line| match line {
        _ if line.starts_with("//!") || line.starts_with("#![") => "\n".into(),
        _ => format!("{line}\n"),
    });
    let pocket: String = lines.collect();
    fs::write(Path::new(&out).join("pocket.rs"), pocket).expect("it can be written");
}
