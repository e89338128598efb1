//! The rooms of `src/`, and which of them may use which: `src/lib.rs` shows the same table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::support::ROOT;

const LOW: &[&str] = &["abi", "panic", "sched", "interrupt", "log"];
const TASK: &[&str] = &["abi", "panic", "sched", "interrupt", "log", "trap"];
const KERNEL: &[&str] = &[
    "abi",
    "panic",
    "sched",
    "interrupt",
    "log",
    "trap",
    "user",
    "world",
];

const CORES: &[&str] = &["abi", "panic", "sched", "interrupt", "world", "kernel"];

/// Each room, and the rooms it may use besides itself.
const ROOMS: [(&str, &[&str]); 11] = [
    ("abi", &[]),
    ("panic", &[]),
    ("sched", &["abi"]),
    ("interrupt", &["abi"]),
    ("log", &["abi", "panic"]),
    ("trap", LOW),
    ("user", TASK),
    ("world", TASK),
    ("kernel", KERNEL),
    ("cores", CORES),
    // The public API, which is at the crate's root and in its public modules; and the locks of `panic`.
    ("explore", &["panic", "sched"]),
];

/// A file of `src/`, by its module path: `["kernel", "task"]`.
type Module = Vec<String>;

struct File {
    text: String,
    /// The modules whose names it imports, itself not among them.
    uses: Vec<(Module, String)>,
}

