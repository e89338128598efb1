//! The commands: a table of their names, and a function for each that is more than a line.

use std::{borrow::Cow, rc::Rc};

use trapline::Journal;

use super::{
    pattern::is_like,
    resp::{MAX_REQUEST, array, error, integer, number, request, status, text, texts, value},
    state::{Db, Session, Stop},
    store::Entry,
};

/// Its name, how many words it has (at least so many if that is negative), its kind, its function.
type Command = (&'static str, i64, Kind, Run);
type Run = for<'a> fn(&'a mut Call<'_>, &mut Vec<u8>) -> Answer<'a>;

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

/// A command under way.
pub(super) struct Call<'a> {
    pub(super) db: &'a mut Db,
    pub(super) session: &'a mut Session,
    pub(super) words: &'a [&'a [u8]],
}

/// A reply, or a refusal that takes the place of all that was written.
type Answer<'a> = Result<Reply<'a>, Cow<'static, str>>;

enum Reply<'a> {
    Status(&'static str),
    Number(i64),
    Value(Option<&'a [u8]>),
    Written,
}
use Reply::{Number, Status, Value, Written};

const OK: Answer<'_> = Ok(Status("OK"));
const SYNTAX: &str = "ERR syntax error";
const NO_NUMBER: &str = "ERR value is not an integer or out of range";

/// The most bytes of messages that wait for a subscriber, and of entries that wait to be written.
pub(super) const MAX_LETTERS: usize = 32 << 20;
pub(super) const MAX_PENDING: usize = 256 << 20;

static COMMANDS: [Command; 41] = [
    ("append", 3, Grow, append),
    ("bgrewriteaof", 1, Read, rewrite),
    ("client", -2, Read, client),
    ("command", -1, Read, list),
    ("config", -3, Read, config),
    ("dbsize", 1, Read, |call, _| {
        count(call.db.store.entries.len())
    }),
    ("decr", 2, Grow, |call, _| call.add(-1)),
    ("decrby", 3, Grow, |call, _| {
        call.add(call.number(2)?.checked_neg().ok_or(NO_NUMBER)?)
    }),
    ("del", -2, Write, del),
    ("discard", 1, Control, discard),
    ("echo", 2, Read, |call, _| Ok(Value(Some(call.words[1])))),
    ("exec", 1, Control, exec),
    ("exists", -2, Read, exists),
    ("expire", 3, Write, |call, _| expire(call, 1000)),
    ("flushall", -1, Write, flush),
    ("get", 2, Read, |call, _| Ok(Value(call.value()))),
    ("incr", 2, Grow, |call, _| call.add(1)),
    ("incrby", 3, Grow, |call, _| call.add(call.number(2)?)),
    ("info", -1, Read, info),
    ("keys", 2, Read, keys),
    ("mget", -2, Read, mget),
    ("mset", -3, Grow, mset),
    ("multi", 1, Control, multi),
    ("persist", 2, Write, persist),
    ("pexpire", 3, Write, |call, _| expire(call, 1)),
    ("ping", -1, Read, ping),
    ("pttl", 2, Read, |call, _| call.left(1)),
    ("publish", 3, Read, publish),
    ("quit", -1, Control, |call, _| call.stop(Stop::Quit)),
    ("scan", -2, Read, scan),
    ("set", -3, Grow, set),
    ("setnx", 3, Grow, set_new),
    ("shutdown", -1, Alone, |call, _| call.stop(Stop::Shutdown)),
    ("strlen", 2, Read, |call, _| {
        count(call.value().map_or(0, <[u8]>::len))
    }),
    ("subscribe", -2, Alone, subscribe),
    ("ttl", 2, Read, |call, _| call.left(1000)),
    ("type", 2, Read, |call, _| {
        Ok(Status(call.value().map_or("none", |_| "string")))
    }),
    ("unlink", -2, Write, del),
    ("unsubscribe", -1, Alone, unsubscribe),
    ("unwatch", 1, Read, unwatch),
    ("watch", -2, Control, watch),
];

/// Answers a request, or queues it.
pub(super) fn answer(call: &mut Call<'_>, out: &mut Vec<u8>) {
    let begin = out.len();
    let answer = match allowed(call) {
        Ok((_, _, kind, _)) if call.session.queue.is_some() && *kind != Control => {
            keep(call.session, call.words);
            Ok(Status("QUEUED"))
        }
        Ok((_, _, _, run)) => run(call, out),
        Err(refusal) => {
            call.session.is_spoiled = true;
            Err(refusal)
        }
    };
    match answer {
        Ok(Status(line)) => status(out, line),
        Ok(Number(number)) => integer(out, number),
        Ok(Value(bytes)) => value(out, bytes),
        Ok(Written) => {}
        Err(refusal) => {
            out.truncate(begin);
            error(out, &refusal);
        }
    }
}

/// Finds the command of a call that may be carried out, or queued.
fn allowed(call: &Call<'_>) -> Result<&'static Command, Cow<'static, str>> {
    let (db, session, words) = (&call.db, &call.session, call.words);
    let command = find(words[0]).ok_or_else(|| {
        let name = String::from_utf8_lossy(&words[0][..words[0].len().min(128)]);
        format!("ERR unknown command '{}'", name.escape_debug())
    })?;
    let (name, arity, kind, _) = *command;
    let is_for_subscriber = matches!(name, "subscribe" | "unsubscribe" | "ping" | "quit");
    let is_queued = session.queue.is_some() && kind != Control;
    let keeps = is_queued || matches!(name, "watch" | "subscribe");
    let count = words.len() as i64;
    let refusal = if count != arity && (arity >= 0 || count < -arity) {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
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
    if kind == Grow && db.store.bytes > db.max_memory {
        return Err("OOM command not allowed when used memory > 'maxmemory'.".into());
    }
    Ok(())
}

fn find(word: &[u8]) -> Option<&'static Command> {
    let named = |command: &&Command| command.0.as_bytes().eq_ignore_ascii_case(word);
    COMMANDS.iter().find(named)
}

fn count(number: usize) -> Answer<'static> {
    Ok(Number(number as i64))
}

