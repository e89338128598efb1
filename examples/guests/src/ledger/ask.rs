//! The client as a program.

use std::error::Error;

use futures::{StreamExt, stream};
use hyper::Uri;
use trapline::Os;
use trapline_cli::Program;

use super::client::{Client, deposit};

/// Deposits amounts in an account of a ledger, and prints the balances
///
/// The first one is a call, the others are a stream.
#[derive(clap::Args, Clone, Debug)]
pub struct LedgerAsk {
    /// The server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:50051")]
    pub server: Uri,
    /// The account
    pub account: String,
    /// The amounts
    #[arg(required = true)]
    pub amounts: Vec<u64>,
}

impl Program for LedgerAsk {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (first, rest) = self.amounts.split_first().expect("one is required");
        let rest: Vec<_> = rest
            .iter()
            .map(|amount| deposit(&self.account, *amount))
            .collect();
        let totals = os.run_future(async |foreign| {
            let mut client = Client::new(foreign, self.server);
            let mut totals = vec![client.deposit(&self.account, *first).await?];
            let mut balances = client.exchange(stream::iter(rest)).await?;
            while let Some(balance) = balances.next().await {
                totals.push(balance?.total);
            }
            Ok::<_, tonic::Status>(totals)
        });
        for total in totals.await? {
            writeln!(os, "{total}");
        }
        Ok(())
    }
}
