//! Programs that misbehave, to see what becomes of them and of their neighbours: boot one beside
//! another, with `--top` or `--trace`.
//!
//! ```sh
//! cargo run --example rude -- boot --top --with panics hogs
//! ```

use std::{error::Error, process::ExitCode, time::Duration};

use trapline::{
    Os, Program,
    cli::{self, program},
};

/// A task that panics after a while, beside one that goes on
#[derive(clap::Args)]
struct Panics {
    /// When
    #[arg(long, value_parser = cli::duration, default_value = "1s")]
    after: Duration,
    /// In a destructor as well, which is the end of the process
    #[arg(long)]
    twice: bool,
}

impl Program for Panics {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let Self { after, twice } = self;
        let child = async move |os: &mut Os| {
            let _bomb = twice.then(|| Bomb);
            os.sleep(after).await;
            panic!("as it was told to");
        };
        let child = os.spawn("child", child).await?;
        let exit = os.wait(child).await?;
        writeln!(os, "the child is {exit}");
        os.sleep(Duration::from_secs(60)).await;
        Ok(())
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("and again");
    }
}

/// A task that makes no trap for a while
#[derive(clap::Args)]
struct Hogs {
    /// How long
    #[arg(long, value_parser = cli::duration, default_value = "1m")]
    span: Duration,
}

impl Program for Hogs {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        os.sleep(Duration::from_millis(500)).await;
        println!("hogging now");
        std::thread::sleep(self.span);
        Ok(())
    }
}

/// A program that writes on the terminal itself, and not through its `Os`
#[derive(clap::Args)]
struct Scribbles {}

impl Program for Scribbles {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        loop {
            println!("scribble");
            os.sleep(Duration::from_millis(300)).await;
        }
    }
}

fn main() -> ExitCode {
    cli::main([
        program::<Panics>("panics"),
        program::<Hogs>("hogs"),
        program::<Scribbles>("scribbles"),
    ])
}
