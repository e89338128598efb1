//! The commands: which there are, and what each does.

use std::{collections::BTreeSet, mem, rc::Rc};

use trapline::Journal;

use super::{
    db::{Db, Key, Outbox, leave},
    pattern::is_like,
};
use crate::resp::{
    MAX_REQUEST, array, error, integer, number, request, status, text, texts, value,
};

/// What the commands of a client have beside the database.
#[derive(Default)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    /// The requests between MULTI and EXEC: their number and their bytes.
    pub(super) queue: Option<(usize, Vec<u8>)>,
    pub(super) is_spoiled: bool,
    pub(super) watched: BTreeSet<Key>,
    pub(super) channels: BTreeSet<Key>,
    /// About the bytes of these three.
    pub(super) kept: usize,
    /// The subscribers that are to be told of messages.
    pub(super) told: Vec<Rc<Outbox>>,
    /// The replies.
    pub(super) out: Vec<u8>,
    /// Where that to the first change is.
    pub(super) change: Option<usize>,
    pub(super) stop: Option<Stop>,
}

/// Why no further request is answered.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stop {
    Quit,
    Shutdown,
}

/// A refusal takes the place of all that was written.
type Answer = Result<(), String>;

const SYNTAX: &str = "ERR syntax error";
const NO_NUMBER: &str = "ERR value is not an integer or out of range";

/// The most bytes of messages that wait for a subscriber, and of entries that wait to be written.
pub(super) const MAX_LETTERS: usize = 32 << 20;
pub(super) const MAX_PENDING: usize = 256 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    /// It changes keys.
    Write,
    /// The same, and may take memory.
    Grow,
    /// It is not queued by MULTI.
    Control,
    /// It concerns the client itself, and is refused in MULTI.
    Alone,
}
use Kind::{Alone, Control, Grow, Read, Write};

/// The commands of each kind that have so many words, or at least so many if that is negative. The most
/// frequent ones are found first.
const COMMANDS: [(Kind, i64, &[&str]); 19] = [
    (Read, -1, &["ping", "command", "info"]),
    (Read, 2, &["get"]),
    (Grow, -3, &["set", "mset"]),
    (Grow, 2, &["incr", "decr"]),
    (Read, 2, &["echo", "keys", "pttl", "strlen", "ttl", "type"]),
    (Grow, 3, &["append", "decrby", "incrby", "setnx"]),
    (Grow, 4, &["psetex", "setex"]),
    (Read, 1, &["bgrewriteaof", "dbsize", "unwatch"]),
    (Read, 3, &["publish"]),
    (Read, -2, &["client", "config", "exists", "mget", "scan"]),
    (Write, 2, &["persist"]),
    (Write, 3, &["expire", "pexpire"]),
    (Write, -1, &["flushall"]),
    (Write, -2, &["del", "unlink"]),
    (Control, 1, &["discard", "exec", "multi"]),
    (Control, -1, &["quit"]),
    (Control, -2, &["watch"]),
    (Alone, -1, &["shutdown", "unsubscribe"]),
    (Alone, -2, &["subscribe"]),
];

