//! Why a task waited, and what decided when a run ended: an engine over a whole recording.
//!
//! A [`History`] keeps the pieces of each task's life, the tasks that moved messages through which queue, and
//! which task used which device. Explanations walk backwards over it: from a wait to the task that
//! ended it, or that still holds what the wait is for, and on to what that task did meanwhile.
//!
//! A message queue has no owner. A mutex and a semaphore are queues whose messages are permits: the
//! task that got one holds it until it puts one back. `peers.rs` links the two ends of a connection.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    time::Duration,
};

use rustc_hash::FxHashMap;

use super::{
    peers::Peers,
    source::Source,
    spans::{Doing, Ending, Moment, Shares, Span, Spans},
    timeline::{count, rounded},
};
use crate::{
    CallInfo, DeviceId, Direction, End, Event, Exit, Fact, Follower, Nanos, On, Place, QueueId,
    Reply, SystemCall, Tid, Tracer, cli::output::clean, record::OwnedEvent,
};

/// The longest chain of an explanation. Longer chains say so.
const STEPS: usize = 12;
/// The number of tasks named in a sentence.
const NAMED: usize = 4;

/// All that happened, by task, queue and device.
#[derive(Default)]
pub(super) struct History {
    spans: Spans,
    follower: Follower,
    tasks: BTreeMap<Tid, Life>,
    queues: BTreeMap<QueueId, QueueLife>,
    devices: FxHashMap<DeviceId, DeviceLife>,
    /// The turns of all tasks: when each began, and its piece. In order, once all events are in.
    turns: Vec<(Moment, Step)>,
    peers: Peers,
    begin: Option<Moment>,
}

/// A task.
#[derive(Default)]
pub(super) struct Life {
    name: String,
    parent: Tid,
    spawned: Moment,
    /// In order.
    pieces: Vec<Piece>,
    /// When it ended, and how.
    exit: Option<(Moment, String)>,
}

/// A time in one state.
pub(super) struct Piece {
    pub(super) doing: Doing,
    pub(super) from: Moment,
    pub(super) to: Moment,
    end: Ending,
    /// The call that the task was in; of a turn, the call that ended it.
    call: String,
    place: Option<Place>,
}

/// A queue: the object that it is part of, and the messages that went through it.
#[derive(Default)]
struct QueueLife {
    object: Option<String>,
    /// True for a mutex and a semaphore.
    is_lock: bool,
    moves: Vec<Move>,
}

/// A message that a task put into a queue or got from it.
struct Move {
    at: Moment,
    tid: Tid,
    end: End,
}

/// A device, and the tasks that read from it and wrote to it.
#[derive(Default)]
struct DeviceLife {
    /// What it is connected to, or listens on.
    addr: Option<SocketAddr>,
    /// The task that opened it.
    owner: Tid,
    uses: Vec<(Moment, Tid, Direction)>,
}

/// How much time something took, and how many turns of all tasks. Turns count where a virtual clock
/// does not move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Amount {
    pub(super) time: Duration,
    turns: u64,
}

/// What a task did for a part of its life, in words.
type Part = (String, Amount);

/// A task that is alive, and what it does.
pub(super) struct Standing {
    pub(super) tid: Tid,
    pub(super) name: String,
    pub(super) parent: Tid,
    /// Its state, in words.
    pub(super) state: String,
    pub(super) since: Duration,
    /// The call that it is in.
    pub(super) call: String,
}

impl History {
    /// Reads a recording, up to an instant or to its end.
    pub(super) fn read(source: &mut Source, to: Option<Duration>) -> Self {
        let mut history = Self::default();
        while let Some(event) = source.next() {
            if to.is_some_and(|to| event.at > to) {
                break;
            }
            let has_gap = source.gap().is_some();
            history.event(&event, has_gap);
        }
        history.finish();
        history
    }

    /// The tasks that are alive at its end, by tid.
    pub(super) fn standing(&self) -> Vec<Standing> {
        let alive = self.tasks.iter().filter(|(_, life)| life.exit.is_none());
        let standing = alive.filter_map(|(tid, life)| {
            let last = life.pieces.last()?;
            Some(Standing {
                tid: *tid,
                name: clean(&life.name),
                parent: life.parent,
                state: self.state(last),
                since: last.from.at,
                call: match last.doing {
                    Doing::Running => String::new(),
                    _ => last.call.clone(),
                },
            })
        });
        standing.collect()
    }

