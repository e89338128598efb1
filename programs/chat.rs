use std::{collections::BTreeMap, error::Error, io, mem, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{Elapsed, Os, Program, Promise, Queue, Setter, TcpStream, cli, sync::Group};

use crate::serve::{accept, listen};

/// A chat server: what one says, everybody reads
///
/// Try it with `nc 127.0.0.1 45002`. Nobody has to wait for a slow reader: each client has a queue
/// of lines, and a client whose queue is full loses lines, and is told how many when there is room
/// again. One that reads nothing at all for --timeout is dropped.
#[derive(clap::Args)]
pub(crate) struct Chat {
    /// The address to listen at; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = cli::addr, default_value = "127.0.0.1:45002")]
    addr: SocketAddr,
    /// How long a client may take to give its name, or to read anything of what it is sent
    #[arg(long, value_name = "TIME", value_parser = cli::duration, default_value = "30s")]
    timeout: Duration,
}

/// The longest line, in bytes, and the longest name, in letters.
const LINE: usize = 1000;
const NAME: usize = 20;
/// How often a client may try to give one.
const ATTEMPTS: usize = 10;
/// How many lines wait for a client, at most.
const BACKLOG: usize = 256;
/// How much is sent to a client at once, roughly.
const BATCH: usize = 16 * 1024;

/// Lines for a client. They are shared: everybody gets the same.
type Outbox = Queue<Rc<str>>;

impl Program for Chat {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let Self { addr, timeout } = self;
        let listener = listen(os, addr, "--addr").await?;
        let room = Queue::bounded(os, 64).await;
        let events = room.clone();
        os.spawn_detached("room", async move |os| keep_room(os, events).await)
            .await?;
        writeln!(os, "Chat starting at {}", listener.local_addr()?);
        loop {
            let (client, peer) = accept(os, &listener).await;
            let room = room.clone();
            let visit = async move |os: &mut Os| {
                // Clients may go as they please.
                if let Err(error) = visit(os, client, &room, timeout).await {
                    tracing::info!("{peer}: {error}");
                }
            };
            if let Err(errno) = os.spawn_detached("client", visit).await {
                writeln!(os, "Client rejected {peer}: {errno}");
            }
        }
    }
}

// ---- the room: one task, so that everybody reads the same lines in the same order

enum Event {
    /// Somebody comes; the answer is whether the name was free.
    Join(String, Outbox, Setter<bool>),
    Say(String, String),
    /// The names, for this client.
    Who(Outbox),
    Leave(String),
}

struct Member {
    outbox: Outbox,
    /// How many lines it has missed since it last heard of that.
    lost: usize,
}

async fn keep_room(os: &mut Os, events: Queue<Event>) {
    let mut members = BTreeMap::new();
    while let Ok(event) = events.get(os).await {
        match event {
            Event::Join(name, outbox, free) => {
                let is_free = !members.contains_key(&name);
                // Its task may have been ended meanwhile, which nobody needs to hear of.
                let _ = free.set(os, is_free).await;
                if is_free {
                    members.insert(name.clone(), Member { outbox, lost: 0 });
                    tell(os, &mut members, format!("* {name} joins\n")).await;
                }
            }
            Event::Say(name, text) => tell(os, &mut members, format!("{name}: {text}\n")).await,
            Event::Who(outbox) => {
                let names: Vec<_> = members.keys().map(String::as_str).collect();
                let line = format!("* here: {}\n", names.join(", "));
                // Whoever has no room for an answer does not read answers.
                let _ = outbox.try_put(os, line.into()).await;
            }
            Event::Leave(name) => {
                if let Some(member) = members.remove(&name) {
                    member.outbox.close(os).await;
                    tell(os, &mut members, format!("* {name} leaves\n")).await;
                }
            }
        }
    }
}

/// Puts a line into every outbox. Never waits for any of them.
async fn tell(os: &mut Os, members: &mut BTreeMap<String, Member>, line: String) {
    let line: Rc<str> = line.into();
    for member in members.values_mut() {
        if member.lost > 0 {
            let notice = format!("* lines lost: {}\n", member.lost);
            if member.outbox.try_put(os, notice.into()).await.is_ok() {
                member.lost = 0;
            }
        }
        // A closed outbox is full too: its client is about to leave.
        if member.lost > 0 || member.outbox.try_put(os, line.clone()).await.is_err() {
            member.lost += 1;
        }
    }
}

// ---- a client: one task reads what it says, another writes what it is to read

async fn visit(
    os: &mut Os,
    client: TcpStream,
    room: &Queue<Event>,
    timeout: Duration,
) -> Result<(), Box<dyn Error>> {
    let outbox: Outbox = Queue::bounded(os, BACKLOG).await;
    // Whatever ends this task ends the writer.
    let mut group = Group::new(os).await;
    let writer = {
        let (client, outbox) = (client.clone(), outbox.clone());
        async move |os: &mut Os| {
            let result = write_all(os, &client, &outbox, timeout).await;
            // Now the reader, too, has nothing to wait for.
            outbox.close(os).await;
            let _ = client.close(os).await;
            result
        }
    };
    group.spawn(os, "writer", writer).await?;
    let mut lines = Lines::new(client);
    if let Some(name) = enter(os, &mut lines, room, &outbox, timeout).await? {
        let result = talk(os, &mut lines, room, &outbox, &name).await;
        // The room closes the outbox, when it has heard all that was said before.
        room.put(os, Event::Leave(name)).await?;
        result?;
    } else {
        outbox.close(os).await;
    }
    // The last lines still have to go out.
    group.join(os).await?;
    Ok(())
}

