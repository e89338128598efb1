use std::error::Error;

use trapline::{Abandoned, Closed, Os, Promise, Queue};
use trapline_cli::Program;

/// A task that receives numbers and answers each with the average so far
#[derive(clap::Args)]
pub(crate) struct Average {}

impl Program for Average {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let average = Averager::start(os).await?;
        let nothing_yet = average.answers.get(os).await?;
        writeln!(os, "{nothing_yet}");
        for number in [1.0, 9.0] {
            average.numbers.put(os, number).await?;
            let answer = average.answers.get(os).await?;
            writeln!(os, "{answer:.1}");
        }
        let value = average.close(os).await?;
        writeln!(os, "closed: {value:.1}");
        Ok(())
    }
}

/// A generator: it receives numbers, yields averages, and returns the last one when it is closed.
struct Averager {
    numbers: Queue<f64>,
    answers: Queue<f64>,
    value: Promise<f64>,
}

impl Averager {
    async fn start(os: &mut Os) -> Result<Self, Box<dyn Error>> {
        let (setter, value) = Promise::new(os).await;
        let (numbers, answers) = (Queue::unbounded(os).await, Queue::unbounded(os).await);
        let (input, output) = (numbers.clone(), answers.clone());
        let program = async move |os: &mut Os| {
            let value = average(os, &input, &output).await?;
            // The owner may have ended, and then needs no value.
            let _ = setter.set(os, value).await;
            Ok::<(), Closed<f64>>(())
        };
        os.spawn("average", program).await?;
        Ok(Self {
            numbers,
            answers,
            value,
        })
    }

    /// Ends the task at its `get`, and returns its result after its cleanup.
    async fn close(self, os: &mut Os) -> Result<f64, Abandoned> {
        self.numbers.close(os).await;
        self.value.wait(os).await
    }
}

async fn average(
    os: &mut Os,
    numbers: &Queue<f64>,
    answers: &Queue<f64>,
) -> Result<f64, Closed<f64>> {
    let CleanUp(os) = &mut CleanUp(os);
    let (mut sum, mut count, mut average) = (0.0, 0.0, 0.0);
    answers.put(os, average).await?;
    while let Ok(number) = numbers.get(os).await {
        sum += number;
        count += 1.0;
        average = sum / count;
        answers.put(os, average).await?;
    }
    Ok(average)
}

/// Runs at every kind of end.
struct CleanUp<'a>(&'a mut Os);

impl Drop for CleanUp<'_> {
    fn drop(&mut self) {
        writeln!(self.0, "clean-up");
    }
}
