//! The commands: which there are, and what each does.

use std::{borrow::Cow, collections::BTreeSet, rc::Rc};

use trapline::Journal;

use super::{
    db::{Db, Key, Outbox},
    pattern::is_like,
};
use crate::resp::{
    MAX_REQUEST, array, error, integer, number, request, status, text, texts, value,
};

/// A command under way.
pub(super) struct Call<'a> {
    pub(super) db: &'a mut Db,
    pub(super) session: &'a mut Session,
    pub(super) words: &'a [&'a [u8]],
    pub(super) out: &'a mut Vec<u8>,
}

/// What the commands of a client have beside the database.
#[derive(Default)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    /// The requests between MULTI and EXEC: their number and their bytes.
    pub(super) queue: Option<(usize, Vec<u8>)>,
    pub(super) is_spoiled: bool,
    /// The keys that it watches, and the last change of each before.
    pub(super) watched: Vec<(Vec<u8>, u64)>,
    pub(super) channels: BTreeSet<Key>,
    /// About the bytes of these three.
    pub(super) kept: usize,
    /// The subscribers that are to be told of messages.
    pub(super) told: Vec<Rc<Outbox>>,
    pub(super) stop: Option<Stop>,
}

impl Session {
    fn unwatch(&mut self) {
        self.watched.clear();
        self.kept = 0;
    }
}

/// Why no further request is answered.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stop {
    Quit,
    Shutdown,
}

/// A refusal takes the place of all that was written.
type Answer = Result<(), Cow<'static, str>>;

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
const COMMANDS: [(Kind, i64, &[&str]); 18] = [
    (Read, -1, &["ping", "command", "info"]),
    (Read, 2, &["get"]),
    (Grow, -3, &["set", "mset"]),
    (Grow, 2, &["incr", "decr"]),
    (Read, 2, &["echo", "keys", "pttl", "strlen", "ttl", "type"]),
    (Grow, 3, &["append", "decrby", "incrby", "setnx"]),
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
pub(super) fn answer(call: &mut Call<'_>) {
    let begin = call.out.len();
    let answer = match allowed(call) {
        Ok((_, _, kind)) if call.session.queue.is_some() && kind != Control => {
            keep(call.session, call.words);
            status(call.out, "QUEUED");
            Ok(())
        }
        Ok((name, ..)) => run(call, name, &call.words[1..]),
        Err(refusal) => {
            call.session.is_spoiled = true;
            Err(refusal)
        }
    };
    if let Err(refusal) = answer {
        call.out.truncate(begin);
        error(call.out, &refusal);
    }
}

/// Finds the command of a call that may be carried out, or queued.
fn allowed(call: &mut Call<'_>) -> Result<Command, Cow<'static, str>> {
    let (db, session, words) = (&*call.db, &mut *call.session, call.words);
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
    let refusal = if count != arity && (arity >= 0 || count < -arity) {
        return Err(wrong_number(name));
    } else if !session.channels.is_empty() && !is_for_subscriber {
        "ERR only (UN)SUBSCRIBE, PING and QUIT are allowed while subscribed"
    } else if let Err(refusal) = may_change(db, kind) {
        return Err(refusal);
    } else if keeps && session.kept > MAX_REQUEST {
        "OOM the server keeps no more for this client"
    } else if session.queue.is_some() && kind == Alone {
        "ERR this command is not allowed in a transaction"
    } else {
        return Ok(command);
    };
    Err(refusal.into())
}

/// Refuses a command of a kind that changes keys while it may not.
fn may_change(db: &Db, kind: Kind) -> Result<(), Cow<'static, str>> {
    if !matches!(kind, Write | Grow) {
        return Ok(());
    }
    if let Some(why) = db.refused() {
        return Err(format!("MISCONF the append-only file cannot be written: {why}").into());
    }
    // An entry may have the whole value of its key, whatever the command is.
    if db.log.as_ref().map_or(0, Journal::waiting) > MAX_PENDING {
        return Err("OOM too many changes wait for the append-only file".into());
    }
    if kind == Grow && (1..db.bytes).contains(&db.limits.maxmemory) {
        return Err("OOM command not allowed when used memory > 'maxmemory'.".into());
    }
    Ok(())
}

fn wrong_number(name: &str) -> Cow<'static, str> {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// Carries out the commands on keys.
fn run(call: &mut Call<'_>, name: &str, args: &[&[u8]]) -> Answer {
    let Call { db, out, .. } = call;
    match (name, args) {
        ("get", [key]) => value(out, db.value(key)),
        ("set", [key, new, options @ ..]) => set(db, out, (key, new), options)?,
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
                return Err("ERR string exceeds maximum allowed size".into());
            }
            db.set(key, &new, db.expires(key));
            integer(out, new.len() as i64);
        }
        ("strlen", [key]) => integer(out, db.value(key).map_or(0, <[u8]>::len) as i64),
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
            let removed = keys.iter().filter(|key| db.remove(key));
            integer(out, removed.count() as i64);
        }
        ("exists", keys) => {
            let found = keys.iter().filter(|key| db.get(key).is_some());
            integer(out, found.count() as i64);
        }
        ("expire", [key, span]) => expire(db, out, key, Some(instant(db, span, 1000)?)),
        ("pexpire", [key, span]) => expire(db, out, key, Some(instant(db, span, 1)?)),
        ("persist", [key]) if db.expires(key).is_none() => integer(out, 0),
        ("persist", [key]) => expire(db, out, key, None),
        ("ttl", [key]) => integer(out, left(db, key, 1000)),
        ("pttl", [key]) => integer(out, left(db, key, 1)),
        ("type", [key]) => status(out, db.get(key).map_or("none", |_| "string")),
        ("dbsize", _) => integer(out, db.entries.len() as i64),
        ("flushall", [] | [_]) if are(args, &["async", "sync"]) => {
            db.clear();
            status(out, "OK");
        }
        ("keys", [pattern]) => {
            let like = db.entries.keys().filter(|key| is_like(pattern, key));
            let found: Vec<_> = like.filter(|key| db.get(key).is_some()).collect();
            values(out, &found);
        }
        ("scan", [from, options @ ..]) => scan(db, out, from, options)?,
        _ => return run_other(call, name, args),
    }
    Ok(())
}

