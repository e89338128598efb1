//! A gRPC pair by tonic, without its transport: hyper carries the calls, on either side.
//!
//! No code is generated. The messages are derived by prost, and the calls are named here. What the transport
//! of tonic would add is left out: it makes connections and tasks by tokio's runtime. So a server does not
//! hold a caller to its `grpc-timeout`, and a client has one connection to one server.

mod ask;
mod client;
mod service;

use std::{error::Error, net::SocketAddr, time::Duration};

use prost::Message;
use trapline::{Foreign, Os};
use trapline_cli::{Program, addr, duration};

pub use ask::LedgerAsk;
pub use client::Client;
pub use service::{Accounts, service};

use crate::serve::serve;

/// An amount for an account.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Deposit {
    #[prost(string, tag = "1")]
    pub account: String,
    #[prost(uint64, tag = "2")]
    pub amount: u64,
}

/// What an account has.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Balance {
    #[prost(uint64, tag = "1")]
    pub total: u64,
}

/// The calls, by the kinds of gRPC.
pub mod path {
    /// A deposit, answered by the balance.
    pub const DEPOSIT: &str = "/ledger.Ledger/Deposit";
    /// An account, answered by its balance now and after each of the next deposits, `amount` in all.
    pub const WATCH: &str = "/ledger.Ledger/Watch";
    /// Deposits, answered by the sum of their balances at the end.
    pub const SUM: &str = "/ledger.Ledger/Sum";
    /// Deposits, each answered by the balance.
    pub const EXCHANGE: &str = "/ledger.Ledger/Exchange";
}

/// A server of accounts, by tonic
///
/// SIGTERM drains it.
#[derive(clap::Args, Clone, Debug)]
pub struct Ledger {
    /// The address to listen on; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:50051")]
    pub addr: SocketAddr,
    /// How long connections may take to end
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub drain: Duration,
    /// Have a bug: a deposit is a read and a write
    #[arg(long)]
    pub racy: bool,
}

impl Program for Ledger {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = os.listen(self.addr).await?;
        writeln!(os, "Listening at {}", listener.local_addr()?);
        // Handlers call the kernel, and this program is no guest: it borrows what a guest is given.
        let foreign = os.run_future(async |foreign: &Foreign| *foreign).await;
        let service = service(Accounts::new(foreign, self.racy));
        let killed = serve(os, listener, None, service, None, self.drain).await?;
        writeln!(os, "Drained; {killed} connections were killed");
        Ok(())
    }
}