#[test]
fn a_room_uses_only_the_rooms_below_it() {
    let mut wrong = Vec::new();
    for (module, file) in &source("src") {
        let Some((_, below)) = ROOMS.iter().find(|(room, _)| *room == module[0]) else {
            continue;
        };
        for (used, name) in &file.uses {
            let Some(room) = used.first() else { continue };
            if room != &module[0] && !below.contains(&room.as_str()) {
                wrong.push(format!(
                    "{} uses {}::{name}",
                    module.join("/"),
                    used.join("/")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_is_in_a_room() {
    for module in source("src").keys() {
        let room = ROOMS.iter().find(|(room, _)| *room == module[0]);
        assert!(room.is_some(), "{} is in no room", module.join("/"));
    }
}

/// No files import each other in a circle, in the library, the command line and the programs. A
/// handler's file names the [`Kernel`](trapline::Kernel) that its `impl` block extends: that alone is
/// no import.
#[test]
fn no_files_import_each_other_in_a_circle() {
    for crates in ["src", "cli/src", "programs"] {
        let files = source(crates);
        let graph: BTreeMap<_, BTreeSet<_>> = files
            .iter()
            .map(|(module, file)| {
                let uses = file.uses.iter().filter(|(_, name)| name != "Kernel");
                (module, uses.map(|(used, _)| used).collect())
            })
            .collect();
        assert!(graph.len() > 20, "{crates} has files");
        assert_eq!(circle(&graph), None, "{crates}");
    }
}

#[test]
fn there_is_one_yield_and_one_place_for_each_machine() {
    let files = source("src");
    let within = |needle: &str| -> Vec<String> {
        let hits = files
            .iter()
            .filter(|(_, file)| code(&file.text).any(|line| line.contains(needle)));
        hits.map(|(module, _)| module.join("/")).collect()
    };
    let yields = files.values().flat_map(|file| code(&file.text));
    assert_eq!(yields.filter(|line| line.contains("yield_(")).count(), 1);
    assert_eq!(within("yield_("), ["user/os"]);
    // The time limit of a search is real time.
    let is_machine = |at: &String| at.starts_with("world/real") || at == "explore/deadline";
    for clock in ["Instant::", "SystemTime", "polling::", "Poller::"] {
        let at = within(clock);
        assert!(
            !at.is_empty() && at.iter().all(is_machine) || clock == "SystemTime",
            "{clock} in {at:?}"
        );
    }
    let at = within("polling::");
    let below = |name: &str| format!("world/real/{name}");
    assert_eq!(at, ["epoll", "poller", "portable"].map(below));
    let at = within("genawaiter::");
    assert!(
        at.iter()
            .all(|at| at.starts_with("trap/") || at.starts_with("user/")),
        "{at:?}"
    );
}

/// A variant of [`Fact`](trapline::Fact) is for the kernel that emits it, the ledger and the formats.
/// The other readers use the accessors.
#[test]
fn few_files_name_a_variant_of_a_fact() {
    let crates = ["src", "cli/src", "programs"].map(source);
    let texts: Vec<&str> = crates
        .iter()
        .flat_map(BTreeMap::values)
        .map(|file| &*file.text)
        .collect();
    let facts = &crates[0][&["log", "event"].map(String::from).to_vec()].text;
    let (_, body) = facts.split_once("pub enum Fact<'a> {").unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let variants = lines.filter(|line| line.starts_with(char::is_uppercase));
    let variants: Vec<&str> = variants
        .map(|line| line.trim_matches([' ', '{', ',']))
        .collect();
    assert!(variants.contains(&"Resumed") && variants.contains(&"Preempted"));
    for variant in variants {
        let name = format!("Fact::{variant}");
        let is_named = |text: &&&str| {
            let mut behind = text.split(&name).skip(1);
            behind.any(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        let count = texts.iter().filter(is_named).count();
        assert!((2..=6).contains(&count), "{count} files name {name}");
    }
    for way in ["Fact::*", "Fact::{", "Fact as "] {
        assert!(!texts.iter().any(|text| text.contains(way)), "{way}");
    }
}

/// The methods of the kernel call each other across its files, which no import shows. The loop may go
/// in a circle; the parts that own the state of tasks are in none.
#[test]
fn the_kernels_files_call_each_other_in_small_circles() {
    const PARTS: [&str; 5] = ["task", "table", "timers", "ready", "queues"];
    let files = source("src");
    let files = files.iter().filter(|(module, _)| module[0] == "kernel");
    let files: Vec<(&str, String)> = files
        .map(|(module, file)| {
            let lines = file.text.lines();
            let code = lines.filter(|line| !line.trim_start().starts_with("//"));
            let code = code.collect::<Vec<_>>().join("\n");
            // A call may begin on a line of its own.
            let code = code.split_inclusive('\n').fold(String::new(), |all, line| {
                match line.trim_start().starts_with('.') {
                    true => all.trim_end().to_string() + line.trim_start(),
                    false => all + line,
                }
            });
            (module.last().unwrap().as_str(), code)
        })
        .collect();
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, text) in &files {
        for block in text.split("\nimpl Kernel {\n").skip(1) {
            let block = &block[..block.find("\n}\n").unwrap_or(block.len())];
            let methods = block.split("fn ").skip(1).map(identifier);
            owners.extend(methods.map(|method| (method, *name)));
        }
    }
    assert!(owners.len() > 100, "{owners:?}");
    let calls: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|(name, text)| {
            let receivers = ["self.", "kernel.", "this."].into_iter();
            let rests = receivers.flat_map(|receiver| text.split(receiver).skip(1));
            let called =
                rests.filter(|rest| rest[identifier(rest).len()..].starts_with(['(', ':']));
            let owners = called.filter_map(|rest| owners.get(identifier(rest)).copied());
            (*name, owners.filter(|owner| owner != name).collect())
        })
        .collect();
    let reached = |from| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            next.extend(calls[at].iter().filter(|owner| reached.insert(**owner)));
        }
        reached
    };
    for file in calls.keys() {
        let mut circle = reached(*file);
        circle.retain(|other| reached(*other).contains(file));
        assert!(circle.len() <= 8, "{circle:?}");
        let is_part = PARTS.contains(file);
        assert!(!is_part || circle.is_empty(), "{file} is in {circle:?}");
    }
}

/// The word at the begin of a text.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Each walk goes through few files, and returns to none of them twice. `cli/tests/cli/book.rs` checks
/// that the functions are in these files.
#[test]
fn the_walks_through_the_kernel_are_short() {
    let page = Path::new(ROOT).join("docs/reading-the-kernel.md");
    let page = fs::read_to_string(page).unwrap();
    let walks = page.split("\n### ").skip(1);
    for (walk, most) in walks.zip([8, 6, 6, 6, 6]) {
        let walk = walk.split("\n## ").next().unwrap();
        let steps = walk.split("` in `").skip(1);
        let files: Vec<&str> = steps.map(|step| step.split('`').next().unwrap()).collect();
        let visits = |file| files.iter().filter(|other| *other == file).count();
        let distinct: BTreeSet<&&str> = files.iter().collect();
        assert!(distinct.len() > 3 && distinct.len() <= most, "{files:?}");
        assert!(files.iter().all(|file| visits(file) <= 2), "{files:?}");
    }
    assert_eq!(page.matches("\n### ").count(), 5);
}

/// The fast lane is for calls that need only their caller, or one queue.
#[test]
fn the_fast_lane_is_short() {
    let fast = Path::new(ROOT).join("src/kernel/fast.rs");
    let lines = fs::read_to_string(fast).unwrap().lines().count();
    assert!(lines <= 100, "{lines} lines");
}

/// The lines that are neither comments nor docs.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start);
    lines.filter(|line| !line.starts_with("//"))
}

/// A circle, as the modules on it, if there is one.
fn circle(graph: &BTreeMap<&Module, BTreeSet<&Module>>) -> Option<Vec<String>> {
    let mut left = graph.clone();
    loop {
        let leaf = left.iter().find(|(at, uses)| {
            uses.iter()
                .all(|used| used == *at || !left.contains_key(used))
        });
        let Some((&leaf, _)) = leaf else { break };
        left.remove(leaf);
    }
    let mut at = *left.keys().next()?;
    let mut way = vec![at];
    loop {
        at = left[at]
            .iter()
            .find(|used| **used != at && left.contains_key(*used))?;
        if let Some(from) = way.iter().position(|before| *before == at) {
            return Some(way[from..].iter().map(|module| module.join("/")).collect());
        }
        way.push(at);
    }
}

/// Every file of a crate's folder, with what it imports from the others. The root of the library is
/// left out: its names are the public API, which the rooms may use.
fn source(folder: &str) -> BTreeMap<Module, File> {
    let root = Path::new(ROOT).join(folder);
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    let texts: BTreeMap<Module, String> = paths
        .iter()
        .map(|path| (module(path.strip_prefix(&root).unwrap()), text(path)))
        .filter(|(module, _)| folder != "src" || !module.is_empty())
        .collect();
    let exports = exports(&texts);
    texts
        .iter()
        .map(|(module, text)| {
            let uses = imports(text, "use ", module, &texts)
                .into_iter()
                .chain(inline(text, module, &texts))
                .filter_map(|path| resolve(path, &texts, &exports))
                .filter(|(used, _)| used != module)
                .collect();
            let text = text.clone();
            (module.clone(), File { text, uses })
        })
        .collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn module(path: &Path) -> Module {
    let mut module: Module = path
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    module.pop_if(|last| ["mod", "lib", "main"].contains(&&**last));
    module
}

/// The text of a file without its unit tests, which may look at anything.
fn text(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let is_module = |line: &str| line.contains("mod ") && line.ends_with('{');
    let begins = |(at, _): &(usize, &str)| text[*at..].lines().nth(1).is_some_and(is_module);
    let tests = text.match_indices("#[cfg(").find(begins);
    text[..tests.map_or(text.len(), |(at, _)| at)].to_string()
}

/// What a folder's `mod.rs` hands on: where its names come from.
fn exports(texts: &BTreeMap<Module, String>) -> BTreeMap<Module, Module> {
    let mut exports = BTreeMap::new();
    for (module, text) in texts {
        for kind in ["pub use ", "pub(crate) use ", "pub(super) use "] {
            for path in imports(text, kind, module, texts) {
                let Some(name) = path.last() else { continue };
                let mut exported = module.clone();
                exported.push(name.clone());
                exports.insert(exported, path.clone());
            }
        }
    }
    exports
}

/// The file in which the last name of a path is defined, and that name.
fn resolve(
    mut path: Module,
    texts: &BTreeMap<Module, String>,
    exports: &BTreeMap<Module, Module>,
) -> Option<(Module, String)> {
    path = origin(path, exports);
    let name = path.last()?.clone();
    // A name in a module that is handed on, a few steps up at the most.
    for _ in 0..8 {
        if texts.contains_key(&path) {
            break;
        }
        path.pop()?;
        path = origin(path, exports);
    }
    texts.contains_key(&path).then_some((path, name))
}

/// Where a name that is handed on comes from. Names of modules and of what is in them may be the
/// same: so a few steps are all.
fn origin(mut path: Module, exports: &BTreeMap<Module, Module>) -> Module {
    for _ in 0..4 {
        match exports.get(&path) {
            Some(from) if *from != path => path = from.clone(),
            _ => break,
        }
    }
    path
}

/// The paths behind the statements of a kind (`use `, `pub use `), from the crate's root.
fn imports(
    text: &str,
    kind: &str,
    module: &Module,
    texts: &BTreeMap<Module, String>,
) -> Vec<Module> {
    let mut paths = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(kind) {
        let begins = at == 0 || rest[..at].ends_with('\n');
        rest = &rest[at + kind.len()..];
        if begins && let Some(end) = rest.find(';') {
            spread("", &rest[..end].replace(['\n', ' '], ""), &mut paths);
        }
    }
    let absolute = paths
        .iter()
        .filter_map(|path| absolute(path, module, texts));
    absolute.collect()
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn spread(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let (mut depth, mut from) = (0, 0);
    let ends = tree.char_indices().filter_map(|(at, letter)| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        (letter == ',' && depth == 0).then_some(at)
    });
    for end in ends.chain([tree.len()]).collect::<Vec<_>>() {
        let branch = &tree[from..end];
        from = end + 1;
        match branch.split_once("::{") {
            Some((stem, twigs)) => {
                let twigs = twigs.strip_suffix('}').unwrap_or(twigs);
                spread(&format!("{prefix}{stem}::"), twigs, paths);
            }
            None if branch.is_empty() => {}
            None => paths.push(format!("{prefix}{branch}")),
        }
    }
}

/// The paths that begin with `crate::` or `super::` within the code.
fn inline(text: &str, module: &Module, texts: &BTreeMap<Module, String>) -> Vec<Module> {
    let mut paths = Vec::new();
    let is_code = |line: &&str| !line.starts_with("use ") && !line.starts_with("pub(in ");
    for line in code(text).filter(is_code) {
        for root in ["crate::", "super::"] {
            for (at, _) in line.match_indices(root) {
                let end = line[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                let path = &line[at..end.map_or(line.len(), |end| at + end)];
                paths.extend(absolute(path, module, texts));
            }
        }
    }
    paths
}

/// A path as seen from the crate's root; `None` if it leads out of the crate.
fn absolute(path: &str, module: &Module, texts: &BTreeMap<Module, String>) -> Option<Module> {
    let path = path.split('(').next().unwrap_or(path);
    let mut parts = path
        .split("::")
        .filter(|part| !part.is_empty() && *part != "self");
    let mut at = module.clone();
    match parts.next()? {
        "crate" => at.clear(),
        "super" => drop(at.pop()),
        child => {
            at.push(child.to_string());
            texts.contains_key(&at).then_some(())?;
        }
    }
    for part in parts {
        if part == "super" {
            at.pop();
        } else {
            at.push(part.to_string());
        }
    }
    Some(at)
}