    /// What tasks were blocked on, apart from timers, with the words for that state.
    pub(super) fn words(&self) -> BTreeMap<String, String> {
        let pieces = self.tasks.values().flat_map(|life| &life.pieces);
        let mut words = BTreeMap::new();
        for piece in pieces {
            if let Doing::Blocked(on) = piece.doing
                && !matches!(on, On::Timer(_))
            {
                let of = words.entry(on.to_string());
                of.or_insert_with(|| self.state(piece));
            }
        }
        words
    }

    /// When which task got a message from each queue, by the queue's number.
    pub(super) fn takes(&self) -> BTreeMap<u64, Vec<(Moment, Tid)>> {
        let mut takes: BTreeMap<u64, Vec<(Moment, Tid)>> = BTreeMap::new();
        for (queue, life) in &self.queues {
            let gets = life.moves.iter().filter(|one| one.end == End::Get);
            let of = takes.entry(queue.number()).or_default();
            of.extend(gets.map(|one| (one.at, one.tid)));
        }
        takes
    }

    /// Takes the next event, and whether events are missing before it.
    pub(super) fn event(&mut self, owned: &OwnedEvent, has_gap: bool) {
        if has_gap {
            self.spans.gap();
        }
        let event = &owned.borrow();
        let before = self.spans.now();
        let spans = self.spans.event(event);
        let now = self.spans.now();
        self.begin.get_or_insert(Moment {
            at: now.at,
            ..before
        });
        // A turn belongs to the call that ends it; every other span to the call before.
        let is_trap = matches!(event.fact, Fact::Trapped { .. });
        if is_trap {
            self.follower.event(event);
        }
        for span in spans {
            self.piece(&span);
        }
        if !is_trap {
            self.follower.event(event);
        }
        self.note(event, now);
    }

    /// Takes what was under way at the end, and links the ends of connections.
    pub(super) fn finish(&mut self) {
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
        self.tasks.get(&tid).map_or("?", |life| &life.name)
    }

    /// The names of all tasks, each once.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.tasks.values().map(|life| clean(&life.name)).collect()
    }

    fn life(&mut self, tid: Tid) -> &mut Life {
        let comm = self.follower.comm(tid);
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
        let last = self.follower.last(span.tid);
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
        self.peers.event(event, &self.follower);
        let call = self.follower.last(tid).map(|call| call.call);
        match &event.fact {
            Fact::Spawned { parent, .. } => {
                let life = self.life(tid);
                (life.parent, life.spawned) = (*parent, now);
            }
            Fact::Exited { exit } => {
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
            }
            Fact::Deferred {
                call: SystemCall::Put(queue) | SystemCall::TryPut(queue),
            } => {
                self.moved(*queue, tid, End::Put, now);
            }
            Fact::Replied { reply, .. } => match (call, reply) {
                (Some(SystemCall::Put(queue) | SystemCall::TryPut(queue)), Reply::Done) => {
                    self.moved(queue, tid, End::Put, now);
                }
                (Some(SystemCall::Get(queue) | SystemCall::TryGet(queue)), Reply::Message(_)) => {
                    self.moved(queue, tid, End::Get, now);
                }
                (_, Reply::Device(device)) => self.opened(*device, tid),
                (Some(SystemCall::NewQueue(_)), Reply::Queue(queue)) => {
                    let object = self.follower.object(*queue);
                    let is_lock = object.as_ref().is_some_and(|object| {
                        object.starts_with("mutex") || object.starts_with("semaphore")
                    });
                    let life = self.queues.entry(*queue).or_default();
                    (life.object, life.is_lock) = (object, is_lock);
                }
                _ => {}
            },
            Fact::DeviceIo {
                device,
                direction,
                result: Ok(_),
            } => {
                let device = self.devices.entry(*device).or_default();
                device.uses.push((now, tid, *direction));
            }
            _ => {}
        }
    }

    fn moved(&mut self, queue: QueueId, tid: Tid, end: End, at: Moment) {
        let moves = &mut self.queues.entry(queue).or_default().moves;
        moves.push(Move { at, tid, end });
    }

    /// Notes a device that a call has opened.
    fn opened(&mut self, device: DeviceId, tid: Tid) {
        let addr = self.follower.last(tid).and_then(CallInfo::addr);
        let life = self.devices.entry(device).or_default();
        (life.addr, life.owner) = (addr, tid);
    }

    /// The other end of a connection, if that is in the same run.
    pub(super) fn peer(&self, device: DeviceId) -> Option<DeviceId> {
        self.peers.of(device)
    }
}

