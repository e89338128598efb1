//! The commands of a debugger, one a line, and their answers as text.

use std::fmt::Write;

use serde_json::Value;

use super::{
    condition::Condition,
    engine::{Engine, Stop},
};
use crate::{
    Deadlock, QueueInfo, TaskInfo, Tid,
    cli::{
        live::{
            model::{self, Row, Rows, Totals},
            query::{Entry, Query},
            text,
        },
        output::{Log, clean},
        table::table,
        values::{among, whole},
    },
};

/// The commands, with the short form of each, its arguments and its meaning.
const COMMANDS: &[(&str, &str, &str, &str)] = &[
    ("step", "s", "[N]", "make the next call, or N calls"),
    ("turn", "t", "[N]", "go on to the end of the turn"),
    ("next", "n", "[TID]", "go on to the next call of the task"),
    ("continue", "c", "", "go on to a breakpoint or the end"),
    ("until", "u", "CONDITION", "go on to this condition"),
    ("back", "b", "[N]", "go back by one call, or N calls"),
    ("back", "b", "CONDITION", "go back to where it was last met"),
    (
        "back wake",
        "",
        "[tid N]",
        "go back to the task's last wake-up",
    ),
    (
        "back spawn",
        "",
        "[tid N]",
        "go back to where the task was spawned",
    ),
    ("goto", "g", "N", "go to the place #N; #0 is the start"),
    (
        "break",
        "br",
        "[CONDITION]",
        "stop there; without one, list the breakpoints",
    ),
    ("delete", "d", "N", "remove a breakpoint"),
    ("here", "h", "", "the place in the run: the last call"),
    ("ps", "", "", "the tasks"),
    ("tree", "", "", "the tasks, as a tree of parents"),
    (
        "waits",
        "",
        "",
        "what blocked tasks wait for, and their cycles",
    ),
    (
        "where",
        "w",
        "[TID]",
        "a task: its wait, its source lines, its last calls",
    ),
    (
        "queues",
        "q",
        "",
        "the queues, and how many messages they hold",
    ),
    (
        "console",
        "p",
        "[N]",
        "what was printed so far, or its last N lines",
    ),
    ("help", "?", "", "this list"),
    ("quit", "", "", "leave"),
];

/// The result of a command.
pub(super) enum Answer {
    /// Where a motion has ended.
    Moved(String),
    Text(String),
    Quit,
}

/// Performs a command. An error says what is wrong with it.
pub(super) fn perform(engine: &mut Engine, line: &str) -> Result<Answer, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some((&name, rest)) = words.split_first() else {
        return Ok(Answer::Text(String::new()));
    };
    let name = full(name)?;
    let text = match name {
        "step" | "turn" | "next" | "continue" | "until" => {
            return forward(engine, name, rest).map(Answer::Moved);
        }
        "back" => return back(engine, rest).map(Answer::Moved),
        "goto" => return go_to(engine, rest).map(Answer::Moved),
        "break" => set_break(engine, rest)?,
        "delete" => {
            let number = one(rest, "the number of a breakpoint")?;
            match engine.remove_break(whole(number)?) {
                true => String::new(),
                false => return Err(format!("there is no breakpoint {number}")),
            }
        }
        "where" => whereabouts(engine, rest)?,
        "console" => console(engine, rest)?,
        name => {
            none(rest)?;
            match name {
                "here" => here(engine),
                "ps" => {
                    let (rows, totals) = rows(engine, &Query::default());
                    text::ps(&rows, &totals, "")
                }
                "tree" => {
                    let tree = true;
                    let query = Query {
                        tree,
                        ..Query::default()
                    };
                    let (rows, totals) = rows(engine, &query);
                    text::tree(&rows, &totals)
                }
                "waits" => waits(engine),
                "queues" => queues(engine),
                "help" => help(),
                _ => return Ok(Answer::Quit),
            }
        }
    };
    Ok(Answer::Text(text))
}

