//! The commands: a table of their names, and a function for each.

use std::{borrow::Cow, rc::Rc};

use super::{
    resp::{
        MAX_REQUEST, array, digits, error, integer, number, request, status, text, texts, value,
    },
    state::{Db, Fsync, Session, Stop},
};

/// Its name, how many words it has (at least so many if that is negative), its kind, its function.
type Command = (&'static str, i64, Kind, fn(&mut Call<'_>) -> Answer);

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
    pub(super) out: &'a mut Vec<u8>,
}

/// A refusal is the reply, in place of what was replied before.
type Answer = Result<(), Cow<'static, str>>;

const SYNTAX: &str = "ERR syntax error";
const NO_NUMBER: &str = "ERR value is not an integer or out of range";
const OVERFLOW: &str = "ERR increment or decrement would overflow";
const TOO_LONG: &str = "ERR string exceeds maximum allowed size";
const NO_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The most bytes of messages that wait for a subscriber, and of entries that wait to be written.
const MAX_LETTERS: usize = 32 << 20;
const MAX_PENDING: usize = 256 << 20;

/// In the order of their names.
static COMMANDS: [Command; 41] = [
    ("append", 3, Grow, append),
    ("bgrewriteaof", 1, Read, rewrite),
    ("client", -2, Read, client),
    ("command", -1, Read, list),
    ("config", -3, Read, config),
    ("dbsize", 1, Read, |call| call.integer(call.db.store.len())),
    ("decr", 2, Grow, |call| call.add(-1)),
    ("decrby", 3, Grow, decrease),
    ("del", -2, Write, del),
    ("discard", 1, Control, discard),
    ("echo", 2, Read, |call| call.text(call.words[1])),
    ("exec", 1, Control, exec),
    ("exists", -2, Read, exists),
    ("expire", 3, Write, |call| expire(call, 1000)),
    ("flushall", -1, Write, flush),
    ("get", 2, Read, get),
    ("incr", 2, Grow, |call| call.add(1)),
    ("incrby", 3, Grow, |call| call.add(call.number(2)?)),
    ("info", -1, Read, info),
    ("keys", 2, Read, keys),
    ("mget", -2, Read, mget),
    ("mset", -3, Grow, mset),
    ("multi", 1, Control, multi),
    ("persist", 2, Write, persist),
    ("pexpire", 3, Write, |call| expire(call, 1)),
    ("ping", -1, Read, ping),
    ("pttl", 2, Read, |call| ttl(call, 1)),
    ("publish", 3, Read, publish),
    ("quit", -1, Control, |call| call.stop(Stop::Quit)),
    ("scan", -2, Read, scan),
    ("set", -3, Grow, set),
    ("setnx", 3, Grow, set_new),
    ("shutdown", -1, Alone, |call| call.stop(Stop::Shutdown)),
    ("strlen", 2, Read, strlen),
    ("subscribe", -2, Alone, subscribe),
    ("ttl", 2, Read, |call| ttl(call, 1000)),
    ("type", 2, Read, kind),
    ("unlink", -2, Write, del),
    ("unsubscribe", -1, Alone, unsubscribe),
    ("unwatch", 1, Read, unwatch),
    ("watch", -2, Control, watch),
];

