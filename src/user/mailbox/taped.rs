//! Mailboxes of a kernel that is on a tape: what comes from other kernels and threads, as bytes and back.
//!
//! The tape of a kernel holds, for each message that it takes, which put of which kernel it was. So kernels
//! that are replayed together take the same messages in the same order. It holds the value, too, if the
//! mailbox has a codec: then the kernel is replayed alone.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
};

use super::shared::{Codec, Key, Shared, State};
use crate::{
    abi::{QueueId, SystemCall},
    panic::lock,
    trap::{BoundMailbox, Lack, Mail, Payload, Received, SharedMailbox, TrapFrame},
    user::{os::Os, queue::TryPutError},
};

/// Appends messages: whether they are the last, and of each its key and its value. In place of the length
/// of a value there is one more than that, or 0 where the tape does not hold it.
pub(super) fn write<T>(
    tape: &mut Vec<u8>,
    [closes, is_gone]: [bool; 2],
    coming: &VecDeque<(Key, T)>,
    codec: Option<&Codec<T>>,
) {
    tape.push(u8::from(closes) | u8::from(is_gone) << 1);
    for ((kernel, number), message) in coming {
        let value = codec.and_then(|codec| (codec.encode)(message));
        let len = value.as_ref().map_or(0, |value| value.len() as u64 + 1);
        for word in [*kernel, *number, len] {
            tape.extend_from_slice(&word.to_le_bytes());
        }
        tape.extend_from_slice(&value.unwrap_or_default());
    }
}

/// Messages, and whether no sender is left, and no task that can take.
type Arrived<T> = (VecDeque<(Key, T)>, [bool; 2]);

/// Takes the messages that the tape has, and whether they are the last.
///
/// *Errors:* one is not there, and then none is taken; the tape is not of this mailbox.
pub(super) fn read<T>(tape: &[u8], shared: &Shared<T>) -> Result<Arrived<T>, Lack> {
    const WRONG: Lack = Lack::Wrong("mail that cannot be read");
    let (ends, mut rest) = tape.split_first().ok_or(WRONG)?;
    let mut state = lock(&shared.state.0);
    let (mut taken, mut put_again) = (VecDeque::new(), Vec::new());
    let ended = loop {
        if rest.is_empty() {
            break Ok(());
        }
        let Some((key, value)) = record(&mut rest) else {
            break Err(WRONG);
        };
        let put = withdraw(&mut state, key);
        let message = match value {
            Some(value) => {
                state.put += usize::from(put.is_none());
                put_again.extend(put);
                let decoded = shared.codec.as_ref().map(|codec| (codec.decode)(value));
                decoded.flatten().ok_or(WRONG)
            }
            None if state.has_senders => put.ok_or(Lack::Yet),
            None => put.ok_or(Lack::Wrong(Lack::NOT_PUT_OR_HELD)),
        };
        match message {
            Ok(message) => taken.push_back((key, message)),
            Err(lack) => break Err(lack),
        }
    };
    if ended.is_err() {
        std::mem::take(&mut taken)
            .into_iter()
            .rev()
            .for_each(|one| state.coming.push_front(one));
    }
    drop(state);
    // Destructors of messages may use mailboxes.
    drop(put_again);
    ended.map(|()| (taken, [ends & 1 != 0, ends & 2 != 0]))
}

/// Takes the next record off the tape: a key, and a value if there is one.
fn record<'a>(rest: &mut &'a [u8]) -> Option<(Key, Option<&'a [u8]>)> {
    let mut word = || {
        let (word, behind) = rest.split_first_chunk()?;
        *rest = behind;
        Some(u64::from_le_bytes(*word))
    };
    let (key, len) = ((word()?, word()?), word()?);
    let Some(len) = len.checked_sub(1) else {
        return Some((key, None));
    };
    let (value, behind) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = behind;
    Some((key, Some(value)))
}

/// Takes a message that has come, or that waits for the room that it then had.
fn withdraw<T>(state: &mut State<T>, key: Key) -> Option<T> {
    let at = state.coming.iter().position(|(other, _)| *other == key);
    if let Some(at) = at {
        return state.coming.remove(at).map(|(_, message)| message);
    }
    let mut held = state.refused.iter();
    let (&ticket, _) = held.find(|(_, (other, _))| *other == key)?;
    state.put += 1;
    state.refused.remove(&ticket).map(|(_, message)| message)
}

