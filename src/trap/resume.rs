//! The resume of a program, the exit of one that panics, and programs whose traps are screened.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
};

use genawaiter::{Coroutine, GeneratorState};

use super::{
    frame::TrapFrame,
    new_task::{Program, ended},
};
use crate::{
    abi::{Exit, Place, Reply, SystemCall},
    panic::{Panic, panic_message, take_origin},
};

/// Continues a program with this reply, until it makes a call. A reply that was put aside is `None`.
/// Returns `None` if the program ends, with its exit in the frame.
#[inline(always)]
pub(crate) fn resume(
    frame: &TrapFrame,
    program: &mut Program,
    reply: Option<Reply>,
) -> Result<Option<SystemCall>, Panic> {
    frame.reply.set(reply);
    match catch_unwind(AssertUnwindSafe(|| program.as_mut().resume_with(()))) {
        Ok(GeneratorState::Yielded(call)) => Ok(Some(call)),
        Ok(GeneratorState::Complete(())) => Ok(None),
        Err(panic) => Err(panic),
    }
}

/// Returns a program whose traps the kernel screens. Apart, so that other programs pay nothing. While its
/// code runs, its destructors included, the frame says whether its limits deny faults of the network:
/// these take effect without a trap.
pub(crate) fn screened(program: Program, frame: &Rc<TrapFrame>, denies_faults: bool) -> Program {
    struct Screened {
        program: Program,
        frame: Rc<TrapFrame>,
        denies_faults: bool,
    }

    impl Screened {
        fn within<T>(&mut self, run: impl FnOnce(&mut Program) -> T) -> T {
            let outer = self.frame.denies_faults.replace(self.denies_faults);
            let _outer = Restored(&self.frame, outer);
            run(&mut self.program)
        }
    }

    impl Coroutine for Screened {
        type Yield = SystemCall;
        type Resume = ();
        type Return = ();

        fn resume_with(mut self: Pin<&mut Self>, (): ()) -> GeneratorState<SystemCall, ()> {
            let state = self.within(|program| program.as_mut().resume_with(()));
            self.frame.set_screened(true);
            state
        }
    }

    impl Drop for Screened {
        fn drop(&mut self) {
            self.within(|program| drop(std::mem::replace(program, ended())));
        }
    }

    Box::pin(Screened {
        program,
        frame: Rc::clone(frame),
        denies_faults,
    })
}

/// Restores what the frame said before, also after a panic.
struct Restored<'a>(&'a TrapFrame, bool);

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        self.0.denies_faults.set(self.1);
    }
}

const NOT_A_TRAP: &str = "awaited a future that is pending and is not a trap: a task can await \
                          only the calls of its Os, and what is built on them";

/// The begin of genawaiter's panic message for two values in one resume.
const TWO_YIELDS: &str = "Multiple values were yielded";

const TWO_TRAPS: &str = "made two traps in one resume: a call that has been polled must be awaited \
                         to its end before the next call";

/// Returns the exit of a task whose resume panicked, and the place of the panic in the program. A panic
/// of the program is marked. One of the generator is not: the program was pending
/// without a yield.
#[cold]
pub(crate) fn fault(frame: &TrapFrame, panic: Panic) -> (Exit, Option<Place>) {
    let origin = take_origin();
    let unwound = frame.unwound.take();
    frame.clear();
    let message = panic_message(panic);
    let why = match unwound {
        true if message.starts_with(TWO_YIELDS) => TWO_TRAPS,
        true => {
            let place = origin.map(|origin| Place {
                file: origin.file.into(),
                line: origin.line,
                chain: origin.chain.into(),
            });
            return (Exit::Faulted(message), place);
        }
        false => NOT_A_TRAP,
    };
    // The panic is within the generator.
    (Exit::Faulted(why.into()), None)
}
