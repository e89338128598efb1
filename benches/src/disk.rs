//! A log on the disk: pieces that are appended one after the other, and a sync every 64 KiB.
//!
//! The bound is a plain thread that does the same by the calls of the standard library.

use std::{
    cell::Cell,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use trapline::{Kernel, Mode, Os};

use crate::{Plan, contest::Contest};

/// After so many bytes the log is made durable.
const SYNCED: usize = 64 * 1024;
/// The bytes of an append.
const PIECES: [(&str, usize); 2] = [("64 KiB", 64 * 1024), ("16 KiB", 16 * 1024)];
const SYNCS: usize = 1000;

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let syncs = plan.times(SYNCS);
    let contest = |(name, piece): (&str, usize)| {
        let name = format!("a log in pieces of {name}, a sync every 64 KiB");
        let each = move |time: Duration| vec![time.as_secs_f64() * 1e6 / syncs as f64];
        Contest::new(name, plan.rounds, &["us per 64 KiB"])
            .enter_many("trapline", move || trapline(syncs, piece).map(each))
            .enter_many("a thread", move || plain(syncs, piece).map(each))
    };
    PIECES.map(contest).into()
}

/// A directory of a round. Dropping this removes it.
struct Dir(PathBuf);

impl Dir {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("trapline-disk-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Any rest stays in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn trapline(syncs: usize, piece: usize) -> io::Result<Duration> {
    let dir = Dir::new()?;
    let kernel = Kernel::builder().disk(&dir.0).build();
    let mut kernel = kernel.map_err(io::Error::other)?;
    let took = Rc::new(Cell::new(Duration::ZERO));
    let tell = Rc::clone(&took);
    let writer = async move |os: &mut Os| {
        let log = os.disk().open(os, "log", Mode::Append).await?;
        let bytes = vec![7; piece];
        let start = Instant::now();
        for _ in 0..syncs {
            for _ in 0..SYNCED / piece {
                log.append(os, &bytes).await?;
            }
            log.sync(os).await?;
        }
        tell.set(start.elapsed());
        io::Result::Ok(())
    };
    kernel.spawn("writer", writer).map_err(io::Error::other)?;
    let report = kernel.run().map_err(io::Error::other)?;
    report.check().map_err(io::Error::other)?;
    Ok(took.get())
}

fn plain(syncs: usize, piece: usize) -> io::Result<Duration> {
    let dir = Dir::new()?;
    let path = dir.0.join("log");
    let write = move || {
        let log = File::create(path)?;
        let bytes = vec![7; piece];
        let start = Instant::now();
        let mut end = 0;
        for _ in 0..syncs {
            for _ in 0..SYNCED / piece {
                log.write_all_at(&bytes, end)?;
                end += piece as u64;
            }
            log.sync_data()?;
        }
        Ok(start.elapsed())
    };
    let thread = thread::spawn(write).join();
    thread.map_err(|_| io::Error::other("the thread panicked"))?
}