/// Answers a request, or queues it.
pub(super) fn answer(call: &mut Call<'_>) {
    let begin = call.out.len();
    let answer = match allowed(call) {
        Ok((_, _, kind, _)) if call.session.queue.is_some() && *kind != Control => queue(call),
        Ok((_, _, _, run)) => run(call),
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
fn allowed(call: &Call<'_>) -> Result<&'static Command, Cow<'static, str>> {
    let (db, session, words) = (&call.db, &call.session, call.words);
    let command = find(words[0]).ok_or_else(|| {
        let name = String::from_utf8_lossy(&words[0][..words[0].len().min(128)]);
        format!("ERR unknown command '{}'", name.escape_debug())
    })?;
    let (name, arity, kind, _) = *command;
    let count = words.len() as i64;
    if count != arity && (arity >= 0 || count < -arity) {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let is_for_subscriber = matches!(name, "subscribe" | "unsubscribe" | "ping" | "quit");
    if !session.channels.is_empty() && !is_for_subscriber {
        let text = "ERR only (UN)SUBSCRIBE, PING and QUIT are allowed while subscribed";
        return Err(text.into());
    }
    if matches!(kind, Write | Grow)
        && let Some(why) = &db.log.refused
    {
        return Err(format!("MISCONF the append-only file cannot be written: {why}").into());
    }
    let is_full = db.store.bytes() > db.max_memory || db.log.pending.len() > MAX_PENDING;
    if kind == Grow && is_full {
        return Err(NO_MEMORY.into());
    }
    let is_kept = session.queue.is_some() || matches!(name, "watch" | "subscribe");
    if is_kept && session.kept > MAX_REQUEST {
        return Err("OOM the server keeps no more for this client".into());
    }
    if session.queue.is_some() && kind == Alone {
        return Err("ERR this command is not allowed in a transaction".into());
    }
    Ok(command)
}

fn find(word: &[u8]) -> Option<&'static Command> {
    let mut name = [0; 16];
    let name = name.get_mut(..word.len())?;
    name.copy_from_slice(word);
    name.make_ascii_lowercase();
    let at = COMMANDS.binary_search_by(|command| command.0.as_bytes().cmp(name));
    at.ok().map(|at| &COMMANDS[at])
}

impl Call<'_> {
    fn ok(&mut self) -> Answer {
        status(self.out, "OK");
        Ok(())
    }

    fn integer(&mut self, number: usize) -> Answer {
        integer(self.out, number as i64);
        Ok(())
    }

    fn text(&mut self, bytes: &[u8]) -> Answer {
        value(self.out, Some(bytes));
        Ok(())
    }

    fn stop(&mut self, stop: Stop) -> Answer {
        self.session.stop = Some(stop);
        self.ok()
    }

    fn number(&self, word: usize) -> Result<i64, &'static str> {
        number(self.words[word]).ok_or(NO_NUMBER)
    }

    /// The value of a key, and when it expires.
    fn old(&self) -> Option<(&[u8], Option<u64>)> {
        let entry = self.db.store.get(self.words[1])?;
        Some((&entry.value, entry.expires))
    }

    /// The instant so many units from now on.
    fn instant(&self, span: i64, unit: i64) -> Result<u64, String> {
        let at = span
            .checked_mul(unit)
            .and_then(|span| span.checked_add(self.db.store.now as i64));
        let at = at.filter(|_| span > 0).map(|at| at as u64);
        let name = self.words[0].to_ascii_lowercase();
        let name = String::from_utf8_lossy(&name);
        at.ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))
    }

    /// Adds to the number of a key.
    fn add(&mut self, by: i64) -> Answer {
        let (old, expires) = match self.old() {
            None => (0, None),
            Some((old, expires)) => (number(old).ok_or(NO_NUMBER)?, expires),
        };
        let sum = old.checked_add(by).ok_or(OVERFLOW)?;
        digits(sum, |digits| self.db.set(self.words[1], digits, expires));
        integer(self.out, sum);
        Ok(())
    }
}

// ---- values

fn get(call: &mut Call<'_>) -> Answer {
    let entry = call.db.store.get(call.words[1]);
    value(call.out, entry.map(|entry| &*entry.value));
    Ok(())
}

fn set(call: &mut Call<'_>) -> Answer {
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
                expires = Some(call.instant(span, if unit == b"ex" { 1000 } else { 1 })?);
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let old = call.db.store.get(call.words[1]);
    let is_refused = only_if.is_some_and(|there| there != old.is_some());
    if keeps {
        expires = old.and_then(|entry| entry.expires);
    }
    match old {
        _ if gets => value(call.out, old.map(|entry| &*entry.value)),
        _ if is_refused => value(call.out, None),
        _ => status(call.out, "OK"),
    }
    if !is_refused {
        call.db.set(call.words[1], call.words[2], expires);
    }
    Ok(())
}

fn set_new(call: &mut Call<'_>) -> Answer {
    let is_new = call.old().is_none();
    if is_new {
        call.db.set(call.words[1], call.words[2], None);
    }
    call.integer(usize::from(is_new))
}

fn append(call: &mut Call<'_>) -> Answer {
    let (old, expires) = call.old().unwrap_or((b"", None));
    if old.len() + call.words[2].len() > MAX_REQUEST {
        return Err(TOO_LONG.into());
    }
    let value = [old, call.words[2]].concat();
    call.db.set(call.words[1], &value, expires);
    call.integer(value.len())
}

fn decrease(call: &mut Call<'_>) -> Answer {
    call.add(call.number(2)?.checked_neg().ok_or(NO_NUMBER)?)
}

fn strlen(call: &mut Call<'_>) -> Answer {
    call.integer(call.old().map_or(0, |(old, _)| old.len()))
}