/// Asks for a name, a few times if need be, and enters the room under it.
async fn enter(
    os: &mut Os,
    lines: &mut Lines,
    room: &Queue<Event>,
    outbox: &Outbox,
    timeout: Duration,
) -> Result<Option<String>, Box<dyn Error>> {
    outbox.put(os, "* your name?\n".into()).await?;
    for _attempt in 0..ATTEMPTS {
        // Only the client is hurried: once the room is asked, its answer must be heard.
        let line = match os.timeout(timeout, async |os| lines.next(os).await).await {
            Ok(line) => line?,
            Err(Elapsed) => {
                outbox.put(os, "* too late\n".into()).await?;
                break;
            }
        };
        let Some(line) = line else { break };
        let name = line.as_deref().unwrap_or_default().trim();
        let good = (1..=NAME).contains(&name.chars().count())
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || "-_".contains(c));
        if !good {
            let help = format!("* a name has 1 to {NAME} letters, digits, - or _: your name?\n");
            outbox.put(os, help.into()).await?;
            continue;
        }
        let (answer, free) = Promise::new(os).await;
        let join = Event::Join(name.to_string(), outbox.clone(), answer);
        room.put(os, join).await?;
        if free.wait(os).await? {
            return Ok(Some(name.to_string()));
        }
        let sorry = format!("* {name} is here already: your name?\n");
        outbox.put(os, sorry.into()).await?;
    }
    Ok(None)
}

/// Says what the client says, until it leaves.
async fn talk(
    os: &mut Os,
    lines: &mut Lines,
    room: &Queue<Event>,
    outbox: &Outbox,
    name: &str,
) -> Result<(), Box<dyn Error>> {
    while let Some(line) = lines.next(os).await? {
        let answer = match line.as_deref().map(str::trim) {
            Some("") => continue,
            Some("/quit") => break,
            Some("/who") => {
                room.put(os, Event::Who(outbox.clone())).await?;
                continue;
            }
            Some(line) if line.starts_with('/') => {
                "* there is /who, for who is here, and /quit\n".to_string()
            }
            Some(text) => {
                let say = Event::Say(name.to_string(), text.to_string());
                room.put(os, say).await?;
                continue;
            }
            None => format!("* not said: a line has {LINE} bytes at most\n"),
        };
        outbox.put(os, answer.into()).await?;
    }
    Ok(())
}

/// Sends what comes out of the outbox, many lines at once where there are many.
async fn write_all(
    os: &mut Os,
    client: &TcpStream,
    outbox: &Outbox,
    timeout: Duration,
) -> io::Result<()> {
    while let Ok(line) = outbox.get(os).await {
        let mut batch = line.as_bytes().to_vec();
        while batch.len() < BATCH
            && let Ok(line) = outbox.try_get(os).await
        {
            batch.extend(line.as_bytes());
        }
        let mut rest = &*batch;
        while !rest.is_empty() {
            let sent = os.timeout(timeout, async |os| client.send(os, rest).await);
            let sent = sent.await.map_err(|Elapsed| io::ErrorKind::TimedOut)??;
            rest = &rest[sent..];
        }
    }
    Ok(())
}

/// What a client sends, line by line.
struct Lines {
    client: TcpStream,
    /// What has come in and was not taken yet; the first `seen` bytes of it end no line.
    bytes: Vec<u8>,
    seen: usize,
    /// Whether these bytes belong to a line that is too long.
    too_long: bool,
}

impl Lines {
    fn new(client: TcpStream) -> Self {
        Self {
            client,
            bytes: Vec::new(),
            seen: 0,
            too_long: false,
        }
    }

    /// The next line, without its end, and with nothing that would confuse a terminal; `None` in
    /// its place if it is too long. No more lines after the end of the stream.
    async fn next(&mut self, os: &mut Os) -> io::Result<Option<Option<String>>> {
        let mut buf = [0; 1024];
        loop {
            if let Some(at) = self.bytes[self.seen..].iter().position(|b| *b == b'\n') {
                let rest = self.bytes.split_off(self.seen + at + 1);
                let line = mem::replace(&mut self.bytes, rest);
                self.seen = 0;
                return Ok(Some(self.text(&line[..line.len() - 1])));
            }
            if self.bytes.len() > LINE + 1 {
                self.too_long = true;
                self.bytes.clear();
            }
            self.seen = self.bytes.len();
            match self.client.recv(os, &mut buf).await? {
                0 if self.bytes.is_empty() => return Ok(None),
                0 => self.bytes.push(b'\n'),
                n => self.bytes.extend(&buf[..n]),
            }
        }
    }

    fn text(&mut self, line: &[u8]) -> Option<String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if mem::take(&mut self.too_long) || line.len() > LINE {
            return None;
        }
        let text = String::from_utf8_lossy(line);
        Some(text.chars().filter(|c| !confuses(*c)).collect())
    }
}

/// Whether a character would do more at a reader's terminal than show itself: a control character,
/// a line break of Unicode's, or what turns the direction of the text around it.
fn confuses(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}