// ---- why a task waited

/// A piece of a task's life: the task, and the index of the piece.
pub(super) type Step = (Tid, usize);

/// An explanation, and the pieces that it is about.
pub(super) struct Why {
    pub(super) sentences: Vec<String>,
    pub(super) steps: Vec<Step>,
}

impl History {
    /// Says why a task waited: at an instant, or else where it lost most.
    pub(super) fn why(&self, tid: Tid, at: Option<Duration>) -> Why {
        let Some(life) = self.tasks.get(&tid) else {
            return Why::of(format!("There is no task {tid}."));
        };
        let sum = |is: fn(&Doing) -> bool| -> Amount {
            life.pieces
                .iter()
                .filter(|piece| is(&piece.doing))
                .map(Piece::amount)
                .sum()
        };
        let blocked = sum(|doing| matches!(doing, Doing::Blocked(_)));
        let ready = sum(|doing| *doing == Doing::Ready);
        if at.is_none() && ready > blocked && !life.waits_at_end() {
            return Why::of(self.crowded(tid, life));
        }
        match life.piece_at(at) {
            Some(index) => self.chain((tid, index)),
            None => Why::of(self.absent(tid, life, at)),
        }
    }

    /// Says why a task was in a state for a span, as [`History::why`] does at an instant within it.
    /// `None` for a span that took no time and no turn.
    pub(super) fn why_span(&self, tid: Tid, doing: Doing, to: Moment) -> Option<Why> {
        let pieces = &self.tasks.get(&tid)?.pieces;
        let first = pieces.partition_point(|piece| piece.to < to);
        let its = pieces[first..]
            .iter()
            .position(|piece| piece.doing == doing)?;
        (pieces[first + its].to == to).then(|| self.chain((tid, first + its)))
    }

    /// Walks from wait to wait.
    fn chain(&self, first: Step) -> Why {
        let mut why = Why {
            sentences: Vec::new(),
            steps: Vec::new(),
        };
        let mut next = Some(first);
        while let Some(step) = next {
            if let Some(met) = why.steps.iter().position(|other| *other == step) {
                why.sentences.push(self.cycle(&why.steps[met..]));
                break;
            }
            if why.steps.len() == STEPS {
                why.sentences.push("The chain goes on.".to_string());
                break;
            }
            why.steps.push(step);
            let (said, after) = self.step(step);
            why.sentences.extend(said);
            next = after;
        }
        why
    }

    /// The sentences about a piece, and the piece that explains it.
    fn step(&self, (tid, index): Step) -> (Vec<String>, Option<Step>) {
        let Some(piece) = self.piece_at_step((tid, index)) else {
            return (Vec::new(), None);
        };
        match piece.doing {
            Doing::Blocked(on) => self.blocked(tid, index, piece, on),
            Doing::Ready => (vec![self.turns_of_others(tid, &[piece])], None),
            _ => {
                let doing = if piece.doing == Doing::Running {
                    "ran"
                } else {
                    "was in call"
                };
                let (who, amount) = (self.task(tid), piece.amount());
                let said = format!("{who} {doing} for {amount}, up to {}.", piece.call);
                (vec![said], None)
            }
        }
    }

    fn blocked(
        &self,
        tid: Tid,
        index: usize,
        piece: &Piece,
        on: On,
    ) -> (Vec<String>, Option<Step>) {
        let who = self.task(tid);
        let at = piece
            .place
            .as_ref()
            .map_or_else(String::new, |place| clean(&format!(" ({place})")));
        let is_open = piece.is_endless();
        let from = Nanos::from(piece.from.at);
        if let On::Timer(_) = on {
            let amount = piece.amount();
            let line = match &*piece.call {
                "" => format!("{who} began {amount} after its spawn at {from}{at}."),
                call => format!("{who} slept for {amount}, from {from}: {call}{at}."),
            };
            return (vec![line], None);
        }
        let thing = self.thing(on);
        let head = match is_open {
            true => {
                format!("{who} waits for {thing} since {from}, to its end{at}.")
            }
            false => format!(
                "{who} waited {} for {thing}, from {from}{at}.",
                piece.amount()
            ),
        };
        let (cause, next) = match on {
            On::Queue(queue, end) => self.queue_cause(tid, index, piece, queue, end),
            On::Exit(target) => {
                let next = self.next(target, piece, piece.from, piece.to);
                (self.meanwhile(target, piece, next), next)
            }
            On::Device(device, direction) => self.device_cause(tid, piece, device, direction),
            On::Timer(_) => (Vec::new(), None),
        };
        ([vec![head], cause].concat(), next)
    }

