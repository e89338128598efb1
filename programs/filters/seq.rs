use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

/// Prints numbers, a line each
///
/// One argument is the last number, and the first is 1. Two are the first and the last. Three have the step
/// between them.
#[derive(clap::Args)]
pub(crate) struct Seq {
    /// The numbers, up to three
    #[arg(required = true, num_args = 1..=3, value_name = "N", allow_negative_numbers = true)]
    numbers: Vec<i64>,
}

impl Program for Seq {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (first, step, last) = match self.numbers[..] {
            [first, step, last] => (first, step, last),
            [first, last] => (first, 1, last),
            _ => (1, 1, self.numbers[0]),
        };
        if step == 0 {
            return Err("the step is 0: the numbers would not end".into());
        }
        let mut next = Some(first);
        while let Some(n) = next.filter(|n| if step > 0 { *n <= last } else { *n >= last }) {
            writeln!(os, "{n}");
            os.yield_now().await;
            next = n.checked_add(step);
        }
        Ok(())
    }
}
