//! What a peer gets for what it sends itself.
//!
//! Alone with the programs, a peer gets nothing but that. So its answer is what it gets as the only
//! client, if the same comes on the tape and where the clients come one after the other: in the reverse
//! order, and as on the tape, where those before it stay. A part of it ends with a line, and where
//! the peer makes its next step. Each part has to come as a whole, and before the step. Between two
//! steps the order of the parts may change, and what others cause may come between them.
//!
//! Where these runs differ in nothing but numbers, such as a date, any number will do. Where they
//! differ otherwise, the answer depends on other peers, or on the world, and is not compared.

use std::mem;

/// How many parts of an answer may come in another order.
const MIXED: usize = 16;
/// How many bytes of an answer are compared.
pub(super) const MOST: usize = 64 * 1024;

/// What a peer has got, and how much of it at each of its steps.
#[derive(Clone, Default, Debug)]
pub(super) struct Heard {
    bytes: Vec<u8>,
    steps: Vec<usize>,
}

impl Heard {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let room = MOST - self.bytes.len();
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    pub(super) fn step(&mut self) {
        self.steps.push(self.bytes.len());
    }
}

/// The answer to what a peer sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// In the order in which they came to the peer alone.
    parts: Vec<Part>,
    /// Whether numbers count.
    is_exact: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    bytes: Vec<u8>,
    /// The step of the peer before which it comes.
    step: usize,
}

impl Answer {
    /// The answer on which the runs agree: of the peer alone, of the tape, which may end before the
    /// answer does, and of others, which have it up to a step of the peer.
    pub(super) fn agreed(
        alone: &Heard,
        tape: &Heard,
        may_end_early: bool,
        others: &[(&Heard, usize)],
    ) -> Option<Self> {
        [true, false].into_iter().find_map(|is_exact| {
            let mut answer = Self::of(alone, is_exact);
            let mut on_tape = answer.within(tape);
            let is_cut = may_end_early && on_tape.is_cut();
            on_tape.end();
            let comes_to = |(other, step): &(&Heard, usize)| {
                let mut coming = answer.within(other);
                coming.end();
                coming.has_come(*step)
            };
            let is_whole = is_cut || on_tape.has_come(usize::MAX);
            if !is_whole || !others.iter().all(comes_to) {
                return None;
            }
            let mut has_come = on_tape.come.into_iter();
            answer.parts.retain(|_| has_come.next() == Some(true));
            Some(answer)
        })
    }

    fn of(alone: &Heard, is_exact: bool) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let (mut step, mut is_begun, mut is_number) = (0, false, false);
        for (at, byte) in alone.bytes.iter().enumerate() {
            while alone.steps.get(step) == Some(&at) {
                step += 1;
                is_begun = false;
            }
            let Some(shown) = show(*byte, is_exact, &mut is_number) else {
                continue;
            };
            match parts.last_mut() {
                Some(part) if is_begun => part.bytes.push(shown),
                _ => parts.push(Part {
                    bytes: vec![shown],
                    step,
                }),
            }
            is_begun = *byte != b'\n';
        }
        // The rest of a long answer is not known.
        if is_begun && alone.bytes.len() == MOST {
            parts.pop();
        }
        Self { parts, is_exact }
    }

    fn within(&self, heard: &Heard) -> Coming<'_> {
        let mut coming = Coming::new(self);
        coming.take(&heard.bytes);
        coming
    }
}

/// Shows a byte, with one digit for every number unless numbers count.
fn show(byte: u8, is_exact: bool, is_number: &mut bool) -> Option<u8> {
    let is_digit = !is_exact && byte.is_ascii_digit();
    let was_number = mem::replace(is_number, is_digit);
    match is_digit {
        false => Some(byte),
        true => (!was_number).then_some(b'0'),
    }
}

