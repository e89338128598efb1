//! The JSON object of a search, and the union of several.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{ArgMatches, Args, ValueHint};
use serde_json::{Value, json};
use trapline::Explored;

use super::options::{Explore, Shard, takes_options};
use crate::{
    output::{FAILURE, Failure, json, print},
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

/// Returns the JSON object of a search.
pub(super) fn object(
    options: &Explore,
    explored: &Explored,
    program: Option<&str>,
    shard: Option<Shard>,
    search: &Value,
) -> Value {
    json!({
        "program": program,
        "search": search,
        "strategy": options.strategy(),
        "seed": options.seed.unwrap_or(0),
        "shard": shard.map(|shard| shard.to_string()),
        "schedules": explored.schedules,
        "classes": explored.classes,
        "complete": explored.complete,
        "proved": explored.proved,
        "unaudited": explored.unaudited,
        "bound": explored.bound,
        "never": explored.never,
        "outcomes": explored.outcomes,
        "failure": explored.failure.as_ref().map(|failure| json!({
            "why": failure.why,
            "preemptions": failure.preemptions,
            "replay": failure.replay,
            "details": failure.details,
        })),
    })
}

/// The options that distinguish a search from others, besides its program, strategy and seed.
const IDENTITY: [&str; 9] = [
    "with",
    "on",
    "net",
    "fault",
    "chaos",
    "inject",
    "steps",
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
        Some(
            values
                .map(|value| value.to_string_lossy().into_owned())
                .collect(),
        )
    };
    let option = |id: &str| {
        let after = named.filter(|(_, matches)| takes_options(matches));
        let after = after.and_then(|(_, matches)| raw(matches, id));
        let values = after.or_else(|| raw(explore, id));
        (format!("--{id}"), json!(values.unwrap_or_default()))
    };
    let is_named = |entry: &&Entry| named.is_some_and(|(name, _)| entry.name == name);
    let entry = programs.iter().find(is_named);
    let command = entry.map(Entry::command).unwrap_or_default();
    let argument = |argument: &clap::Arg| {
        let id = argument.get_id().as_str();
        raw(named?.1, id).map(|values| (id.to_string(), json!(values)))
    };
    let arguments: serde_json::Map<String, Value> =
        command.get_arguments().filter_map(argument).collect();
    let mut all: serde_json::Map<String, Value> = IDENTITY.into_iter().map(option).collect();
    all.insert("arguments".into(), arguments.into());
    all.into()
}

/// Prints the union of several results.
pub(super) fn merge(options: &Merge) -> Result<ExitCode, Failure> {
    let parts: Result<Vec<Value>, String> = options.files.iter().map(|file| part(file)).collect();
    let all = parts.and_then(|parts| union(&parts, &options.files));
    let all = all.map_err(usage)?;
    print((json(all.as_object().expect("it is an object")) + "\n").as_bytes());
    Ok(match all["failure"].is_null() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILURE),
    })
}

fn part(file: &Path) -> Result<Value, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let part: Value = serde_json::from_str(&text)
        .map_err(|error| format!("{name} is not the JSON object of a search: {error}"))?;
    let is_search = part["schedules"].is_u64() && part["outcomes"].is_array();
    is_search
        .then_some(part)
        .ok_or_else(|| format!("{name} is not the JSON object of a search"))
}

fn union(parts: &[Value], files: &[PathBuf]) -> Result<Value, String> {
    let mut all = parts[0].clone();
    let (mut outcomes, mut never) = (texts(&all, "outcomes"), texts(&all, "never"));
    let mut shards = BTreeSet::new();
    for (part, file) in parts.iter().zip(files) {
        let name = file.display();
        for key in ["program", "strategy", "seed"] {
            if part[key] != all[key] {
                let first = files[0].display();
                return Err(format!(
                    "{name} is of another search than {first}: the {key} differs"
                ));
            }
        }
        if let Some(difference) = difference(&part["search"], &all["search"]) {
            let first = files[0].display();
            return Err(format!(
                "{name} is of another search than {first}: {difference}"
            ));
        }
        if parts.len() > 1 && part["shard"].is_null() {
            return Err(format!(
                "{name} is no part of a search: it is a whole search, or the result of a merge. \
                 Name the files of --shard only"
            ));
        }
        let shard = part["shard"].as_str().map(str::parse::<Shard>);
        if let (Some(Ok(shard)), Some((of, _))) = (&shard, shards.first())
            && shard.of != *of
        {
            return Err(format!(
                "{name} is part {shard}, and other files are parts of {of}"
            ));
        }
        if let Some(Ok(shard)) = shard
            && !shards.insert((shard.of, shard.number % shard.of))
        {
            return Err(format!(
                "{name} is part {shard}, which another file is, too"
            ));
        }
        outcomes.append(&mut texts(part, "outcomes"));
        never = &never & &texts(part, "never");
    }
    let sum = |key: &str| {
        parts
            .iter()
            .filter_map(|part| part[key].as_u64())
            .sum::<u64>()
    };
    let first = |key: &str| {
        parts
            .iter()
            .map(|part| &part[key])
            .find(|value| !value.is_null())
    };
    let is_whole = match shards.first() {
        Some((of, _)) => {
            shards.len() as u64 == *of && shards.last().is_some_and(|last| last.0 == *of)
        }
        None => true,
    };
    all["schedules"] = sum("schedules").into();
    all["classes"] = sum("classes").into();
    let is_complete = is_whole && parts.iter().all(|part| part["complete"] == true);
    let unaudited = first("unaudited");
    // A part with one causal order proves nothing alone.
    let has_several = sum("classes") > 1;
    let is_one = |part: &Value| part["proved"] == false && part["classes"] == 1;
    let is_audited = |part: &Value| part["proved"] == true || has_several && is_one(part);
    let is_proved = unaudited.is_none() && parts.iter().all(is_audited);
    all["complete"] = is_complete.into();
    all["proved"] = (is_complete && is_proved).into();
    all["unaudited"] = json!(unaudited);
    all["bound"] = match first("bound") {
        None if !is_whole => "not all parts are among the files".into(),
        bound => json!(bound),
    };
    all["failure"] = json!(first("failure"));
    all["outcomes"] = json!(outcomes);
    all["never"] = json!(never);
    all["shard"] = Value::Null;
    Ok(all)
}

/// Says what distinguishes one search from the first.
fn difference(one: &Value, first: &Value) -> Option<String> {
    let keys = IDENTITY.map(|id| format!("--{id}"));
    let keys = keys.into_iter().chain(["arguments".into()]);
    let mut differing = keys.filter(|key| one[key] != first[key]);
    differing
        .next()
        .map(|key| format!("{key} is {}, not {}", one[&key], first[&key]))
}

fn texts(part: &Value, key: &str) -> BTreeSet<String> {
    let texts = part[key].as_array().into_iter().flatten();
    texts
        .filter_map(Value::as_str)
        .map(str::to_string)
        .collect()
}
