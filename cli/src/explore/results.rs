//! The JSON object of a search, and the union of several.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{ArgMatches, Args, ValueHint};
use serde_json::{Value, json};
use trapline::Explored;

use super::options::{self, Explore, Part, takes_options};
use crate::{
    output::{FAILURE, Failure, print_verdict},
    program::Entry,
    values::usage,
};

/// Join the results of several parts of a search, printed by --json
///
/// A file is the result of one part. The result of a merge is no part, and is refused among others.
#[derive(Args)]
pub(super) struct Merge {
    /// Files with a JSON object each
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
}

pub(super) fn object(
    options: &Explore,
    explored: &Explored,
    program: Option<&str>,
    shard: Option<Part>,
    search: &Value,
) -> Value {
    json!({
        "program": program,
        "search": search,
        "strategy": options.strategy(),
        "seed": options.seed.unwrap_or(0),
        "shard": shard.map(|(number, of)| format!("{number}/{of}")),
        "schedules": explored.schedules,
        "classes": explored.classes,
        "unseen": explored.unseen,
        "complete": explored.complete,
        "proved": explored.proved,
        "unaudited": explored.unaudited,
        "bound": explored.bound,
        "never": explored.never,
        "faults": explored.faults.iter().map(|(fault, counts)| (fault.clone(), json!({
            "drawn": counts.drawn,
            "applied": counts.applied,
            "felt": counts.felt,
        }))).collect::<Value>(),
        "idle": explored.idle,
        "outcomes": explored.outcomes,
        "cuts": explored.cuts.as_ref().map(|cuts| json!({
            "places": cuts.places.iter().map(|it| json!({
                "place": it.place,
                "call": it.call,
                "by": if it.by_timeout { "timeout" } else { "kill" },
                "cuts": it.cuts,
                "failed": it.failed,
                "why": it.why,
            })).collect::<Vec<Value>>(),
            "left": cuts.left,
        })),
        "mutants": explored.mutants.as_ref().map(|mutants| json!({
            "killed": mutants.killed,
            "survivors": mutants.survivors.iter().map(|survivor| json!({
                "call": survivor.call,
                "schedules": survivor.schedules,
                "proved": survivor.proved,
                "outcomes": survivor.outcomes,
            })).collect::<Vec<Value>>(),
            "unchecked": mutants.unchecked,
            "left": mutants.left,
        })),
        "failure": explored.failure.as_ref().map(|failure| json!({
            "why": failure.why,
            "preemptions": failure.preemptions,
            "replay": failure.replay,
            "details": failure.details,
        })),
    })
}

/// The options that distinguish a search from others, besides its program, strategy and seed.
const IDENTITY: [&str; 12] = [
    "with",
    "on",
    "net",
    "fault",
    "chaos",
    "inject",
    "turns_take",
    "faults",
    "may",
    "max_ticks",
    "preemptions",
    "schedules",
];

/// Returns what distinguishes a search from others, as given: the arguments of the program, and
/// options of the search. An option after the program replaces the same option before it.
pub(super) fn identity(
    programs: &[Entry],
    explore: &ArgMatches,
    named: Option<(&str, &ArgMatches)>,
) -> Value {
    let raw = |matches: &ArgMatches, id: &str| -> Option<Vec<String>> {
        let values = matches.try_get_raw(id).ok()??;
        let texts = values.map(|value| value.to_string_lossy().into_owned());
        Some(texts.collect())
    };
    let option = |id: &str| {
        let after = named.filter(|(_, matches)| takes_options(matches));
        let after = after.and_then(|(_, matches)| raw(matches, id));
        let values = after.or_else(|| raw(explore, id));
        (
            format!("--{}", id.replace('_', "-")),
            json!(values.unwrap_or_default()),
        )
    };
    let is_named = |entry: &&Entry| named.is_some_and(|(name, _)| entry.name == name);
    let entry = programs.iter().find(is_named);
    let command = entry.map(Entry::command).unwrap_or_default();
    let argument = |argument: &clap::Arg| {
        let id = argument.get_id().as_str();
        raw(named?.1, id).map(|values| (id.to_string(), json!(values)))
    };
    let arguments: Value = command.get_arguments().filter_map(argument).collect();
    let mut all: Value = IDENTITY.into_iter().map(option).collect();
    all["arguments"] = arguments;
    all
}

pub(super) fn merge(options: &Merge) -> Result<ExitCode, Failure> {
    let parts: Result<Vec<Value>, String> = options.files.iter().map(|file| part(file)).collect();
    let all = parts
        .and_then(|parts| union(&parts, &options.files))
        .map_err(usage)?;
    print_verdict(format!("{all}\n").as_bytes())?;
    if all["schedules"] == 0 && all["failure"].is_null() && !all["bound"].is_null() {
        let bound = all["bound"].as_str().unwrap_or_default();
        return Err(format!("no schedule ran to its end in any part: {bound}").into());
    }
    let is_idle = !texts(&all, "never").is_empty() || has_idle(&all);
    Ok(match all["failure"].is_null() && !is_idle {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILURE),
    })
}

fn part(file: &Path) -> Result<Value, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let wrong = format!("{name} is not the JSON object of a search");
    let part: Value = serde_json::from_str(&text).map_err(|error| format!("{wrong}: {error}"))?;
    let is_search = part["schedules"].is_u64() && part["outcomes"].is_array();
    is_search.then_some(part).ok_or(wrong)
}