/// An answer as far as it has come.
pub(super) struct Coming<'a> {
    answer: &'a Answer,
    come: Vec<bool>,
    /// The first part that has not.
    first: usize,
    /// What has come since the last of them, as far as another one may begin in it.
    rest: Vec<u8>,
    /// Whether other bytes have come since.
    has_others: bool,
    /// Whether the last byte was of a number.
    is_number: bool,
}

impl<'a> Coming<'a> {
    pub(super) fn new(answer: &'a Answer) -> Self {
        Self {
            answer,
            come: vec![false; answer.parts.len()],
            first: 0,
            rest: Vec::new(),
            has_others: false,
            is_number: false,
        }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        let show = |byte: &u8| show(*byte, self.answer.is_exact, &mut self.is_number);
        self.rest.extend(bytes.iter().filter_map(show));
        self.find(true);
        let longest = self.awaited().map(|(_, part)| part.len()).max();
        let others = (self.rest.len() + 1).saturating_sub(longest.unwrap_or(1));
        self.has_others |= others > 0;
        self.rest.drain(..others);
    }

    /// Takes it that no more will come.
    pub(super) fn end(&mut self) {
        self.find(false);
    }

    /// Finds parts. If more may come, it waits for the rest of one that has begun.
    fn find(&mut self, may_go_on: bool) {
        while let Some((at, place)) = self.found(may_go_on) {
            let end = at + self.answer.parts[place].bytes.len();
            self.rest.drain(..end);
            self.come[place] = true;
            self.has_others = false;
            let left = self.come[self.first..].iter();
            self.first += left.take_while(|come| **come).count();
        }
    }

    /// The parts that may come next.
    fn awaited(&self) -> impl Iterator<Item = (usize, &'a [u8])> {
        let answer = self.answer;
        let step = answer.parts.get(self.first).map(|part| part.step);
        let rest = answer.parts.iter().enumerate().skip(self.first);
        let rest = rest.take_while(move |(_, part)| Some(part.step) == step);
        let awaited = rest.filter(|(place, _)| !self.come[*place]).take(MIXED);
        awaited.map(|(place, part)| (place, &part.bytes[..]))
    }

    /// Where the first of the awaited parts begins, and which it is.
    fn found(&self, may_go_on: bool) -> Option<(usize, usize)> {
        let awaited: Vec<(usize, &[u8])> = self.awaited().collect();
        for at in 0..self.rest.len() {
            let here = &self.rest[at..];
            let has_begun =
                |(_, part): &(usize, &[u8])| part.len() > here.len() && part.starts_with(here);
            if may_go_on && awaited.iter().any(has_begun) {
                return None;
            }
            let whole = awaited.iter().filter(|(_, part)| here.starts_with(part));
            if let Some((place, _)) = whole.max_by_key(|(_, part)| part.len()) {
                return Some((at, *place));
            }
        }
        None
    }

    /// Whether all parts before a step of the peer have come.
    pub(super) fn has_come(&self, step: usize) -> bool {
        let first = self.answer.parts.get(self.first);
        first.is_none_or(|part| part.step > step)
    }

