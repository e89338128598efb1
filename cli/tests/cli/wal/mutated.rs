//! The log of the program, and a search of its mutations: without any one of its syncs a crash loses a
//! record.

use std::{cell::RefCell, io, rc::Rc};

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use trapline::{Error, Exit, Kernel, Os, check};

use super::{Promised, Shared, end};
use log::Log;

mod disk {
    pub(super) use trapline::{Disk, File};
}

#[allow(
    clippy::duplicate_mod,
    reason = "the log is compiled for two kinds of disks"
)]
#[path = "../../../../programs/wal/log.rs"]
mod log;

/// Opens the log, checks it, and changes it until the disk fails or the task is ended.
async fn write(os: &mut Os, promised: Shared, seed: u64) -> Result<(), String> {
    let mut random = Pcg64::seed_from_u64(seed);
    let disk = os.disk();
    let Ok((mut log, found)) = Log::open(os, disk, "log").await else {
        return Ok(());
    };
    promised.borrow_mut().check(&found)?;
    loop {
        let mut records = promised.borrow().records.clone();
        let is_append = !random.next_u64().is_multiple_of(8);
        if is_append {
            records.push(random.next_u64().to_le_bytes().to_vec());
        } else {
            records.drain(..records.len().saturating_sub(2));
        }
        promised.borrow_mut().next = Some(records.clone());
        let done = match records.last() {
            Some(last) if is_append => log.append(os, last).await,
            _ => log.replace(os, &records).await,
        };
        if done.is_err() {
            return Ok(());
        }
        promised.borrow_mut().check(&records)?;
    }
}

/// Ends a writer 20 times, by a kill or a power loss, at a random turn.
fn crash(kernel: &mut Kernel) -> Result<(), Error> {
    let mut random = Pcg64::seed_from_u64(kernel.seed());
    let promised = Rc::new(RefCell::new(Promised::default()));
    let disk = kernel.net().disk("server")?;
    for _ in 0..20 {
        let (theirs, seed) = (Rc::clone(&promised), random.next_u64());
        let writer = async move |os: &mut Os| write(os, theirs, seed).await;
        let writer = kernel.spawn_on("server", "writer", writer)?;
        let fails = random.next_u64().is_multiple_of(4);
        disk.eio(if fails { 0.1 } else { 0.0 });
        for _ in 0..random.next_u64() % [15, 60][(random.next_u64() % 2) as usize] {
            kernel.step()?;
        }
        disk.eio(0.0);
        let is_kill = random.next_u64().is_multiple_of(2);
        if let Exit::Failed(why) = end(kernel, writer, is_kill) {
            return Err(io::Error::other(why).into());
        }
    }
    Ok(())
}

#[test]
fn a_search_kills_each_mutation_of_a_sync() {
    let explored = check(crash).fifo().schedules(300).mutate().explore();
    assert_eq!(explored.failure, None);
    let mutants = explored.mutants.expect("it passes");
    // Three syncs of files, two of a directory: the log makes no other call that is mutated.
    assert_eq!((mutants.killed, mutants.survivors), (5, vec![]));
}