impl Call<'_> {
    fn entry(&self) -> Option<&Entry> {
        self.db.store.get(self.words[1])
    }

    fn value(&self) -> Option<&[u8]> {
        self.entry().map(|entry| &*entry.value)
    }

    fn expires(&self) -> Option<u64> {
        self.entry().and_then(|entry| entry.expires)
    }

    fn number(&self, word: usize) -> Result<i64, &'static str> {
        number(self.words[word]).ok_or(NO_NUMBER)
    }

    /// The instant so many units from now on.
    fn instant(&self, span: i64, unit: i64) -> Result<u64, &'static str> {
        let span = span.checked_mul(unit);
        let at = span.and_then(|span| span.checked_add(self.db.store.now as i64));
        at.map(|at| at.max(0) as u64)
            .ok_or("ERR invalid expire time")
    }

    /// Adds to the number of a key.
    fn add(&mut self, by: i64) -> Answer<'_> {
        let old = self.value().map_or(Some(0), number).ok_or(NO_NUMBER)?;
        let sum = old
            .checked_add(by)
            .ok_or("ERR increment or decrement would overflow")?;
        let expires = self.expires();
        let mut digits = itoa::Buffer::new();
        let value = digits.format(sum).as_bytes();
        self.db.set(self.words[1], value, expires);
        Ok(Number(sum))
    }

    /// How many units are left to the key.
    fn left(&self, unit: u64) -> Answer<'_> {
        let left = match self.entry().map(|entry| entry.expires) {
            None => -2,
            Some(None) => -1,
            Some(Some(at)) => ((at - self.db.store.now + unit / 2) / unit) as i64,
        };
        Ok(Number(left))
    }

    /// Sets when the key expires. The entry of the log says all about a key, so its value is set again.
    fn expire(&mut self, at: Option<u64>) -> Answer<'_> {
        let value = self.value().map(<[u8]>::to_vec);
        if let Some(value) = &value {
            self.db.set(self.words[1], value, at);
        }
        count(value.is_some().into())
    }

    fn stop(&mut self, stop: Stop) -> Answer<'_> {
        self.session.stop = Some(stop);
        OK
    }
}

// ---- values

fn set<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let (mut expires, mut only_if, mut gets, mut keeps) = (None, None, false, false);
    let mut options = call.words[3..].iter();
    while let Some(option) = options.next() {
        match &*option.to_ascii_lowercase() {
            b"nx" if only_if != Some(true) => only_if = Some(false),
            b"xx" if only_if != Some(false) => only_if = Some(true),
            b"get" => gets = true,
            b"keepttl" if expires.is_none() => keeps = true,
            unit @ (b"ex" | b"px") if expires.is_none() && !keeps => {
                let span = number(options.next().ok_or(SYNTAX)?).ok_or(NO_NUMBER)?;
                let at = call.instant(span, if unit == b"ex" { 1000 } else { 1 })?;
                expires = Some(at).filter(|_| span > 0);
                expires.ok_or("ERR invalid expire time in 'set' command")?;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let is_refused = only_if.is_some_and(|there| there != call.value().is_some());
    match is_refused {
        _ if gets => value(out, call.value()),
        true => value(out, None),
        false => status(out, "OK"),
    }
    if !is_refused {
        let expires = if keeps { call.expires() } else { expires };
        call.db.set(call.words[1], call.words[2], expires);
    }
    Ok(Written)
}

fn set_new<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    let is_new = call.value().is_none();
    if is_new {
        call.db.set(call.words[1], call.words[2], None);
    }
    count(is_new.into())
}

fn append<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    let value = [call.value().unwrap_or_default(), call.words[2]].concat();
    if value.len() > MAX_REQUEST {
        return Err("ERR string exceeds maximum allowed size".into());
    }
    let expires = call.expires();
    call.db.set(call.words[1], &value, expires);
    count(value.len())
}