fn union(parts: &[Value], files: &[PathBuf]) -> Result<Value, String> {
    let shards = shards(parts, files)?;
    let mut all = parts[0].clone();
    let all_of = |key: &str| -> BTreeSet<String> {
        parts.iter().flat_map(|part| texts(part, key)).collect()
    };
    let mut never = all_of("never");
    never.retain(|text| parts.iter().all(|part| texts(part, "never").contains(text)));
    let sum = |key: &str| -> u64 { parts.iter().filter_map(|part| part[key].as_u64()).sum() };
    let first = |key: &str| {
        let mut values = parts.iter().map(|part| &part[key]);
        values.find(|value| !value.is_null())
    };
    let parts_of = shards.first().map(|(of, _)| *of);
    let is_whole = parts_of.is_none_or(|of| shards.len() as u64 == of);
    let is_complete = is_whole && parts.iter().all(|part| part["complete"] == true);
    let unaudited = first("unaudited");
    // A part with one causal order proves nothing alone.
    let has_several = sum("classes") > 1;
    let is_one = |part: &Value| part["proved"] == false && part["classes"] == 1;
    let is_audited = |part: &Value| part["proved"] == true || has_several && is_one(part);
    let is_proved = unaudited.is_none() && parts.iter().all(is_audited);
    all["schedules"] = sum("schedules").into();
    all["classes"] = sum("classes").into();
    if parts.len() > 1 && first("unseen").is_some() {
        // Parts that draw may draw the same causal orders, so their numbers have no sum.
        (all["classes"], all["unseen"]) = (Value::Null, Value::Null);
    }
    all["complete"] = is_complete.into();
    all["proved"] = (is_complete && is_proved).into();
    all["unaudited"] = json!(unaudited);
    all["bound"] = match first("bound") {
        None if !is_whole => "not all parts are among the files".into(),
        bound => json!(bound),
    };
    all["failure"] = json!(first("failure"));
    all["faults"] = faults(parts);
    all["idle"] = json!(match is_whole && all["failure"].is_null() {
        true => idle(parts),
        false => BTreeMap::new(),
    });
    all["outcomes"] = json!(all_of("outcomes"));
    all["never"] = json!(never);
    all["shard"] = Value::Null;
    Ok(all)
}

/// Adds the counts of each fault.
fn faults(parts: &[Value]) -> Value {
    let mut all: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    const COUNTS: [&str; 3] = ["drawn", "applied", "felt"];
    let faults = parts.iter().filter_map(|part| part["faults"].as_object());
    for (fault, more) in faults.flatten() {
        let counts = all.entry(fault.clone()).or_default();
        for (count, name) in counts.iter_mut().zip(COUNTS) {
            *count += more[name].as_u64().unwrap_or(0);
        }
    }
    let object =
        |counts: [u64; 3]| -> Value { COUNTS.into_iter().zip(counts.map(Value::from)).collect() };
    all.into_iter()
        .map(|(fault, counts)| (fault, object(counts)))
        .collect()
}

fn has_idle(search: &Value) -> bool {
    search["idle"]
        .as_object()
        .is_some_and(|idle| !idle.is_empty())
}

/// Returns the faults that could happen in no part, each with the least of the reasons. A part without a
/// schedule knows none.
fn idle(parts: &[Value]) -> BTreeMap<String, String> {
    let ran = parts.iter().filter(|part| part["schedules"] != 0);
    let idle_of = |part: &Value| -> BTreeMap<String, String> {
        let idle = part["idle"].as_object().into_iter().flatten();
        let text = |why: &Value| why.as_str().unwrap_or_default().to_string();
        idle.map(|(fault, why)| (fault.clone(), text(why)))
            .collect()
    };
    let both = |one: BTreeMap<String, String>, mut other: BTreeMap<String, String>| {
        let both = one.into_iter().filter_map(|(fault, why)| {
            let least = other.remove(&fault)?.min(why);
            Some((fault, least))
        });
        both.collect()
    };
    ran.map(idle_of).reduce(both).unwrap_or_default()
}

/// The parts, by the number of parts and the number of the part. An error names a file that is no
/// part of the same search, or one that another file is, too.
fn shards(parts: &[Value], files: &[PathBuf]) -> Result<BTreeSet<(u64, u64)>, String> {
    let (all, first) = (&parts[0], files[0].display());
    let mut shards = BTreeSet::new();
    for (part, file) in parts.iter().zip(files) {
        let name = file.display();
        let keys = ["program", "strategy", "seed"].into_iter();
        let mut differing = keys.filter(|key| part[key] != all[key]);
        let key = differing.next().map(|key| format!("the {key} differs"));
        if let Some(why) = key.or_else(|| difference(&part["search"], &all["search"])) {
            return Err(format!("{name} is of another search than {first}: {why}"));
        }
        if parts.len() > 1 && part["shard"].is_null() {
            return Err(format!(
                "{name} is no part of a search: it is a whole search, or the result of a merge. \
                 Name the files of --shard only"
            ));
        }
        let shard = part["shard"].as_str().unwrap_or_default();
        let Ok((number, of)) = options::part(shard) else {
            continue;
        };
        if let Some((others, _)) = shards.first().filter(|(others, _)| of != *others) {
            return Err(format!(
                "{name} is part {shard}, and other files are parts of {others}"
            ));
        }
        if !shards.insert((of, number % of)) {
            return Err(format!(
                "{name} is part {shard}, which another file is, too"
            ));
        }
    }
    Ok(shards)
}

fn difference(one: &Value, first: &Value) -> Option<String> {
    let keys = IDENTITY.map(|id| format!("--{}", id.replace('_', "-")));
    let keys = keys.into_iter().chain(["arguments".into()]);
    let mut differing = keys.filter(|key| one[key] != first[key]);
    differing
        .next()
        .map(|key| format!("{key} is {}, not {}", one[&key], first[&key]))
}

fn texts(part: &Value, key: &str) -> BTreeSet<String> {
    let texts = part[key].as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(Into::into).collect()
}