fn mget(call: &mut Call<'_>) -> Answer {
    array(call.out, call.words.len() - 1);
    for key in &call.words[1..] {
        let entry = call.db.store.get(key);
        value(call.out, entry.map(|entry| &*entry.value));
    }
    Ok(())
}

fn mset(call: &mut Call<'_>) -> Answer {
    let (pairs, rest) = call.words[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err("ERR wrong number of arguments for 'mset' command".into());
    }
    for [key, value] in pairs {
        call.db.set(key, value, None);
    }
    call.ok()
}

// ---- keys

fn del(call: &mut Call<'_>) -> Answer {
    let mut count = 0;
    for key in &call.words[1..] {
        count += usize::from(call.db.store.get(key).is_some());
        call.db.remove(key);
    }
    call.integer(count)
}

fn exists(call: &mut Call<'_>) -> Answer {
    let keys = call.words[1..].iter();
    call.integer(keys.filter(|key| call.db.store.get(key).is_some()).count())
}

fn kind(call: &mut Call<'_>) -> Answer {
    status(call.out, call.old().map_or("none", |_| "string"));
    Ok(())
}

/// An entry of the log says all about its key, so its value is set again.
fn expire(call: &mut Call<'_>, unit: i64) -> Answer {
    let (key, span) = (call.words[1], call.number(2)?);
    // That time has passed.
    let is_over = span <= 0;
    let at = if is_over {
        0
    } else {
        call.instant(span, unit)?
    };
    let Some(value) = call.old().map(|(old, _)| old.to_vec()) else {
        return call.integer(0);
    };
    if is_over {
        call.db.remove(key);
    } else {
        call.db.set(key, &value, Some(at));
    }
    call.integer(1)
}

fn persist(call: &mut Call<'_>) -> Answer {
    let Some((value, Some(_))) = call.old() else {
        return call.integer(0);
    };
    let value = value.to_vec();
    call.db.set(call.words[1], &value, None);
    call.integer(1)
}

fn ttl(call: &mut Call<'_>, unit: u64) -> Answer {
    let left = match call.old() {
        None => -2,
        Some((_, None)) => -1,
        Some((_, Some(at))) => ((at - call.db.store.now + unit / 2) / unit) as i64,
    };
    integer(call.out, left);
    Ok(())
}

fn flush(call: &mut Call<'_>) -> Answer {
    call.db.clear();
    call.ok()
}

fn keys(call: &mut Call<'_>) -> Answer {
    let found = call
        .db
        .store
        .keys()
        .filter(|key| is_like(call.words[1], key));
    all(call.out, &found.collect::<Vec<_>>());
    Ok(())
}

fn scan(call: &mut Call<'_>) -> Answer {
    let from = call
        .number(1)
        .ok()
        .and_then(|from| u64::try_from(from).ok());
    let from = from.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count): (&[u8], _) = (b"*", 10);
    let (options, rest) = call.words[2..].as_chunks::<2>();
    for [name, value] in options {
        match &*name.to_ascii_lowercase() {
            b"match" => pattern = value,
            b"count" => count = number(value).filter(|count| *count > 0).ok_or(NO_NUMBER)?,
            _ => return Err(SYNTAX.into()),
        }
    }
    if !rest.is_empty() {
        return Err(SYNTAX.into());
    }
    let (next, mut found) = call.db.store.scan(from, count.min(10_000) as usize);
    found.retain(|key| is_like(pattern, key));
    array(call.out, 2);
    digits(next as i64, |next| text(call.out, next));
    all(call.out, &found);
    Ok(())
}

fn all(out: &mut Vec<u8>, keys: &[&Rc<[u8]>]) {
    array(out, keys.len());
    keys.iter().for_each(|key| value(out, Some(key)));
}

/// Returns whether a key is like this pattern of `*`, `?`, `[a-z]`, `[^a-z]` and `\`. It goes through
/// the pattern once, with all beginnings of the key that are like what came before.
fn is_like(mut pattern: &[u8], key: &[u8]) -> bool {
    let mut likes = vec![false; key.len() + 1];
    likes[0] = true;
    while let Some(first) = pattern.first() {
        if *first == b'*' {
            let from = likes.iter().position(|like| *like).unwrap_or(likes.len());
            likes[from..].fill(true);
            pattern = &pattern[1..];
            continue;
        }
        let Some((set, is_not, len)) = item(pattern) else {
            return false;
        };
        let is_in = |byte: &u8| set.iter().any(|(from, to)| (from..=to).contains(&byte)) != is_not;
        for at in (0..key.len()).rev() {
            likes[at + 1] = likes[at] && is_in(&key[at]);
        }
        likes[0] = false;
        pattern = &pattern[len..];
    }
    likes[key.len()]
}

