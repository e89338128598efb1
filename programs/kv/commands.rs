//! The commands: a table of their names, and a function for each.

use std::rc::Rc;

use super::{
    db::{Db, Session, Stop},
    resp::{array, error, integer, number, status, text, text_or_nil, texts},
};

pub(super) struct Command {
    name: &'static str,
    /// How many words it has; at least so many if it is negative.
    arity: i64,
    kind: Kind,
    run: fn(&mut Call<'_>) -> Answer,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Read,
    /// It changes keys.
    Write,
    /// The same, and may take memory.
    Grow,
    /// It is not queued by MULTI.
    Control,
    /// It does what no other task may see half of, and is refused in MULTI.
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

/// A refusal is a reply, and nothing was replied before.
type Answer = Result<(), &'static str>;

const SYNTAX: &str = "ERR syntax error";
const NO_NUMBER: &str = "ERR value is not an integer or out of range";
const NO_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

const fn command(
    name: &'static str,
    arity: i64,
    kind: Kind,
    run: fn(&mut Call<'_>) -> Answer,
) -> Command {
    Command {
        name,
        arity,
        kind,
        run,
    }
}

/// In the order of their names.
static COMMANDS: [Command; 47] = [
    command("append", 3, Grow, append),
    command("bgrewriteaof", 1, Read, rewrite),
    command("client", -2, Read, client),
    command("command", -1, Read, list),
    command("config", -2, Read, config),
    command("dbsize", 1, Read, |call| call.integer(call.db.store.len())),
    command("decr", 2, Grow, |call| add(call, Some(-1))),
    command("decrby", 3, Grow, |call| add(call, None)),
    command("del", -2, Write, del),
    command("discard", 1, Control, discard),
    command("echo", 2, Read, |call| call.text(1)),
    command("exec", 1, Control, exec),
    command("exists", -2, Read, exists),
    command("expire", -3, Write, |call| expire(call, 1000, true)),
    command("flushall", -1, Write, flush),
    command("get", 2, Read, get),
    command("incr", 2, Grow, |call| add(call, Some(1))),
    command("incrby", 3, Grow, |call| add(call, None)),
    command("info", -1, Read, info),
    command("keys", 2, Read, keys),
    command("mget", -2, Read, mget),
    command("mset", -3, Grow, mset),
    command("multi", 1, Control, multi),
    command("persist", 2, Write, persist),
    command("pexpire", -3, Write, |call| expire(call, 1, true)),
    command("pexpireat", -3, Write, |call| expire(call, 1, false)),
    command("ping", -1, Read, ping),
    command("psetex", 4, Grow, |call| set_for(call, 1)),
    command("pttl", 2, Read, |call| ttl(call, 1)),
    command("publish", 3, Read, publish),
    command("quit", -1, Control, |call| call.stop(Stop::Quit)),
    command("scan", -2, Read, scan),
    command("select", 2, Read, select),
    command("set", -3, Grow, set),
    command("setex", 4, Grow, |call| set_for(call, 1000)),
    command("setnx", 3, Grow, set_new),
    command("shutdown", -1, Alone, |call| call.stop(Stop::Shutdown)),
    command("strlen", 2, Read, strlen),
    command("subscribe", -2, Alone, subscribe),
    command("time", 1, Read, time),
    command("ttl", 2, Read, |call| ttl(call, 1000)),
    command("type", 2, Read, kind),
    command("unlink", -2, Write, del),
    command("unsubscribe", -1, Alone, unsubscribe),
    command("unwatch", 1, Read, unwatch),
    command("wait", 3, Read, |call| call.integer(0)),
    command("watch", -2, Control, watch),
];

fn find(word: &[u8]) -> Option<&'static Command> {
    let mut name = [0; 16];
    let name = name.get_mut(..word.len())?;
    name.copy_from_slice(word);
    name.make_ascii_lowercase();
    let at = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(name));
    at.ok().map(|at| &COMMANDS[at])
}

/// Answers a request, or queues it. Returns whether its answer says that keys were changed.
pub(super) fn answer(call: &mut Call<'_>) -> bool {
    let (begin, before) = (call.out.len(), call.db.log.queued());
    if let Err(refusal) = checked(call) {
        call.out.truncate(begin);
        error(call.out, refusal);
    }
    call.db.log.queued() != before
}

fn checked(call: &mut Call<'_>) -> Answer {
    let Some(command) = find(call.words[0]) else {
        call.session.spoil();
        let name = String::from_utf8_lossy(&call.words[0][..call.words[0].len().min(128)]);
        error(
            call.out,
            &format!("ERR unknown command '{}'", name.escape_debug()),
        );
        return Ok(());
    };
    let count = call.words.len() as i64;
    if count != command.arity && (command.arity >= 0 || count < -command.arity) {
        call.session.spoil();
        let name = command.name;
        error(
            call.out,
            &format!("ERR wrong number of arguments for '{name}' command"),
        );
        return Ok(());
    }
    let is_for_subscriber = matches!(command.name, "subscribe" | "unsubscribe" | "ping" | "quit");
    if call.session.is_subscribed() && !is_for_subscriber {
        return Err("ERR only (UN)SUBSCRIBE, PING and QUIT are allowed while subscribed");
    }
    if matches!(command.kind, Write | Grow)
        && let Some(why) = call.db.log.refused()
    {
        let why = format!("MISCONF the append-only file cannot be written: {why}");
        call.session.spoil();
        error(call.out, &why.replace(['\r', '\n'], " "));
        return Ok(());
    }
    if command.kind == Grow && call.db.store.bytes() > call.db.max_memory {
        call.session.spoil();
        return Err(NO_MEMORY);
    }
    match (&mut call.session.queue, command.kind) {
        (Some(_), Alone) => {
            call.session.spoil();
            Err("ERR this command is not allowed in a transaction")
        }
        (Some(queue), Read | Write | Grow) => {
            queue.push(call.words.iter().map(|word| word.to_vec()).collect());
            status(call.out, "QUEUED");
            Ok(())
        }
        _ => (command.run)(call),
    }
}

impl Call<'_> {
    fn now(&self) -> u64 {
        self.session.now
    }

