//! The commands of a debugger, one a line, and their answers as text.

use std::fmt::Write;

use serde_json::Value;
use trapline::{Nanos, QueueInfo, Tid};

use super::{
    condition::{self, Condition},
    engine::{Engine, Stop},
};
use crate::{
    live::{protocol::Request, query::Query, row::State, text},
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
    let name = command(name)?;
    let text = match name {
        "step" | "turn" | "next" | "continue" | "until" | "back" | "goto" => {
            return motion(engine, name, rest).map(Done::Moved);
        }
        "break" => set_break(engine, rest)?,
        "delete" => delete(engine, rest)?,
        "where" => whereabouts(engine, rest)?,
        "console" => console(engine, rest)?,
        name => {
            none(rest)?;
            match name {
                "here" => engine.here(),
                "ps" => text::ps(&engine.answer(&Request::Ps(Query::default()))?, ""),
                "tree" => {
                    let query = Query {
                        tree: true,
                        ..Query::default()
                    };
                    text::tree(&engine.answer(&Request::Ps(query))?)
                }
                "waits" => text::waits(&engine.answer(&Request::Waits {})?, usize::MAX),
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
    let words = |line: &'static str| {
        let (usage, rest) = line.split_at(USAGE);
        [usage, rest].map(|text| text.split(' ').next().unwrap_or_default())
    };
    let all: Vec<[&str; 2]> = COMMANDS.lines().map(words).collect();
    let found = match all.iter().find(|[_, short]| *short == name) {
        Some(found) => Ok(*found),
        None => among("command", name, &all, |[name, _]| name.to_string()),
    };
    found
        .map(|[name, _]| name)
        .map_err(|why| format!("{why} (help lists the commands)"))
}

// ---- motions

fn motion(engine: &mut Engine, name: &str, rest: &[&str]) -> Result<String, String> {
    if engine.run.over.is_some() && !["back", "goto"].contains(&name) {
        return Err("the run is over: only back, goto and the views go on".into());
    }
    let stop = match name {
        "step" => engine.forward(count(rest)?),
        "turn" => engine.forward_turns(count(rest)?),
        "next" => {
            let condition = Condition::of(task(engine, rest)?, "call")?;
            return until(engine, &condition);
        }
        "until" => return until(engine, &Condition::parse(rest)?),
        "goto" => {
            let place = one(rest, "a place such as #12")?;
            let place = place.strip_prefix('#').unwrap_or(place);
            engine.go_to(whole(place)?)?
        }
        "back" => back(engine, rest)?,
        _ => {
            none(rest)?;
            engine.forward_to(None)
        }
    };
    Ok(moved(engine, stop))
}

/// Goes on to a condition, and says if the run ends without it. An error says that it is behind.
fn until(engine: &mut Engine, condition: &Condition) -> Result<String, String> {
    if let Some(tid) = condition.task
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
    Ok(match engine.forward_to(Some(condition)) {
        Stop::Over => format!("{condition} was not met\n{}", engine.here()),
        stop => moved(engine, stop),
    })
}

fn back(engine: &mut Engine, rest: &[&str]) -> Result<Stop, String> {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let condition = match rest {
        [] => return back_by(engine, 1),
        [number] if is_number(number) => return back_by(engine, whole(number)?),
        [fact @ ("wake" | "spawn")] => Condition::of(task(engine, &[])?, fact)?,
        words => Condition::parse(words)?,
    };
    match engine.back_to(&condition)? {
        Stop::Over => Err(format!("{condition} was not met before")),
        stop => Ok(stop),
    }
}

fn back_by(engine: &mut Engine, calls: u64) -> Result<Stop, String> {
    let place = engine.run.calls.checked_sub(calls);
    let place = place.ok_or_else(|| format!("only {} calls were made before", engine.run.calls))?;
    engine.go_to(place)
}

/// Where a motion has ended, and why.
fn moved(engine: &Engine, stop: Stop) -> String {
    let why = match stop {
        Stop::There | Stop::Over => String::new(),
        Stop::Met(what) => format!("{what}\n"),
        Stop::Interrupted => "interrupted\n".into(),
    };
    why + &engine.here()
}

fn set_break(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    if !rest.is_empty() {
        let condition = Condition::parse(rest)?;
        let text = condition.to_string();
        let number = engine.set_break(condition);
        return Ok(format!("breakpoint {number}: {text}\n"));
    }
    let mut text = String::new();
    for (number, condition) in &engine.breaks {
        let _ = writeln!(text, "breakpoint {number}: {condition}");
    }
    Ok(text)
}

fn delete(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    let number = one(rest, "the number of a breakpoint")?;
    let wanted: usize = whole(number)?;
    let found = engine
        .breaks
        .iter()
        .position(|(number, _)| *number == wanted);
    let found = found.ok_or_else(|| format!("there is no breakpoint {number}"))?;
    engine.breaks.remove(found);
    Ok(String::new())
}

// ---- views

fn whereabouts(engine: &mut Engine, rest: &[&str]) -> Result<String, String> {
    let tid = task(engine, rest)?;
    if let Some(end) = engine.witness().ended.get(&tid) {
        return Ok(format!("{end}\nback end tid {tid} goes there\n"));
    }
    let Ok(all) = engine.answer(&Request::Where { tid }) else {
        return Err(match tid <= engine.witness().newest {
            true => format!("task {tid} ended long ago: back end tid {tid} goes there"),
            false => format!("there is no task {tid}; ps lists the tasks"),
        });
    };
    let mut lines = text::where_lines(&all.tasks, all.totals.at);
    let is_blocked = all.tasks[0].state == State::Blocked;
    if let Some(place) = engine.run.kernel.place_of_call(tid).filter(|_| !is_blocked) {
        lines.push(format!("  its last call is at {place}"));
    }
    lines.extend(all.traps.iter().map(|trap| text::event(Log::PLAIN, trap)));
    Ok(lines.join("\n") + "\n")
}

fn queues(engine: &Engine) -> String {
    let columns = ["queue", "messages", "room for", "getters", "putters", ""];
    let row = |queue: QueueInfo| -> [Value; 6] {
        [
            queue.thing.into(),
            queue.len.into(),
            queue.capacity.map_or("any".into(), Value::from),
            queue.getters.into(),
            queue.putters.into(),
            if queue.is_closed { "closed" } else { "" }.into(),
        ]
    };
    let rows: Vec<_> = engine.run.kernel.queues().map(row).collect();
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
        [] => {
            let subject = engine.run.subject;
            subject.ok_or_else(|| "no task has made a call: give a TID".into())
        }
        rest => condition::tid(one(rest, "the number of a task")?),
    }
}