/// Returns the ranges of bytes that the first item of a pattern is, whether it is all others, and its length.
fn item(pattern: &[u8]) -> Option<(Vec<(u8, u8)>, bool, usize)> {
    match *pattern {
        [b'?', ..] => Some((Vec::new(), true, 1)),
        [b'\\', byte, ..] => Some((vec![(byte, byte)], false, 2)),
        [b'[', ref rest @ ..] => {
            let len = rest.iter().skip(1).position(|byte| *byte == b']')? + 1;
            let not = rest[..len].strip_prefix(b"^");
            let (mut set, mut ranges) = (not.unwrap_or(&rest[..len]), Vec::new());
            while let [from, rest @ ..] = set {
                let (to, rest) = match rest {
                    [b'-', to, rest @ ..] => (to, rest),
                    _ => (from, rest),
                };
                ranges.push((*from, *to));
                set = rest;
            }
            Some((ranges, not.is_some(), len + 2))
        }
        [byte, ..] => Some((vec![(byte, byte)], false, 1)),
        [] => None,
    }
}

// ---- transactions

fn multi(call: &mut Call<'_>) -> Answer {
    if call.session.queue.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    call.session.queue = Some((0, Vec::new()));
    call.session.is_spoiled = false;
    call.ok()
}

fn queue(call: &mut Call<'_>) -> Answer {
    if let Some((count, requests)) = &mut call.session.queue {
        let before = requests.len();
        texts(requests, call.words);
        call.session.kept += requests.len() - before;
        *count += 1;
    }
    status(call.out, "QUEUED");
    Ok(())
}

