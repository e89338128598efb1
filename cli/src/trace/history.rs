//! All that happened in a recording, by task, queue and device. `causes.rs` and `path.rs` walk
//! backwards over it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use trapline::{
    Answered, Call, Detail, Direction, Doing, End, Ending, Event, Exit, KernelId, Moment, On,
    QueueId, Reply, Span, SystemCall, Tid, record::OwnedEvent,
};

use super::{
    devices::Devices,
    life::{Amount, Life, Piece},
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
    pub(super) devices: Devices,
    /// The puts of each kernel into mailboxes, in order.
    posts: BTreeMap<KernelId, Vec<(Tid, Moment)>>,
    /// The turns of all tasks: when each began, and its piece. In order, once all events are in.
    pub(super) turns: Vec<(Moment, Step)>,
    pub(super) begin: Option<Moment>,
    /// Where events are missing: the moments of the events before and after, in order.
    gaps: Vec<(Moment, Moment)>,
    /// The events since tasks are being killed, up to the next turn: [`History::finish`] says why.
    kills: Vec<OwnedEvent>,
}

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
        }
        self.begin.get_or_insert(Moment {
            at: now.at,
            ..before
        });
        for span in spans {
            self.piece(&span);
        }
        if !event.tid.is_kernel() {
            self.note(event, now);
        }
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
        if !self.has_gaps() {
            self.devices.finish();
        }
        self.turns.sort();
    }

    pub(super) fn shares(&self) -> Shares {
        self.spans.shares()
    }

    pub(super) fn end(&self) -> Moment {
        self.spans.now()
    }

    pub(super) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    pub(super) fn has_gap(&self, from: Moment, to: Moment) -> bool {
        let first = self.gaps.partition_point(|(_, after)| *after < from);
        let gap = self.gaps.get(first);
        gap.is_some_and(|(before, _)| *before <= to)
    }

    /// The tasks of that number or of that whole name.
    pub(super) fn find(&self, wanted: &str) -> Vec<Tid> {
        let number = wanted.parse::<Tid>();
        let is_wanted = |tid: Tid, life: &Life| match number {
            Ok(number) => tid == number,
            Err(_) => clean(&life.name) == wanted,
        };
        let tasks = self.tasks.iter();
        let found = tasks.filter(|(tid, life)| is_wanted(**tid, life));
        found.map(|(tid, _)| *tid).collect()
    }

    pub(super) fn name(&self, tid: Tid) -> &str {
        match self.tasks.get(&tid) {
            Some(life) => &life.name,
            None if tid.is_kernel() => "kernel",
            None => "?",
        }
    }

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
        let Span {
            tid,
            doing,
            from,
            to,
            end,
        } = *span;
        if tid.is_kernel() || from == to && end != Ending::Open {
            return;
        }
        let last = self.spans.tasks().last(tid);
        let call = match end {
            Ending::Exited if doing == Doing::Running => "exit".to_string(),
            _ => last.map_or_else(String::new, |call| clean(&call.to_string())),
        };
        let last = last.filter(|_| matches!(doing, Doing::Blocked(_)));
        let place = last.and_then(|call| call.place.clone());
        let pieces = &mut self.life(tid).pieces;
        let step = (tid, pieces.len());
        pieces.push(Piece {
            doing,
            from,
            to,
            end,
            call,
            place,
        });
        if doing == Doing::Running {
            self.turns.push((from, step));
        }
    }

    /// Notes what an event says about its task, and about queues and devices.
    fn note(&mut self, event: &Event<'_>, now: Moment) {
        let (tid, fact) = (event.tid, &event.fact);
        self.devices.event(event, self.spans.tasks());
        if let Some((parent, _)) = fact.spawned() {
            let life = self.life(tid);
            (life.parent, life.spawned) = (parent, now);
        } else if let Some(exit) = fact.exit() {
            let life = self.life(tid);
            life.exit = Some((now, clean(&exit.to_string())));
            // Tasks that are killed together wake each other first.
            if let Some(last) = life.pieces.last_mut()
                && *exit == Exit::Killed
                && last.to.at == now.at
                && matches!(last.doing, Doing::Blocked(_))
            {
                last.end = Ending::Exited;
            }
        } else if let Some(
            SystemCall::Put(queue) | SystemCall::TryPut(queue) | SystemCall::Give(queue),
        ) = fact.deferred()
        {
            self.moved(queue, tid, End::Put, now);
        } else if let Some(SystemCall::CloseQueue(queue)) = fact.deferred() {
            self.closed(queue, tid, now);
        } else if let Some(Call(SystemCall::Post, _)) = fact.call() {
            let kernel = tid.kernel().unwrap_or_default();
            let posts = self.posts.entry(kernel).or_default();
            posts.push((tid, now));
        } else if let Some(Answered(reply, detail)) = fact.answer()
            && let Some(last) = self.spans.tasks().last(tid)
        {
            if let (Some(queue), Detail::Mail(kernel, put)) = (last.call.queue(), detail) {
                self.mailed(queue, *kernel, *put);
            }
            let last = self.spans.tasks().last(tid).expect("it has made a call");
            match (last.call, reply) {
                (SystemCall::Put(queue) | SystemCall::TryPut(queue), Reply::Done) => {
                    self.moved(queue, tid, End::Put, now);
                }
                (SystemCall::CloseQueue(queue), Reply::Done) => self.closed(queue, tid, now),
                (SystemCall::Get(queue) | SystemCall::TryGet(queue), Reply::Message(_))
                | (SystemCall::Take(queue) | SystemCall::TryTake(queue), Reply::Permits(_)) => {
                    self.moved(queue, tid, End::Get, now);
                }
                (SystemCall::NewQueue(_) | SystemCall::Catch, Reply::Queue(queue)) => {
                    let object = self.spans.tasks().object(queue);
                    self.queues.insert(queue, QueueLife::of(object));
                }
                _ => {}
            }
        }
    }

    /// Notes the put of a message that is taken from a mailbox: its call does not name the mailbox.
    fn mailed(&mut self, queue: QueueId, kernel: KernelId, put: u64) {
        let posts = self.posts.get(&kernel).filter(|_| self.gaps.is_empty());
        let place = usize::try_from(put).ok().and_then(|put| put.checked_sub(1));
        let post = posts.zip(place).and_then(|(posts, place)| posts.get(place));
        if let Some(&(tid, at)) = post {
            let moves = &mut self.queues.entry(queue).or_default().moves;
            let place = moves.partition_point(|one| one.at <= at);
            let end = End::Put;
            moves.insert(place, Move { at, tid, end });
        }
    }

    /// Notes that a task closes a queue, which signals all that wait for a condition.
    fn closed(&mut self, queue: QueueId, tid: Tid, at: Moment) {
        let life = self.queues.get(&queue);
        if life.is_some_and(|life| life.content == Content::Signals) {
            self.moved(queue, tid, End::Put, at);
        }
    }

    fn moved(&mut self, queue: QueueId, tid: Tid, end: End, at: Moment) {
        let life = self.queues.entry(queue).or_default();
        life.moves.push(Move { at, tid, end });
        if end == End::Put && life.content == Content::Messages {
            let place = life.moves.len() - 1;
            self.life(tid).puts.push((queue, place));
        }
    }

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

    /// The shares of a task's states in a window, in words; the longest first.
    pub(super) fn activity(&self, tid: Tid, from: Moment, to: Moment) -> String {
        let mut parts: Vec<(String, Amount)> = Vec::new();
        let life = self.tasks.get(&tid);
        for piece in life.map_or(&[][..], |life| life.touching(from, to).1) {
            let state = self.state(piece);
            let amount = Amount::of(piece.from.max(from), piece.to.min(to));
            match parts.iter_mut().find(|(other, _)| *other == state) {
                Some((_, sum)) => *sum += amount,
                None => parts.push((state, amount)),
            }
        }
        parts.sort_by_key(|(_, amount)| Reverse(*amount));
        let total: Amount = parts.iter().map(|(_, amount)| *amount).sum();
        let is_all = |amount: &Amount| match total.time.is_zero() {
            true => amount.turns == total.turns,
            false => amount.time == total.time,
        };
        parts.retain(|(_, amount)| amount.is_share_of(total));
        let parts = parts.into_iter().take(3);
        let parts: Vec<String> = parts
            .map(|(state, amount)| match is_all(&amount) {
                true => state,
                false => format!("{state} for {amount}"),
            })
            .collect();
        match &*parts {
            [] => "not alive".to_string(),
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
                match (end, life.map_or(Content::default(), |life| life.content)) {
                    (End::Get, Content::Messages) => format!("a message of {object}"),
                    (End::Get, Content::Signals) => format!("a signal of {object}"),
                    (End::Get, Content::Lock | Content::Permits) => object,
                    (End::Put, _) => format!("room in {object}"),
                }
            }
            On::Device(device, direction) => {
                let addr = self.devices.addr(device);
                let addr = addr.map_or_else(String::new, |addr| format!(" ({addr})"));
                match (direction, self.devices.is_listener(device)) {
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
            None if tid.is_kernel() => "kernel".to_string(),
            None => tid.to_string(),
        }
    }
}
