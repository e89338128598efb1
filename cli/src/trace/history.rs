//! All that happened in a recording, by task, queue and device.
//!
//! A [`History`] keeps the pieces of each task's life, the tasks that moved messages through which
//! queue, and which task used which device. `causes.rs` and `path.rs` walk backwards over it.
//!
//! `queues.rs` keeps what went through a queue, and `peers.rs` links the two ends of a connection.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
};

use rustc_hash::FxHashMap;
use trapline::{
    Answered, Call, CallInfo, DeviceId, Direction, Doing, End, Ending, Event, Exit, Moment, On,
    QueueId, Reply, Span, SystemCall, Tid, record::OwnedEvent,
};

use super::{
    life::{Amount, Life, Piece},
    peers::Peers,
    queues::{Content, Move, QueueLife},
    source::{Failure, Source},
    spans::{Shares, Spans},
};
use crate::output::clean;

/// A piece of a task's life: the task, and the index of the piece.
pub(super) type Step = (Tid, usize);

/// All that happened, by task, queue and device.
#[derive(Default)]
pub(super) struct History {
    spans: Spans,
    pub(super) tasks: BTreeMap<Tid, Life>,
    pub(super) queues: BTreeMap<QueueId, QueueLife>,
    pub(super) devices: FxHashMap<DeviceId, DeviceLife>,
    /// The turns of all tasks: when each began, and its piece. In order, once all events are in.
    pub(super) turns: Vec<(Moment, Step)>,
    pub(super) peers: Peers,
    pub(super) begin: Option<Moment>,
    /// Where events are missing: the moments of the events before and after, in order.
    gaps: Vec<(Moment, Moment)>,
    /// The events since tasks are being killed, up to the next turn: [`History::finish`] says why.
    kills: Vec<OwnedEvent>,
}

/// A device, and the tasks that read from it and wrote to it.
#[derive(Default)]
pub(super) struct DeviceLife {
    /// What it is connected to, or listens on.
    pub(super) addr: Option<SocketAddr>,
    /// The task that opened it, and when.
    pub(super) owner: Tid,
    pub(super) opened: Moment,
    /// The task that closed it or its sending side first, and when.
    pub(super) closed: Option<(Moment, Tid)>,
    /// The connections that a listener accepted.
    pub(super) accepted: Vec<Accepted>,
    reads: Vec<Use>,
    writes: Vec<Use>,
}

/// Bytes that a task read from a device or wrote to it.
pub(super) struct Use {
    pub(super) at: Moment,
    pub(super) tid: Tid,
    /// The bytes that went this way so far, with these.
    pub(super) bytes: u64,
}

/// A connection that a task accepted.
pub(super) struct Accepted {
    pub(super) at: Moment,
    pub(super) tid: Tid,
    pub(super) device: DeviceId,
    /// The address of the other end.
    pub(super) from: Option<SocketAddr>,
}

/// What a task did for a part of its life, in words.
type Part = (String, Amount);

