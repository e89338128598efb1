//! What real kills of a real process leave is a subset of what a crash of a simulated disk may leave.
//! A kill loses nothing of the page cache: only the outcomes of a process that ends early are seen.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};

use super::{
    images::{Step, program, run, workload},
    *,
};

const TEST: &str = "sim_disk::kills::s92_real_kills_leave_what_a_simulated_crash_may_leave";

/// The child's workload, and its directory.
const SEED: &str = "TRAPLINE_TEST_KILLED_SEED";
const DIR: &str = "TRAPLINE_TEST_KILLED_DIR";

/// How many kills, instead of 50.
const KILLS: &str = "TRAPLINE_KILLS";

fn steps_of(seed: u64) -> Vec<Step> {
    let steps = workload(seed).into_iter();
    let steps = steps.filter(|step| !matches!(step, Step::Sync(_, false)));
    steps.collect()
}

/// Runs a workload on a real directory, and reports each step that is done.
fn child(seed: u64, dir: &str) {
    let mut kernel = Kernel::builder().disk(dir).build().unwrap();
    let report = |line: &str| {
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    };
    report("\n@begun\n");
    let program = program(
        &steps_of(seed),
        |_| {},
        move |at| report(&format!("@{at}\n")),
    );
    kernel.spawn("workload", program).unwrap();
    kernel.run().unwrap().check().unwrap();
}

/// Kills a process in the middle of its workload. Returns how many steps it had reported.
fn kill(seed: u64, dir: &Path, random: &mut Pcg64) -> usize {
    let steps = steps_of(seed).len() as u64;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(SEED, seed.to_string())
        .env(DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = String::new();
    // It is killed after so many reports, and a while into the next step.
    let reports = 1 + random.next_u64() % (steps + 1);
    let count = |lines: &str| lines.lines().filter(|line| line.starts_with('@')).count();
    while count(&lines) < reports as usize && out.read_line(&mut lines).unwrap() > 0 {}
    let begin = Instant::now();
    let patience = Duration::from_micros(random.next_u64() % 300);
    while begin.elapsed() < patience {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    out.read_to_string(&mut lines).unwrap();
    assert!(!lines.contains("panicked"), "{lines}");
    count(&lines).saturating_sub(1)
}

fn files_in(dir: &Path, path: &str, files: &mut Files) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if path.is_empty() {
            name
        } else {
            format!("{path}/{name}")
        };
        match entry.file_type().unwrap().is_dir() {
            true => files_in(&entry.path(), &path, files),
            false => _ = files.insert(path, fs::read(entry.path()).unwrap()),
        }
    }
}

#[test]
fn s92_real_kills_leave_what_a_simulated_crash_may_leave() {
    if let (Ok(seed), Ok(dir)) = (std::env::var(SEED), std::env::var(DIR)) {
        return child(seed.parse().unwrap(), &dir);
    }
    let kills = std::env::var(KILLS).map_or(50, |kills| kills.parse().unwrap());
    let dir = std::env::temp_dir().join(format!("trapline-kills-{}", std::process::id()));
    let mut random = Pcg64::seed_from_u64(1);
    let (mut early, mut beyond) = (0, 0);
    for seed in 0..kills {
        fs::create_dir_all(&dir).unwrap();
        let done = kill(seed, &dir, &mut random);
        let mut found = Files::new();
        files_in(&dir, "", &mut found);
        fs::remove_dir_all(&dir).unwrap();
        let steps = steps_of(seed);
        early += usize::from(done < steps.len());
        // The next step may have begun, or be over without a report.
        let within = |steps: &[Step]| run(steps).images().any(|image| image.files() == found);
        let next = (done + 1).min(steps.len());
        beyond += usize::from(!within(&steps[..done]));
        let is_known = within(&steps[..done]) || within(&steps[..next]);
        assert!(is_known, "seed {seed}, {done} of {steps:#?}: {found:?}");
    }
    println!("{kills} kills: {early} before the end, {beyond} with more than was reported");
    assert!(
        early * 2 > kills as usize,
        "{early} of {kills} before the end"
    );
}
