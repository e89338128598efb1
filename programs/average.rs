use std::error::Error;

use trapline::{Closed, Os, Program, Queue};

/// A task that is sent numbers and answers each with the average so far
#[derive(clap::Args)]
pub(crate) struct Average {}

impl Program for Average {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let numbers = Queue::unbounded(os).await;
        let averages = Queue::unbounded(os).await;
        let (input, output) = (numbers.clone(), averages.clone());
        let program = async move |os: &mut Os| average(os, &input, &output).await;
        let task = os.spawn("average", program).await?;
        let nothing_yet = averages.get(os).await?;
        writeln!(os, "{nothing_yet}");
        for number in [1.0, 9.0] {
            numbers.put(os, number).await?;
            let average = averages.get(os).await?;
            writeln!(os, "{average:.1}");
        }
        // The task is at its get, and will not come back from it.
        os.kill(task).await;
        writeln!(os, "closed");
        Ok(())
    }
}

async fn average(
    os: &mut Os,
    numbers: &Queue<f64>,
    averages: &Queue<f64>,
) -> Result<(), Closed<f64>> {
    let CleanUp(os) = &mut CleanUp(os);
    let (mut sum, mut count) = (0.0, 0.0);
    averages.put(os, 0.0).await?;
    while let Ok(number) = numbers.get(os).await {
        sum += number;
        count += 1.0;
        averages.put(os, sum / count).await?;
    }
    Ok(())
}

/// Runs however the task ends.
struct CleanUp<'a>(&'a mut Os);

impl Drop for CleanUp<'_> {
    fn drop(&mut self) {
        writeln!(self.0, "clean-up");
    }
}
