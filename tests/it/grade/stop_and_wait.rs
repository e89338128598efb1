//! A sender and a receiver with a line that loses at most two packets. Each message arrives once, in order,
//! and a packet is sent again only when it, or its answer, was lost.

use std::time::Duration;

use trapline::{Closed, Error, Kernel, Os, Queue, Shared, Source};

use super::{Wrong, all_right, all_wrong, programs, run};

const MESSAGES: [&str; 2] = ["a", "b"];
const PATIENCE: Duration = Duration::from_millis(10);
const LOSSES: u32 = 2;

#[derive(Clone)]
struct Line {
    packets: Queue<(usize, &'static str)>,
    answers: Queue<usize>,
    lost: Shared<u32>,
    sent: Shared<u32>,
    received: Shared<Vec<&'static str>>,
}

impl Line {
    async fn loses(&self, os: &mut Os) -> bool {
        let loses = self.lost.get() < LOSSES && os.choose_named("is lost", 2).await == 1;
        if loses {
            self.lost.update(|lost| *lost += 1);
        }
        loses
    }

    async fn send(&self, os: &mut Os, number: usize, text: &'static str) {
        self.sent.update(|sent| *sent += 1);
        if !self.loses(os).await {
            super::put(os, &self.packets, (number, text)).await;
        }
    }

    async fn answer(&self, os: &mut Os, number: usize) {
        if !self.loses(os).await {
            super::put(os, &self.answers, number).await;
        }
    }

    fn accept(&self, text: &'static str) {
        self.received.update(|received| received.push(text));
    }

