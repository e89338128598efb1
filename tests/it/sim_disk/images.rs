//! S92 by a second implementation: all that a crash may leave of random small workloads, straight
//! from the text of the rule. It replays the whole history for each choice, and filters.

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use trapline::File;

use super::*;

const DIRS: [&str; 3] = [".", "d", "e"];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A file, by the number of its creation.
type Id = usize;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Create(Id, String),
    Write(Id, u64, Vec<u8>),
    Append(Id, Vec<u8>),
    Truncate(Id, u64),
    Sync(Id, bool),
    Rename(String, String),
    Remove(String),
    CreateDir(String),
    SyncDir(String),
}

// ---- random workloads

/// What is there now, so that each step succeeds: names, and the lengths of files.
#[derive(Clone, Default)]
struct Now {
    names: BTreeMap<String, Option<Id>>,
    lens: Vec<u64>,
}

pub(super) fn workload(seed: u64) -> Vec<Step> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut now = Now::default();
    let mut begin = Vec::new();
    if seed % 2 == 1 {
        begin = settled(&mut now);
    }
    let steps = 5 + below(&mut random, 9);
    let steps = (0..steps).filter_map(|at| step(&mut random, &mut now, at as u8));
    begin.into_iter().chain(steps).collect()
}

/// Directories and files that are there before the random steps, with durable names.
fn settled(now: &mut Now) -> Vec<Step> {
    now.lens = vec![0, 0];
    let names = [("d", None), ("e", None), ("a", Some(0)), ("d/a", Some(1))];
    now.names = names.map(|(path, id)| (path.into(), id)).into();
    vec![
        Step::CreateDir("d".into()),
        Step::CreateDir("e".into()),
        Step::Create(0, "a".into()),
        Step::Create(1, "d/a".into()),
        Step::SyncDir(".".into()),
        Step::SyncDir("d".into()),
    ]
}

fn below(random: &mut Pcg64, limit: usize) -> usize {
    (random.next_u64() % limit as u64) as usize
}

fn step(random: &mut Pcg64, now: &mut Now, at: u8) -> Option<Step> {
    let is_dir = |dir: &&str| *dir == "." || now.names.get(*dir) == Some(&None);
    let dirs: Vec<&str> = DIRS.into_iter().filter(is_dir).collect();
    let path = |random: &mut Pcg64| {
        let (dir, name) = (dirs[below(random, dirs.len())], NAMES[below(random, 3)]);
        if dir == "." {
            name.to_string()
        } else {
            format!("{dir}/{name}")
        }
    };
    let bytes = vec![b'A' + at; 1 + below(random, 2)];
    let known = now.lens.len();
    let id = below(random, known.max(1));
    let kind = below(random, 19);
    if known == 0 && ((1..=8).contains(&kind) || kind == 16) {
        return None;
    }
    Some(match kind {
        0 | 9 => {
            let path = path(random);
            if now.names.contains_key(&path) {
                return None;
            }
            now.names.insert(path.clone(), Some(known));
            now.lens.push(0);
            Step::Create(known, path)
        }
        1..=2 => {
            let offset = below(random, 4) as u64;
            now.lens[id] = now.lens[id].max(offset + bytes.len() as u64);
            Step::Write(id, offset, bytes)
        }
        3..=4 => {
            now.lens[id] += bytes.len() as u64;
            Step::Append(id, bytes)
        }
        5 => {
            now.lens[id] = below(random, 4) as u64;
            Step::Truncate(id, now.lens[id])
        }
        6..=7 => Step::Sync(id, true),
        8 | 16 => Step::Sync(id, false),
        10..=12 => {
            let files = now.names.iter().filter(|(_, id)| id.is_some());
            let files: Vec<String> = files.map(|(path, _)| path.clone()).collect();
            let from = files.get(below(random, files.len().max(1)))?.clone();
            let to = path(random);
            let moved = now.names[&from]?;
            now.names.remove(&from);
            now.names.insert(to.clone(), Some(moved));
            Step::Rename(from, to)
        }
        13 | 17 | 18 => {
            let mut paths: Vec<String> = now.names.keys().cloned().collect();
            let is_empty = |path: &String| {
                let below = format!("{path}/");
                !now.names.keys().any(|other| other.starts_with(&below))
            };
            paths.retain(is_empty);
            if kind == 17 {
                paths.retain(|path| now.names[path].is_none());
            }
            if paths.is_empty() {
                return None;
            }
            let path = paths.swap_remove(below(random, paths.len()));
            now.names.remove(&path);
            Step::Remove(path)
        }
        14 => {
            let dir = DIRS[1 + below(random, 2)];
            if now.names.contains_key(dir) {
                return None;
            }
            now.names.insert(dir.into(), None);
            Step::CreateDir(dir.into())
        }
        _ => Step::SyncDir(dirs[below(random, dirs.len())].into()),
    })
}

