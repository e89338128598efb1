//! One seed, three processes: whatever differs between them, such as the seeds of hash maps, is in no log.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    process::Command,
};

const SEED: &str = "TRAPLINE_GUESTS_SEED";

fn hash(log: &str) -> u64 {
    assert!(log.lines().count() > 100, "the log is short:\n{log}");
    let mut hasher = DefaultHasher::new();
    log.hash(&mut hasher);
    hasher.finish()
}

/// Prints what the logs of a seed are. Run by the other test, in a process of its own.
#[test]
fn logs_of_a_seed() {
    let Ok(seed) = std::env::var(SEED) else {
        return;
    };
    let seed = seed.parse().unwrap();
    for is_tls in [false, true] {
        let (log, _) = crate::notes::chaos(seed, 2, is_tls);
        println!("log notes {is_tls} {:016x}", hash(&log));
    }
    println!("log ledger {:016x}", hash(&crate::ledger::chaos(seed)));
}

fn logs(seed: u64) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["processes::logs_of_a_seed", "--exact", "--nocapture"])
        .env(SEED, seed.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let logs = text
        .lines()
        .filter_map(|line| line.find("log ").map(|at| line[at..].into()));
    logs.collect()
}

#[test]
fn three_processes_have_equal_logs_for_a_seed() {
    let first = logs(5);
    assert_eq!(first.len(), 3, "{first:?}");
    assert_eq!(first, logs(5));
    assert_eq!(first, logs(5));
    assert_ne!(first, logs(6));
}