    /// Why a queue kept a task waiting.
    fn queue_cause(
        &self,
        tid: Tid,
        index: usize,
        piece: &Piece,
        queue: QueueId,
        end: End,
    ) -> (Vec<String>, Option<Step>) {
        let life = self.queues.get(&queue);
        if let Some(life) = life.filter(|life| life.is_lock && end == End::Get) {
            return self.holders(tid, piece, life);
        }
        let (did, moved) = match end {
            End::Get => ("put a message into it", End::Put),
            End::Put => ("got a message from it", End::Get),
        };
        if let Ending::Woken {
            waker: Some(waker), ..
        } = piece.end
        {
            let who = self.task(waker);
            let when = Nanos::from(piece.to.at);
            let next = self.longest_wait(waker, piece.from, piece.to);
            let mut said = vec![format!("{who} {did} at {when}, which ended the wait.")];
            said.extend(self.meanwhile(waker, piece, next));
            return (said, next);
        }
        if let Ending::Woken { by, .. } = piece.end {
            return (
                vec![format!(
                    "It was woken by {by}: a thread, or the host, ended the wait."
                )],
                None,
            );
        }
        let moves = life.map_or(&[][..], |life| &life.moves);
        let last = moves
            .iter()
            .rev()
            .find(|one| one.end == moved && one.tid != tid);
        let Some(last) = last else {
            let mut said = vec![format!(
                "No other task has ever {}.",
                did.replacen("got", "gotten", 1)
            )];
            said.extend(self.before(tid, index));
            return (said, None);
        };
        let (who, when) = (self.task(last.tid), Nanos::from(last.at.at));
        let next = self.last_wait(last.tid);
        let mut said = vec![format!(
            "No task {did} again. The last to do so was {who}, at {when}."
        )];
        said.extend(self.meanwhile(last.tid, piece, next));
        (said, next)
    }

    /// The tasks that held a lock during a wait.
    fn holders(&self, tid: Tid, piece: &Piece, lock: &QueueLife) -> (Vec<String>, Option<Step>) {
        let mut held = lock.held(piece, self.end());
        held.retain(|(holder, ..)| *holder != tid);
        let Some(&(longest, from, to)) = held
            .iter()
            .max_by_key(|(_, from, to)| Amount::of(*from, *to))
        else {
            return (vec!["No other task held it.".to_string()], None);
        };
        let (is_open, is_alone) = (piece.is_endless(), held.len() == 1);
        let mut parts: Vec<String> = Vec::new();
        for &(holder, from, to) in held.iter().take(NAMED) {
            let (who, doing) = (self.task(holder), self.activity(holder, from, to));
            parts.push(match is_open && is_alone {
                true => format!("{who} holds it"),
                false => format!("{who} held it for {} ({doing})", Amount::of(from, to)),
            });
        }
        let more = held.len().saturating_sub(NAMED);
        if more > 0 {
            parts.push(format!("{more} more followed"));
        }
        let said = match is_open && is_alone {
            true => format!("{}.", parts.join(", ")),
            false => format!("Meanwhile {}.", parts.join(", then ")),
        };
        (vec![said], self.next(longest, piece, from, to))
    }