/// Its name, its number of words, its kind.
type Command = (&'static str, i64, Kind);

fn all() -> impl Iterator<Item = Command> {
    let rows = COMMANDS.iter();
    rows.flat_map(|(kind, arity, names)| names.iter().map(|name| (*name, *arity, *kind)))
}

fn find(word: &[u8]) -> Option<Command> {
    all().find(|(name, ..)| name.as_bytes().eq_ignore_ascii_case(word))
}

/// Answers a request, or queues it.
pub(super) fn answer(session: &mut Session, db: &mut Db, words: &[&[u8]]) {
    let (begin, before) = (session.out.len(), db.logged);
    let answer = match allowed(session, db, words) {
        Ok((_, _, kind)) if session.queue.is_some() && kind != Control => {
            keep(session, words);
            Ok(())
        }
        Ok((name, ..)) => run(session, db, name, &words[1..]),
        Err(refusal) => {
            session.is_spoiled = true;
            Err(refusal)
        }
    };
    if let Err(refusal) = answer {
        session.out.truncate(begin);
        error(&mut session.out, &refusal);
    }
    if db.logged != before {
        // That of EXEC is before those in it.
        session.change = Some(session.change.map_or(begin, |first| first.min(begin)));
    }
}

/// Finds the command of a request that may be carried out, or queued.
fn allowed(session: &mut Session, db: &Db, words: &[&[u8]]) -> Result<Command, String> {
    let command = find(words[0]).ok_or_else(|| {
        if are(&words[..1], &["post", "host:"]) {
            // A browser was made to send it: what follows is not from its user.
            session.stop = Some(Stop::Quit);
        }
        let name = String::from_utf8_lossy(&words[0][..words[0].len().min(128)]);
        format!("ERR unknown command '{}'", name.escape_debug())
    })?;
    let (name, arity, kind) = command;
    let is_for_subscriber = matches!(name, "subscribe" | "unsubscribe" | "ping" | "quit");
    let is_queued = session.queue.is_some() && kind != Control;
    let keeps = is_queued || matches!(name, "watch" | "subscribe");
    let count = words.len() as i64;
    if count != arity && (arity >= 0 || count < -arity) {
        return Err(wrong_number(name));
    } else if !session.channels.is_empty() && !is_for_subscriber {
        Err("ERR only (UN)SUBSCRIBE, PING and QUIT are allowed while subscribed")?;
    }
    may_change(db, kind)?;
    if keeps && session.kept > MAX_REQUEST {
        Err("OOM the server keeps no more for this client")?;
    } else if session.queue.is_some() && kind == Alone {
        Err("ERR this command is not allowed in a transaction")?;
    }
    Ok(command)
}

/// Refuses a command of a kind that changes keys while it may not.
fn may_change(db: &Db, kind: Kind) -> Answer {
    if !matches!(kind, Write | Grow) {
        return Ok(());
    }
    if let Some(why) = db.refused() {
        return Err(format!(
            "MISCONF the append-only file cannot be written: {why}"
        ));
    }
    // An entry may have the whole value of its key, whatever the command is.
    if db.log.as_ref().map_or(0, Journal::waiting) > MAX_PENDING {
        Err("OOM too many changes wait for the append-only file")?;
    }
    if kind == Grow && (1..db.bytes).contains(&db.limits.maxmemory) {
        Err("OOM command not allowed when used memory > 'maxmemory'.")?;
    }
    Ok(())
}

fn wrong_number(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Carries out the commands on keys.
fn run(session: &mut Session, db: &mut Db, name: &str, args: &[&[u8]]) -> Answer {
    let out = &mut session.out;
    match (name, args) {
        ("get", [key]) => value(out, db.value(key)),
        ("set", [key, new, options @ ..]) => set(db, out, name, (key, new), options)?,
        ("setex", [key, span, new]) => set(db, out, name, (key, new), &[b"ex", span])?,
        ("psetex", [key, span, new]) => set(db, out, name, (key, new), &[b"px", span])?,
        ("setnx", [key, _]) if db.get(key).is_some() => integer(out, 0),
        ("setnx", [key, new]) => {
            db.set(key, new, None);
            integer(out, 1);
        }
        ("incr", [key]) => add(db, out, key, 1)?,
        ("decr", [key]) => add(db, out, key, -1)?,
        ("incrby", [key, by]) => add(db, out, key, whole(by)?)?,
        ("decrby", [key, by]) => {
            let by = whole(by)?.checked_neg();
            add(db, out, key, by.ok_or(NO_NUMBER)?)?;
        }
        ("append", [key, more]) => {
            let new = [db.value(key).unwrap_or_default(), more].concat();
            if new.len() > MAX_REQUEST {
                Err("ERR string exceeds maximum allowed size")?;
            }
            db.set(key, &new, db.expires(key));
            integer(out, new.len());
        }
        ("strlen", [key]) => integer(out, db.value(key).map_or(0, <[u8]>::len)),
        ("mget", keys) => {
            array(out, keys.len());
            keys.iter().for_each(|key| value(out, db.value(key)));
        }
        ("mset", pairs) => {
            let (pairs, []) = pairs.as_chunks::<2>() else {
                return Err(wrong_number(name));
            };
            pairs.iter().for_each(|[key, new]| db.set(key, new, None));
            status(out, "OK");
        }
        ("del" | "unlink", keys) => {
            integer(out, keys.iter().filter(|key| db.remove(key)).count());
        }
        ("exists", keys) => {
            let found = keys.iter().filter(|key| db.get(key).is_some());
            integer(out, found.count());
        }
        ("expire", [key, span]) => expire(db, out, key, Some(instant(db, name, span, 1000)?)),
        ("pexpire", [key, span]) => expire(db, out, key, Some(instant(db, name, span, 1)?)),
        ("persist", [key]) if db.expires(key).is_none() => integer(out, 0),
        ("persist", [key]) => expire(db, out, key, None),
        ("ttl", [key]) => integer(out, left(db, key, 1000)),
        ("pttl", [key]) => integer(out, left(db, key, 1)),
        ("type", [key]) => status(out, db.get(key).map_or("none", |_| "string")),
        ("dbsize", _) => integer(out, db.entries.len()),
        ("flushall", [] | [_]) if are(args, &["async", "sync"]) => {
            db.clear();
            status(out, "OK");
        }
        ("flushall", _) => Err(SYNTAX)?,
        ("keys", [pattern]) => {
            let like = db.entries.keys().filter(|key| is_like(pattern, key));
            let found: Vec<_> = like.filter(|key| db.get(key).is_some()).collect();
            values(out, &found);
        }
        ("scan", [from, options @ ..]) => scan(db, out, from, options)?,
        _ => return run_other(session, db, name, args),
    }
    Ok(())
}

/// Carries out the commands of transactions and messages.
fn run_other(session: &mut Session, db: &mut Db, name: &str, args: &[&[u8]]) -> Answer {
    let out = &mut session.out;
    match (name, args) {
        ("ping", []) if session.channels.is_empty() => status(out, "PONG"),
        ("ping", []) => texts(out, &[b"pong", b""]),
        ("ping", [message]) if session.channels.is_empty() => text(out, message),
        ("ping", [message]) => texts(out, &[b"pong", message]),
        ("echo", [message]) => text(out, message),
        ("multi", _) if session.queue.is_some() => Err("ERR MULTI calls can not be nested")?,
        ("multi", _) => {
            (session.queue, session.is_spoiled) = (Some((0, Vec::new())), false);
            status(out, "OK");
        }
        ("exec", _) => exec(session, db)?,
        ("discard", _) => {
            session.queue.take().ok_or("ERR DISCARD without MULTI")?;
            unwatch(session, db);
            status(&mut session.out, "OK");
        }
        ("watch", _) if session.queue.is_some() => Err("ERR WATCH inside MULTI is not allowed")?,
        ("watch", keys) => watch(session, db, keys),
        ("unwatch", _) => {
            unwatch(session, db);
            status(&mut session.out, "OK");
        }
        ("subscribe", names) => subscribe(session, db, names),
        ("unsubscribe", names) => unsubscribe(session, db, names),
        ("publish", [channel, message]) => publish(session, db, channel, message),
        _ => return about(session, db, name, args),
    }
    Ok(())
}

/// Carries out the commands about the server, and the connection to it.
fn about(session: &mut Session, db: &Db, name: &str, args: &[&[u8]]) -> Answer {
    let out = &mut session.out;
    match (name, args) {
        ("quit", _) => {
            session.stop = Some(Stop::Quit);
            status(out, "OK");
        }
        ("shutdown", _)
            if are(args, &["nosave", "save", "now", "force"]) && !saves_or_not(args) =>
        {
            session.stop = Some(Stop::Shutdown);
            status(out, "OK");
        }
        ("shutdown", _) => Err(SYNTAX)?,
        ("bgrewriteaof", _) => {
            let none = "ERR there is no append-only file: see --aof";
            db.log.as_ref().ok_or(none)?.rewrite();
            status(out, "Background append only file rewriting started");
        }
        ("info", _) => {
            let line = |(name, value)| format!("{name}:{value}\r\n");
            text(out, db.facts().map(line).concat().as_bytes());
        }
        ("config", [what, ..]) if !is(what, "get") => {
            Err("ERR only CONFIG GET is here: the options of the command line set the rest")?;
        }
        ("config", [_]) => return Err(wrong_number("config|get")),
        ("config", [_, asked @ ..]) => {
            let is_asked = |name: &str| asked.iter().any(|asked| is_like(asked, name.as_bytes()));
            let facts = db.facts();
            let settings = facts[..Db::SETTINGS].iter();
            let found = settings.filter(|(name, _)| is_asked(name));
            let found = found.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
            texts(out, &found.collect::<Vec<_>>());
        }
        ("client", [what]) if is(what, "id") => integer(out, session.id),
        ("client", [what]) if is(what, "getname") => {
            value(out, Some(&*session.name).filter(|name| !name.is_empty()));
        }
        ("client", [what, _, _]) if is(what, "setinfo") => status(out, "OK"),
        ("client", [what, name]) if is(what, "setname") => {
            if !name.iter().all(u8::is_ascii_graphic) {
                Err("ERR a name has no blanks and no special characters")?;
            }
            session.name = name.to_vec();
            status(out, "OK");
        }
        ("client", [what, ..]) if !are(&[what], &["id", "getname", "setinfo", "setname"]) => {
            Err("ERR only CLIENT ID, GETNAME, SETNAME and SETINFO are here")?;
        }
        ("client", [what, ..]) => {
            let what = String::from_utf8_lossy(what).to_lowercase();
            return Err(wrong_number(&format!("client|{what}")));
        }
        ("command", []) => {
            array(out, all().count());
            for (name, arity, _) in all() {
                array(out, 2);
                text(out, name.as_bytes());
                integer(out, arity);
            }
        }
        ("command", [what, ..]) if is(what, "count") => integer(out, all().count()),
        ("command", [what, ..]) if is(what, "docs") => array(out, 0),
        ("command", _) => Err("ERR only COMMAND, COMMAND COUNT and COMMAND DOCS are here")?,
        _ => return Err(wrong_number(name)),
    }
    Ok(())
}

// ---- keys

/// Reads a number as this server writes it.
fn whole(word: &[u8]) -> Result<i64, &'static str> {
    let is_padded = word.len() > 1 && word.starts_with(b"0") || word.starts_with(b"-0");
    number(word).filter(|_| !is_padded).ok_or(NO_NUMBER)
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Whether the words contradict each other.
fn saves_or_not(words: &[&[u8]]) -> bool {
    let has = |name| words.iter().any(|word| is(word, name));
    has("save") && has("nosave")
}

/// Whether each of the words is one of these.
fn are(words: &[&[u8]], names: &[&str]) -> bool {
    let is_one = |word: &&[u8]| names.iter().any(|name| is(word, name));
    words.iter().all(is_one)
}

/// The instant so many units from now on, for the command of this name.
fn instant(db: &Db, name: &str, span: &[u8], unit: i64) -> Result<u64, String> {
    let span = whole(span)?.checked_mul(unit);
    let at = span.and_then(|span| span.checked_add(db.now as i64));
    Ok(at.ok_or_else(|| wrong_time(name))?.max(0) as u64)
}

fn wrong_time(name: &str) -> String {
    format!("ERR invalid expire time in '{name}' command")
}

/// How many units are left to a key.
fn left(db: &Db, key: &[u8], unit: u64) -> i64 {
    match db.get(key).map(|entry| entry.expires) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => ((at - db.now + unit / 2) / unit) as i64,
    }
}

/// Sets when a key expires. The entry of the log says all about a key, so its value is set again.
fn expire(db: &mut Db, out: &mut Vec<u8>, key: &[u8], at: Option<u64>) {
    let value = db.value(key).map(<[u8]>::to_vec);
    match &value {
        // A clock that steps back does not bring it back.
        Some(_) if at.is_some_and(|at| at <= db.now) => drop(db.remove(key)),
        Some(value) => db.set(key, value, at),
        None => (),
    }
    integer(out, u8::from(value.is_some()));
}

/// Adds to the number of a key.
fn add(db: &mut Db, out: &mut Vec<u8>, key: &[u8], by: i64) -> Answer {
    let entry = db.get(key);
    let old = entry.map_or(Ok(0), |entry| whole(&entry.value))?;
    let sum = old.checked_add(by);
    let sum = sum.ok_or("ERR increment or decrement would overflow")?;
    let expires = entry.and_then(|entry| entry.expires);
    db.set(key, itoa::Buffer::new().format(sum).as_bytes(), expires);
    integer(out, sum);
    Ok(())
}

fn set(
    db: &mut Db,
    out: &mut Vec<u8>,
    name: &str,
    (key, new): (&[u8], &[u8]),
    options: &[&[u8]],
) -> Answer {
    let (mut expires, mut only_if, mut gets, mut keeps) = (None, None, false, false);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match &*option.to_ascii_lowercase() {
            b"nx" if only_if != Some(true) => only_if = Some(false),
            b"xx" if only_if != Some(false) => only_if = Some(true),
            b"get" => gets = true,
            b"keepttl" if expires.is_none() => keeps = true,
            unit @ (b"ex" | b"px") if expires.is_none() && !keeps => {
                let span = options.next().ok_or(SYNTAX)?;
                let at = instant(db, name, span, if unit == b"ex" { 1000 } else { 1 })?;
                expires = Some(at).filter(|at| *at > db.now);
                expires.ok_or_else(|| wrong_time(name))?;
            }
            _ => Err(SYNTAX)?,
        }
    }
    let is_refused = only_if.is_some_and(|there| there != db.get(key).is_some());
    match is_refused {
        _ if gets => value(out, db.value(key)),
        true => value(out, None),
        false => status(out, "OK"),
    }
    if !is_refused {
        let expires = if keeps { db.expires(key) } else { expires };
        db.set(key, new, expires);
    }
    Ok(())
}