/// A workload as a program. `eio` sets the share of operations that fail, and `done` is called after
/// each step.
pub(super) fn program(
    steps: &[Step],
    eio: impl Fn(f64) + 'static,
    done: impl Fn(usize) + 'static,
) -> impl AsyncFnOnce(&mut Os) -> io::Result<()> + 'static {
    let steps = steps.to_vec();
    async move |os: &mut Os| {
        let mut files: Vec<File> = Vec::new();
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Create(_, path) => {
                    files.push(os.disk().open(os, &path, Mode::Write).await?);
                }
                Step::Write(id, offset, bytes) => files[id].write_at(os, &bytes, offset).await?,
                Step::Append(id, bytes) => files[id].append(os, &bytes).await?,
                Step::Truncate(id, len) => files[id].truncate(os, len).await?,
                Step::Sync(id, true) => files[id].sync(os).await?,
                Step::Sync(id, false) => {
                    eio(1.0);
                    files[id].sync(os).await.unwrap_err();
                    eio(0.0);
                }
                Step::Rename(from, to) => os.disk().rename(os, &from, &to).await?,
                Step::Remove(path) => os.disk().remove(os, &path).await?,
                Step::CreateDir(path) => os.disk().create_dir(os, &path).await?,
                Step::SyncDir(path) => os.disk().sync_dir(os, &path).await?,
            }
            done(at);
        }
        Ok(())
    }
}

/// Runs a workload.
pub(super) fn run(steps: &[Step]) -> SimDisk {
    let disk = SimDisk::new();
    let mut kernel = kernel(1, &disk);
    let own = disk.clone();
    let program = program(steps, move |share| drop(own.eio(share)), |_| {});
    kernel.spawn("workload", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    disk
}

// ---- the second implementation

/// A half of a change of names: the directory in which it is, and the step of which it is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Half {
    step: usize,
    /// The life of the directory: a removed one and its successor of that name are two.
    dir: usize,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(dir, _)| dir)
}

/// All that a crash may leave, by S92.
fn all(steps: &[Step]) -> BTreeSet<Files> {
    let contents: Vec<BTreeSet<Vec<u8>>> = (0..steps.len()).map(|id| contents(steps, id)).collect();
    let mut images = BTreeSet::new();
    for names in all_names(steps) {
        let mut partial = vec![Files::new()];
        for (path, id) in names {
            let longer = partial.iter().flat_map(|files| {
                contents[id].iter().map(|bytes| {
                    let mut files = files.clone();
                    files.insert(path.clone(), bytes.clone());
                    files
                })
            });
            partial = longer.collect();
        }
        images.extend(partial);
    }
    images
}

/// All contents of a file: each write that was not synced is whole, torn or lost. A write is synced by
/// the first sync after it, if that succeeds.
fn contents(steps: &[Step], id: Id) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::from([(Vec::new(), 0u64)]);
    for (at, step) in steps.iter().enumerate() {
        let first_sync = steps[at..].iter().find_map(|later| match later {
            Step::Sync(of, succeeds) if *of == id => Some(*succeeds),
            _ => None,
        });
        let is_durable = first_sync == Some(true);
        let mut next = BTreeSet::new();
        // The second number is the length that a program sees: an append goes there.
        for (bytes, len) in all {
            match step {
                Step::Write(of, offset, written) if *of == id => {
                    let len = len.max(offset + written.len() as u64);
                    let least = if is_durable { written.len() } else { 0 };
                    for kept in least..=written.len() {
                        next.insert((written_to(&bytes, *offset, &written[..kept]), len));
                    }
                }
                Step::Append(of, written) if *of == id => {
                    let least = if is_durable { written.len() } else { 0 };
                    for kept in least..=written.len() {
                        let bytes = written_to(&bytes, len, &written[..kept]);
                        next.insert((bytes, len + written.len() as u64));
                    }
                }
                Step::Truncate(of, to) if *of == id => {
                    let mut cut = bytes.clone();
                    cut.resize(*to as usize, 0);
                    next.insert((cut, *to));
                    if !is_durable {
                        next.insert((bytes, *to));
                    }
                }
                _ => _ = next.insert((bytes, len)),
            }
        }
        all = next;
    }
    all.into_iter().map(|(bytes, _)| bytes).collect()
}

fn written_to(bytes: &[u8], offset: u64, written: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in written.iter().enumerate() {
        let at = offset as usize + at;
        while bytes.len() <= at {
            bytes.push(0);
        }
        bytes[at] = *byte;
    }
    bytes
}

