mod disk;
mod log;

use std::{error::Error, fmt, time::Duration};

use trapline::Os;
use trapline_cli::{Program, duration};

use log::Log;

/// An account in a write-ahead log, which crashes do not turn back
///
/// Each deposit is one more than the last. Try it with crashes: --virtual --on server:wal --fault
/// "250ms:power server". In the real world it needs --disk.
#[derive(clap::Args)]
pub(crate) struct Wal {
    /// The number of the last deposit
    #[arg(long, value_name = "N", default_value = "10")]
    deposits: u64,
    /// How long to wait before each deposit
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration)]
    every: Duration,
    /// How many records the log may have before it is compacted to one
    #[arg(long, value_name = "N", default_value = "4")]
    records: usize,
}

#[derive(Default)]
struct Account {
    deposits: u64,
    total: u64,
}

impl Program for Wal {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let disk = os.disk();
        let (mut log, records) = Log::open(os, disk, "account").await?;
        let mut account = Account::default();
        for record in &records {
            account.apply(str::from_utf8(record)?)?;
        }
        let mut len = records.len();
        writeln!(os, "Recovered from {len} records: {account}");
        while account.deposits < self.deposits {
            os.sleep(self.every).await;
            let record = format!("deposit {}", account.deposits + 1);
            log.append(os, record.as_bytes()).await?;
            // Only now: the log comes first.
            account.apply(&record)?;
            writeln!(os, "{account}");
            len += 1;
            if len > self.records {
                let record = format!("total {} {}", account.deposits, account.total);
                log.replace(os, &[record.into_bytes()]).await?;
                len = 1;
            }
        }
        Ok(())
    }
}

impl Account {
    fn apply(&mut self, record: &str) -> Result<(), Box<dyn Error>> {
        let words: Vec<_> = record.split(' ').collect();
        match words[..] {
            ["deposit", amount] => {
                self.deposits += 1;
                self.total += amount.parse::<u64>()?;
            }
            ["total", deposits, total] => {
                (self.deposits, self.total) = (deposits.parse()?, total.parse()?);
            }
            _ => {
                return Err(format!("the log has a record {record:?}, which is no deposit").into());
            }
        }
        Ok(())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} deposits, {} in total", self.deposits, self.total)
    }
}