fn exec(call: &mut Call<'_>) -> Answer {
    let (count, requests) = call.session.queue.take().ok_or("ERR EXEC without MULTI")?;
    let changed = |(key, before): &(Vec<u8>, u64)| version(call.db, key) != *before;
    let is_changed = call.session.watched.iter().any(changed);
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
    while let Ok(Some(len)) = request(rest, &mut words) {
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

fn discard(call: &mut Call<'_>) -> Answer {
    let queue = call.session.queue.take();
    queue.ok_or("ERR DISCARD without MULTI")?;
    unwatch(call)
}

fn watch(call: &mut Call<'_>) -> Answer {
    if call.session.queue.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    for key in &call.words[1..] {
        call.session.kept += key.len() + 64;
        call.session
            .watched
            .push((key.to_vec(), version(call.db, key)));
    }
    call.ok()
}

fn unwatch(call: &mut Call<'_>) -> Answer {
    call.session.unwatch();
    call.ok()
}

/// The number of a key's last change; zero if it does not exist.
fn version(db: &Db, key: &[u8]) -> u64 {
    db.store.get(key).map_or(0, |entry| entry.version)
}

// ---- messages

fn subscribe(call: &mut Call<'_>) -> Answer {
    for name in &call.words[1..] {
        let channel: Rc<[u8]> = (*name).into();
        let subscribers = call.db.channels.entry(Rc::clone(&channel));
        subscribers.or_default().insert(call.session.id);
        call.session.kept += name.len() + 256;
        call.session.channels.insert(channel);
        told(call, b"subscribe", Some(name));
    }
    Ok(())
}

fn unsubscribe(call: &mut Call<'_>) -> Answer {
    let own: Vec<_> = call.session.channels.iter().cloned().collect();
    let mut channels: Vec<&[u8]> = call.words[1..].to_vec();
    if channels.is_empty() {
        channels.extend(own.iter().map(|channel| &**channel));
    }
    for channel in &channels {
        call.db.unsubscribe(call.session.id, channel);
        call.session.channels.remove(*channel);
        told(call, b"unsubscribe", Some(channel));
    }
    if channels.is_empty() {
        told(call, b"unsubscribe", None);
    }
    if call.session.channels.is_empty() {
        call.session.kept = 0;
    }
    Ok(())
}

fn told(call: &mut Call<'_>, what: &[u8], channel: Option<&[u8]>) {
    array(call.out, 3);
    text(call.out, what);
    value(call.out, channel);
    integer(call.out, call.session.channels.len() as i64);
}

fn publish(call: &mut Call<'_>) -> Answer {
    let mut letter = Vec::new();
    texts(&mut letter, &[b"message", call.words[1], call.words[2]]);
    let Db {
        channels, clients, ..
    } = &mut *call.db;
    let mut count = 0;
    for id in channels.get(call.words[1]).into_iter().flatten() {
        let Some(outbox) = clients.get_mut(id) else {
            continue;
        };
        count += 1;
        if outbox.letters.len() > MAX_LETTERS {
            call.session.too_slow.push(outbox.stream.clone());
            continue;
        }
        outbox.letters.extend_from_slice(&letter);
        if outbox.nudge.is_empty() {
            call.session.nudges.push(outbox.nudge.clone());
        }
    }
    call.integer(count)
}

// ---- the server

fn ping(call: &mut Call<'_>) -> Answer {
    match call.words {
        [_] if !call.session.channels.is_empty() => texts(call.out, &[b"pong", b""]),
        [_, message] if !call.session.channels.is_empty() => texts(call.out, &[b"pong", message]),
        [_] => status(call.out, "PONG"),
        [_, message] => text(call.out, message),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

fn rewrite(call: &mut Call<'_>) -> Answer {
    if call.db.log.fsync.is_none() {
        return Err("ERR there is no append-only file: see --aof".into());
    }
    call.db.log.is_rewrite_asked = true;
    status(call.out, "Background append only file rewriting started");
    Ok(())
}

fn config(call: &mut Call<'_>) -> Answer {
    if !call.words[1].eq_ignore_ascii_case(b"get") {
        let text = "ERR only CONFIG GET is here: the options of the command line set the rest";
        return Err(text.into());
    }
    let fsync = call.db.log.fsync;
    let settings = [
        ("appendfsync", fsync.unwrap_or(Fsync::No).to_string()),
        ("appendonly", fsync.map_or("no", |_| "yes").into()),
        ("maxclients", call.db.max_clients.to_string()),
        ("maxmemory", call.db.max_memory.to_string()),
        ("save", String::new()),
    ];
    let is_asked = |name: &str| {
        call.words[2..]
            .iter()
            .any(|asked| is_like(asked, name.as_bytes()))
    };
    let found = settings.iter().filter(|(name, _)| is_asked(name));
    let found = found.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    texts(call.out, &found.collect::<Vec<_>>());
    Ok(())
}

fn client(call: &mut Call<'_>) -> Answer {
    match (&*call.words[1].to_ascii_lowercase(), &call.words[2..]) {
        (b"id", []) => call.integer(call.session.id as usize),
        (b"getname", []) => {
            value(call.out, Some(&call.session.name));
            Ok(())
        }
        (b"setname", [name]) if name.iter().all(u8::is_ascii_graphic) => {
            call.session.name = name.to_vec();
            call.ok()
        }
        (b"setname", [_]) => Err("ERR a name has no blanks, newlines or special characters".into()),
        (b"setinfo", [_, _]) => call.ok(),
        _ => Err("ERR only CLIENT ID, GETNAME, SETNAME and SETINFO are here".into()),
    }
}

fn list(call: &mut Call<'_>) -> Answer {
    let what = call.words.get(1).map(|word| word.to_ascii_lowercase());
    match what.as_deref() {
        None => {
            array(call.out, COMMANDS.len());
            for (name, arity, kind, _) in &COMMANDS {
                array(call.out, 3);
                text(call.out, name.as_bytes());
                integer(call.out, *arity);
                array(call.out, 1);
                let is_change = matches!(kind, Write | Grow);
                status(call.out, if is_change { "write" } else { "readonly" });
            }
        }
        Some(b"count") => integer(call.out, COMMANDS.len() as i64),
        Some(b"docs") => array(call.out, 0),
        Some(_) => return Err("ERR only COMMAND, COMMAND COUNT and COMMAND DOCS are here".into()),
    }
    Ok(())
}

fn info(call: &mut Call<'_>) -> Answer {
    let Db { store, log, .. } = &*call.db;
    let told = format!(
        "# Server\r\nredis_version:7.0.0\r\nserver_name:trapline\r\n\
         # Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\
         # Memory\r\nused_memory:{}\r\nmaxmemory:{}\r\n\
         # Persistence\r\nloading:0\r\naof_enabled:{}\r\naof_last_write_status:{}\r\n\
         # Stats\r\ntotal_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
         # Keyspace\r\ndb0:keys={},expires={}\r\n",
        call.db.clients.len(),
        call.db.max_clients,
        store.bytes(),
        call.db.max_memory,
        u8::from(log.fsync.is_some()),
        log.refused.as_ref().map_or("ok", |_| "err"),
        call.db.last,
        call.db.requests,
        store.len(),
        store.expiring(),
    );
    call.text(told.as_bytes())
}