/// The names of all trees that a crash may leave.
fn all_names(steps: &[Step]) -> BTreeSet<BTreeMap<String, Id>> {
    // The lists of halves of all directories, each with the length that is durable.
    let mut lives: BTreeMap<&str, usize> = BTreeMap::from([(".", 0)]);
    let mut lists: Vec<(Vec<usize>, usize)> = vec![(Vec::new(), 0)];
    let mut halves: Vec<Vec<Half>> = Vec::new();
    let mut removed: Vec<(usize, usize)> = Vec::new();
    for (step, at) in steps.iter().zip(0..) {
        let half = |path: &str| Half {
            step: at,
            dir: lives[parent(path)],
        };
        let own = match step {
            Step::Create(_, path) | Step::Remove(path) | Step::CreateDir(path) => vec![half(path)],
            Step::Rename(from, to) if from == to => Vec::new(),
            Step::Rename(from, to) if parent(from) == parent(to) => vec![half(from)],
            Step::Rename(from, to) => vec![half(from), half(to)],
            Step::SyncDir(dir) => {
                let (list, durable) = &mut lists[lives[&**dir]];
                *durable = list.len();
                Vec::new()
            }
            _ => Vec::new(),
        };
        for half in &own {
            lists[half.dir].0.push(half.step);
        }
        halves.push(own);
        match step {
            Step::CreateDir(path) => {
                lives.insert(path, lists.len());
                lists.push((Vec::new(), 0));
            }
            Step::Remove(path) => {
                removed.extend(lives.remove(&**path).map(|life| (at, life)));
            }
            _ => {}
        }
    }
    // A prefix for each.
    let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
    for (list, durable) in &lists {
        let longer = choices.iter().flat_map(|choice| {
            (*durable..=list.len()).map(|len| [choice.clone(), vec![len]].concat())
        });
        choices = longer.collect();
    }
    let trees = choices.into_iter().filter_map(|choice| {
        let has_happened = |half: &Half| lists[half.dir].0[..choice[half.dir]].contains(&half.step);
        let happened: Option<Vec<bool>> = halves
            .iter()
            .map(|halves| {
                let count = halves.iter().filter(|half| has_happened(half)).count();
                // A rename leaves one of its two names: both halves have happened, or neither.
                (count == 0 || count == halves.len()).then_some(count > 0)
            })
            .collect();
        let happened = happened?;
        // A directory is removed after all that has happened in it.
        let is_early =
            |(step, life): &(usize, usize)| happened[*step] && choice[*life] < lists[*life].0.len();
        if removed.iter().any(is_early) {
            return None;
        }
        replay(steps, &happened)
    });
    trees.collect()
}

/// The names after the steps that have happened; `None` if a file is nowhere by them.
fn replay(steps: &[Step], happened: &[bool]) -> Option<BTreeMap<String, Id>> {
    let mut names: BTreeMap<(usize, String), Option<Id>> = BTreeMap::new();
    // Directories by their lives; those of now, as the steps saw them, and those that are there.
    let mut lives = BTreeMap::from([(".".to_string(), 0)]);
    let mut there = BTreeMap::from([(".".to_string(), 0)]);
    let mut made = 0;
    for (step, happened) in steps.iter().zip(happened) {
        let key = |path: &str, lives: &BTreeMap<String, usize>| {
            (lives[parent(path)], path.rsplit('/').next().unwrap().into())
        };
        match step {
            Step::Create(id, path) if *happened => {
                names.insert(key(path, &lives), Some(*id));
            }
            Step::Rename(from, to) if *happened => {
                let moved = names.remove(&key(from, &lives)).unwrap();
                let to_key = key(to, &lives);
                if !there.values().any(|life| *life == to_key.0) && parent(from) != parent(to) {
                    return None;
                }
                names.insert(to_key, moved);
            }
            Step::CreateDir(path) => {
                made += 1;
                lives.insert(path.clone(), made);
                if *happened {
                    there.insert(path.clone(), made);
                }
            }
            Step::Remove(path) => {
                if let Some(life) = lives.remove(path) {
                    if *happened {
                        if names.keys().any(|(dir, _)| *dir == life) {
                            return None;
                        }
                        there.remove(path);
                    }
                } else if *happened {
                    names.remove(&key(path, &lives));
                }
            }
            _ => {}
        }
    }
    let mut paths = BTreeMap::new();
    for (dir, life) in there {
        for ((_, name), id) in names.iter().filter(|((of, _), _)| *of == life) {
            let path = if dir == "." {
                name.clone()
            } else {
                format!("{dir}/{name}")
            };
            paths.insert(path, id.unwrap());
        }
    }
    Some(paths)
}

// ---- the comparison

#[test]
fn s92_the_images_of_random_workloads_are_those_of_a_second_implementation() {
    let (mut most, mut together) = (0, 0);
    for seed in 0..4000 {
        let steps = workload(seed);
        let disk = run(&steps);
        let (images, expected) = (left(&disk), all(&steps));
        if images != expected {
            let missing: Vec<_> = expected.difference(&images).collect();
            let wrong: Vec<_> = images.difference(&expected).collect();
            panic!("seed {seed}: {steps:#?}\nmissing: {missing:?}\nwrong: {wrong:?}");
        }
        most = most.max(images.len());
        together += images.len();
    }
    assert!(most > 100 && together > 20_000, "{most}, {together}");
}

#[test]
fn s92_random_images_are_among_all_and_reach_all() {
    for seed in 0..400 {
        let disk = run(&workload(seed));
        let all = left(&disk);
        let mut drawn = BTreeSet::new();
        for seed in 0..40_000 {
            if drawn.len() == all.len() || seed > 500 && all.len() > 24 {
                break;
            }
            drawn.insert(disk.image(seed).files());
        }
        assert!(drawn.is_subset(&all), "seed {seed}");
        let is_small = all.len() <= 24;
        assert!(
            !is_small || drawn == all,
            "seed {seed}: {} of {}",
            drawn.len(),
            all.len()
        );
    }
}
