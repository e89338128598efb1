use std::error::Error;

use trapline::{Closed, Os, Queue, Shared};
use trapline_cli::Program;

/// Goes wrong: a mailbox whose reader checks for a letter before it announces its wait
#[derive(clap::Args)]
pub(crate) struct LostWakeup {
    /// Let the reader announce its wait before it checks
    #[arg(long)]
    cured: bool,
}

#[derive(Clone)]
struct Mailbox {
    letters: Shared<Vec<&'static str>>,
    someone_waits: Shared<bool>,
    bell: Queue<()>,
}

impl Program for LostWakeup {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let mailbox = Mailbox {
            letters: Shared::default(),
            someone_waits: Shared::default(),
            bell: Queue::unbounded(os).await,
        };
        let mine = mailbox.clone();
        let reader = async move |os: &mut Os| mine.read(os, self.cured).await;
        let reader = os.spawn("reader", reader).await?;
        mailbox.write(os, "a letter").await?;
        os.wait(reader).await?;
        Ok(())
    }
}

impl Mailbox {
    async fn read(&self, os: &mut Os, cured: bool) -> Result<(), Closed> {
        loop {
            self.someone_waits.set(cured);
            if let Some(letter) = self.letters.update(Vec::pop) {
                writeln!(os, "reader has {letter}");
                return Ok(());
            }
            // A trap, and so a turn for the writer, which finds no waiting reader to wake.
            let now = os.now().await;
            writeln!(os, "reader waits since {now:?}");
            self.someone_waits.set(true);
            self.bell.get(os).await?;
        }
    }

    async fn write(&self, os: &mut Os, letter: &'static str) -> Result<(), Closed<()>> {
        self.letters.update(|letters| letters.push(letter));
        writeln!(os, "writer has put {letter}");
        if self.someone_waits.update(std::mem::take) {
            self.bell.put(os, ()).await?;
        }
        Ok(())
    }
}