/// The full name of a command.
fn full(name: &str) -> Result<&'static str, String> {
    let is_short = |command: &&(&'static str, &str, &str, &str)| command.1 == name;
    if let Some((full, ..)) = COMMANDS.iter().find(is_short).filter(|_| !name.is_empty()) {
        return Ok(full);
    }
    let names: Vec<&'static str> = COMMANDS.iter().map(|command| command.0).collect();
    let found = among("command", name, &names, |name| (*name).into());
    found.map_err(|why| format!("{why} (help lists the commands)"))
}

// ---- motions

fn forward(engine: &mut Engine, name: &str, rest: &[&str]) -> Result<String, String> {
    if engine.over().is_some() {
        return Err("the run is over: only back, goto and the views go on".into());
    }
    let stop = match name {
        "step" => engine.forward(count(rest)?),
        "turn" => engine.forward_turns(count(rest)?),
        "next" => {
            let task = task(engine, rest)?;
            engine.forward_to(Some(Condition::call_of(task)))
        }
        "continue" => {
            none(rest)?;
            engine.forward_to(None)
        }
        _ => engine.forward_to(Some(Condition::parse(rest)?)),
    };
    Ok(moved(engine, stop))
}

fn back(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    let condition = match rest {
        [] => return back_by(engine, 1),
        [number] if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            return back_by(engine, whole(number)?);
        }
        ["wake"] => Condition::wake_of(task(engine, &[])?),
        ["spawn"] => Condition::spawn_of(task(engine, &[])?),
        words => Condition::parse(words)?,
    };
    match engine.back_to(&condition)? {
        Stop::Over => Err(format!("{condition} was not met before")),
        stop => Ok(moved(engine, stop)),
    }
}

fn go_to(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    let place = one(rest, "a place such as #12")?;
    let place = place.strip_prefix('#').unwrap_or(place);
    let stop = engine.go_to(whole(place)?)?;
    Ok(moved(engine, stop))
}

fn back_by(engine: &mut Engine, calls: u64) -> Result<String, String> {
    let Some(place) = engine.calls().checked_sub(calls) else {
        return Err(format!("only {} calls were made before", engine.calls()));
    };
    let stop = engine.go_to(place)?;
    Ok(moved(engine, stop))
}

/// Where a motion has ended, and why.
fn moved(engine: &Engine, stop: Stop) -> String {
    let why = match stop {
        Stop::There | Stop::Over => String::new(),
        Stop::Met(what) => format!("{what}\n"),
        Stop::Interrupted => "interrupted\n".into(),
    };
    why + &here(engine)
}

pub(super) fn here(engine: &Engine) -> String {
    match engine.over() {
        None => engine.here() + "\n",
        Some(over) => format!("{}\nthe run is over: {over}\n", engine.here()),
    }
}

fn set_break(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    if !rest.is_empty() {
        let condition = Condition::parse(rest)?;
        let text = condition.to_string();
        let number = engine.set_break(condition);
        return Ok(format!("breakpoint {number}: {text}\n"));
    }
    let mut text = String::new();
    for (number, condition) in engine.breaks() {
        let _ = writeln!(text, "breakpoint {number}: {condition}");
    }
    Ok(text)
}

// ---- views

/// The tasks that a query lists.
pub(super) fn rows(engine: &mut Engine, query: &Query) -> (Vec<Row>, Totals) {
    let now = engine.now();
    let tasks: Vec<TaskInfo> = engine.kernel().tasks().collect();
    let mut totals = Totals::of(&tasks, now);
    let entries = tasks.iter().map(Entry::of).collect();
    let recent = &engine.witness().recent;
    let rows = Rows::of(query, &tasks, entries, recent, &mut totals);
    (rows.collect(recent), totals)
}

