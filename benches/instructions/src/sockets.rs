//! Reads of TCP connections that wait for their bytes, in the real world.

use std::{
    cell::{Cell, RefCell},
    io::{self, Write},
    net::{SocketAddr, TcpStream as Peer},
    rc::Rc,
    time::Duration,
};

use trapline::{Kernel, Os, TcpStream};

/// The length of a message, and the longest.
const LEN: usize = 64;
const MAX: usize = 1024;

/// As many tasks each read a message in a lap, within a timeout if there is one. The last of them has
/// all peers send the next: so every read waits, and one poll reports them all.
pub(crate) fn read_among(tasks: usize, laps: u64, timeout: Option<Duration>) {
    let mut kernel = Kernel::real().expect("there are descriptors left");
    let main = async move |os: &mut Os| {
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let addr = listener.local_addr()?;
        let peers = Rc::new(Peers::default());
        for _ in 0..tasks {
            peers.all.borrow_mut().push(connect(addr)?);
            let (stream, _) = listener.accept(os).await?;
            let peers = Rc::clone(&peers);
            os.spawn_detached("reader", async move |os: &mut Os| {
                let mut buf = [0; MAX];
                for _ in 0..laps {
                    read(os, &stream, &mut buf, timeout).await?;
                    peers.heard()?;
                }
                io::Result::Ok(())
            })
            .await?;
        }
        peers.send()
    };
    kernel.spawn("main", main).expect("there is room");
    let report = kernel.run().expect("the tasks come to an end");
    report.check().expect("they end well");
}

async fn read(
    os: &mut Os,
    stream: &TcpStream,
    buf: &mut [u8],
    timeout: Option<Duration>,
) -> io::Result<()> {
    let read = match timeout {
        None => stream.recv(os, buf).await,
        Some(span) => {
            let read = os.timeout(span, async |os| stream.recv(os, buf).await);
            read.await.expect("the message comes in time")
        }
    };
    assert_eq!(read?, LEN);
    Ok(())
}

fn connect(addr: SocketAddr) -> io::Result<Peer> {
    let peer = Peer::connect(addr)?;
    peer.set_nodelay(true)?;
    Ok(peer)
}

#[derive(Default)]
struct Peers {
    all: RefCell<Vec<Peer>>,
    heard: Cell<usize>,
}

impl Peers {
    fn send(&self) -> io::Result<()> {
        let mut all = self.all.borrow_mut();
        all.iter_mut()
            .try_for_each(|peer| peer.write_all(&[b'x'; LEN]))
    }

    /// A message has arrived.
    fn heard(&self) -> io::Result<()> {
        self.heard.set(self.heard.get() + 1);
        if self.heard.get() < self.all.borrow().len() {
            return Ok(());
        }
        self.heard.set(0);
        self.send()
    }
}