impl History {
    /// Opens a recording and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, Source), Failure> {
        let mut source = Source::open(path)?;
        let mut history = Self::default();
        while let Some(event) = source.next() {
            history.event(&event, source.gap().is_some());
        }
        history.finish();
        Ok((history, source))
    }

    /// When which task took each mutex, or a permit of each semaphore, by the number of its queue;
    /// [`Tid::KERNEL`] where a task released the mutex.
    pub(super) fn takes(&self) -> BTreeMap<u64, Vec<(Moment, Tid)>> {
        let mut takes: BTreeMap<u64, Vec<(Moment, Tid)>> = BTreeMap::new();
        for (queue, life) in &self.queues {
            let holder = |one: &Move| match (one.end, life.content) {
                (_, Content::Messages) | (End::Put, Content::Permits) => None,
                (End::Put, Content::Lock) => Some((one.at, Tid::KERNEL)),
                (End::Get, Content::Lock | Content::Permits) => Some((one.at, one.tid)),
            };
            let of: Vec<_> = life.moves.iter().filter_map(holder).collect();
            if !of.is_empty() {
                takes.insert(queue.number(), of);
            }
        }
        takes
    }

    /// Takes the next event, and whether events are missing before it.
    pub(super) fn event(&mut self, event: &OwnedEvent, has_gap: bool) {
        let fact = &event.fact;
        let is_turn = fact.is_resumed() || fact.jumped_from().is_some();
        let is_progress = is_turn || fact.call().is_some() || fact.spawned().is_some();
        if has_gap || is_progress {
            for kill in std::mem::take(&mut self.kills) {
                self.take(&kill, false);
            }
        } else if !self.kills.is_empty() || self.spans.is_kill(event) {
            return self.kills.push(event.clone());
        }
        self.take(event, has_gap);
    }

    fn take(&mut self, event: &OwnedEvent, has_gap: bool) {
        let before = self.spans.now();
        if has_gap {
            self.spans.gap();
        }
        let spans = self.spans.event(event);
        let now = self.spans.now();
        if has_gap {
            self.gaps.push((before, now));
            self.peers.gap();
        }
        self.begin.get_or_insert(Moment {
            at: now.at,
            ..before
        });
        for span in spans {
            self.piece(&span);
        }
        self.note(event, now);
    }

    /// Takes what was under way at the end, and links the ends of connections.
    ///
    /// If a shutdown ended the run, the tasks waited up to it. What their destructors did is left
    /// out: a lock that is put back then, or a wait that ends then, explains nothing.
    pub(super) fn finish(&mut self) {
        for kill in std::mem::take(&mut self.kills) {
            if kill.fact.exit().is_some() {
                self.take(&kill, false);
            }
        }
        for span in self.spans.finish() {
            self.piece(&span);
        }
        self.peers.finish();
        self.turns.sort();
    }

    /// How the time of the run was used.
    pub(super) fn shares(&self) -> Shares {
        self.spans.shares()
    }

    pub(super) fn end(&self) -> Moment {
        self.spans.now()
    }

    /// Whether events are missing anywhere.
    pub(super) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Whether events are missing between two moments.
    pub(super) fn has_gap(&self, from: Moment, to: Moment) -> bool {
        let first = self.gaps.partition_point(|(_, after)| *after < from);
        self.gaps
            .get(first)
            .is_some_and(|(before, _)| *before <= to)
    }

    /// The tasks of that number or of that whole name.
    pub(super) fn find(&self, wanted: &str) -> Vec<Tid> {
        match wanted.parse::<u64>() {
            Ok(number) => self
                .tasks
                .keys()
                .copied()
                .filter(|tid| u64::from(*tid) == number)
                .collect(),
            Err(_) => {
                let named = |(_, life): &(&Tid, &Life)| clean(&life.name) == wanted;
                self.tasks
                    .iter()
                    .filter(named)
                    .map(|(tid, _)| *tid)
                    .collect()
            }
        }
    }

    /// The name of a task.
    pub(super) fn name(&self, tid: Tid) -> &str {
        match self.tasks.get(&tid) {
            Some(life) => &life.name,
            None if tid == Tid::KERNEL => "kernel",
            None => "?",
        }
    }

    /// The names of all tasks, each once.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.tasks.values().map(|life| clean(&life.name)).collect()
    }

    fn life(&mut self, tid: Tid) -> &mut Life {
        let comm = self.spans.tasks().comm(tid);
        self.tasks.entry(tid).or_insert_with(|| Life {
            name: comm.to_string(),
            ..Life::default()
        })
    }

    fn piece(&mut self, span: &Span) {
        let is_short = span.from == span.to && span.end != Ending::Open;
        if span.tid == Tid::KERNEL || is_short {
            return;
        }
        let last = self.spans.tasks().last(span.tid);
        let call = match span.end {
            Ending::Exited if span.doing == Doing::Running => "exit".to_string(),
            _ => last.map_or_else(String::new, |call| clean(&call.to_string())),
        };
        let place = last.and_then(|call| call.place.clone());
        let Span {
            doing,
            from,
            to,
            end,
            ..
        } = *span;
        let tid = span.tid;
        let life = self.life(tid);
        let index = life.pieces.len();
        life.pieces.push(Piece {
            doing,
            from,
            to,
            end,
            call,
            place: place.filter(|_| matches!(doing, Doing::Blocked(_))),
        });
        if doing == Doing::Running {
            self.turns.push((from, (tid, index)));
        }
    }

    /// Notes what an event says about tasks, queues and devices.
    fn note(&mut self, event: &Event<'_>, now: Moment) {
        let tid = event.tid;
        if tid == Tid::KERNEL {
            return;
        }
        self.peers.event(event, self.spans.tasks());
        let fact = &event.fact;
        if let Some((parent, _)) = fact.spawned() {
            let life = self.life(tid);
            (life.parent, life.spawned) = (parent, now);
        } else if let Some(exit) = fact.exit() {
            let is_killed = matches!(exit, Exit::Killed);
            let life = self.life(tid);
            life.exit = Some((now, clean(&exit.to_string())));
            // Tasks that are killed together wake each other first.
            if let Some(last) = life.pieces.last_mut()
                && is_killed
                && last.to.at == now.at
                && matches!(last.doing, Doing::Blocked(_))
            {
                last.end = Ending::Exited;
            }
        } else if let Some(Answered(reply, _)) = fact.answer() {
            self.replied(tid, &reply, now);
        } else if let Some((device, direction, Ok(bytes))) = fact.device_io() {
            let device = self.devices.entry(device).or_default();
            device.used(now, tid, direction, bytes as u64);
        }
        match (fact.call().map(|Call(call, _)| call), fact.deferred()) {
            (Some(SystemCall::ShutdownWrite(device) | SystemCall::Close(device)), _)
            | (_, Some(SystemCall::Close(device))) => self.closed(device, tid, now),
            (_, Some(SystemCall::Put(queue) | SystemCall::TryPut(queue))) => {
                self.moved(queue, tid, End::Put, now);
            }
            _ => {}
        }
    }

    fn replied(&mut self, tid: Tid, reply: &Reply, now: Moment) {
        let call = self.spans.tasks().last(tid).map(|call| call.call);
        match (call, reply) {
            (Some(SystemCall::Put(queue) | SystemCall::TryPut(queue)), Reply::Done) => {
                self.moved(queue, tid, End::Put, now);
            }
            (Some(SystemCall::Get(queue) | SystemCall::TryGet(queue)), Reply::Message(_)) => {
                self.moved(queue, tid, End::Get, now);
            }
            (call, Reply::Device(device)) => {
                self.opened(*device, tid, now);
                if let Some(SystemCall::Accept(listener)) = call {
                    let from = self.devices.get(device).and_then(|life| life.addr);
                    let listener = self.devices.entry(listener).or_default();
                    listener.accepted.push(Accepted {
                        at: now,
                        tid,
                        device: *device,
                        from,
                    });
                }
            }
            (Some(SystemCall::NewQueue(_)), Reply::Queue(queue)) => {
                let object = self.spans.tasks().object(*queue);
                let content = Content::of(object.as_deref());
                let life = self.queues.entry(*queue).or_default();
                (life.object, life.content) = (object, content);
            }
            _ => {}
        }
    }

    fn moved(&mut self, queue: QueueId, tid: Tid, end: End, at: Moment) {
        let life = self.queues.entry(queue).or_default();
        life.moved(at, tid, end);
        if end == End::Put && life.content == Content::Messages {
            let place = life.moves.len() - 1;
            self.life(tid).puts.push((queue, place));
        }
    }

    /// Notes a device that a call has opened.
    fn opened(&mut self, device: DeviceId, tid: Tid, now: Moment) {
        let addr = self.spans.tasks().last(tid).and_then(CallInfo::addr);
        let life = self.devices.entry(device).or_default();
        (life.addr, life.owner, life.opened) = (addr, tid, now);
    }

    /// Notes that a device sends nothing more.
    fn closed(&mut self, device: DeviceId, tid: Tid, now: Moment) {
        let life = self.devices.entry(device).or_default();
        life.closed.get_or_insert((now, tid));
    }

    /// The other end of a connection, if that is in the same run.
    pub(super) fn peer(&self, device: DeviceId) -> Option<DeviceId> {
        self.peers.of(device)
    }
}