/// Carries out the other commands.
fn run_other(call: &mut Call<'_>, name: &str, args: &[&[u8]]) -> Answer {
    let Call {
        db, session, out, ..
    } = call;
    match (name, args) {
        ("ping", []) if session.channels.is_empty() => status(out, "PONG"),
        ("ping", []) => texts(out, &[b"pong", b""]),
        ("ping", [message]) if session.channels.is_empty() => text(out, message),
        ("ping", [message]) => texts(out, &[b"pong", message]),
        ("echo", [message]) => text(out, message),
        ("multi", _) if session.queue.is_some() => {
            return Err("ERR MULTI calls can not be nested".into());
        }
        ("multi", _) => {
            (session.queue, session.is_spoiled) = (Some((0, Vec::new())), false);
            status(out, "OK");
        }
        ("exec", _) => exec(call)?,
        ("discard", _) => {
            session.queue.take().ok_or("ERR DISCARD without MULTI")?;
            session.unwatch();
            status(out, "OK");
        }
        ("watch", _) if session.queue.is_some() => {
            return Err("ERR WATCH inside MULTI is not allowed".into());
        }
        ("watch", keys) => {
            for key in keys {
                session.watched.push((key.to_vec(), db.version(key)));
                session.kept += key.len() + 64;
            }
            status(out, "OK");
        }
        ("unwatch", _) => {
            session.unwatch();
            status(out, "OK");
        }
        ("subscribe", names) => subscribe(call, names),
        ("unsubscribe", names) => unsubscribe(call, names),
        ("publish", [channel, message]) => integer(out, publish(db, session, channel, message)),
        ("quit", _) => {
            session.stop = Some(Stop::Quit);
            status(out, "OK");
        }
        ("shutdown", [] | [_]) if are(args, &["nosave", "save", "now", "force"]) => {
            session.stop = Some(Stop::Shutdown);
            status(out, "OK");
        }
        ("bgrewriteaof", _) => {
            let none = "ERR there is no append-only file: see --aof";
            db.log.as_ref().ok_or(none)?.rewrite();
            status(out, "Background append only file rewriting started");
        }
        ("config", [get, names @ ..]) => config(db, out, get, names)?,
        ("info", _) => {
            let line = |(name, value)| format!("{name}:{value}\r\n");
            text(out, db.facts().map(line).concat().as_bytes());
        }
        ("client", [what, args @ ..]) => client(session, out, what, args)?,
        ("command", args) => list(out, args)?,
        ("flushall" | "shutdown", _) => return Err(SYNTAX.into()),
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

/// Whether each of the words is one of these.
fn are(words: &[&[u8]], names: &[&str]) -> bool {
    let is_one = |word: &[u8]| {
        names
            .iter()
            .any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    words.iter().all(|word| is_one(word))
}

/// The instant so many units from now on.
fn instant(db: &Db, span: &[u8], unit: i64) -> Result<u64, &'static str> {
    let span = whole(span)?.checked_mul(unit);
    let at = span.and_then(|span| span.checked_add(db.now as i64));
    Ok(at.ok_or("ERR invalid expire time")?.max(0) as u64)
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
    if let Some(value) = &value {
        db.set(key, value, at);
    }
    integer(out, value.is_some().into());
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

fn set(db: &mut Db, out: &mut Vec<u8>, (key, new): (&[u8], &[u8]), options: &[&[u8]]) -> Answer {
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
                let at = instant(db, span, if unit == b"ex" { 1000 } else { 1 })?;
                expires = Some(at).filter(|at| *at > db.now);
                expires.ok_or("ERR invalid expire time in 'set' command")?;
            }
            _ => return Err(SYNTAX.into()),
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
            b"count" => most = number(value).filter(|most| *most > 0).ok_or(NO_NUMBER)?,
            _ => return Err(SYNTAX.into()),
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

/// Keeps a request for EXEC.
fn keep(session: &mut Session, words: &[&[u8]]) {
    let (count, requests) = session.queue.get_or_insert_default();
    let before = requests.len();
    texts(requests, words);
    session.kept += requests.len() - before;
    *count += 1;
}

fn exec(call: &mut Call<'_>) -> Answer {
    let queue = call.session.queue.take();
    let (count, requests) = queue.ok_or("ERR EXEC without MULTI")?;
    let mut watched = call.session.watched.iter();
    let is_changed = watched.any(|(key, version)| call.db.version(key) != *version);
    call.session.unwatch();
    if call.session.is_spoiled {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    if is_changed {
        call.out.extend_from_slice(b"*-1\r\n");
        return Ok(());
    }
    array(call.out, count);
    let (mut rest, mut words) = (&*requests, Vec::new());
    while let Ok(len) = request(rest, &mut words) {
        rest = &rest[len..];
        answer(&mut Call {
            db: call.db,
            session: call.session,
            words: &words,
            out: call.out,
        });
    }
    Ok(())
}

// ---- messages

fn subscribe(call: &mut Call<'_>, names: &[&[u8]]) {
    for name in names {
        let channel: Key = (*name).into();
        let subscribers = call.db.channels.entry(Rc::clone(&channel));
        subscribers.or_default().insert(call.session.id);
        call.session.channels.insert(channel);
        call.session.kept += name.len() + 256;
        told(call, b"subscribe", Some(name));
    }
}

fn unsubscribe(call: &mut Call<'_>, names: &[&[u8]]) {
    let channels: Vec<Key> = match names {
        [] => call.session.channels.iter().cloned().collect(),
        names => names.iter().map(|name| Key::from(*name)).collect(),
    };
    for channel in &channels {
        call.db.unsubscribe(call.session.id, channel);
        call.session.channels.remove(channel);
        told(call, b"unsubscribe", Some(channel));
    }
    if channels.is_empty() {
        told(call, b"unsubscribe", None);
    }
    if call.session.channels.is_empty() {
        call.session.kept = 0;
    }
}

fn told(call: &mut Call<'_>, what: &[u8], channel: Option<&[u8]>) {
    array(call.out, 3);
    text(call.out, what);
    value(call.out, channel);
    integer(call.out, call.session.channels.len() as i64);
}

/// Gives a message to the subscribers of a channel. Returns their number.
fn publish(db: &Db, session: &mut Session, channel: &[u8], message: &[u8]) -> i64 {
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
    (session.told.len() - before) as i64
}

// ---- the server

fn config(db: &Db, out: &mut Vec<u8>, what: &[u8], asked: &[&[u8]]) -> Answer {
    if !what.eq_ignore_ascii_case(b"get") {
        let text = "ERR only CONFIG GET is here: the options of the command line set the rest";
        return Err(text.into());
    }
    if asked.is_empty() {
        return Err(wrong_number("config get"));
    }
    let facts = db.facts();
    let is_asked = |name: &str| asked.iter().any(|asked| is_like(asked, name.as_bytes()));
    let found = facts[..Db::SETTINGS]
        .iter()
        .filter(|(name, _)| is_asked(name));
    let found = found.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    texts(out, &found.collect::<Vec<_>>());
    Ok(())
}

fn client(session: &mut Session, out: &mut Vec<u8>, what: &[u8], args: &[&[u8]]) -> Answer {
    match (&*what.to_ascii_lowercase(), args) {
        (b"id", []) => integer(out, session.id as i64),
        (b"getname", []) => text(out, &session.name),
        (b"setname", [name]) if name.iter().all(u8::is_ascii_graphic) => {
            session.name = name.to_vec();
            status(out, "OK");
        }
        (b"setname", [_]) => {
            return Err("ERR a name has no blanks and no special characters".into());
        }
        (b"setinfo", [_, _]) => status(out, "OK"),
        (b"id" | b"getname" | b"setname" | b"setinfo", _) => return Err(wrong_number("client")),
        _ => return Err("ERR only CLIENT ID, GETNAME, SETNAME and SETINFO are here".into()),
    }
    Ok(())
}

fn list(out: &mut Vec<u8>, args: &[&[u8]]) -> Answer {
    let count = all().count();
    match args
        .first()
        .map(|word| word.to_ascii_lowercase())
        .as_deref()
    {
        None => {
            array(out, count);
            for (name, arity, _) in all() {
                array(out, 2);
                text(out, name.as_bytes());
                integer(out, arity);
            }
        }
        Some(b"count") => integer(out, count as i64),
        Some(b"docs") => array(out, 0),
        Some(_) => {
            return Err("ERR only COMMAND, COMMAND COUNT and COMMAND DOCS are here".into());
        }
    }
    Ok(())
}