// ---- puts

const DONE: u8 = 0;
const FULL: u8 = 1;
const CLOSED: u8 = 2;

/// Puts a message if there is room, by a call whose answer is on the tape.
pub(super) async fn put<T: Send + 'static>(
    os: &mut Os,
    shared: &Arc<Shared<T>>,
    key: Key,
    message: T,
) -> Result<(), TryPutError<T>> {
    let kept = Rc::new(Kept {
        answer: Cell::new(FULL),
        message: RefCell::new(Some(message)),
    });
    let post = Post {
        shared: Arc::clone(shared),
        key,
        kept: Rc::clone(&kept),
    };
    let post = move |frame: &TrapFrame| {
        frame.put(Payload::Post(Box::new(post)));
        SystemCall::Post
    };
    os.call(post, |_, _| ()).await;
    let message = kept.message.take();
    match (message, kept.answer.get()) {
        (None, _) => Ok(()),
        (Some(message), CLOSED) => Err(TryPutError::Closed(message)),
        (Some(message), _) => Err(TryPutError::Full(message)),
    }
}

/// What the call leaves for its caller: the message, unless it is put.
struct Kept<T> {
    answer: Cell<u8>,
    message: RefCell<Option<T>>,
}

struct Post<T> {
    shared: Arc<Shared<T>>,
    key: Key,
    kept: Rc<Kept<T>>,
}

impl<T> Mail for Post<T> {
    fn take(&mut self, tape: Option<&mut Vec<u8>>) {
        let Some(message) = self.kept.message.take() else {
            return;
        };
        let (answer, message) = match self.shared.try_put(self.key, message) {
            Ok(()) => (DONE, None),
            Err(TryPutError::Full(message)) => (FULL, Some(message)),
            Err(TryPutError::Closed(message)) => (CLOSED, Some(message)),
        };
        self.kept.answer.set(answer);
        self.kept.message.replace(message);
        if let Some(tape) = tape {
            tape.push(answer);
        }
    }

    fn again(&mut self, tape: &[u8]) -> Result<(), Lack> {
        let &[answer @ DONE..=CLOSED] = tape else {
            return Err(Lack::Wrong("another call with mail"));
        };
        self.kept.answer.set(answer);
        if answer == DONE
            && let Some(message) = self.kept.message.take()
        {
            self.shared.put_again(self.key, message);
        }
        Ok(())
    }
}

/// The room that a task waits for.
pub(super) struct Room<T> {
    shared: Arc<Shared<T>>,
    ticket: u64,
}

/// Ends the wait with its task's.
pub(super) struct OfTask {
    frame: Rc<TrapFrame>,
    queue: QueueId,
}

impl<T: Send + 'static> Room<T> {
    pub(super) fn bind(os: &Os, shared: &Arc<Shared<T>>, ticket: u64, queue: QueueId) -> OfTask {
        let shared = Arc::clone(shared);
        let room = Rc::new(Self { shared, ticket });
        let frame = Rc::clone(os.frame());
        frame.mailboxes.bind(queue, room);
        OfTask { frame, queue }
    }
}

impl<T: Send + 'static> BoundMailbox for Room<T> {
    fn receive(&self, tape: Option<&mut Vec<u8>>) -> Received {
        let is_refused = lock(&self.shared.state.0)
            .refused
            .contains_key(&self.ticket);
        if let Some(tape) = tape {
            tape.push(if is_refused { CLOSED } else { DONE });
        }
        over()
    }

    fn receive_again(&self, tape: &[u8]) -> Result<Received, Lack> {
        match tape {
            [CLOSED] => {}
            [DONE] => {
                let held = lock(&self.shared.state.0).refused.remove(&self.ticket);
                if let Some((key, message)) = held {
                    self.shared.put_again(key, message);
                }
            }
            _ => return Err(Lack::Wrong("another mailbox with mail")),
        }
        Ok(over())
    }

    fn post_of(&self, _: u64) -> Option<Key> {
        None
    }

    fn shared(&self) -> Option<Arc<dyn SharedMailbox>> {
        None
    }

    fn discard(&self) {}

    fn admit(&self) {}

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The task is woken by the close of the queue.
fn over() -> Received {
    Received {
        numbers: 0..0,
        closes: true,
        is_gone: false,
    }
}

impl Drop for OfTask {
    fn drop(&mut self) {
        self.frame.mailboxes.forget(self.queue);
    }
}