impl History {
    /// The turns that began within a piece, in order.
    pub(super) fn turns_in(&self, piece: &Piece) -> impl Iterator<Item = (Tid, &Piece)> {
        let before = |at: Moment| self.turns.partition_point(|(from, _)| *from < at);
        let turns = &self.turns[before(piece.from)..before(piece.to).max(before(piece.from))];
        let turns = turns.iter().map(|(_, step)| *step);
        turns.filter_map(|step| Some((step.0, self.piece_at_step(step)?)))
    }

    pub(super) fn piece_at_step(&self, (tid, index): Step) -> Option<&Piece> {
        self.tasks.get(&tid)?.pieces.get(index)
    }

    /// The task that last used a side of a device before a moment; otherwise the one that last used
    /// its other side, and otherwise the one that opened it.
    pub(super) fn user_of(&self, device: DeviceId, side: Direction, before: Moment) -> Tid {
        let Some(life) = self.devices.get(&device) else {
            return Tid::KERNEL;
        };
        let last = |side| {
            let uses = life.uses(side);
            let before = uses.partition_point(|one: &Use| one.at <= before);
            uses[..before].last()
        };
        let other = match side {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        };
        let user = last(side).or_else(|| last(other));
        // A task that waits for the device may never have used it.
        let waits = || {
            let (tid, _) = self.tasks.iter().find(|(_, life)| {
                let on = |piece: &Piece| matches!(piece.doing, Doing::Blocked(On::Device(its, _)) if its == device);
                life.pieces.iter().any(on)
            })?;
            Some(*tid)
        };
        user.map(|one| one.tid).or_else(waits).unwrap_or(life.owner)
    }

