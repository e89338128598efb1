//! Why a task waited. An explanation walks backwards: from a wait to the task that ended it, or that
//! still holds what the wait is for, and on to what that task did meanwhile.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use trapline::{DeviceId, Direction, Doing, End, Ending, Moment, Nanos, On, QueueId, Tid, Wake};

use super::{
    history::{History, Step},
    life::{Amount, Life, Piece},
    queues::{Content, QueueLife},
};
use crate::output::clean;

/// The longest chain of an explanation. Longer chains say so.
const STEPS: usize = 12;
/// The number of tasks named in a sentence.
const NAMED: usize = 4;

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
        let piece = &pieces[first + its];
        // A wait that ends in a shutdown is longer here.
        let is_it = piece.to == to || piece.is_endless() && piece.from < to;
        is_it.then(|| self.chain((tid, first + its)))
    }

    /// Walks from wait to wait.
    fn chain(&self, first: Step) -> Why {
        let mut why = Why {
            sentences: Vec::new(),
            steps: Vec::new(),
        };
        let mut next = Some(first);
        let mut since = Moment::default();
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
            let (said, after) = self.step(step, since);
            why.sentences.extend(said);
            next = after;
            // Of the next wait, the part within this one counts.
            since = since.max(self.piece_at_step(step).map_or(since, |piece| piece.from));
        }
        why
    }

    /// The sentences about a piece from a moment on, and the piece that explains it.
    fn step(&self, (tid, index): Step, since: Moment) -> (Vec<String>, Option<Step>) {
        let Some(piece) = self.piece_at_step((tid, index)) else {
            return (Vec::new(), None);
        };
        match piece.doing {
            Doing::Blocked(on) => self.blocked((tid, index), piece, on, since),
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
        (tid, index): Step,
        piece: &Piece,
        on: On,
        since: Moment,
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
                let holder = self.holder_at_end(piece, on);
                let held = holder.map_or_else(String::new, |tid| format!(", held by task {tid},"));
                format!("{who} waits for {thing}{held} since {from}, to its end{at}.")
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
            On::Device(device, direction) => {
                self.device_cause(tid, piece, (device, direction), since)
            }
            _ => (Vec::new(), None),
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
        if let Some(lock) = life.filter(|life| life.content == Content::Lock && end == End::Get) {
            return self.holders(tid, piece, lock);
        }
        let content = life.map_or(Content::default(), |life| life.content);
        let (ends, deed, done, last) = deeds(end, content);
        let mut said = Vec::new();
        match piece.end {
            Ending::Woken {
                waker: Some(waker), ..
            } => {
                let who = self.task(waker);
                let when = Nanos::from(piece.to.at);
                let next = self.longest_wait(waker, piece.from, piece.to);
                said.push(format!("{who} {ends} at {when}, which ended the wait."));
                said.extend(self.meanwhile(waker, piece, next));
                return (said, next);
            }
            Ending::Woken {
                by: Wake::Timeout, ..
            } => said.push("A timeout ended the wait.".to_string()),
            Ending::Woken { by, .. } => {
                said.push(format!(
                    "It was woken by {by}: a thread, or the host, ended the wait."
                ));
                return (said, None);
            }
            Ending::Next | Ending::Exited | Ending::Open => {}
        }
        let Some(deed) = life.and_then(|life| life.last_move(deed, tid, piece.to)) else {
            if self.has_gaps() {
                said.push(format!(
                    "No task has {done} in what is recorded: events are missing."
                ));
                return (said, None);
            }
            said.push(format!("No other task has ever {done}."));
            // A permit that is released too early is kept.
            if content != Content::Messages || !piece.is_endless() {
                return (said, None);
            }
            let (asked, next) = self.asked(tid, piece);
            said.extend(asked);
            if next.is_none() {
                said.extend(self.before(tid, index));
            }
            return (said, next);
        };
        if piece.is_endless() {
            said.push(format!("No task {ends} again."));
        }
        let (who, when) = (self.task(deed.tid), Nanos::from(deed.at.at));
        let next = self.next(deed.tid, piece, piece.from, piece.to);
        said.push(format!("{last} {who}, at {when}."));
        said.extend(self.meanwhile(deed.tid, piece, next));
        (said, next)
    }

    /// Which task got the last message that a task put into a queue before a wait without an answer,
    /// and what that task waits for. It may be idle, since it waits for the next such message.
    fn asked(&self, tid: Tid, piece: &Piece) -> (Vec<String>, Option<Step>) {
        let puts = self.tasks.get(&tid).map_or(&[][..], |life| &life.puts);
        let asked = puts.iter().rev().find_map(|(queue, place)| {
            let put = self.queues[queue].moves.get(*place)?;
            (put.at <= piece.from).then_some((*queue, *place, put))
        });
        let Some((queue, place, put)) = asked else {
            return (Vec::new(), None);
        };
        let life = &self.queues[&queue];
        let (thing, when) = (self.queue(queue), Nanos::from(put.at.at));
        let mut said = vec![format!("It put a message into {thing} before, at {when}.")];
        let (did, got) = match life.taken(place) {
            Some(got) => ("got it", Some(got)),
            None => {
                let last = life.last_move(End::Get, tid, piece.to);
                ("was the last to get one from there, and not this one", last)
            }
        };
        let Some(got) = got else {
            said.push("No other task has ever gotten one from there.".to_string());
            return (said, None);
        };
        let (who, when) = (self.task(got.tid), Nanos::from(got.at.at));
        said.push(format!("{who} {did}, at {when}."));
        let next = self.last_wait(got.tid).filter(|step| {
            let waits = self.piece_at_step(*step).map(|piece| piece.doing);
            got.tid != tid && waits != Some(Doing::Blocked(On::Queue(queue, End::Get)))
        });
        said.extend(next.is_none().then(|| self.now_does(got.tid)));
        (said, next)
    }

    /// The task that holds the lock for which a task waits at the end.
    fn holder_at_end(&self, piece: &Piece, on: On) -> Option<Tid> {
        let On::Queue(queue, End::Get) = on else {
            return None;
        };
        let lock = self.queues.get(&queue)?;
        let lock = (lock.content == Content::Lock).then_some(lock)?;
        lock.held(piece).last().map(|(holder, ..)| holder)
    }

    /// The tasks that held a lock during a wait.
    fn holders(&self, tid: Tid, piece: &Piece, lock: &QueueLife) -> (Vec<String>, Option<Step>) {
        let held = lock.held(piece).filter(|(holder, ..)| *holder != tid);
        let held: Vec<_> = held.collect();
        let Some(&(longest, from, to)) = held
            .iter()
            .max_by_key(|(_, from, to)| Amount::of(*from, *to))
        else {
            let said = match self.has_gaps() {
                true => "Which task held it is not known: events are missing.",
                false => "No other task held it.",
            };
            return (vec![said.to_string()], None);
        };
        if let ([(holder, ..)], true) = (&held[..], piece.is_endless()) {
            let next = self.last_wait(*holder);
            return (self.meanwhile(*holder, piece, next), next);
        }
        let held_by = |&(holder, from, to): &(Tid, Moment, Moment)| {
            let (who, doing) = (self.task(holder), self.activity(holder, from, to));
            format!("{who} held it for {} ({doing})", Amount::of(from, to))
        };
        let mut parts: Vec<String> = held.iter().take(NAMED).map(held_by).collect();
        let more = held.len().saturating_sub(NAMED);
        if more > 0 {
            parts.push(format!("{more} more followed"));
        }
        let said = format!("Meanwhile {}.", parts.join(", then "));
        (vec![said], self.next(longest, piece, from, to))
    }

    /// Why a device kept a task waiting, from a moment on.
    fn device_cause(
        &self,
        tid: Tid,
        piece: &Piece,
        (device, direction): (DeviceId, Direction),
        since: Moment,
    ) -> (Vec<String>, Option<Step>) {
        if let Some(accepted) = self.accepted(tid, piece) {
            return self.connection_cause(tid, piece, accepted);
        }
        let Some(peer) = self.devices.peer(device) else {
            let said = match self.devices.is_listener(device) {
                true => "No task connected meanwhile.",
                false if self.has_gaps() => "Its other end is not known: events are missing.",
                false => "The other end is outside of this run, or was never connected.",
            };
            return (vec![said.to_string()], None);
        };
        let its_side = match direction {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        };
        let sent = self.sent(tid, piece);
        let other = sent.map_or_else(|| self.user_of(peer, its_side, piece.to), |sent| sent.tid);
        if other == tid {
            return (
                vec![format!("It has the other end itself, device {peer}.")],
                None,
            );
        }
        let who = self.task(other);
        let mut said = vec![format!("{who} has the other end, device {peer}.")];
        let Some(sent) = sent.filter(|sent| sent.at.at < piece.to.at) else {
            if let Some(at) = self.under_way(peer, (device, direction), piece) {
                let when = Nanos::from(at.at);
                said.push(format!("It sent bytes at {when}, which have not arrived."));
                return (said, None);
            }
            let next = self.next(other, piece, piece.from, piece.to);
            said.extend(self.meanwhile(other, piece, next));
            return (said, next);
        };
        let (when, latency) = (Nanos::from(sent.at.at), Amount::of(sent.at, piece.to));
        let from = piece.from.max(since);
        let was_under_way = sent.at <= from;
        if was_under_way || latency.is_share_of(piece.amount()) {
            said.push(format!(
                "It sent the bytes at {when}: they were under way for {latency}."
            ));
        }
        if was_under_way {
            return (said, None);
        }
        let (did, who) = (self.activity(other, from, sent.at), self.task(other));
        said.push(format!("Meanwhile {who} was {did}."));
        (said, self.longest_wait(other, from, sent.at))
    }

    /// Which task made the connection that a listener waited for.
    fn connection_cause(
        &self,
        tid: Tid,
        piece: &Piece,
        accepted: DeviceId,
    ) -> (Vec<String>, Option<Step>) {
        let Some(sent) = self.connected(accepted) else {
            let from = self.devices.addr(accepted);
            let from = from.map_or_else(String::new, |from| format!(" from {from}"));
            let said = match self.has_gaps() {
                true => format!("Which task connected{from} is not known: events are missing."),
                false => format!("A connection{from} ended the wait, from outside of this run."),
            };
            return (vec![said], None);
        };
        let when = Nanos::from(sent.at.at);
        if sent.tid == tid {
            let said = format!("It connected itself, at {when}.");
            return (vec![said], None);
        }
        let who = self.task(sent.tid);
        let next = self.longest_wait(sent.tid, piece.from, sent.at.max(piece.from));
        let mut said = vec![format!("{who} connected at {when}, which ended the wait.")];
        said.extend(self.meanwhile(sent.tid, piece, next));
        (said, next)
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
            (None, _) => match life.now() {
                Some(piece) => format!("{who} is {}.", self.state(piece)),
                None => format!("What {who} does is not known: events are missing."),
            },
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
            format!("After its {call}, and before this wait, {others}: a wake-up in that turn would have come too early.")
        })
    }

    fn absent(&self, tid: Tid, life: &Life, at: Option<Duration>) -> String {
        let who = self.task(tid);
        let from = Nanos::from(life.spawned.at);
        let to = life.exit.as_ref().map_or(self.end(), |(end, _)| *end);
        let has_gap = self.has_gap(life.spawned, to);
        match (at, &life.exit) {
            (Some(at), _) if has_gap && life.spawned.at <= at && at <= to.at => {
                let at = Nanos::from(at);
                format!("What {who} did at {at} is not known: events are missing.")
            }
            (Some(at), Some((end, _))) => {
                let (at, end) = (Nanos::from(at), Nanos::from(end.at));
                format!("{who} did not live at {at}: it lived from {from} to {end}.")
            }
            (Some(at), None) => format!(
                "{who} did not live at {}: it lived from {from}.",
                Nanos::from(at)
            ),
            (None, _) if has_gap => {
                format!("No wait of {who} is recorded: events are missing.")
            }
            (None, _) => format!("{who} never waited."),
        }
    }

    fn cycle(&self, steps: &[Step]) -> String {
        let mut way: Vec<String> = steps.iter().map(|(tid, _)| tid.to_string()).collect();
        way.extend(way.first().cloned());
        let is_endless = |step: &Step| self.piece_at_step(*step).is_some_and(Piece::is_endless);
        let wait = if steps.iter().all(is_endless) {
            "wait"
        } else {
            "waited"
        };
        format!("So they {wait} for one another: {}.", way.join(" -> "))
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
            .filter(|(_, piece)| from == to || overlap(piece) > Amount::default())
            .max_by_key(|(_, piece)| (overlap(piece), piece.end == Ending::Open))?;
        let is_wait = matches!(piece.doing, Doing::Blocked(on) if !matches!(on, On::Timer(_)));
        is_wait.then_some((tid, index))
    }

    /// The wait of a task at the end of the recording.
    fn last_wait(&self, tid: Tid) -> Option<Step> {
        let life = self.tasks.get(&tid)?;
        life.waits_at_end().then(|| (tid, life.pieces.len() - 1))
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

/// What ends a wait at this end of a queue; and the deed to look for where nothing ended it, in words.
fn deeds(end: End, content: Content) -> (&'static str, End, &'static str, &'static str) {
    match (end, content) {
        (End::Get, Content::Permits) => {
            let ends = "released a permit";
            (ends, End::Get, "taken a permit", "The last to take one was")
        }
        (End::Get, _) => {
            let ends = "put a message into it";
            (ends, End::Put, ends, "The last to put one was")
        }
        (End::Put, _) => (
            "got a message from it",
            End::Get,
            "gotten a message from it",
            "The last to get one was",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use trapline::{Event, Kernel, Os, SimWorld, record::OwnedEvent, sync::Semaphore};

    use super::*;

    /// What a run of a program leaves.
    fn history(main: impl AsyncFnOnce(&mut Os) + 'static) -> History {
        let history = Rc::new(RefCell::new(History::default()));
        let shared = Rc::clone(&history);
        let tracer = move |event: &Event<'_>| {
            let mut history = shared.borrow_mut();
            history.event(&OwnedEvent::from(event), false);
        };
        let builder = Kernel::builder().world(SimWorld::new(1)).tracer(tracer);
        let mut kernel = builder.build().unwrap();
        kernel.spawn("main", main).unwrap();
        // It may end with a deadlock.
        let _ = kernel.run();
        let mut history = history.take();
        history.finish();
        history
    }

    /// Why the task of that name waited, and its place in the source left out.
    fn why(history: &History, name: &str) -> Vec<String> {
        let sentences = history.why(history.find(name)[0], None).sentences;
        let without = |said: String| match (said.find(" (cli/src/"), said.find(".rs:")) {
            (Some(place), Some(_)) => format!("{}.", &said[..place]),
            _ => said,
        };
        sentences.into_iter().map(without).collect()
    }

    /// Tasks that take permits of one semaphore, one after the other, and hold them for a time.
    fn sharing(permits: usize, tasks: &'static [(&str, u64)]) -> History {
        history(async move |os: &mut Os| {
            let semaphore = Semaphore::new(os, permits).await;
            for &(name, millis) in tasks {
                let semaphore = semaphore.clone();
                let task = async move |os: &mut Os| {
                    let _permit = semaphore.acquire(os).await;
                    os.sleep(Duration::from_millis(millis)).await;
                };
                os.spawn_detached(name, task).await.unwrap();
            }
        })
    }

    #[test]
    fn the_permit_that_ends_a_wait_is_named_where_another_is_held_for_longer() {
        let history = sharing(2, &[("short", 5), ("long", 100), ("waiter", 1)]);
        assert_eq!(
            why(&history, "waiter"),
            [
                "4 \"waiter\" waited 5ms for semaphore 1, from 00:00.000.",
                "2 \"short\" released a permit at 00:00.005, which ended the wait.",
                "Meanwhile 2 \"short\" was asleep.",
            ]
        );
    }

    #[test]
    fn a_semaphore_of_one_permit_is_explained_as_its_waits_end() {
        let history = sharing(1, &[("one", 5), ("two", 3), ("three", 1)]);
        assert_eq!(
            why(&history, "three"),
            [
                "4 \"three\" waited 8ms for semaphore 1, from 00:00.000.",
                "3 \"two\" released a permit at 00:00.008, which ended the wait.",
                "Meanwhile 3 \"two\" was waiting for semaphore 1 for 5ms, asleep for 3ms.",
                "3 \"two\" waited 5ms for semaphore 1, from 00:00.000.",
                "2 \"one\" released a permit at 00:00.005, which ended the wait.",
                "Meanwhile 2 \"one\" was asleep.",
            ]
        );
        let path = history.path();
        let path = path.iter().filter(|part| !part.amount().time.is_zero());
        let path: Vec<(&str, &str)> = path
            .map(|part| (history.name(part.tid), &*part.what))
            .collect();
        let asleep = ["one", "two", "three"].map(|name| (name, "asleep"));
        assert_eq!(path, asleep);
    }

    #[test]
    fn tasks_that_hold_permits_and_wait_for_more_are_followed_around_their_cycle() {
        let history = history(async |os: &mut Os| {
            let semaphore = Semaphore::new(os, 2).await;
            for name in ["one", "two"] {
                let semaphore = semaphore.clone();
                let task = async move |os: &mut Os| {
                    let _first = semaphore.acquire(os).await;
                    os.sleep(Duration::from_millis(1)).await;
                    let _second = semaphore.acquire(os).await;
                };
                os.spawn_detached(name, task).await.unwrap();
            }
        });
        assert_eq!(
            why(&history, "one"),
            [
                "2 \"one\" waits for semaphore 1 since 00:00.001, to its end.",
                "No task released a permit again.",
                "The last to take one was 3 \"two\", at 00:00.000.",
                "3 \"two\" waits for semaphore 1 since 00:00.001, to its end.",
                "No task released a permit again.",
                "The last to take one was 2 \"one\", at 00:00.000.",
                "So they wait for one another: 2 -> 3 -> 2.",
            ]
        );
    }

    #[test]
    fn a_wait_for_a_permit_that_a_timeout_ends_names_the_timeout() {
        let history = history(async |os: &mut Os| {
            let semaphore = Semaphore::new(os, 1).await;
            let permits = semaphore.clone();
            let holder = async move |os: &mut Os| {
                let _permit = permits.acquire(os).await;
                os.sleep(Duration::from_millis(9)).await;
            };
            os.spawn_detached("holder", holder).await.unwrap();
            os.yield_now().await;
            let wait = async |os: &mut Os| drop(semaphore.acquire(os).await);
            let waited = os.timeout(Duration::from_millis(4), wait).await;
            assert!(waited.is_err());
        });
        assert_eq!(
            why(&history, "main"),
            [
                "1 \"main\" waited 4ms for semaphore 1, from 00:00.000.",
                "A timeout ended the wait.",
                "The last to take one was 2 \"holder\", at 00:00.000.",
                "Meanwhile 2 \"holder\" was asleep.",
            ]
        );
    }
}