fn mget<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    array(out, call.words.len() - 1);
    for key in &call.words[1..] {
        let entry = call.db.store.get(key);
        value(out, entry.map(|entry| &*entry.value));
    }
    Ok(Written)
}

fn mset<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    let (pairs, rest) = call.words[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err("ERR wrong number of arguments for 'mset' command".into());
    }
    for [key, value] in pairs {
        call.db.set(key, value, None);
    }
    OK
}

// ---- keys

fn del<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    let mut found = 0;
    for key in &call.words[1..] {
        found += usize::from(call.db.store.get(key).is_some());
        call.db.remove(key);
    }
    count(found)
}

fn exists<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    let keys = call.words[1..].iter();
    count(keys.filter(|key| call.db.store.get(key).is_some()).count())
}

fn expire<'a>(call: &'a mut Call<'_>, unit: i64) -> Answer<'a> {
    let at = call.instant(call.number(2)?, unit)?;
    call.expire(Some(at))
}

fn persist<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    match call.expires() {
        Some(_) => call.expire(None),
        None => count(0),
    }
}

fn flush<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    call.db.clear();
    OK
}

fn keys<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let store = &call.db.store;
    let mut found: Vec<&Rc<[u8]>> = store.entries.keys().collect();
    found.retain(|key| is_like(call.words[1], key) && store.get(key).is_some());
    values(out, &found)
}

fn scan<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let from = number(call.words[1]).and_then(|from| u64::try_from(from).ok());
    let from = from.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut most): (&[u8], _) = (b"*", 10);
    let (options, rest) = call.words[2..].as_chunks::<2>();
    for [name, value] in options {
        match &*name.to_ascii_lowercase() {
            b"match" => pattern = value,
            b"count" => most = number(value).filter(|most| *most > 0).ok_or(NO_NUMBER)?,
            _ => return Err(SYNTAX.into()),
        }
    }
    if !rest.is_empty() {
        return Err(SYNTAX.into());
    }
    let (next, mut found) = call.db.store.scan(from, most.min(10_000) as usize);
    found.retain(|key| is_like(pattern, key));
    array(out, 2);
    text(out, itoa::Buffer::new().format(next).as_bytes());
    values(out, &found)
}

fn values(out: &mut Vec<u8>, all: &[&Rc<[u8]>]) -> Answer<'static> {
    array(out, all.len());
    all.iter().for_each(|one| value(out, Some(one)));
    Ok(Written)
}

// ---- transactions

fn multi<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    if call.session.queue.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    call.session.queue = Some((0, Vec::new()));
    call.session.is_spoiled = false;
    OK
}

/// Keeps a request for EXEC.
fn keep(session: &mut Session, words: &[&[u8]]) {
    let (count, requests) = session.queue.get_or_insert_default();
    let before = requests.len();
    texts(requests, words);
    session.kept += requests.len() - before;
    *count += 1;
}

fn exec<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let queue = call.session.queue.take();
    let (count, requests) = queue.ok_or("ERR EXEC without MULTI")?;
    let mut watched = call.session.watched.iter();
    let is_changed = watched.any(|(key, version)| call.db.store.version(key) != *version);
    unwatch(call, out)?;
    if call.session.is_spoiled {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    if is_changed {
        out.extend_from_slice(b"*-1\r\n");
        return Ok(Written);
    }
    array(out, count);
    let (mut rest, mut words) = (&*requests, Vec::new());
    while let Ok(len) = request(rest, &mut words) {
        rest = &rest[len..];
        let (db, session, words) = (&mut *call.db, &mut *call.session, &*words);
        answer(&mut Call { db, session, words }, out);
    }
    Ok(Written)
}

fn discard<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let queue = call.session.queue.take();
    queue.ok_or("ERR DISCARD without MULTI")?;
    unwatch(call, out)
}

fn watch<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    if call.session.queue.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    for key in &call.words[1..] {
        let version = call.db.store.version(key);
        call.session.watched.push((key.to_vec(), version));
        call.session.kept += key.len() + 64;
    }
    OK
}

