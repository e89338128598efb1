//! Passes the version of the compiler to the program, since the counts depend on it.

use std::{env, process::Command};

fn main() {
    let rustc = env::var_os("RUSTC").expect("cargo says which compiler it uses");
    let out = Command::new(rustc).arg("--version").output();
    let out = out.expect("the compiler that builds this runs");
    let version = String::from_utf8_lossy(&out.stdout);
    println!("cargo::rustc-env=RUSTC_VERSION={}", version.trim());
    println!("cargo::rerun-if-changed=build.rs");
}
