//! The commands of a debugger, one a line, and their answers as text.

use std::fmt::Write;

use serde_json::Value;
use trapline::{Deadlock, Nanos, QueueInfo, TaskInfo, Tid};

use super::{
    condition::{self, Condition},
    engine::{Engine, Stop},
};
use crate::{
    live::{
        model::{self, Rows},
        query::{Entry, Query},
        row::{Row, Totals},
        text,
    },
    output::{Log, clean},
    signals,
    table::table,
    values::{among, whole},
};

/// The commands, a line each: with its arguments, the short form, and what it does.
const COMMANDS: &str = "\
step [N]              s   make the next call, or N calls
turn [N]              t   go on to the end of the turn
next [TID]            n   go on to the next call of the task
continue              c   go on to a breakpoint or the end
until CONDITION       u   go on to this condition
back [N]              b   go back by one call, or N calls
back CONDITION        b   go back to where it was last met
back wake [tid N]         go back to the task's last wake-up
back spawn [tid N]        go back to where the task was spawned
goto N                g   go to the place #N; #0 is the start
break [CONDITION]     br  stop there; without one, list the breakpoints
delete N              d   remove a breakpoint
here                  h   the place in the run: the last call
ps                        the tasks
tree                      the tasks, as a tree of parents
waits                     what blocked tasks wait for, and their cycles
where [TID]           w   a task: its wait, its source lines, its last calls
queues                q   the queues, and how many messages they hold
console [N]           p   what was printed so far, or its last N lines
help                  ?   this list
quit                      leave
";

/// How many letters of a line are for the command and its arguments.
const USAGE: usize = 22;

/// The result of a command.
pub(super) enum Done {
    /// Where a motion has ended.
    Moved(String),
    Text(String),
    Quit,
}

/// Performs a command. An error says what is wrong with it.
pub(super) fn perform(engine: &mut Engine, line: &str) -> Result<Done, String> {
    let answer = answer(engine, line);
    // One that came too late to stop a motion is not for what follows.
    signals::take();
    answer
}

fn answer(engine: &mut Engine, line: &str) -> Result<Done, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some((&name, rest)) = words.split_first() else {
        return Ok(Done::Text(String::new()));
    };
    let text = match command(name)? {
        name @ ("step" | "turn" | "next" | "continue" | "until") => {
            return forward(engine, name, rest).map(Done::Moved);
        }
        "back" => return back(engine, rest).map(Done::Moved),
        "goto" => return go_to(engine, rest).map(Done::Moved),
        "break" => set_break(engine, rest)?,
        "delete" => delete(engine, rest)?,
        "where" => whereabouts(engine, rest)?,
        "console" => console(engine, rest)?,
        name => {
            none(rest)?;
            match name {
                "here" => here(engine),
                "ps" => ps(engine),
                "tree" => tree(engine),
                "waits" => waits(engine),
                "queues" => queues(engine),
                "help" => help(),
                _ => return Ok(Done::Quit),
            }
        }
    };
    Ok(Done::Text(text))
}

/// The command of this name or short form.
fn command(name: &str) -> Result<&'static str, String> {
    let line = |line: &'static str| {
        let (usage, rest) = line.split_at(USAGE);
        let first = |text: &'static str| text.split(' ').next().unwrap_or_default();
        (first(usage), first(rest))
    };
    let all: Vec<(&str, &str)> = COMMANDS.lines().map(line).collect();
    if let Some((found, _)) = all.iter().find(|(_, short)| *short == name) {
        return Ok(found);
    }
    let found = among("command", name, &all, |(name, _)| (*name).into());
    let found = found.map(|(name, _)| name);
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
            return until(engine, &Condition::call_of(task));
        }
        "until" => return until(engine, &Condition::parse(rest)?),
        _ => {
            none(rest)?;
            engine.forward_to(None)
        }
    };
    Ok(moved(engine, stop))
}

/// Goes on to a condition, and says if the run ends without it. An error says that it is behind.
fn until(engine: &mut Engine, condition: &Condition) -> Result<String, String> {
    if let Some(tid) = condition.task()
        && let Some(end) = engine.witness().ended.get(&tid)
    {
        return Err(format!(
            "the task has ended ({end}): back {condition} goes there"
        ));
    }
    let at = engine.witness().at;
    if condition.time().is_some_and(|time| time <= at) {
        let at = Nanos::from(at);
        return Err(format!(
            "it is {at:.6} already: back {condition} goes there"
        ));
    }
    let stop = engine.forward_to(Some(condition));
    let has_missed = stop == Stop::Over;
    let text = moved(engine, stop);
    Ok(match has_missed {
        true => format!("{condition} was not met\n{text}"),
        false => text,
    })
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

fn delete(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    let number = one(rest, "the number of a breakpoint")?;
    match engine.remove_break(whole(number)?) {
        true => Ok(String::new()),
        false => Err(format!("there is no breakpoint {number}")),
    }
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

fn ps(engine: &mut Engine) -> String {
    let (rows, totals) = rows(engine, &Query::default());
    text::ps(&rows, &totals, "")
}

fn tree(engine: &mut Engine) -> String {
    let query = Query {
        tree: true,
        ..Query::default()
    };
    let (rows, totals) = rows(engine, &query);
    text::tree(&rows, &totals)
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
    if let Some(end) = engine.witness().ended.get(&tid) {
        return Ok(format!("{end}\nback end tid {tid} goes there\n"));
    }
    let found = model::whereabouts(&tasks, &engine.witness().recent, tid.into());
    let Some((chain, traps)) = found else {
        return Err(match tid <= engine.witness().newest {
            true => format!("task {tid} ended long ago: back end tid {tid} goes there"),
            false => format!("there is no task {tid}; ps lists the tasks"),
        });
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
    COMMANDS.to_string()
        + "\
A CONDITION is a call such as recv, call for any, at TIME, end, fault, wake,
spawn or print TEXT. After each but a time, tid N selects one task. Without a
TID, a command is about the task of the last motion. A call with ... blocks.
One with = ? has no reply so far.
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
        rest => condition::tid(one(rest, "the number of a task")?),
    }
}
