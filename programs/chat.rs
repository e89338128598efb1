use std::{collections::BTreeMap, error::Error, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{
    Elapsed, Os, Promise, Queue, Reader, Setter, Stream, TcpStream, Writer, sync::Group,
};
use trapline_cli::{Program, addr, duration};

use crate::serve::{Drain, catch, flush, listen};

/// A chat server: every client reads what each one says
///
/// Try it with `nc 127.0.0.1 45002`. A slow reader delays no other client: each client has a queue
/// of lines. A client whose queue is full loses lines, and is told how many when there is room
/// again. A client that reads nothing at all for --timeout is dropped.
#[derive(clap::Args)]
pub(crate) struct Chat {
    /// The address to listen on; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:45002")]
    addr: SocketAddr,
    /// How long a client may take to give its name, or to read anything that is sent
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    timeout: Duration,
    #[command(flatten)]
    drain: Drain,
}

/// The longest line, in bytes, and the longest name, in letters.
const LINE: usize = 1000;
const NAME: usize = 20;
/// The number of attempts to give a name.
const ATTEMPTS: usize = 10;
/// The capacity of a client's queue, in lines.
const BACKLOG: usize = 256;
/// The approximate size of a send to a client.
const BATCH: usize = 16 * 1024;

/// Lines for a client. They are shared, since all clients get the same lines.
type Outbox = Queue<Rc<str>>;

impl Program for Chat {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let Self {
            addr,
            timeout,
            drain,
        } = self;
        let listener = listen(os, addr, "--addr").await?;
        let room = Queue::bounded(os, 64).await;
        let events = room.clone();
        os.spawn_detached("room", async move |os| keep_room(os, events).await)
            .await?;
        let signals = catch(os).await;
        writeln!(os, "Chat starting at {}", listener.local_addr()?);
        let theirs = room.clone();
        let client = async move |os: &mut Os, client, peer: SocketAddr| {
            if let Err(error) = visit(os, client, &theirs, timeout).await {
                tracing::info!("{peer}: {error}");
            }
        };
        drain.serve(os, &signals, &listener, client).await?;
        room.close(os).await;
        Ok(())
    }
}

// ---- the room: one task, so that all clients read the same lines in the same order

enum Event {
    /// A client joins; the answer is whether the name was free.
    Join(String, Outbox, Setter<bool>),
    Say(String, String),
    /// The names, for this client.
    Who(Outbox),
    Leave(String),
}

struct Member {
    outbox: Outbox,
    /// The number of lines lost since the last notice.
    lost: usize,
}