    /// The shares of a task's states in a window, in words; the longest first.
    pub(super) fn activity(&self, tid: Tid, from: Moment, to: Moment) -> String {
        let mut parts: Vec<Part> = Vec::new();
        let life = self.tasks.get(&tid);
        for piece in life.map_or(&[][..], |life| life.touching(from, to).1) {
            let (state, amount) = (
                self.state(piece),
                Amount::of(piece.from.max(from), piece.to.min(to)),
            );
            match parts.iter_mut().find(|(other, _)| *other == state) {
                Some((_, sum)) => *sum += amount,
                None => parts.push((state, amount)),
            }
        }
        parts.sort_by_key(|(_, amount)| Reverse(*amount));
        let total: Amount = parts.iter().map(|(_, amount)| *amount).sum();
        parts.retain(|(_, amount)| amount.is_share_of(total));
        let parts = parts
            .iter()
            .take(3)
            .map(|(state, amount)| match amount.is_all_of(total) {
                true => state.clone(),
                false => format!("{state} for {amount}"),
            });
        match parts.collect::<Vec<_>>() {
            parts if parts.is_empty() => "not alive".to_string(),
            parts => parts.join(", "),
        }
    }

    pub(super) fn state(&self, piece: &Piece) -> String {
        match piece.doing {
            Doing::Running => "running".to_string(),
            Doing::InCall => "in calls".to_string(),
            Doing::Ready => "ready".to_string(),
            Doing::Idle => "idle".to_string(),
            Doing::Blocked(On::Timer(_)) => "asleep".to_string(),
            Doing::Blocked(On::Exit(tid)) => format!("waiting for the end of {}", self.task(tid)),
            Doing::Blocked(on) => format!("waiting for {}", self.thing(on)),
        }
    }

    /// What a wait is for.
    pub(super) fn thing(&self, on: On) -> String {
        match on {
            On::Exit(tid) => format!("the end of {}", self.task(tid)),
            On::Timer(_) => "a timer".to_string(),
            On::Queue(queue, end) => {
                let object = self.queue(queue);
                let life = self.queues.get(&queue);
                let content = life.map_or(Content::default(), |life| life.content);
                match (end, content) {
                    (End::Get, Content::Messages) => format!("a message of {object}"),
                    (End::Get, Content::Lock | Content::Permits) => object,
                    (End::Put, _) => format!("room in {object}"),
                }
            }
            On::Device(device, direction) => {
                let addr = self.devices.get(&device).and_then(|life| life.addr);
                let addr = addr.map_or_else(String::new, |addr| format!(" ({addr})"));
                match (direction, self.peers.is_listener(device)) {
                    (_, true) => format!("a connection to device {device}{addr}"),
                    (Direction::Read, _) => format!("bytes from device {device}{addr}"),
                    (Direction::Write, _) => format!("device {device}{addr} to take bytes"),
                }
            }
            _ => on.to_string(),
        }
    }

    /// A queue, or the object that it is part of.
    pub(super) fn queue(&self, queue: QueueId) -> String {
        let life = self.queues.get(&queue);
        let object = life.and_then(|life| life.object.as_deref()).map(clean);
        object.unwrap_or_else(|| format!("queue {queue}"))
    }

    /// A task, by its number and name.
    pub(super) fn task(&self, tid: Tid) -> String {
        match self.tasks.get(&tid) {
            Some(life) => format!("{tid} {:?}", clean(&life.name)),
            None if tid == Tid::KERNEL => "kernel".to_string(),
            None => tid.to_string(),
        }
    }
}

impl DeviceLife {
    fn used(&mut self, at: Moment, tid: Tid, direction: Direction, bytes: u64) {
        let uses = match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        };
        let before = uses.last().map_or(0, |one| one.bytes);
        uses.push(Use {
            at,
            tid,
            bytes: before + bytes,
        });
    }

    /// The bytes that went this way, in order.
    pub(super) fn uses(&self, direction: Direction) -> &[Use] {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }
}