fn scan(db: &Db, out: &mut Vec<u8>, from: &[u8], options: &[&[u8]]) -> Answer {
    let from = number(from).and_then(|from| u64::try_from(from).ok());
    let from = from.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut most): (&[u8], _) = (b"*", 10);
    let (options, []) = options.as_chunks::<2>() else {
        return Err(SYNTAX.into());
    };
    for [name, value] in options {
        match &*name.to_ascii_lowercase() {
            b"match" => pattern = value,
            b"count" => most = Some(whole(value)?).filter(|most| *most > 0).ok_or(SYNTAX)?,
            _ => Err(SYNTAX)?,
        }
    }
    let (next, mut found) = db.scan(from, most.min(10_000) as usize);
    found.retain(|key| is_like(pattern, key));
    array(out, 2);
    text(out, itoa::Buffer::new().format(next).as_bytes());
    values(out, &found);
    Ok(())
}

fn values(out: &mut Vec<u8>, all: &[&Key]) {
    array(out, all.len());
    all.iter().for_each(|one| value(out, Some(one)));
}

// ---- transactions

fn watch(session: &mut Session, db: &mut Db, keys: &[&[u8]]) {
    for key in keys {
        db.expire_one(key);
        session.kept += key.len() + 64;
        let key: Key = (*key).into();
        // A second WATCH hides no change since the first.
        if session.watched.insert(Rc::clone(&key)) {
            db.watched.entry(key).or_default().insert(session.id);
        }
    }
    status(&mut session.out, "OK");
}