fn unwatch<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    call.session.watched.clear();
    call.session.kept = 0;
    OK
}

// ---- messages

fn subscribe<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    for name in &call.words[1..] {
        let channel: Rc<[u8]> = (*name).into();
        let subscribers = call.db.channels.entry(Rc::clone(&channel));
        subscribers.or_default().insert(call.session.id);
        call.session.channels.insert(channel);
        call.session.kept += name.len() + 256;
        told(out, b"subscribe", Some(name), call.session);
    }
    Ok(Written)
}

fn unsubscribe<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let channels: Vec<Rc<[u8]>> = match &call.words[1..] {
        [] => call.session.channels.iter().cloned().collect(),
        names => names.iter().map(|name| Rc::from(*name)).collect(),
    };
    for channel in &channels {
        call.db.unsubscribe(call.session.id, channel);
        call.session.channels.remove(channel);
        told(out, b"unsubscribe", Some(channel), call.session);
    }
    if channels.is_empty() {
        told(out, b"unsubscribe", None, call.session);
    }
    if call.session.channels.is_empty() {
        call.session.kept = 0;
    }
    Ok(Written)
}

fn told(out: &mut Vec<u8>, what: &[u8], channel: Option<&[u8]>, session: &Session) {
    array(out, 3);
    text(out, what);
    value(out, channel);
    integer(out, session.channels.len() as i64);
}

fn publish<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    let [_, channel, message] = *call.words else {
        return Err(SYNTAX.into());
    };
    let mut told = 0;
    for id in call.db.channels.get(channel).into_iter().flatten() {
        let outbox = &call.db.clients[id];
        outbox.letters.update(|letters| {
            // A subscriber with more is about to be disconnected.
            if letters.len() <= MAX_LETTERS {
                texts(letters, &[b"message", channel, message]);
            }
        });
        call.session.told.push(Rc::clone(outbox));
        told += 1;
    }
    count(told)
}

// ---- the server

fn ping<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let is_subscriber = !call.session.channels.is_empty();
    match *call.words {
        [_] if is_subscriber => texts(out, &[b"pong", b""]),
        [_, message] if is_subscriber => texts(out, &[b"pong", message]),
        [_] => status(out, "PONG"),
        [_, message] => text(out, message),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(Written)
}

fn rewrite<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    let log = call.db.log.as_ref();
    log.ok_or("ERR there is no append-only file: see --aof")?
        .rewrite();
    Ok(Status("Background append only file rewriting started"))
}

fn config<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    if !call.words[1].eq_ignore_ascii_case(b"get") {
        let text = "ERR only CONFIG GET is here: the options of the command line set the rest";
        return Err(text.into());
    }
    let (settings, asked) = (call.db.settings(), &call.words[2..]);
    let is_asked = |name: &str| asked.iter().any(|asked| is_like(asked, name.as_bytes()));
    let found = settings.iter().filter(|(name, _)| is_asked(name));
    let found = found.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    texts(out, &found.collect::<Vec<_>>());
    Ok(Written)
}

fn info<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let mut lines = String::new();
    for (name, value) in call.db.settings().iter().chain(&call.db.facts()) {
        lines += &format!("{name}:{value}\r\n");
    }
    text(out, lines.as_bytes());
    Ok(Written)
}

fn client<'a>(call: &'a mut Call<'_>, _: &mut Vec<u8>) -> Answer<'a> {
    match (&*call.words[1].to_ascii_lowercase(), &call.words[2..]) {
        (b"id", []) => Ok(Number(call.session.id as i64)),
        (b"getname", []) => Ok(Value(Some(&call.session.name))),
        (b"setname", [name]) if name.iter().all(u8::is_ascii_graphic) => {
            call.session.name = name.to_vec();
            OK
        }
        (b"setname", [_]) => Err("ERR a name has no blanks and no special characters".into()),
        (b"setinfo", [_, _]) => OK,
        _ => Err("ERR only CLIENT ID, GETNAME, SETNAME and SETINFO are here".into()),
    }
}

fn list<'a>(call: &'a mut Call<'_>, out: &mut Vec<u8>) -> Answer<'a> {
    let what = call.words.get(1).map(|word| word.to_ascii_lowercase());
    match what.as_deref() {
        None => {
            array(out, COMMANDS.len());
            for (name, arity, ..) in &COMMANDS {
                array(out, 2);
                text(out, name.as_bytes());
                integer(out, *arity);
            }
            Ok(Written)
        }
        Some(b"count") => count(COMMANDS.len()),
        Some(b"docs") => Ok(Written).inspect(|_| array(out, 0)),
        Some(_) => Err("ERR only COMMAND, COMMAND COUNT and COMMAND DOCS are here".into()),
    }
}
