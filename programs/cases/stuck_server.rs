use std::{cell::Cell, error::Error, io, rc::Rc, time::Duration};

use trapline::{Os, TcpListener, TcpStream, sync::Mutex};
use trapline_cli::Program;

use super::conclude;

/// The time that a request needs while it holds its first lock.
const WORK: Duration = Duration::from_millis(2);
/// The number of times that the monitor asks, and the time between two.
const PINGS: u32 = 5;
const EVERY: Duration = Duration::from_millis(5);
/// A request by its first byte: to pay, to report, or to say that the server is alive.
const PAY: u8 = b'p';
const REPORT: u8 = b'r';
const PING: u8 = b'.';

/// Goes wrong: a server two of whose clients get no answer, while it answers all others
#[derive(clap::Args)]
pub(crate) struct StuckServer {
    /// Let all requests take the locks in the same order
    #[arg(long)]
    cured: bool,
}

/// What the requests share.
struct Books {
    accounts: Mutex<i64>,
    journal: Mutex<u32>,
    cured: bool,
}

impl Program for StuckServer {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let books = Rc::new(Books {
            accounts: Mutex::named(os, "accounts", 0).await,
            journal: Mutex::named(os, "journal", 0).await,
            cured: self.cured,
        });
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let addr = listener.local_addr()?;
        let server = async move |os: &mut Os| serve(os, &listener, &books).await;
        os.spawn("server", server).await?;
        let answers = Rc::new(Cell::new(0));
        for (name, request) in [("payer", PAY), ("reporter", REPORT)] {
            let answers = Rc::clone(&answers);
            let client = async move |os: &mut Os| {
                let server = os.connect(addr).await?;
                ask(os, &server, request).await?;
                answers.set(answers.get() + 1);
                io::Result::Ok(())
            };
            os.spawn(name, client).await?;
        }
        let server = os.connect(addr).await?;
        for _ in 0..PINGS {
            os.sleep(EVERY).await;
            ask(os, &server, PING).await?;
        }
        if answers.get() < 2 {
            let what = "the server answers each ping, and two clients wait for ever";
            conclude(os, "stuck-server", what);
        }
        os.shutdown().await
    }
}

/// Sends a request and waits for its answer.
async fn ask(os: &mut Os, server: &TcpStream, request: u8) -> io::Result<()> {
    server.send_all(os, &[request]).await?;
    server.recv(os, &mut [0]).await?;
    Ok(())
}

async fn serve(os: &mut Os, listener: &TcpListener, books: &Rc<Books>) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept(os).await?;
        let books = Rc::clone(books);
        let session = async move |os: &mut Os| session(os, &client, &books).await;
        os.spawn_detached("session", session).await?;
    }
}

async fn session(os: &mut Os, client: &TcpStream, books: &Books) -> Result<(), Box<dyn Error>> {
    let mut request = [0];
    while client.recv(os, &mut request).await? > 0 {
        match request {
            [PAY] => pay(os, books).await?,
            [REPORT] if books.cured => pay(os, books).await?,
            [REPORT] => report(os, books).await?,
            _ => {}
        }
        client.send_all(os, &request).await?;
    }
    Ok(())
}

/// Takes the accounts, then the journal.
async fn pay(os: &mut Os, books: &Books) -> Result<(), Box<dyn Error>> {
    let mut accounts = books.accounts.lock(os).await?;
    os.sleep(WORK).await;
    let mut journal = books.journal.lock(os).await?;
    (*accounts, *journal) = (*accounts + 1, *journal + 1);
    Ok(())
}

/// Takes the journal, then the accounts.
async fn report(os: &mut Os, books: &Books) -> Result<(), Box<dyn Error>> {
    let journal = books.journal.lock(os).await?;
    os.sleep(WORK).await;
    let accounts = books.accounts.lock(os).await?;
    writeln!(os, "{} in {} entries", *accounts, *journal);
    Ok(())
}