async fn keep_room(os: &mut Os, events: Queue<Event>) {
    let mut members = BTreeMap::new();
    while let Ok(event) = events.get(os).await {
        match event {
            Event::Join(name, outbox, free) => {
                let is_free = !members.contains_key(&name);
                // The client's task may have ended meanwhile, which is no error.
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
                // A client without room for an answer does not read answers.
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

/// Puts a line into every outbox. Never blocks on any of them.
async fn tell(os: &mut Os, members: &mut BTreeMap<String, Member>, line: String) {
    let line: Rc<str> = line.into();
    for member in members.values_mut() {
        if member.lost > 0 {
            let notice = format!("* lines lost: {}\n", member.lost);
            if member.outbox.try_put(os, notice.into()).await.is_ok() {
                member.lost = 0;
            }
        }
        // A closed outbox counts as full: its client is about to leave.
        if member.lost > 0 || member.outbox.try_put(os, line.clone()).await.is_err() {
            member.lost += 1;
        }
    }
}

// ---- a client: one task reads from the socket, another writes to it

async fn visit(
    os: &mut Os,
    client: TcpStream,
    room: &Queue<Event>,
    timeout: Duration,
) -> Result<(), Box<dyn Error>> {
    let outbox: Outbox = Queue::bounded(os, BACKLOG).await;
    // Any end of this task ends the writer.
    let mut group = Group::new(os).await;
    let writer = {
        let (client, outbox) = (client.clone(), outbox.clone());
        async move |os: &mut Os| {
            let result = write_all(os, &client, &outbox, timeout).await;
            outbox.close(os).await;
            if result.is_err() {
                // Now the reader has nothing to wait for, either.
                let _ = client.close(os).await;
            }
            result
        }
    };
    group.spawn(os, "writer", writer).await?;
    let mut lines = Reader::new(&client, LINE);
    if let Some(name) = enter(os, &mut lines, room, &outbox, timeout).await? {
        let result = talk(os, &mut lines, room, &outbox, &name).await;
        // The room closes the outbox after it has handled all earlier events.
        room.put(os, Event::Leave(name)).await?;
        result?;
    } else {
        outbox.close(os).await;
    }
    // The writer still has to send the last lines.
    group.join(os).await?;
    Ok(())
}

/// Asks for a name, several times if needed, and enters the room under it.
async fn enter(
    os: &mut Os,
    lines: &mut Reader<Stream>,
    room: &Queue<Event>,
    outbox: &Outbox,
    timeout: Duration,
) -> Result<Option<String>, Box<dyn Error>> {
    outbox.put(os, "* your name?\n".into()).await?;
    for _attempt in 0..ATTEMPTS {
        // The timeout covers the client only: once the room is asked, its answer must be received.
        let line = match os.timeout(timeout, async |os| next(os, lines).await).await {
            Ok(line) => line?,
            Err(Elapsed) => {
                outbox.put(os, "* too late\n".into()).await?;
                return Ok(None);
            }
        };
        let Some(line) = line else { break };
        let name = line.as_deref().unwrap_or_default().trim();
        let is_good = |c: char| c.is_alphanumeric() || "-_".contains(c);
        let sorry = if (1..=NAME).contains(&name.chars().count()) && name.chars().all(is_good) {
            let (answer, free) = Promise::new(os).await;
            let join = Event::Join(name.to_string(), outbox.clone(), answer);
            room.put(os, join).await?;
            if free.wait(os).await? {
                return Ok(Some(name.to_string()));
            }
            format!("* {name} is here already: your name?\n")
        } else {
            format!("* a name has 1 to {NAME} letters, digits, - or _: your name?\n")
        };
        outbox.put(os, sorry.into()).await?;
    }
    Ok(None)
}

/// Passes on the client's lines, until it leaves.
async fn talk(
    os: &mut Os,
    lines: &mut Reader<Stream>,
    room: &Queue<Event>,
    outbox: &Outbox,
    name: &str,
) -> Result<(), Box<dyn Error>> {
    while let Some(line) = next(os, lines).await? {
        match line.as_deref().map(str::trim) {
            Some("") => {}
            Some("/quit") => break,
            Some("/who") => room.put(os, Event::Who(outbox.clone())).await?,
            Some(line) if line.starts_with('/') => {
                let help = "* commands: /who lists the names, /quit leaves\n";
                outbox.put(os, help.into()).await?;
            }
            Some(text) => {
                let say = Event::Say(name.to_string(), text.to_string());
                room.put(os, say).await?;
            }
            None => {
                let sorry = format!("* not sent: a line is text of at most {LINE} bytes\n");
                outbox.put(os, sorry.into()).await?;
            }
        }
    }
    Ok(())
}

/// Sends the lines of the outbox, several at once if there are several.
async fn write_all(
    os: &mut Os,
    client: &TcpStream,
    outbox: &Outbox,
    timeout: Duration,
) -> io::Result<()> {
    let mut writer = Writer::new(client, BATCH);
    while let Ok(line) = outbox.get(os).await {
        write!(writer, "{line}");
        while writer.unsent() < BATCH
            && let Ok(line) = outbox.try_get(os).await
        {
            write!(writer, "{line}");
        }
        flush(os, &mut writer, timeout).await?;
    }
    Ok(())
}

/// The next line, without characters that would confuse a terminal. One that is too long or no text is
/// `None`. The end of the stream ends the lines.
async fn next(os: &mut Os, lines: &mut Reader<Stream>) -> io::Result<Option<Option<String>>> {
    match lines.read_line(os).await {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(None)),
        line => Ok(line?.map(|line| Some(line.chars().filter(|c| !confuses(*c)).collect()))),
    }
}

/// Whether a character has an effect on a reader's terminal beyond its own display. Such are
/// control characters, Unicode's line breaks, and characters that change the direction of the text.
fn confuses(c: char) -> bool {
    let turns = ['\u{61c}', '\u{200e}', '\u{200f}'];
    c.is_control()
        || turns.contains(&c)
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