    fn value(&self, word: usize) -> Option<&[u8]> {
        let entry = self.db.store.get(self.words[word], self.now());
        entry.map(|entry| &*entry.value)
    }

    fn integer(&mut self, number: usize) -> Answer {
        integer(self.out, number as i64);
        Ok(())
    }

    fn text(&mut self, word: usize) -> Answer {
        text(self.out, self.words[word]);
        Ok(())
    }

    fn ok(&mut self) -> Answer {
        status(self.out, "OK");
        Ok(())
    }

    fn stop(&mut self, stop: Stop) -> Answer {
        self.session.stop = Some(stop);
        self.ok()
    }

    fn number(&self, word: usize) -> Result<i64, &'static str> {
        number(self.words[word]).ok_or(NO_NUMBER)
    }
}

// ---- values

fn get(call: &mut Call<'_>) -> Answer {
    let entry = call.db.store.get(call.words[1], call.session.now);
    text_or_nil(call.out, entry.map(|entry| &*entry.value));
    Ok(())
}

fn set(call: &mut Call<'_>) -> Answer {
    let (mut expires, mut only_new, mut only_old, mut gets, mut keeps) =
        (None, false, false, false, false);
    let mut options = 3..call.words.len();
    while let Some(at) = options.next() {
        match &*call.words[at].to_ascii_lowercase() {
            b"nx" => only_new = true,
            b"xx" => only_old = true,
            b"get" => gets = true,
            b"keepttl" => keeps = true,
            unit @ (b"ex" | b"px" | b"pxat") if expires.is_none() => {
                let value = number(
                    call.words
                        .get(options.next().ok_or(SYNTAX)?)
                        .ok_or(SYNTAX)?,
                );
                let value = value.ok_or(NO_NUMBER)?;
                let from = if unit == b"pxat" { 0 } else { call.now() };
                let unit = if unit == b"ex" { 1000 } else { 1 };
                expires = Some(
                    instant(from, value, unit)
                        .filter(|_| value > 0)
                        .ok_or("ERR invalid expire time in 'set' command")?,
                );
            }
            _ => return Err(SYNTAX),
        }
    }
    if only_new && only_old || keeps && expires.is_some() {
        return Err(SYNTAX);
    }
    let old = call.db.store.get(call.words[1], call.session.now);
    let refuses = old.is_some() && only_new || old.is_none() && only_old;
    if keeps {
        expires = old.and_then(|entry| entry.expires);
    }
    if gets {
        text_or_nil(call.out, old.map(|entry| &*entry.value));
    } else if refuses {
        text_or_nil(call.out, None);
    } else {
        status(call.out, "OK");
    }
    if !refuses {
        call.db.set(call.words[1], call.words[2], expires);
    }
    Ok(())
}

