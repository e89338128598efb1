//! A server that keeps a list of its clients, and forgets to take a client off it whose connection
//! was reset. It works as long as all clients say goodbye.

use std::{cell::RefCell, collections::BTreeSet, io, net::SocketAddr, rc::Rc};

use trapline::{Os, TcpStream};

/// The clients that are connected.
pub(crate) type Clients = Rc<RefCell<BTreeSet<SocketAddr>>>;

/// Echoes to all clients.
pub(crate) async fn serve(os: &mut Os, addr: SocketAddr, clients: Clients) -> io::Result<()> {
    let listener = os.listen(addr).await?;
    loop {
        let (stream, peer) = listener.accept(os).await?;
        clients.borrow_mut().insert(peer);
        let clients = Rc::clone(&clients);
        let client = async move |os: &mut Os| {
            // The bug: an error ends the task before the next line.
            echo(os, &stream).await?;
            clients.borrow_mut().remove(&peer);
            io::Result::Ok(())
        };
        os.spawn_detached("client", client).await?;
    }
}

async fn echo(os: &mut Os, stream: &TcpStream) -> io::Result<()> {
    let mut buf = [0; 64];
    loop {
        match stream.recv(os, &mut buf).await? {
            0 => return Ok(()),
            n => stream.send_all(os, &buf[..n]).await?,
        }
    }
}
