//! The write-ahead log of `programs/wal`: no crash loses a record whose append has returned, and without
//! any one of its syncs, one does.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    rc::Rc,
};

use forgetful::{Disk, Forgetful, log::Log};
use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use trapline::{Exit, Kernel, Os, SimDisk, SimWorld, Step, Tid};

use crate::support::*;

mod forgetful;
mod mutated;

type Records = Vec<Vec<u8>>;

/// What the log must have: the first of these, or the second if a call is under way that changes it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Promised {
    records: Records,
    next: Option<Records>,
}

impl Promised {
    /// Checks what a log has returned. From then on it must have that.
    fn check(&mut self, found: &Records) -> Result<(), String> {
        if found != &self.records && Some(found) != self.next.as_ref() {
            return Err(format!(
                "the log has {found:?} where it has promised {self:?}"
            ));
        }
        (self.records, self.next) = (found.clone(), None);
        Ok(())
    }
}

type Shared = Rc<RefCell<Promised>>;

/// What a writer does to its log.
#[derive(Clone, Debug)]
enum Op {
    Append(Vec<u8>),
    /// Drops all but the last so many records.
    Keep(usize),
}

/// Opens the log, checks it, and makes changes, until the disk fails.
async fn write(
    os: &mut Os,
    disk: Disk,
    promised: Shared,
    ops: impl IntoIterator<Item = Op>,
) -> Result<(), String> {
    let Ok((mut log, found)) = Log::open(os, disk, "log").await else {
        return Ok(());
    };
    promised.borrow_mut().check(&found)?;
    for op in ops {
        let mut records = promised.borrow().records.clone();
        match &op {
            Op::Append(record) => records.push(record.clone()),
            Op::Keep(n) => drop(records.drain(..records.len().saturating_sub(*n))),
        }
        promised.borrow_mut().next = Some(records.clone());
        let done = match op {
            Op::Append(record) => log.append(os, &record).await,
            Op::Keep(_) => log.replace(os, &records).await,
        };
        if done.is_err() {
            // The log takes no more: it does not know its end.
            let later = log.append(os, b"later").await;
            return later.map_or(Ok(()), |()| Err("an append behind a failed one".into()));
        }
        promised.borrow_mut().check(&records)?;
    }
    Ok(())
}

/// How often a writer ends, and in which way.
#[derive(Default, Debug)]
struct Ends {
    /// Power losses.
    crashes: u64,
    kills: u64,
    /// The records that were recovered after crashes.
    records: usize,
}

/// Crashes a writer so often, at random traps, or kills it. Returns how often, and the first promise that was
/// not kept.
fn crashes(seed: u64, most: u64, forgetful: &Forgetful) -> (Ends, Result<(), String>) {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut ends = Ends::default();
    while ends.crashes < most {
        let mut kernel = Kernel::builder()
            .world(SimWorld::new(random.next_u64()))
            .build()
            .expect("it boots");
        let promised = Shared::default();
        let disk = kernel.net().disk("server").expect("it is a name");
        for _ in 0..40 {
            let writer = spawn(&mut kernel, &promised, random.next_u64(), forgetful);
            let fails = random.next_u64().is_multiple_of(4);
            disk.eio(if fails { 0.1 } else { 0.0 });
            let most = [15, 60][(random.next_u64() % 2) as usize];
            for _ in 0..random.next_u64() % most {
                kernel.step().expect("it goes on");
            }
            disk.eio(0.0);
            let is_kill = random.next_u64().is_multiple_of(2);
            let end = end(&mut kernel, writer, is_kill);
            if let Exit::Failed(why) = end {
                let what = format!("seed {seed}, after {ends:?}: {why}");
                return (ends, Err(what));
            }
            if is_kill {
                ends.kills += 1;
            } else {
                ends.crashes += 1;
                ends.records += promised.borrow().records.len();
            }
        }
    }
    (ends, Ok(()))
}

/// A writer on the host "server", which makes changes for ever.
fn spawn(kernel: &mut Kernel, promised: &Shared, seed: u64, forgetful: &Forgetful) -> Tid {
    let (promised, forgetful) = (Rc::clone(promised), forgetful.clone());
    let writer = async move |os: &mut Os| {
        let disk = Disk(os.disk(), forgetful);
        let mut random = Pcg64::seed_from_u64(seed);
        let ops = std::iter::repeat_with(move || match random.next_u64() % 8 {
            0 => Op::Keep((random.next_u64() % 3) as usize),
            _ => {
                let len = random.next_u64() % 20;
                let bytes = (0..len).map(|_| (random.next_u64() % 256) as u8);
                Op::Append(bytes.collect())
            }
        });
        write(os, disk, promised, ops).await
    };
    kernel
        .spawn_on("server", "writer", writer)
        .expect("there is room")
}

/// Ends a writer by a kill or by a power loss, and returns its exit.
fn end(kernel: &mut Kernel, writer: Tid, is_kill: bool) -> Exit {
    let net = kernel.net();
    let ender = kernel.spawn("ender", async move |os: &mut Os| {
        match is_kill {
            true => _ = os.kill(writer).await,
            false => net.apply(&"power server".parse().map_err(io::Error::other)?)?,
        }
        // It may have ended by itself, and has no zombie then if its host has crashed.
        let _ = os.wait(writer).await;
        io::Result::Ok(())
    });
    let ender = ender.expect("there is room");
    let report = kernel.run_until(&[ender]).expect("it ends");
    assert_eq!(report.exits()[&ender], Exit::Done);
    report.exits().get(&writer).cloned().unwrap_or(Exit::Killed)
}

