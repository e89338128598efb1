//! What clients have asked of an object, and what it has answered.

use std::{cell::RefCell, collections::BTreeMap, fmt, rc::Rc};

use super::{
    super::notes::{self, Made},
    model::Model,
    operation::Operation,
    order::Verdict,
    window::Window,
};
use crate::{Os, Tid};

/// The steps for each part of a history in the first round of a check.
const FEW: u64 = 10_000;

/// What clients have asked of an object, and what it has answered. Clones are handles to the same
/// history.
///
/// The calls and returns are ordered as the turns of the kernel, with no clock. An exhaustive search
/// knows of them: it runs each order of a return and a call, since an operation that has returned comes
/// before one that is called later. [`linear`](crate::linear) has an example.
#[derive(Clone)]
pub struct History(Rc<Inner>);

struct Inner {
    model: Model,
    /// What a search sees. A call reads all of them, and a return changes one: so calls commute with
    /// calls, and returns with most returns, but no call with a return.
    marks: [Made; 8],
    noted: RefCell<Noted>,
}

#[derive(Default)]
struct Noted {
    operations: Vec<Operation>,
    /// The calls and returns so far.
    events: usize,
}

/// The answer that says that it is not known whether, and when, an operation takes effect.
const UNKNOWN: &str = "?";

impl History {
    /// Begins a history of an object that behaves like this model, one operation at a time.
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self(Rc::new(Inner {
            model,
            marks: std::array::from_fn(|_| notes::name_mark()),
            noted: RefCell::default(),
        }))
    }

    /// Runs an operation, and notes its call and its return. The input is a text in the syntax of the
    /// [`Model`], and the answer is the `Display` of what the body returns.
    ///
    /// If the body is cut or its task ends, the operation has no return: it may have taken effect, or
    /// may do so at any time after. The same holds if it returns `?`, as a client does whose connection
    /// is lost.
    ///
    /// *Blocks* when the body does.
    pub async fn op<T: fmt::Display>(
        &self,
        os: &mut Os,
        input: impl Into<String>,
        body: impl AsyncFnOnce(&mut Os) -> T,
    ) -> T {
        let operation = self.called(os.running(), input);
        let answer = body(os).await;
        self.returned(operation, &answer);
        answer
    }

    /// Notes the call of an operation, for a history that was made elsewhere. Returns its number, for
    /// [`History::returned`].
    pub fn called(&self, task: Tid, input: impl Into<String>) -> usize {
        for mark in self.0.marks {
            notes::touch_shared(mark, false);
        }
        let noted = &mut *self.0.noted.borrow_mut();
        noted.operations.push(Operation {
            task,
            input: input.into(),
            answer: None,
            called: noted.events,
            returned: None,
        });
        noted.events += 1;
        noted.operations.len() - 1
    }

    /// Notes the return of an operation that was called. The answer `?` says that it is not known
    /// whether the operation has taken effect. The return of a number that no call has returned, or of
    /// an operation that has returned, is ignored.
    pub fn returned(&self, operation: usize, answer: impl fmt::Display) {
        let noted = &mut *self.0.noted.borrow_mut();
        let operation = noted.operations.get_mut(operation);
        let Some(operation) = operation.filter(|operation| operation.returned.is_none()) else {
            return;
        };
        let marks = self.0.marks;
        let mark = u64::from(operation.task) as usize % marks.len();
        notes::touch_shared(marks[mark], true);
        let answer = answer.to_string();
        if answer != UNKNOWN {
            operation.answer = Some(answer);
            operation.returned = Some(noted.events);
            noted.events += 1;
        }
    }

    /// Returns the operations so far, in the order of their calls.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        self.0.noted.borrow().operations.clone()
    }

    /// Looks for an order of the operations that explains all answers. Where a [model](Model::by_key) divides
    /// them, a part that has none is reported even if another part is not decided.
    ///
    /// *Errors:* the smallest part of the history that no order explains. Also if the model does not know
    /// an operation, or if [`Model::steps`] do not suffice to decide.
    pub fn check(&self) -> Result<(), Window> {
        for mark in self.0.marks {
            notes::touch_shared(mark, true);
        }
        let model = &self.0.model;
        let mut parts: BTreeMap<Option<String>, Vec<Operation>> = BTreeMap::new();
        for operation in self.operations() {
            let part = parts.entry(model.key_of(&operation.input)).or_default();
            part.push(operation);
        }
        let mut parts: Vec<_> = parts.into_iter().collect();
        let most = model.most_steps();
        // A part that no order explains may be found in little time, while another is not decided in much.
        for steps in [most.min(FEW), most] {
            let mut undecided = Vec::new();
            for (key, part) in parts {
                match model.explain(&part, steps) {
                    Verdict::Ordered => {}
                    Verdict::Undecided(_) => undecided.push((key, part)),
                    verdict => return Err(Window::new(model, key, part, verdict)),
                }
            }
            parts = undecided;
        }
        let undecided = parts.into_iter().next();
        undecided.map_or(Ok(()), |(key, part)| {
            Err(Window::new(model, key, part, Verdict::Undecided(most)))
        })
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.noted.borrow().operations.len();
        let s = if count == 1 { "" } else { "s" };
        write!(f, "History({count} operation{s})")
    }
}
