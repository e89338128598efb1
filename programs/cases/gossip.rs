use std::{cell::RefCell, error::Error, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{Os, TcpStream};
use trapline_cli::Program;

/// The time for which ann thinks.
const THINK: Duration = Duration::from_millis(100);

/// Goes wrong: a chat server that takes all that arrives at once for one line
#[derive(clap::Args)]
pub(crate) struct Gossip {
    /// How many lines ann says
    #[arg(long, value_name = "N", default_value_t = 8)]
    lines: usize,
    /// Pass each line on
    #[arg(long)]
    cured: bool,
}

/// The guests.
type Room = Rc<RefCell<Vec<TcpStream>>>;

impl Program for Gossip {
    /// Bob: counts the lines that arrive.
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let Self { lines, cured } = self;
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let addr = listener.local_addr()?;
        let server = async move |os: &mut Os| -> io::Result<()> {
            let room = Room::default();
            loop {
                let (guest, _) = listener.accept(os).await?;
                guest.send_all(os, b"welcome\n").await?;
                room.borrow_mut().push(guest.clone());
                let room = Rc::clone(&room);
                let host = async move |os: &mut Os| attend(os, &guest, &room, cured).await;
                os.spawn_detached("host", host).await?;
            }
        };
        let server = os.spawn("server", server).await?;
        let bob = os.connect(addr).await?;
        let mut read = 0;
        let (mut text, mut buf) = (String::new(), [0; 512]);
        loop {
            let n = bob.recv(os, &mut buf).await?;
            text += &String::from_utf8_lossy(&buf[..n]);
            while let Some((line, rest)) = text.split_once('\n') {
                writeln!(os, "bob reads: {line}");
                match line {
                    "welcome" => {
                        let ann = async move |os: &mut Os| ann(os, addr, lines).await;
                        os.spawn_detached("ann", ann).await?;
                    }
                    _ => read += 1,
                }
                text = rest.to_string();
            }
            if n == 0 {
                break;
            }
        }
        os.kill(server).await;
        match read == lines {
            true => Ok(()),
            false => Err(format!("ann said {lines} lines, and bob read {read}").into()),
        }
    }
}

/// Passes on what a guest says, until the guest leaves. Then the party is over.
async fn attend(os: &mut Os, guest: &TcpStream, room: &Room, cured: bool) -> io::Result<()> {
    let mut buf = [0; 512];
    loop {
        let n = guest.recv(os, &mut buf).await?;
        let text = String::from_utf8_lossy(&buf[..n]).into_owned();
        // The bug: more than one line may have arrived.
        let lines = text.lines().take(if cured { usize::MAX } else { 1 });
        for line in lines {
            for other in others(room, guest) {
                other.send_all(os, format!("{line}\n").as_bytes()).await?;
            }
        }
        if n == 0 {
            for other in others(room, guest) {
                // One that has left is no failure.
                let _ = other.shutdown_write(os).await;
            }
            return Ok(());
        }
    }
}

/// The other guests.
fn others(room: &Room, guest: &TcpStream) -> Vec<TcpStream> {
    let mut guests = room.borrow().clone();
    guests.retain(|other| other.peer_addr().ok() != guest.peer_addr().ok());
    guests
}

/// Says lines. Mostly she thinks before the next one.
async fn ann(os: &mut Os, addr: SocketAddr, lines: usize) -> io::Result<()> {
    let room = os.connect(addr).await?;
    for n in 1..=lines {
        room.send_all(os, format!("line {n}\n").as_bytes()).await?;
        if os.random().await % 4 > 0 {
            os.sleep(THINK).await;
        }
    }
    room.shutdown_write(os).await
}