/// Without a call at this line, a promise is broken after so many crashes.
fn found_after(line: u32, seed: u64) -> Option<u64> {
    let forgetful = Forgetful {
        omitted: Some(line),
        ..Forgetful::default()
    };
    let (ends, kept) = crashes(seed, 1000, &forgetful);
    kept.is_err().then_some(ends.crashes)
}

/// The lines of the log with a call that can be left out.
fn lines() -> BTreeSet<u32> {
    let forgetful = Forgetful::default();
    crashes(1, 20, &forgetful).1.expect("it is correct");
    forgetful.lines.take()
}

#[test]
fn no_crash_loses_a_record() {
    let (ends, kept) = crashes(1, 10_000, &Forgetful::default());
    kept.unwrap();
    assert!(ends.kills > 3000 && ends.records > 10_000, "{ends:?}");
}

#[test]
fn without_any_one_of_its_syncs_a_crash_loses_a_record() {
    let lines = lines();
    // Three syncs, two of a directory, two that cut; and a record that is written again.
    assert_eq!(lines.len(), 8, "{lines:?}");
    for line in lines {
        for seed in 0..5 {
            let after = found_after(line, seed);
            println!("line {line}, seed {seed}: {after:?}");
            assert!(
                after.is_some(),
                "line {line} of log.rs is not needed, seed {seed}"
            );
        }
    }
}

// ---- all crashes of a small workload

type Files = BTreeMap<String, Vec<u8>>;

/// The crashes that were tried: what each has left, what was promised, and after how many others it came.
type Tried = BTreeSet<(Files, Promised, u32)>;

/// Crashes a workload at each of its traps, with each image, and its recovery once more in the same way.
fn all_crashes(disk: &SimDisk, promised: Promised, before: u32, tried: &mut Tried) {
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(1).disk("localhost", disk))
        .build()
        .expect("it boots");
    let promised = Rc::new(RefCell::new(promised));
    let ops = match before {
        0 => vec![
            Op::Append(b"a".into()),
            Op::Append(b"bc".into()),
            Op::Keep(1),
            Op::Append(b"def".into()),
            Op::Keep(2),
            Op::Append(b"g".into()),
        ],
        _ => vec![Op::Append(b"e".into()), Op::Keep(1)],
    };
    let theirs = Rc::clone(&promised);
    let writer = async move |os: &mut Os| {
        let disk = Disk(os.disk(), Forgetful::default());
        write(os, disk, theirs, ops).await
    };
    let writer = kernel.spawn("writer", writer).expect("there is room");
    while before < 2 && kernel.step().expect("it goes on") != Step::Finished {
        for image in disk.images() {
            let promised = promised.borrow().clone();
            let files = image.files();
            if tried.insert((files, promised.clone(), before)) {
                all_crashes(&image, promised, before + 1, tried);
            }
        }
    }
    let report = kernel.run().expect("it ends");
    assert_eq!(report.exits()[&writer], Exit::Done, "{disk:?}");
}

#[test]
fn no_crash_of_a_small_workload_and_of_its_recovery_loses_a_record() {
    let mut tried = Tried::new();
    all_crashes(&SimDisk::new(), Promised::default(), 0, &mut tried);
    let first = tried.iter().filter(|(.., before)| *before == 0).count();
    println!(
        "{first} crashes, and {} of their recoveries",
        tried.len() - first
    );
    assert!(first > 80 && tried.len() > 500);
}

// ---- the program

/// Power losses at many instants: no deposit is forgotten that was told.
#[test]
fn the_account_is_never_behind_what_it_has_told() {
    for seed in 0..20 {
        let faults =
            [40, 130, 270].map(|ms| format!("{}.{}ms:power server", ms + 11 * seed, 55 + seed));
        let (seed, on) = (seed.to_string(), "server:wal --every 10ms --deposits 60");
        let mut args = vec!["boot", "-q", "--virtual", "--seed", &seed, "--on", on];
        args.extend(faults.iter().flat_map(|fault| ["--fault", fault]));
        let (code, out, err) = run(&args);
        assert_eq!(code, 0, "{out}{err}");
        let (mut told, mut recoveries) = (0, 0);
        for line in out.lines() {
            let account = line.split_once(": ").map_or(line, |(_, account)| account);
            let deposits: u64 = account.split(' ').next().unwrap().parse().unwrap();
            recoveries += u64::from(line.starts_with("Recovered"));
            assert!((told..=told + 1).contains(&deposits), "seed {seed}: {out}");
            let total = deposits * (deposits + 1) / 2;
            assert!(
                line.ends_with(&format!(", {total} in total")),
                "seed {seed}: {out}"
            );
            told = deposits;
        }
        assert_eq!((told, recoveries), (60, 4), "seed {seed}: {out}");
    }
}

#[test]
fn the_account_needs_a_disk() {
    let (code, _, err) = run(&["boot", "-q", "wal"]);
    assert_eq!(code, 1, "{err}");
    has(&err, "cannot open account on the disk: ");
}
