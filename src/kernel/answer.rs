//! The answer of a call.

use crate::{
    abi::{Exit, QueueId, Reply},
    log::Detail,
    trap::Payload,
};

/// The answer of a call: a reply word, and at most one thing beside it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) beside: Beside,
}

/// What travels beside a reply.
#[derive(Debug)]
pub(super) enum Beside {
    Nothing,
    /// Nothing, and the call was a yield or a finished sleep. A due timeout replaces this answer.
    Slept,
    /// The queue of the message whose number is in the reply.
    Queue(QueueId),
    /// What does not fit in the reply word.
    Payload(Box<Payload>),
}

impl Answer {
    pub(super) const SLEPT: Self = Self {
        reply: Reply::Done,
        beside: Beside::Slept,
    };

    pub(super) fn with(reply: Reply, payload: Payload) -> Self {
        let beside = Beside::Payload(Box::new(payload));
        Self { reply, beside }
    }

    pub(super) fn message(reply: Reply, queue: QueueId) -> Self {
        let beside = Beside::Queue(queue);
        Self { reply, beside }
    }

    pub(super) fn exit(exit: Exit) -> Self {
        match exit {
            Exit::Done => Reply::Exit.into(),
            other => Self::with(Reply::Exit, Payload::Exit(other)),
        }
    }

    pub(super) fn is_slept(&self) -> bool {
        matches!(self.beside, Beside::Slept)
    }

    /// What travels beside the reply, for the log.
    #[inline(always)]
    pub(super) fn detail(&self) -> Detail<'_> {
        match &self.beside {
            Beside::Payload(payload) => payload.detail(),
            _ if self.reply == Reply::Exit => Detail::Exit(Exit::Done),
            _ => Detail::None,
        }
    }
}

impl<R: Into<Reply>> From<R> for Answer {
    #[inline(always)]
    fn from(reply: R) -> Self {
        Self {
            reply: reply.into(),
            beside: Beside::Nothing,
        }
    }
}