    /// Returns the next answer, if it comes in time.
    async fn answered(&self, os: &mut Os) -> Option<usize> {
        let answer = os.timeout(PATIENCE, async |os: &mut Os| self.answers.get(os).await);
        answer.await.ok()?.ok()
    }
}

/// Runs the receiver as a task, and the sender. The line is closed behind it, if it should be.
fn talking<S, R>(kernel: &mut Kernel, send: S, receive: R, is_closed: bool) -> Result<(), Error>
where
    S: AsyncFnOnce(&mut Os, &Line) -> Result<(), String> + 'static,
    R: AsyncFnOnce(&mut Os, &Line) -> Result<(), Closed> + 'static,
{
    run(kernel, async move |os: &mut Os| {
        let line = Line {
            packets: Queue::unbounded(os).await,
            answers: Queue::unbounded(os).await,
            lost: Shared::default(),
            sent: Shared::default(),
            received: Shared::default(),
        };
        let theirs = line.clone();
        let receiver = async move |os: &mut Os| drop(receive(os, &theirs).await);
        let receiver = os.spawn("receiver", receiver).await;
        let receiver = receiver.map_err(|error| error.to_string())?;
        send(os, &line).await?;
        if is_closed {
            line.packets.close(os).await;
            let waited = os.wait(receiver).await;
            waited.map_err(|error| error.to_string())?;
        }
        let (received, sent) = (line.received.get(), line.sent.get());
        writeln!(os, "{received:?} with {sent} packets");
        Ok::<(), String>(())
    })
}

/// Sends each message under the number that `name` returns, until that is answered.
async fn send_all(os: &mut Os, line: &Line, name: fn(usize) -> usize) -> Result<(), String> {
    for (at, text) in MESSAGES.iter().enumerate() {
        line.send(os, name(at), text).await;
        while line.answered(os).await != Some(name(at)) {
            line.send(os, name(at), text).await;
        }
    }
    Ok(())
}

/// Accepts the number that is next, and answers each packet.
async fn receive_all(os: &mut Os, line: &Line, name: fn(usize) -> usize) -> Result<(), Closed> {
    let mut next = 0;
    loop {
        let (number, text) = line.packets.get(os).await?;
        if number == name(next) {
            line.accept(text);
            next += 1;
        }
        line.answer(os, number).await;
    }
}

fn numbers(kernel: &mut Kernel) -> Result<(), Error> {
    named(kernel, |at| at)
}

fn alternating_bit(kernel: &mut Kernel) -> Result<(), Error> {
    named(kernel, |at| at % 2)
}

fn named(kernel: &mut Kernel, name: fn(usize) -> usize) -> Result<(), Error> {
    let send = async move |os: &mut Os, line: &Line| send_all(os, line, name).await;
    let receive = async move |os: &mut Os, line: &Line| receive_all(os, line, name).await;
    talking(kernel, send, receive, true)
}

/// An answer names the message that the receiver wants next.
fn next_wanted(kernel: &mut Kernel) -> Result<(), Error> {
    let send = async |os: &mut Os, line: &Line| {
        let mut wanted = 0;
        while let Some(text) = MESSAGES.get(wanted) {
            line.send(os, wanted, text).await;
            wanted = line.answered(os).await.unwrap_or(wanted);
        }
        Ok(())
    };
    let receive = async |os: &mut Os, line: &Line| {
        let mut wanted = 0;
        loop {
            let (number, text) = line.packets.get(os).await?;
            if number == wanted {
                line.accept(text);
                wanted += 1;
            }
            line.answer(os, wanted).await;
        }
    };
    talking(kernel, send, receive, true)
}

/// Waits with a select instead of a timeout.
fn select(kernel: &mut Kernel) -> Result<(), Error> {
    let send = async |os: &mut Os, line: &Line| {
        for (at, text) in MESSAGES.iter().enumerate() {
            loop {
                line.send(os, at, text).await;
                let sources = [Source::message(&line.answers), Source::after(PATIENCE)];
                if os.select(&sources).await == 0 {
                    super::take(os, &line.answers).await;
                    break;
                }
            }
        }
        Ok(())
    };
    let receive = async |os: &mut Os, line: &Line| receive_all(os, line, |at| at).await;
    talking(kernel, send, receive, true)
}

/// The receiver's text has a place for each number, so a second packet changes nothing.
fn places(kernel: &mut Kernel) -> Result<(), Error> {
    let send = async |os: &mut Os, line: &Line| send_all(os, line, |at| at).await;
    let receive = async |os: &mut Os, line: &Line| {
        loop {
            let (number, text) = line.packets.get(os).await?;
            line.received.update(|received| {
                received.truncate(number);
                received.push(text);
            });
            line.answer(os, number).await;
        }
    };
    talking(kernel, send, receive, true)
}

fn accepts_all(kernel: &mut Kernel) -> Result<(), Error> {
    let send = async |os: &mut Os, line: &Line| send_all(os, line, |at| at).await;
    let receive = async |os: &mut Os, line: &Line| {
        loop {
            let (number, text) = line.packets.get(os).await?;
            line.accept(text);
            line.answer(os, number).await;
        }
    };
    talking(kernel, send, receive, true)
}

fn waits_for_ever(kernel: &mut Kernel) -> Result<(), Error> {
    let send = async |os: &mut Os, line: &Line| {
        for (at, text) in MESSAGES.iter().enumerate() {
            line.send(os, at, text).await;
            super::take(os, &line.answers).await;
        }
        Ok(())
    };
    let receive = async |os: &mut Os, line: &Line| receive_all(os, line, |at| at).await;
    talking(kernel, send, receive, true)
}

fn gives_up(kernel: &mut Kernel) -> Result<(), Error> {
    let send = async |os: &mut Os, line: &Line| {
        for (at, text) in MESSAGES.iter().enumerate() {
            line.send(os, at, text).await;
            if line.answered(os).await.is_none() {
                line.send(os, at, text).await;
                let answer = line.answered(os).await;
                answer.ok_or_else(|| format!("no answer to {text}"))?;
            }
        }
        Ok(())
    };
    let receive = async |os: &mut Os, line: &Line| receive_all(os, line, |at| at).await;
    talking(kernel, send, receive, true)
}

fn sends_each_twice(kernel: &mut Kernel) -> Result<(), Error> {
    let send = async |os: &mut Os, line: &Line| {
        for (at, text) in MESSAGES.iter().enumerate() {
            line.send(os, at, text).await;
        }
        send_all(os, line, |at| at).await
    };
    let receive = async |os: &mut Os, line: &Line| receive_all(os, line, |at| at).await;
    talking(kernel, send, receive, true)
}

fn receiver_is_left(kernel: &mut Kernel) -> Result<(), Error> {
    let send = async |os: &mut Os, line: &Line| send_all(os, line, |at| at).await;
    let receive = async |os: &mut Os, line: &Line| receive_all(os, line, |at| at).await;
    talking(kernel, send, receive, false)
}

#[test]
fn the_programs_of_the_protocol_are_judged_right() {
    let programs = programs![alternating_bit, next_wanted, select, places, numbers];
    all_right(numbers, programs);
}

#[test]
fn the_wrong_programs_of_the_protocol_are_found() {
    let [twice, waits, gives_up, sends, left] = programs![
        accepts_all,
        waits_for_ever,
        gives_up,
        sends_each_twice,
        receiver_is_left
    ];
    all_wrong(
        numbers,
        &[
            (Wrong::Race, twice),
            (Wrong::Deadlock, waits),
            (Wrong::Failure, gives_up),
            (Wrong::Race, sends),
            (Wrong::Leak, left),
        ],
    );
}