    /// Why a device kept a task waiting.
    fn device_cause(
        &self,
        tid: Tid,
        piece: &Piece,
        device: DeviceId,
        direction: Direction,
    ) -> (Vec<String>, Option<Step>) {
        let peer = self.peer(device);
        let Some(peer) = peer else {
            let said = "The other end is outside of this run, or was never connected.";
            let is_listener = self.peers.is_listener(device);
            let said = if is_listener {
                "No task connected meanwhile."
            } else {
                said
            };
            return (vec![said.to_string()], None);
        };
        let its_side = match direction {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        };
        let other = self.user_of(peer, its_side, piece.to);
        if other == tid {
            return (
                vec![format!("It has the other end itself, device {peer}.")],
                None,
            );
        }
        let who = self.task(other);
        let next = self.next(other, piece, piece.from, piece.to);
        let mut said = vec![format!("{who} has the other end, device {peer}.")];
        said.extend(self.meanwhile(other, piece, next));
        (said, next)
    }

    /// The task that last used a side of a device before a moment; otherwise the one that last used
    /// its other side, and otherwise the one that opened it.
    fn user_of(&self, device: DeviceId, side: Direction, before: Moment) -> Tid {
        let Some(life) = self.devices.get(&device) else {
            return Tid::KERNEL;
        };
        let uses = &life.uses[..life.uses.partition_point(|(at, ..)| *at <= before)];
        let same = uses.iter().rfind(|(.., way)| *way == side);
        let user = same.or(uses.last());
        // A task that waits for the device may never have used it.
        let waits = || {
            let (tid, _) = self.tasks.iter().find(|(_, life)| {
                let on = |piece: &Piece| matches!(piece.doing, Doing::Blocked(On::Device(its, _)) if its == device);
                life.pieces.iter().any(on)
            })?;
            Some(*tid)
        };
        user.map(|(_, tid, _)| *tid)
            .or_else(waits)
            .unwrap_or(life.owner)
    }

    /// A task was ready for most of its life: which tasks had the turns.
    fn crowded(&self, tid: Tid, life: &Life) -> String {
        let ready = |piece: &&Piece| piece.doing == Doing::Ready;
        let pieces: Vec<&Piece> = life.pieces.iter().filter(ready).collect();
        self.turns_of_others(tid, &pieces)
    }

    /// Which tasks had their turns while a task was ready.
    fn turns_of_others(&self, tid: Tid, ready: &[&Piece]) -> String {
        let mut by_task: BTreeMap<Tid, Amount> = BTreeMap::new();
        let mut by_call: BTreeMap<String, u64> = BTreeMap::new();
        let mut turns = 0;
        for window in ready {
            for (other, piece) in self.turns_in(window).filter(|(other, _)| *other != tid) {
                turns += 1;
                *by_task.entry(other).or_default() += Amount::of(piece.from, piece.to);
                let call = piece.call.split('(').next().unwrap_or_default();
                *by_call.entry(call.to_string()).or_default() += 1;
            }
        }
        let total: Amount = ready.iter().map(|piece| piece.amount()).sum();
        let mut said = format!(
            "{} was ready for {total}, and waited for its turn.",
            self.task(tid)
        );
        let mut by_task: Vec<_> = by_task.into_iter().collect();
        by_task.sort_by_key(|(other, amount)| (Reverse(*amount), *other));
        let mut named: Vec<String> = by_task
            .iter()
            .take(NAMED)
            .map(|(other, amount)| format!("{} for {amount}", self.task(*other)))
            .collect();
        let more = by_task.len().saturating_sub(NAMED);
        if more > 0 {
            named.push(format!("{more} more tasks"));
        }
        if !named.is_empty() {
            said += &format!(" Meanwhile others ran: {}.", named.join(", "));
        }
        if let Some((call, count)) = by_call.into_iter().max_by_key(|(_, count)| *count) {
            said += &format!(" Of their {turns} turns, {count} ended with {call}");
            said += if call == "yield" {
                ", as those of tasks that poll."
            } else {
                "."
            };
        }
        said
    }

    /// The turns that began within a piece, in order.
    fn turns_in(&self, piece: &Piece) -> impl Iterator<Item = (Tid, &Piece)> {
        let before = |at: Moment| self.turns.partition_point(|(from, _)| *from < at);
        let turns = &self.turns[before(piece.from)..before(piece.to).max(before(piece.from))];
        let turns = turns.iter().map(|(_, step)| *step);
        turns.filter_map(|step| Some((step.0, self.piece_at_step(step)?)))
    }

    pub(super) fn piece_at_step(&self, (tid, index): Step) -> Option<&Piece> {
        self.tasks.get(&tid)?.pieces.get(index)
    }