fn set_for(call: &mut Call<'_>, unit: i64) -> Answer {
    let span = call.number(2)?;
    let expires = instant(call.now(), span, unit).filter(|_| span > 0);
    let expires = expires.ok_or("ERR invalid expire time")?;
    call.db.set(call.words[1], call.words[3], Some(expires));
    call.ok()
}

fn set_new(call: &mut Call<'_>) -> Answer {
    let is_new = call.value(1).is_none();
    if is_new {
        call.db.set(call.words[1], call.words[2], None);
    }
    call.integer(usize::from(is_new))
}

fn append(call: &mut Call<'_>) -> Answer {
    let old = call.db.store.get(call.words[1], call.session.now);
    let expires = old.and_then(|entry| entry.expires);
    let value = [old.map_or(&[][..], |entry| &entry.value), call.words[2]].concat();
    call.db.set(call.words[1], &value, expires);
    call.integer(value.len())
}

/// Adds this much, or the number behind the key, which DECRBY takes away.
fn add(call: &mut Call<'_>, by: Option<i64>) -> Answer {
    let by = match by {
        Some(by) => by,
        None if call.words[0][0].eq_ignore_ascii_case(&b'd') => {
            call.number(2)?.checked_neg().ok_or(NO_NUMBER)?
        }
        None => call.number(2)?,
    };
    let old = call.db.store.get(call.words[1], call.session.now);
    let expires = old.and_then(|entry| entry.expires);
    let value = old
        .map_or(Some(0), |entry| number(&entry.value))
        .ok_or(NO_NUMBER)?;
    let value = value
        .checked_add(by)
        .ok_or("ERR increment or decrement would overflow")?;
    call.db
        .set(call.words[1], value.to_string().as_bytes(), expires);
    integer(call.out, value);
    Ok(())
}

fn strlen(call: &mut Call<'_>) -> Answer {
    call.integer(call.value(1).map_or(0, <[u8]>::len))
}

fn mget(call: &mut Call<'_>) -> Answer {
    array(call.out, call.words.len() - 1);
    for key in &call.words[1..] {
        let entry = call.db.store.get(key, call.session.now);
        text_or_nil(call.out, entry.map(|entry| &*entry.value));
    }
    Ok(())
}

fn mset(call: &mut Call<'_>) -> Answer {
    let (pairs, rest) = call.words[1..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err("ERR wrong number of arguments for 'mset' command");
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
        count += usize::from(call.db.store.get(key, call.session.now).is_some());
        call.db.remove(key);
    }
    call.integer(count)
}

fn exists(call: &mut Call<'_>) -> Answer {
    let keys = &call.words[1..];
    let lives = |key: &&&[u8]| call.db.store.get(key, call.session.now).is_some();
    let count = keys.iter().filter(lives).count();
    call.integer(count)
}

fn kind(call: &mut Call<'_>) -> Answer {
    let kind = if call.value(1).is_some() {
        "string"
    } else {
        "none"
    };
    status(call.out, kind);
    Ok(())
}

