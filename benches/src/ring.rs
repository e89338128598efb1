//! A ring of typed records: the last events, in memory.

use std::time::Duration;

use trapline::{Event, Fact, Reply, SystemCall, Tid, Tracer};

/// The number of records in it.
const ROOM: usize = 1 << 12;

/// Keeps the last events: traps in full, and only the kind of the others.
pub(crate) struct Ring {
    records: Box<[Record; ROOM]>,
    next: usize,
}

#[derive(Clone, Copy)]
#[expect(dead_code, reason = "it is for the analysis of a failed run")]
struct Record {
    at: Duration,
    tid: Tid,
    what: What,
}

#[derive(Clone, Copy)]
#[expect(dead_code, reason = "as above")]
enum What {
    Resumed,
    Trapped(SystemCall),
    Replied(Reply),
    Other,
}

impl Ring {
    pub(crate) fn new() -> Self {
        let empty = Record {
            at: Duration::ZERO,
            tid: Tid::KERNEL,
            what: What::Other,
        };
        let records = vec![empty; ROOM].into_boxed_slice();
        Self {
            records: records.try_into().ok().expect("it has that room"),
            next: 0,
        }
    }

    fn push(&mut self, at: Duration, tid: Tid, what: What) {
        self.records[self.next % ROOM] = Record { at, tid, what };
        self.next += 1;
    }
}

impl Tracer for Ring {
    fn event(&mut self, event: &Event<'_>) {
        let what = match event.fact {
            Fact::Resumed => What::Resumed,
            Fact::Trapped { call, .. } => What::Trapped(call),
            Fact::Replied { reply, .. } => What::Replied(reply),
            _ => What::Other,
        };
        self.push(event.at, event.tid, what);
    }
}

impl Drop for Ring {
    /// Makes the compiler assume that the records are read.
    fn drop(&mut self) {
        std::hint::black_box(&self.records);
    }
}
