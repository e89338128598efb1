//! The number of instructions of the hot paths, counted by valgrind's callgrind and compared with a
//! baseline. Counts are repeatable where time is not.
//!
//! `cargo run --release -p trapline-instructions -- [--renew | PATH...]`
//!
//! Each path runs twice under callgrind, in a process of its own: with a number of laps, and with
//! twice as many. The difference is the cost of the laps, without the start and the end of a run.
//!
//! `baseline.json` has the counts at the last renewal, and the versions of the tools. The counts
//! depend on the compiler, on the C library and on the processor's instruction set, so they are
//! compared only where all of these are the same. The usual harness for callgrind compares a whole
//! benchmark with its last run on the same machine. It does not count an operation, and needs an
//! installed program of the same version.
//!
//! To find where the instructions are spent (`--path=` is how the program runs itself):
//!
//! ```sh
//! valgrind --tool=callgrind target/release/trapline-instructions --path=get_tid 20000
//! callgrind_annotate callgrind.out.*
//! ```

mod guests;
mod lines;
mod paths;
#[path = "../../src/ring.rs"]
mod ring;
mod sockets;

use std::{
    fs,
    io::{self, ErrorKind},
    process::{Command, ExitCode},
};

use paths::{PATHS, Path};
use serde_json::{Map, Value, json};

/// The increase over the baseline that fails a path.
const TOLERANCE: f64 = 0.03;
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json");
const RENEW: &str = "cargo run --release -p trapline-instructions -- --renew";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["--renew"] => renew(),
        [option, ..] if option.starts_with("--path=") => run_path(&args),
        [option, ..] if option.starts_with('-') => Err(io::Error::other(format!(
            "usage: trapline-instructions [--renew | PATH...]\n\npaths: {}",
            PATHS.map(|path| path.name).join(" ")
        ))),
        _ => compare(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("trapline-instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts the named paths, or all if none is named. Fails if one takes too many instructions.
fn compare(names: &[&str]) -> io::Result<ExitCode> {
    let paths = match names {
        [] => PATHS.iter().collect(),
        names => names
            .iter()
            .map(|name| find(name))
            .collect::<Result<Vec<_>, _>>()?,
    };
    let baseline = read_baseline()?;
    let tools = tools()?;
    let mut regressed = Vec::new();
    let mut improved = false;
    println!("{:<28}{:>12}{:>12}", "instructions", "now", "baseline");
    for path in paths {
        let now = count(path)?;
        let Some(before) = baseline["instructions"][path.name].as_f64() else {
            println!("{:<28}{now:>12.1}{:>12}", path.name, "none");
            continue;
        };
        let change = now / before - 1.0;
        println!(
            "{:<28}{now:>12.1}{before:>12.1}{:>+11.1}%",
            path.name,
            change * 100.0
        );
        improved |= change < -TOLERANCE;
        if change > TOLERANCE {
            regressed.push(path.name);
        }
    }
    if baseline["tools"] != tools {
        eprintln!(
            "\nNOT COMPARED: the baseline was counted with other tools.\n  then: {}\n  now:  {tools}\n\
             Where today's are the right ones, renew it: {RENEW}",
            baseline["tools"]
        );
        return Ok(ExitCode::SUCCESS);
    }
    if regressed.is_empty() {
        if improved {
            eprintln!("\nBetter than the baseline: so that it stays so, renew it: {RENEW}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "\nREGRESSED by more than {}%: {}.\nThe head of benches/instructions/src/main.rs says how \
         to see where the instructions go. If what they buy is worth it, renew the baseline and \
         say in the commit what that is: {RENEW}",
        TOLERANCE * 100.0,
        regressed.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

/// Counts all paths, and writes the baseline.
fn renew() -> io::Result<ExitCode> {
    let mut counts = Map::new();
    for path in &PATHS {
        let now = count(path)?;
        println!("{:<28}{now:>12.1}", path.name);
        counts.insert(path.name.into(), now.into());
    }
    let baseline = json!({ "tools": tools()?, "instructions": counts });
    fs::write(BASELINE, format!("{baseline:#}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn read_baseline() -> io::Result<Value> {
    let told = |error| io::Error::other(format!("{BASELINE}: {error}; {RENEW} writes it"));
    let text = fs::read_to_string(BASELINE).map_err(|error| told(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| told(error.to_string()))
}

fn find(name: &str) -> io::Result<&'static Path> {
    let found = PATHS.iter().find(|path| path.name == name);
    found.ok_or_else(|| {
        let known = PATHS.map(|path| path.name).join(", ");
        io::Error::other(format!("there is no path {name:?}, but {known}"))
    })
}

/// The role of the counted processes.
fn run_path(args: &[&str]) -> io::Result<ExitCode> {
    let (path, laps) = match args {
        [path, laps] => (find(path.trim_start_matches("--path="))?, laps.parse().ok()),
        _ => (find(args[0].trim_start_matches("--path="))?, None),
    };
    (path.run)(laps.ok_or_else(|| io::Error::other("--path=PATH LAPS: how many laps?"))?);
    Ok(ExitCode::SUCCESS)
}

/// The number of instructions of an operation.
fn count(path: &Path) -> io::Result<f64> {
    let twice = count_run(path, 2 * path.laps)?;
    let count = twice - count_run(path, path.laps)?;
    let each = count / (path.laps * path.operations) as f64;
    Ok((each * 10.0).round() / 10.0)
}

fn count_run(path: &Path, laps: u64) -> io::Result<f64> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .arg(format!("--path={}", path.name))
        .arg(laps.to_string());
    let out = output(&mut valgrind)?;
    let told = String::from_utf8_lossy(&out);
    let count = told
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.ok_or_else(|| io::Error::other(format!("callgrind has counted nothing:\n{told}")))
}

/// The inputs of the counts besides the source.
fn tools() -> io::Result<Value> {
    let ask = |command: &mut Command| -> io::Result<String> {
        Ok(String::from_utf8_lossy(&output(command)?).trim().into())
    };
    #[cfg(target_arch = "x86_64")]
    let has_avx2 = std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    let has_avx2 = false;
    Ok(json!({
        "rustc": env!("RUSTC_VERSION"),
        "valgrind": ask(Command::new("valgrind").arg("--version"))?,
        "libc": ask(Command::new("getconf").arg("GNU_LIBC_VERSION"))?,
        "processor": format!("{}{}", std::env::consts::ARCH, if has_avx2 { ", avx2" } else { "" }),
    }))
}

/// The output of a command, on either stream.
fn output(command: &mut Command) -> io::Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    // The environment is on the stack of the counted process.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let out = command.env_clear().env("PATH", path).output();
    let mut out = out.map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::other(format!("there is no {name}: install it")),
        _ => error,
    })?;
    out.stdout.append(&mut out.stderr);
    if out.status.success() {
        return Ok(out.stdout);
    }
    let told = String::from_utf8_lossy(&out.stdout);
    Err(io::Error::other(format!(
        "{name} failed: {}\n{told}",
        out.status
    )))
}