fn waits(engine: &Engine) -> String {
    let Deadlock {
        blocked,
        cycles,
        tails,
        ..
    } = Deadlock::among(engine.kernel().tasks());
    let numbers = |tids: &Vec<Tid>| tids.iter().copied().map(u64::from).collect::<Vec<_>>();
    let recent = &engine.witness().recent;
    let line = |task| text::waits_line(&Row::of(task, recent));
    let lines = blocked.iter().map(line);
    let cycles = cycles.iter().map(|tids| text::cycle(&numbers(tids)));
    let tails = tails.iter().map(|tids| text::behind(&numbers(tids)));
    lines.chain(cycles).chain(tails).collect()
}

fn whereabouts(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    let tid = task(engine, rest)?;
    let tasks: Vec<TaskInfo> = engine.kernel().tasks().collect();
    if tasks.is_empty() && engine.over().is_some() {
        return Ok("all tasks have ended\n".into());
    }
    let found = model::whereabouts(&tasks, &engine.witness().recent, tid.into());
    let Some((chain, traps)) = found else {
        return Err(format!("there is no task {tid}; ps lists the tasks"));
    };
    let now = engine.now().as_secs_f64();
    let mut lines = text::where_lines(&chain, now);
    let mut found = tasks.iter().filter(|task| task.tid == tid);
    let is_blocked = found.any(|task| task.blocked_on().is_some());
    if let Some(place) = engine.kernel().place_of_call(tid).filter(|_| !is_blocked) {
        lines.push(format!("  its last call is at {place}"));
    }
    lines.extend(traps.iter().map(|trap| text::event(Log::PLAIN, trap)));
    Ok(lines.join("\n") + "\n")
}

fn queues(engine: &Engine) -> String {
    let columns = ["queue", "messages", "room for", "getters", "putters", ""];
    let row = |queue: QueueInfo| -> [Value; 6] {
        let capacity = queue.capacity.map_or("any".into(), Value::from);
        let closed = if queue.is_closed { "closed" } else { "" };
        [
            queue.thing.into(),
            queue.len.into(),
            capacity,
            queue.getters.into(),
            queue.putters.into(),
            closed.into(),
        ]
    };
    let rows: Vec<_> = engine.kernel().queues().map(row).collect();
    match rows.is_empty() {
        true => "there are no queues\n".into(),
        false => format!("{}\n", table(columns, &rows)),
    }
}

fn console(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    let lines = match rest {
        [] => usize::MAX,
        rest => whole(one(rest, "a number of lines")?)?,
    };
    let printed: Vec<&str> = engine.console().lines().collect();
    let from = printed.len().saturating_sub(lines);
    let line = |line: &&str| clean(&anstream::adapter::strip_str(line).to_string()) + "\n";
    Ok(printed[from..].iter().map(line).collect())
}

fn help() -> String {
    let mut text = String::new();
    for (name, short, args, what) in COMMANDS {
        let usage = format!("{name} {args}");
        let _ = writeln!(text, "{usage:<21} {short:<3} {what}");
    }
    text + "\
A CONDITION is a call such as recv, call for any, at TIME, end, fault, wake, spawn or print TEXT.
After each but a time, tid N selects one task. Without a TID, a command is about the task of the last
motion.
"
}

// ---- arguments

fn none(rest: &[&str]) -> Result<(), String> {
    match rest {
        [] => Ok(()),
        [word, ..] => Err(format!("it takes no '{word}'")),
    }
}

fn one<'a>(rest: &[&'a str], what: &str) -> Result<&'a str, String> {
    match rest {
        [word] => Ok(word),
        _ => Err(format!("it takes {what}")),
    }
}

fn count(rest: &[&str]) -> Result<u64, String> {
    match rest {
        [] => Ok(1),
        rest => whole(one(rest, "one number")?),
    }
}

/// The task of an argument, or the one that the last motion was about.
fn task(engine: &Engine, rest: &[&str]) -> Result<Tid, String> {
    match rest {
        [] => engine
            .subject()
            .ok_or_else(|| "no task has made a call: give a TID".into()),
        rest => whole::<u64>(one(rest, "the number of a task")?).map(Tid::from),
    }
}
