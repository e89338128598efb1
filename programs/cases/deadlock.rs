use std::{error::Error, time::Duration};

use trapline::{Os, sync::Mutex};
use trapline_cli::Program;

/// Goes wrong: two tasks that take two locks, each in its own order
#[derive(clap::Args)]
pub(crate) struct Deadlock {
    /// Let both take the locks in the same order
    #[arg(long)]
    cured: bool,
}

impl Program for Deadlock {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let checking = Mutex::new(os, 100).await;
        let savings = Mutex::new(os, 100).await;
        let (first, second) = (checking.clone(), savings.clone());
        let save = async move |os: &mut Os| transfer(os, &first, &second, 10).await;
        let save = os.spawn("save", save).await?;
        let spend = async move |os: &mut Os| {
            if self.cured {
                transfer(os, &checking, &savings, -20).await;
            } else {
                transfer(os, &savings, &checking, 20).await;
            }
        };
        let spend = os.spawn("spend", spend).await?;
        os.wait(save).await?;
        os.wait(spend).await?;
        Ok(())
    }
}

/// Moves an amount from the first account to the second, with both of them locked.
async fn transfer(os: &mut Os, from: &Mutex<i64>, to: &Mutex<i64>, amount: i64) {
    let Ok(mut from) = from.lock(os).await else {
        return;
    };
    // The bank takes a moment to answer.
    os.sleep(Duration::from_millis(1)).await;
    let Ok(mut to) = to.lock(os).await else {
        return;
    };
    *from -= amount;
    *to += amount;
}