    pub(super) fn next(&self) -> &'a [u8] {
        self.awaited().next().map_or(&[][..], |(_, part)| part)
    }

    /// Whether nothing else has come since the last part than a begin of another.
    fn is_cut(&self) -> bool {
        let begins = |(_, part): (usize, &[u8])| part.starts_with(&self.rest);
        !self.has_others && self.awaited().any(begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(steps: &[&str]) -> Heard {
        let mut heard = Heard::default();
        for (at, text) in steps.iter().enumerate() {
            if at > 0 {
                heard.step();
            }
            heard.take(text.as_bytes());
        }
        heard
    }

    fn agreed(alone: &[&str], tape: &str, reversed: &str) -> Option<Answer> {
        let reversed = heard(&[reversed]);
        let others = [(&reversed, usize::MAX)];
        Answer::agreed(&heard(alone), &heard(&[tape]), false, &others)
    }

    /// Whether an answer comes with these bytes, however they are cut.
    fn comes(answer: &Answer, bytes: &str) -> bool {
        let mut all = (1..=bytes.len()).map(|size| {
            let mut coming = Coming::new(answer);
            for some in bytes.as_bytes().chunks(size) {
                coming.take(some);
            }
            coming.end();
            coming.has_come(usize::MAX)
        });
        let first = all.next().unwrap_or_default();
        assert!(all.all(|other| other == first), "{bytes}");
        first
    }

    #[test]
    fn news_of_others_may_come_between_the_parts_of_an_answer() {
        let answer = agreed(
            &["name?\n", "* ann joins\nann: hi\n"],
            "name?\n* ann joins\n* bob joins\nann: hi\n",
            "name?\n* ann joins\nann: hi\n",
        );
        let answer = answer.expect("they agree");
        let steps: Vec<usize> = answer.parts.iter().map(|part| part.step).collect();
        assert_eq!(steps, [0, 1, 1]);
        assert!(comes(&answer, "name?\nx\n* ann joins\ny\nann: hi\nz\n"));
        assert!(comes(&answer, "name?\nann: hi\n* ann joins\n"));
        for wrong in [
            "name?\n* ann joins\n",
            "name?\n* ann joins\nann: h",
            "* ann joins\nname?\nann: hi\n",
            "name?\n* ann joins\nann: x\nhi\n",
            "",
        ] {
            assert!(!comes(&answer, wrong), "{wrong}");
        }
    }

    #[test]
    fn an_answer_that_others_change_is_not_compared() {
        let granted = ["granted\n"];
        assert!(agreed(&granted, "granted\n", "denied\n").is_none());
        assert!(agreed(&granted, "denied\n", "granted\n").is_none());
        assert!(agreed(&granted, "gra", "granted\n").is_none());
        let [alone, cut] = ["granted\n", "gra"].map(|text| heard(&[text]));
        let others = [(&alone, usize::MAX)];
        let stopped = Answer::agreed(&alone, &cut, true, &others);
        assert!(comes(&stopped.expect("the tape was cut"), "x"));
        let other = heard(&["granted?"]);
        assert!(Answer::agreed(&alone, &other, true, &others).is_none());
        // One that did not end its side gets nothing of what comes after that.
        let [whole, begun] = [&["a\n", "b\n"][..], &["a\n"]].map(heard);
        let upto = |step| Answer::agreed(&whole, &whole, false, &[(&begun, step)]);
        assert!(upto(0).is_some() && upto(1).is_none());
    }

    #[test]
    fn numbers_ends_of_parts_and_parts_within_others_are_told_apart() {
        let all = "x\nax\nbx\n";
        for (alone, tape, reversed, good, wrong) in [
            (
                &["at 9:30\n"][..],
                "at 10:02\n",
                "at 9:30\n",
                "at 123:4\n",
                "at x:4\n",
            ),
            (&["no 1\n"], "no 1\n", "no 1\n", "no 1\n", "no 2\n"),
            // Parts without lines end where the peer goes on.
            (&["one", "two"], "one-two", "onetwo", "one, two", "o-netwo"),
            (&[all], all, all, "ax\nbx\nx\n", "ax\nbx\n"),
            (&[all], all, all, all, ""),
        ] {
            let answer = agreed(alone, tape, reversed).expect("they agree");
            assert!(comes(&answer, good) && !comes(&answer, wrong), "{good}");
        }
    }

    #[test]
    fn of_a_long_answer_the_begin_is_compared() {
        let long = format!("{}\n", "x".repeat(1000)).repeat(80);
        let answer = agreed(&[&long], &long, &long).expect("they agree");
        assert_eq!(answer.parts.len(), MOST / 1001);
        let comes = |bytes: &str| answer.within(&heard(&[bytes])).has_come(usize::MAX);
        assert!(comes(&long) && !comes(&long[..MOST / 2]));
    }
}