/// The instant so many units from then on; `None` if it is out of range.
fn instant(from: u64, span: i64, unit: i64) -> Option<u64> {
    let span = span.checked_mul(unit)?;
    from.checked_add_signed(span)
        .filter(|at| i64::try_from(*at).is_ok())
}

fn expire(call: &mut Call<'_>, unit: i64, is_span: bool) -> Answer {
    if call.words.len() > 3 {
        return Err(SYNTAX);
    }
    let (span, from) = (call.number(2)?, if is_span { call.now() } else { 0 });
    let at = match span {
        // That time has passed.
        ..=0 => call.now(),
        _ => instant(from, span, unit).ok_or("ERR invalid expire time in 'expire' command")?,
    };
    let lives = call.value(1).is_some();
    if lives && at <= call.now() {
        call.db.remove(call.words[1]);
    } else if lives {
        call.db.expire(call.words[1], Some(at));
    }
    call.integer(usize::from(lives))
}

fn persist(call: &mut Call<'_>) -> Answer {
    let entry = call.db.store.get(call.words[1], call.session.now);
    let expires = entry.is_some_and(|entry| entry.expires.is_some());
    if expires {
        call.db.expire(call.words[1], None);
    }
    call.integer(usize::from(expires))
}

fn ttl(call: &mut Call<'_>, unit: u64) -> Answer {
    let now = call.now();
    let left = match call
        .db
        .store
        .get(call.words[1], now)
        .map(|entry| entry.expires)
    {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => (at - now + unit / 2).div_euclid(unit) as i64,
    };
    integer(call.out, left);
    Ok(())
}

fn flush(call: &mut Call<'_>) -> Answer {
    call.db.clear();
    call.ok()
}

fn keys(call: &mut Call<'_>) -> Answer {
    let all = call.db.store.iter(call.session.now).map(|(key, _)| key);
    let found: Vec<_> = all
        .filter(|key| is_like(call.words[1], key))
        .map(Rc::clone)
        .collect();
    array(call.out, found.len());
    found.iter().for_each(|key| text(call.out, key));
    Ok(())
}

fn scan(call: &mut Call<'_>) -> Answer {
    let from = number(call.words[1]).and_then(|from| u64::try_from(from).ok());
    let from = from.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count): (&[u8], _) = (b"*", 10);
    let (options, rest) = call.words[2..].as_chunks::<2>();
    for [name, value] in options {
        match &*name.to_ascii_lowercase() {
            b"match" => pattern = value,
            b"count" => count = number(value).filter(|count| *count > 0).ok_or(NO_NUMBER)?,
            b"type" => {}
            _ => return Err(SYNTAX),
        }
    }
    if !rest.is_empty() {
        return Err(SYNTAX);
    }
    let (next, mut found) = call
        .db
        .store
        .scan(from, count.min(10_000) as usize, call.session.now);
    found.retain(|key| is_like(pattern, key));
    array(call.out, 2);
    text(call.out, next.to_string().as_bytes());
    array(call.out, found.len());
    found.iter().for_each(|key| text(call.out, key));
    Ok(())
}

/// Returns whether a key is like this pattern of `*`, `?`, `[a-z]`, `[^a-z]` and `\`. A star is tried
/// again from one byte further on alone, so this takes no more than the product of the two lengths.
fn is_like(pattern: &[u8], key: &[u8]) -> bool {
    let (mut p, mut k) = (0, 0);
    let mut star = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, k));
            continue;
        }
        match key.get(k) {
            None if p == pattern.len() => return true,
            None => {}
            Some(byte) => {
                if let Some(len) = one(&pattern[p..], *byte) {
                    (p, k) = (p + len, k + 1);
                    continue;
                }
            }
        }
        match star {
            Some((after, at)) if at < key.len() => {
                (p, k) = (after, at + 1);
                star = Some((after, at + 1));
            }
            _ => return false,
        }
    }
}

