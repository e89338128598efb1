//! A bank makes three transfers between four accounts, each in a task. Two of them are opposite.
//!
//! It prints `[12, 8, 3, 17], at most N at once`, where N is 1 in some schedules and 2 in others: transfers
//! between different accounts may overlap. No money is lost, and all end. `Bank` stays as it is.

use std::error::Error;

use trapline::{Os, Shared, sync::Mutex};
use trapline_cli::Program;

/// Opposite transfers between accounts
#[derive(clap::Args)]
pub(crate) struct Task {}

impl Program for Task {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let bank = Bank {
            accounts: [10; 4].map(Shared::new),
            under_way: Shared::new(0),
            most: Shared::new(0),
        };
        let rules = Rules::new(os).await;
        let mut tasks = Vec::new();
        for transfer in TRANSFERS {
            let bank = bank.clone();
            let rules = rules.clone();
            let each = async move |os: &mut Os| rules.transfer(os, &bank, transfer).await;
            tasks.push(os.spawn("task", each).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        let balances = bank.accounts.map(|account| account.get());
        writeln!(os, "{balances:?}, at most {} at once", bank.most.get());
        Ok(())
    }
}

type Transfer = (usize, usize, i64);

/// From, to and amount.
const TRANSFERS: [Transfer; 3] = [(0, 1, 3), (1, 0, 5), (2, 3, 7)];

#[derive(Clone)]
struct Bank {
    accounts: [Shared<i64>; 4],
    under_way: Shared<u32>,
    most: Shared<u32>,
}

impl Bank {
    async fn transfer(&self, os: &mut Os, (from, to, amount): Transfer) {
        self.under_way.update(|under_way| *under_way += 1);
        let under_way = self.under_way.get();
        self.most.update(|most| *most = under_way.max(*most));
        let (source, target) = (self.accounts[from].get(), self.accounts[to].get());
        os.yield_now().await;
        self.accounts[from].set(source - amount);
        self.accounts[to].set(target + amount);
        self.under_way.update(|under_way| *under_way -= 1);
    }
}

// Your part:

#[derive(Clone)]
struct Rules {
    locks: Vec<Mutex<()>>,
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let mut locks = Vec::new();
        for _ in 0..4 {
            locks.push(Mutex::new(os, ()).await);
        }
        Self { locks }
    }

    async fn transfer(&self, os: &mut Os, bank: &Bank, transfer: Transfer) {
        let _from = self.locks[transfer.0].lock(os).await;
        let _to = self.locks[transfer.1].lock(os).await;
        bank.transfer(os, transfer).await;
    }
}