fn unwatch(session: &mut Session, db: &mut Db) {
    let keys = mem::take(&mut session.watched);
    leave(&mut db.watched, session.id, &keys);
    session.kept = 0;
}

/// Keeps a request for EXEC.
fn keep(session: &mut Session, words: &[&[u8]]) {
    let (count, requests) = session.queue.get_or_insert_default();
    let before = requests.len();
    texts(requests, words);
    session.kept += requests.len() - before;
    *count += 1;
    status(&mut session.out, "QUEUED");
}

fn exec(session: &mut Session, db: &mut Db) -> Answer {
    let queue = session.queue.take();
    let (count, requests) = queue.ok_or("ERR EXEC without MULTI")?;
    let is_changed = session.watched.iter().any(|key| {
        db.expire_one(key);
        let unaware = db.watched.get(key);
        unaware.is_none_or(|clients| !clients.contains(&session.id))
    });
    unwatch(session, db);
    if session.is_spoiled {
        Err("EXECABORT Transaction discarded because of previous errors.")?;
    }
    if is_changed {
        session.out.extend_from_slice(b"*-1\r\n");
        return Ok(());
    }
    array(&mut session.out, count);
    let (mut rest, mut words) = (&*requests, Vec::new());
    while let Ok(len) = request(rest, &mut words) {
        rest = &rest[len..];
        answer(session, db, &words);
    }
    Ok(())
}

