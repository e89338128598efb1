//! A solution of `task.rs`.

use std::{error::Error, time::Duration};

use trapline::{Os, Queue, Shared};
use trapline_cli::Program;

/// Stop and wait, over a line that loses packets
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let line = Line {
            packets: Queue::unbounded(os).await,
            answers: Queue::unbounded(os).await,
            losses: Shared::default(),
            sent: Shared::default(),
            received: Shared::default(),
        };
        let theirs = line.clone();
        let receiver = async move |os: &mut Os| receive(os, &theirs).await;
        let receiver = os.spawn("receiver", receiver).await?;
        send(os, &line).await;
        line.packets.close(os).await;
        os.wait(receiver).await?;
        let (received, sent) = (line.received.get(), line.sent.get());
        writeln!(os, "{received:?} with {sent} packets");
        Ok(())
    }
}

const MESSAGES: [&str; 2] = ["a", "b"];

#[derive(Clone)]
struct Line {
    packets: Queue<(usize, &'static str)>,
    answers: Queue<usize>,
    losses: Shared<u32>,
    sent: Shared<u32>,
    received: Shared<Vec<&'static str>>,
}

impl Line {
    async fn loses(&self, os: &mut Os) -> bool {
        let loses = self.losses.get() < 2 && os.choose_named("is lost", 2).await == 1;
        self.losses.update(|losses| *losses += u32::from(loses));
        loses
    }

    async fn send(&self, os: &mut Os, number: usize, text: &'static str) {
        self.sent.update(|sent| *sent += 1);
        if !self.loses(os).await {
            let _ = self.packets.put(os, (number, text)).await;
        }
    }

    async fn answer(&self, os: &mut Os, number: usize) {
        if !self.loses(os).await {
            let _ = self.answers.put(os, number).await;
        }
    }
}

async fn send(os: &mut Os, line: &Line) {
    for (number, text) in MESSAGES.into_iter().enumerate() {
        loop {
            line.send(os, number, text).await;
            let answer = async |os: &mut Os| line.answers.get(os).await;
            let answer = os.timeout(Duration::from_millis(10), answer).await;
            if answer == Ok(Ok(number)) {
                break;
            }
        }
    }
}

async fn receive(os: &mut Os, line: &Line) {
    let mut next = 0;
    while let Ok((number, text)) = line.packets.get(os).await {
        if number == next {
            line.received.update(|received| received.push(text));
            next += 1;
        }
        line.answer(os, number).await;
    }
}
