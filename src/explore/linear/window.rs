//! The part of a history that no order explains.

use std::{collections::BTreeSet, fmt};

use super::{
    model::Model,
    operation::{Columns, Operation},
    order::Verdict,
    picture,
};

/// The most operations whose bars a text shows: the last.
const SHOWN: usize = 40;

/// The smallest part of a history that no order of operations explains: what [`History::check`](
/// super::History::check) fails with. It begins where no other operation was under way, and ends with
/// the first return that cannot be explained. Where many operations are under way, it may not be found which one
/// that is: then the window ends later, and names none. Its `Display` has a bar for each operation, and
/// [`Window::svg`] is the same as a picture.
#[derive(Clone, PartialEq, Eq)]
pub struct Window {
    /// In the order of their calls.
    operations: Vec<Operation>,
    /// How many there are before.
    before: usize,
    key: Option<String>,
    why: Why,
}

#[derive(Clone, PartialEq, Eq)]
enum Why {
    /// The place of the operation whose answer is not explained, and the answers that would be.
    Unordered(usize, BTreeSet<String>),
    NoOperation(&'static str),
    Undecided(u64),
}

impl Window {
    pub(super) fn new(
        model: &Model,
        key: Option<String>,
        part: Vec<Operation>,
        verdict: Verdict,
    ) -> Self {
        let (operations, before, why) = match verdict {
            Verdict::Unordered(at, answers) => {
                let last = part[at].clone();
                let (window, before) = around(part, at);
                let place = window.iter().position(|operation| *operation == last);
                let place = place.expect("it is the last that returns");
                (window, before, Why::Unordered(place, answers))
            }
            Verdict::NoOperation(at) => {
                let unknown = part[at].clone();
                (vec![unknown], 0, Why::NoOperation(model.usage()))
            }
            Verdict::Undecided(most) => (part, 0, Why::Undecided(most)),
            Verdict::Ordered => unreachable!("it has no window"),
        };
        Self {
            operations,
            before,
            key,
            why,
        }
    }

    /// Returns the operations of the window, in the order of their calls.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns the operation whose answer no order explains. `None` if that was not decided, or if the
    /// model does not know an operation.
    #[must_use]
    pub fn unexplained(&self) -> Option<&Operation> {
        self.operations.get(self.place()?)
    }

    /// Returns a picture, in SVG: a lane for each task, and a bar for each operation from its call to
    /// its return. The bar of the answer that is not explained is red. An operation without a return
    /// goes on to the right edge.
    #[must_use]
    pub fn svg(&self) -> String {
        picture::draw(&self.operations, self.place(), &self.headline())
    }

    fn place(&self) -> Option<usize> {
        match &self.why {
            Why::Unordered(place, answers) => Some(*place).filter(|_| !answers.is_empty()),
            Why::NoOperation(_) | Why::Undecided(_) => None,
        }
    }

    fn headline(&self) -> String {
        let on = self.key.as_ref();
        let on = on.map_or(String::new(), |key| format!(" on {key:?}"));
        let count = self.operations.len();
        let (these, all) = match count {
            1 => ("this operation".to_string(), "1 operation".to_string()),
            _ => (
                format!("these {count} operations"),
                format!("{count} operations"),
            ),
        };
        match (&self.why, self.before) {
            (Why::Unordered(..), 0) => format!("no order explains {these}{on}"),
            (Why::Unordered(..), before) => {
                let s = if before == 1 { "" } else { "s" };
                format!("no order explains {these}{on}, behind {before} other{s}")
            }
            (Why::NoOperation(usage), _) => {
                let Operation { task, input, .. } = &self.operations[0];
                format!("the model does not know {input:?}, an operation of task {task}: {usage}")
            }
            (Why::Undecided(most), _) => format!(
                "whether an order explains the {all}{on} is not decided after {most} steps: \
                 check fewer at a time, divide them by Model::by_key, or raise Model::steps"
            ),
        }
    }
}

/// Returns the operations from the last moment before this one at which none was under way, and how
/// many there are before. There are two or more, so that the answer has something to contradict.
fn around(part: Vec<Operation>, at: usize) -> (Vec<Operation>, usize) {
    let end = part[at].returned.unwrap_or(usize::MAX);
    let (mut begin, mut last_return) = (0, None);
    for (place, operation) in part.iter().enumerate().take(at + 1) {
        let under_way = part[place..].iter().filter(|later| later.called < end);
        let is_quiet = last_return < Some(operation.called);
        if is_quiet && (place == 0 || under_way.count() >= 2) {
            begin = place;
        }
        last_return = last_return.max(operation.returned);
    }
    let mut before = 0;
    let mut place = 0;
    let window = part.into_iter().filter(|operation| {
        // What has not returned may yet take effect.
        let is_open = operation.returned.is_none();
        let is_before = place < begin;
        place += 1;
        before += usize::from(is_before && !is_open);
        operation.called < end && (!is_before || is_open)
    });
    (window.collect(), before)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        let Why::Unordered(place, answers) = &self.why else {
            return Ok(());
        };
        f.write_str(":")?;
        let skipped = self.operations.len().saturating_sub(SHOWN);
        let shown = &self.operations[skipped.min(*place)..];
        if shown.len() < self.operations.len() {
            write!(
                f,
                "\n  ({} more before these)",
                self.operations.len() - shown.len()
            )?;
        }
        let columns = Columns::of(shown, self.operations[*place].returned);
        let said = shown.iter().map(|it| it.said().chars().count());
        let width = said.max().unwrap_or(0);
        for operation in shown {
            let task = format!("task {}", operation.task);
            let (begin, end) = columns.span(operation);
            let bar = match end {
                Some(end) => format!("|{}|", "-".repeat(2 * (end - begin) - 1)),
                None => format!("|{}>", "-".repeat(2 * (columns.len() - begin) - 1)),
            };
            let said = operation.said();
            write!(f, "\n  {task:<8} {said:<width$}  {:1$}{bar}", "", 2 * begin)?;
            // Without any, another one may be the first.
            if *operation == self.operations[*place] && !answers.is_empty() {
                let answers = answers.iter().map(String::as_str).collect::<Vec<_>>();
                write!(f, "  it would be {}", answers.join(" or "))?;
            }
        }
        Ok(())
    }
}

/// The same as its `Display`, for [`Result::unwrap`].
impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Window {}