// ---- messages

fn subscribe(session: &mut Session, db: &mut Db, names: &[&[u8]]) {
    for name in names {
        let channel: Key = (*name).into();
        let subscribers = db.channels.entry(Rc::clone(&channel));
        subscribers.or_default().insert(session.id);
        session.channels.insert(channel);
        session.kept += name.len() + 256;
        told(session, b"subscribe", Some(name));
    }
}

fn unsubscribe(session: &mut Session, db: &mut Db, names: &[&[u8]]) {
    let channels: Vec<Key> = match names {
        [] => session.channels.iter().cloned().collect(),
        names => names.iter().map(|name| Key::from(*name)).collect(),
    };
    leave(&mut db.channels, session.id, &channels);
    for channel in &channels {
        session.channels.remove(channel);
        told(session, b"unsubscribe", Some(channel));
    }
    if channels.is_empty() {
        told(session, b"unsubscribe", None);
    }
    if session.channels.is_empty() {
        session.kept = 0;
    }
}

fn told(session: &mut Session, what: &[u8], channel: Option<&[u8]>) {
    let out = &mut session.out;
    array(out, 3);
    text(out, what);
    value(out, channel);
    integer(out, session.channels.len());
}

/// Gives a message to the subscribers of a channel. The reply is their number.
fn publish(session: &mut Session, db: &Db, channel: &[u8], message: &[u8]) {
    let before = session.told.len();
    for id in db.channels.get(channel).into_iter().flatten() {
        let outbox = &db.clients[id];
        outbox.letters.update(|letters| {
            // A subscriber with more is about to be disconnected.
            if letters.len() <= MAX_LETTERS {
                texts(letters, &[b"message", channel, message]);
            }
        });
        session.told.push(Rc::clone(outbox));
    }
    integer(&mut session.out, session.told.len() - before);
}