/// Returns how long the begin of the pattern is that is like this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (escaped == byte).then_some(2),
        [b'[', ref rest @ ..] => {
            let len = rest.iter().skip(1).position(|byte| *byte == b']')? + 1;
            let set = &rest[..len];
            let (set, is_not) = set
                .strip_prefix(b"^")
                .map_or((set, false), |set| (set, true));
            let (mut at, mut is_in) = (0, false);
            while at < set.len() {
                let is_range = set.get(at + 1) == Some(&b'-') && at + 2 < set.len();
                let last = if is_range { set[at + 2] } else { set[at] };
                is_in |= (set[at]..=last).contains(&byte);
                at += if is_range { 3 } else { 1 };
            }
            (is_in != is_not).then_some(len + 2)
        }
        [plain, ..] => (plain == byte).then_some(1),
        [] => None,
    }
}

// ---- transactions

fn multi(call: &mut Call<'_>) -> Answer {
    if call.session.queue.is_some() {
        return Err("ERR MULTI calls can not be nested");
    }
    call.session.queue = Some(Vec::new());
    call.session.is_spoiled = false;
    call.ok()
}

fn exec(call: &mut Call<'_>) -> Answer {
    let queue = call.session.queue.take().ok_or("ERR EXEC without MULTI")?;
    let is_changed = call.session.unwatch(call.db);
    if call.session.is_spoiled {
        return Err("EXECABORT Transaction discarded because of previous errors.");
    }
    if is_changed {
        call.out.extend_from_slice(b"*-1\r\n");
        return Ok(());
    }
    array(call.out, queue.len());
    for words in &queue {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
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
    call.session
        .queue
        .take()
        .ok_or("ERR DISCARD without MULTI")?;
    call.session.unwatch(call.db);
    call.ok()
}

fn watch(call: &mut Call<'_>) -> Answer {
    if call.session.queue.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed");
    }
    for key in &call.words[1..] {
        let changes = call.db.store.watch(key);
        call.session.watched.push((key.to_vec(), changes));
    }
    call.ok()
}

fn unwatch(call: &mut Call<'_>) -> Answer {
    call.session.unwatch(call.db);
    call.ok()
}

// ---- messages

fn subscribe(call: &mut Call<'_>) -> Answer {
    // The task of the client makes its mailbox, and comes again.
    let Some(mailbox) = &call.session.mailbox else {
        call.session.stop = Some(Stop::NeedsMailbox);
        return Ok(());
    };
    for channel in &call.words[1..] {
        let subscribers = call.db.channels.entry((*channel).into()).or_default();
        if subscribers
            .insert(call.session.id, mailbox.clone())
            .is_none()
        {
            call.session.channels += 1;
        }
        told(call.out, b"subscribe", Some(channel), call.session.channels);
    }
    Ok(())
}

fn unsubscribe(call: &mut Call<'_>) -> Answer {
    let id = call.session.id;
    let own = call.db.channels_of(id);
    let named = call.words[1..]
        .iter()
        .map(|channel| (*channel).into())
        .collect();
    let channels: Vec<Rc<[u8]>> = if call.words.len() > 1 { named } else { own };
    if channels.is_empty() {
        told(call.out, b"unsubscribe", None, 0);
    }
    for channel in &channels {
        if call.db.unsubscribe(id, channel) {
            call.session.channels -= 1;
        }
        told(
            call.out,
            b"unsubscribe",
            Some(channel),
            call.session.channels,
        );
    }
    Ok(())
}

fn told(out: &mut Vec<u8>, what: &[u8], channel: Option<&[u8]>, count: usize) {
    array(out, 3);
    text(out, what);
    text_or_nil(out, channel);
    integer(out, count as i64);
}