    /// What a task did during a piece of another, unless the next step says so.
    fn meanwhile(&self, tid: Tid, piece: &Piece, next: Option<Step>) -> Vec<String> {
        if piece.is_endless() {
            return match next {
                Some(_) => Vec::new(),
                None => vec![self.now_does(tid)],
            };
        }
        let did = self.activity(tid, piece.from, piece.to);
        vec![format!("Meanwhile {} was {did}.", self.task(tid))]
    }

    /// What a task does at the end of the recording.
    fn now_does(&self, tid: Tid) -> String {
        let who = self.task(tid);
        let Some(life) = self.tasks.get(&tid) else {
            return format!("{who} is not known.");
        };
        match (&life.exit, life.pieces.last()) {
            (_, Some(piece)) if piece.is_endless() => format!("{who} is {}.", self.state(piece)),
            (Some((at, exit)), _) => format!("{who} ended at {}: {exit}.", Nanos::from(at.at)),
            (None, Some(piece)) => format!("{who} is {}.", self.state(piece)),
            (None, None) => format!("{who} is alive."),
        }
    }

    /// The turn of another task between a task's last two calls, in which a wake-up may be lost.
    fn before(&self, tid: Tid, index: usize) -> Option<String> {
        let pieces = &self.tasks.get(&tid)?.pieces[..index];
        let ready = pieces
            .iter()
            .rposition(|piece| piece.doing == Doing::Ready)?;
        let (gap, before) = (&pieces[ready], pieces[..ready].last()?);
        let mut last: BTreeMap<Tid, &Piece> = BTreeMap::new();
        last.extend(self.turns_in(gap).filter(|(other, _)| *other != tid));
        let mut others: Vec<String> = last
            .into_iter()
            .map(|(other, turn)| format!("{} had a turn, up to {}", self.task(other), turn.call))
            .collect();
        others.truncate(NAMED);
        let others = others.join(", ");
        (!others.is_empty()).then(|| {
            let call = &before.call;
            format!("After its {call}, and before this wait, {others}: what that turn did came too early to wake it.")
        })
    }

    fn absent(&self, tid: Tid, life: &Life, at: Option<Duration>) -> String {
        let who = self.task(tid);
        let from = Nanos::from(life.spawned.at);
        match (at, &life.exit) {
            (Some(at), Some((end, _))) => {
                let (at, end) = (Nanos::from(at), Nanos::from(end.at));
                format!("{who} did not live at {at}: it lived from {from} to {end}.")
            }
            (Some(at), None) => format!(
                "{who} did not live at {}: it lived from {from}.",
                Nanos::from(at)
            ),
            (None, _) => format!("{who} never waited."),
        }
    }

    fn cycle(&self, steps: &[Step]) -> String {
        let mut way: Vec<String> = steps.iter().map(|(tid, _)| tid.to_string()).collect();
        way.extend(way.first().cloned());
        format!("So they wait for one another: {}.", way.join(" -> "))
    }

    /// What explains a wait for a task that held it up in this window.
    fn next(&self, tid: Tid, wait: &Piece, from: Moment, to: Moment) -> Option<Step> {
        match wait.is_endless() {
            true => self.last_wait(tid),
            false => self.longest_wait(tid, from, to),
        }
    }

    /// The piece of a task that a wait in this window was mostly spent on, if that was a wait itself.
    fn longest_wait(&self, tid: Tid, from: Moment, to: Moment) -> Option<Step> {
        let (before, pieces) = self.tasks.get(&tid)?.touching(from, to);
        let overlap = |piece: &Piece| Amount::of(piece.from.max(from), piece.to.min(to));
        let (index, piece) = (before..)
            .zip(pieces)
            .max_by_key(|(_, piece)| (overlap(piece), piece.end == Ending::Open))?;
        let is_wait = matches!(piece.doing, Doing::Blocked(on) if !matches!(on, On::Timer(_)));
        is_wait.then_some((tid, index))
    }

    /// The wait of a task at the end of the recording.
    fn last_wait(&self, tid: Tid) -> Option<Step> {
        let life = self.tasks.get(&tid)?;
        life.waits_at_end().then(|| (tid, life.pieces.len() - 1))
    }