fn publish(call: &mut Call<'_>) -> Answer {
    let [_, channel, message] = call.words else {
        return Err(SYNTAX);
    };
    let subscribers = call.db.channels.get(*channel);
    let subscribers: Vec<_> = subscribers
        .into_iter()
        .flat_map(|all| all.values())
        .collect();
    let mut letter = Vec::new();
    texts(&mut letter, &[b"message", channel, message]);
    let letter: Rc<[u8]> = letter.into();
    let letters = subscribers
        .iter()
        .map(|mailbox| ((*mailbox).clone(), Rc::clone(&letter)));
    call.session.letters.extend(letters);
    let count = subscribers.len();
    call.integer(count)
}

// ---- the server

fn ping(call: &mut Call<'_>) -> Answer {
    match call.words {
        [_] if call.session.is_subscribed() => texts(call.out, &[b"pong", b""]),
        [_, message] if call.session.is_subscribed() => texts(call.out, &[b"pong", message]),
        [_] => status(call.out, "PONG"),
        [_, message] => text(call.out, message),
        _ => return Err("ERR wrong number of arguments for 'ping' command"),
    }
    Ok(())
}

fn select(call: &mut Call<'_>) -> Answer {
    match call.words[1] {
        b"0" => call.ok(),
        _ => Err("ERR DB index is out of range"),
    }
}

fn time(call: &mut Call<'_>) -> Answer {
    let now = call.now();
    let (seconds, micros) = ((now / 1000).to_string(), (now % 1000 * 1000).to_string());
    texts(call.out, &[seconds.as_bytes(), micros.as_bytes()]);
    Ok(())
}

fn rewrite(call: &mut Call<'_>) -> Answer {
    call.db.log.ask_for_rewrite()?;
    call.session.asks_log = true;
    status(call.out, "Background append only file rewriting started");
    Ok(())
}

fn config(call: &mut Call<'_>) -> Answer {
    match (&*call.words[1].to_ascii_lowercase(), &call.words[2..]) {
        (b"get", names @ [_, ..]) => {
            let all = call.db.settings();
            let is_asked = |name: &str| names.iter().any(|asked| is_like(asked, name.as_bytes()));
            let found = all.iter().filter(|(name, _)| is_asked(name));
            let found: Vec<&[u8]> = found
                .flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()])
                .collect();
            texts(call.out, &found);
            Ok(())
        }
        (b"resetstat", []) => call.ok(),
        _ => Err("ERR only CONFIG GET is here: the options of the command line set the rest"),
    }
}

fn client(call: &mut Call<'_>) -> Answer {
    match (&*call.words[1].to_ascii_lowercase(), &call.words[2..]) {
        (b"id", []) => call.integer(call.session.id as usize),
        (b"getname", []) => {
            text(call.out, &call.session.name);
            Ok(())
        }
        (b"setname", [name]) => {
            if name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
                return Err("ERR a name has no blanks, newlines or special characters");
            }
            call.session.name = name.to_vec();
            call.ok()
        }
        (b"setinfo", [_, _]) | (b"no-evict" | b"no-touch", [_]) => call.ok(),
        _ => Err("ERR only CLIENT ID, GETNAME, SETNAME and SETINFO are here"),
    }
}

fn list(call: &mut Call<'_>) -> Answer {
    match call
        .words
        .get(1)
        .map(|word| word.to_ascii_lowercase())
        .as_deref()
    {
        None => {
            array(call.out, COMMANDS.len());
            for command in &COMMANDS {
                array(call.out, 3);
                text(call.out, command.name.as_bytes());
                integer(call.out, command.arity);
                let flag = match command.kind {
                    Write | Grow => "write",
                    Read | Control | Alone => "readonly",
                };
                array(call.out, 1);
                status(call.out, flag);
            }
        }
        Some(b"count") => integer(call.out, COMMANDS.len() as i64),
        Some(b"docs") => array(call.out, 0),
        Some(_) => return Err("ERR only COMMAND, COMMAND COUNT and COMMAND DOCS are here"),
    }
    Ok(())
}

fn info(call: &mut Call<'_>) -> Answer {
    let told = call.db.info();
    text(call.out, told.as_bytes());
    Ok(())
}