    /// The shares of a task's states in a window, in words; the longest first.
    fn activity(&self, tid: Tid, from: Moment, to: Moment) -> String {
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

    fn state(&self, piece: &Piece) -> String {
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
    fn thing(&self, on: On) -> String {
        match on {
            On::Exit(tid) => format!("the end of {}", self.task(tid)),
            On::Timer(_) => "a timer".to_string(),
            On::Queue(queue, end) => {
                let life = self.queues.get(&queue);
                let object = life.and_then(|life| life.object.as_deref()).map(clean);
                let object = object.unwrap_or_else(|| format!("queue {queue}"));
                match (end, life.is_some_and(|life| life.is_lock)) {
                    (End::Get, true) => object,
                    (End::Get, false) => format!("a message of {object}"),
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
        }
    }

    /// A task, by its number and name.
    pub(super) fn task(&self, tid: Tid) -> String {
        match self.tasks.get(&tid) {
            Some(life) => format!("{tid} {:?}", clean(&life.name)),
            None => tid.to_string(),
        }
    }
}

impl Why {
    fn of(sentence: String) -> Self {
        Self {
            sentences: vec![sentence],
            steps: Vec::new(),
        }
    }
}

impl Life {
    /// The pieces that overlap a window or touch it, and the index of the first.
    fn touching(&self, from: Moment, to: Moment) -> (usize, &[Piece]) {
        let first = self.pieces.partition_point(|piece| piece.to < from);
        let last = self.pieces.partition_point(|piece| piece.from <= to);
        (first, &self.pieces[first..last.max(first)])
    }

    fn waits_at_end(&self) -> bool {
        self.pieces.last().is_some_and(Piece::is_endless)
    }

    /// The piece at an instant, a wait if there is one; without an instant, the wait that was not
    /// over at the end, or the longest.
    fn piece_at(&self, at: Option<Duration>) -> Option<usize> {
        let mut pieces = self.pieces.iter().enumerate();
        let is_wait = |piece: &Piece| matches!(piece.doing, Doing::Blocked(_));
        let is_sleep = |piece: &Piece| matches!(piece.doing, Doing::Blocked(On::Timer(_)));
        let found = match at {
            Some(at) => pieces
                .filter(|(_, piece)| piece.from.at <= at && at <= piece.to.at)
                .max_by_key(|(_, piece)| (is_wait(piece), !is_sleep(piece), piece.amount())),
            None if self.waits_at_end() => pieces.next_back(),
            None => pieces
                .filter(|(_, piece)| is_wait(piece))
                .max_by_key(|(index, piece)| (!is_sleep(piece), piece.amount(), Reverse(*index))),
        };
        found.map(|(index, _)| index)
    }
}

impl Piece {
    fn amount(&self) -> Amount {
        Amount::of(self.from, self.to)
    }

    /// Whether this is a wait that never ended: the recording ended first, or the task was killed.
    fn is_endless(&self) -> bool {
        let is_cut = matches!(self.end, Ending::Open | Ending::Exited);
        is_cut && matches!(self.doing, Doing::Blocked(_))
    }
}

impl QueueLife {
    /// Which tasks held a lock within a piece, in order, from when to when.
    fn held(&self, piece: &Piece, end: Moment) -> Vec<(Tid, Moment, Moment)> {
        let mut since: BTreeMap<Tid, Moment> = BTreeMap::new();
        let mut held = Vec::new();
        for Move { at, tid, end } in &self.moves {
            match end {
                End::Get => drop(since.insert(*tid, *at)),
                End::Put => held.extend(since.remove(tid).map(|from| (*tid, from, *at))),
            }
        }
        held.extend(since.into_iter().map(|(tid, from)| (tid, from, end)));
        let clip =
            |(tid, from, to): (Tid, Moment, Moment)| (tid, from.max(piece.from), to.min(piece.to));
        let mut held: Vec<_> = held
            .into_iter()
            .map(clip)
            .filter(|(_, from, to)| from <= to)
            .collect();
        if piece.from < piece.to {
            held.retain(|(_, from, to)| from < to);
        }
        held.sort_by_key(|(_, from, _)| *from);
        held
    }
}

impl Amount {
    fn of(from: Moment, to: Moment) -> Self {
        Self {
            time: to.at.saturating_sub(from.at),
            turns: to.turn.saturating_sub(from.turn),
        }
    }

    /// Its share of a whole, in percent.
    pub(super) fn share_of(self, whole: Self) -> String {
        let percent = match whole.time.is_zero() {
            true => 100.0 * self.turns as f64 / (whole.turns as f64).max(1.0),
            false => 100.0 * self.time.as_secs_f64() / whole.time.as_secs_f64(),
        };
        format!("{percent:.1} %")
    }

    /// Whether it is all of a whole. Where there is time, turns do not count.
    fn is_all_of(self, whole: Self) -> bool {
        match whole.time.is_zero() {
            true => self.turns == whole.turns,
            false => self.time == whole.time,
        }
    }

    /// Whether it is at least a tenth of a whole.
    fn is_share_of(self, whole: Self) -> bool {
        match whole.time.is_zero() {
            true => self.turns * 10 >= whole.turns,
            false => self.time * 10 >= whole.time,
        }
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.turns += other.turns;
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |mut sum, amount| {
            sum += amount;
            sum
        })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.time.is_zero(), self.turns) {
            (false, _) => f.write_str(&rounded(self.time)),
            (true, turns) => f.write_str(&count(turns, "turn")),
        }
    }
}

// ---- the critical path

/// A part of the critical path: a task, what it did, and for how long.
pub(super) struct Segment {
    pub(super) tid: Tid,
    pub(super) what: String,
    pub(super) from: Moment,
    pub(super) to: Moment,
}

impl History {
    /// The chain of work and waits that decided when the run ended, in order of time. It is followed
    /// backwards from the task that ended last: from each wait that a task ended to that task.
    pub(super) fn path(&self) -> Vec<Segment> {
        // The task that was the last to do anything: its end, if it ended.
        let active = |life: &Life| {
            let active = |piece: &&Piece| !matches!(piece.doing, Doing::Blocked(_));
            life.pieces.iter().rev().find(active).map(|piece| piece.to)
        };
        let tasks = self.tasks.iter();
        let last = tasks.max_by_key(|(tid, life)| (active(life), Reverse(**tid)));
        let Some((&tid, life)) = last else {
            return Vec::new();
        };
        let end = life.pieces.last().map_or(self.end(), |piece| piece.to);
        let has_time = !self.total().time.is_zero();
        let mut segments: Vec<Segment> = Vec::new();
        let mut at = (tid, end);
        // Each step goes back in time, or to another task at the same moment.
        let mut jumps = 0;
        while jumps <= self.tasks.len() {
            let (tid, to) = at;
            let Some(life) = self.tasks.get(&tid) else {
                break;
            };
            let before = life.pieces.partition_point(|piece| piece.from < to);
            let Some(piece) = life.pieces[..before].last() else {
                // From its spawn on: its parent's doing.
                at = (life.parent, to);
                jumps += 1;
                continue;
            };
            if let (Doing::Blocked(_), Some(waker)) = (piece.doing, self.ender(tid, piece))
                && piece.to <= to
                && jumps < self.tasks.len()
            {
                at = (waker, piece.to);
                jumps += 1;
                continue;
            }
            jumps = 0;
            let (from, what) = (piece.from, self.state(piece));
            let is_short = has_time && to.at == from.at;
            match segments.last_mut() {
                // On a virtual clock, turns take no time.
                _ if is_short => {}
                Some(next) if next.tid == tid && next.what == what => next.from = from,
                _ => segments.push(Segment {
                    tid,
                    what,
                    from,
                    to,
                }),
            }
            at = (tid, from);
        }
        segments.reverse();
        segments
    }

    /// The task that ended a wait.
    fn ender(&self, tid: Tid, piece: &Piece) -> Option<Tid> {
        match (piece.end, piece.doing) {
            (
                Ending::Woken {
                    waker: Some(waker), ..
                },
                _,
            ) => Some(waker),
            (Ending::Woken { .. }, Doing::Blocked(On::Device(device, Direction::Read))) => {
                let peer = self.peer(device)?;
                let sender = self.user_of(peer, Direction::Write, piece.to);
                (sender != tid).then_some(sender)
            }
            _ => None,
        }
    }

    /// The length of the whole run.
    pub(super) fn total(&self) -> Amount {
        Amount::of(self.begin.unwrap_or_default(), self.end())
    }
}

impl Segment {
    pub(super) fn amount(&self) -> Amount {
        Amount::of(self.from, self.to)
    }
}
