//! Why a task waited. An explanation walks backwards: from a wait to the task that ended it, or that
//! still holds what the wait is for, and on to what that task did meanwhile.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use trapline::{DeviceId, Direction, Doing, End, Ending, Moment, Nanos, On, QueueId, Tid, Wake};

use super::{
    deeds::NAMED,
    history::{History, Step},
    life::{Amount, Piece},
    queues::{Content, QueueLife},
};
use crate::{output::clean, units::few};

/// The longest chain of an explanation. Longer chains say so.
const STEPS: usize = 12;

/// An explanation, and the pieces that it is about.
#[derive(Default)]
pub(super) struct Why {
    pub(super) sentences: Vec<String>,
    pub(super) steps: Vec<Step>,
}

/// A piece that is explained from a moment on, and what is said so far.
struct Wait<'a> {
    tid: Tid,
    index: usize,
    piece: &'a Piece,
    since: Moment,
    said: &'a mut Vec<String>,
}

impl Wait<'_> {
    fn say(&mut self, sentence: impl Into<String>) {
        self.said.push(sentence.into());
    }
}

impl History {
    /// Says why a task waited: at an instant, or else where it lost most.
    pub(super) fn why(&self, tid: Tid, at: Option<Duration>) -> Why {
        let mut why = Why::default();
        let Some(life) = self.tasks.get(&tid) else {
            why.sentences.push(format!("There is no task {tid}."));
            return why;
        };
        let pieces = |is: fn(&Doing) -> bool| -> Vec<&Piece> {
            let pieces = life.pieces.iter();
            pieces.filter(|piece| is(&piece.doing)).collect()
        };
        let sum = |pieces: &[&Piece]| pieces.iter().map(|piece| piece.amount()).sum::<Amount>();
        let blocked = pieces(|doing| matches!(doing, Doing::Blocked(_)));
        let ready = pieces(|doing| *doing == Doing::Ready);
        if at.is_none() && sum(&ready) > sum(&blocked) && !life.waits_at_end() {
            self.turns_of_others(tid, &ready, &mut why.sentences);
        } else if let Some(index) = life.piece_at(at) {
            self.chain((tid, index), &mut why);
        } else {
            why.sentences.push(self.absent(tid, life, at));
        }
        why
    }

    /// Says why a task was in a state for a span, as [`History::why`] does at an instant within it.
    /// `None` for a span that took no time and no turn.
    pub(super) fn why_span(&self, tid: Tid, doing: Doing, to: Moment) -> Option<Why> {
        let pieces = &self.tasks.get(&tid)?.pieces;
        let first = pieces.partition_point(|piece| piece.to < to);
        let mut its = (first..).zip(&pieces[first..]);
        let (index, piece) = its.find(|(_, piece)| piece.doing == doing)?;
        // A wait that ends in a shutdown is longer here.
        let is_it = piece.to == to || piece.is_endless() && piece.from < to;
        is_it.then(|| {
            let mut why = Why::default();
            self.chain((tid, index), &mut why);
            why
        })
    }

    /// Walks from wait to wait.
    fn chain(&self, first: Step, why: &mut Why) {
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
            next = self.step(step, since, &mut why.sentences);
            // Of the next wait, the part within this one counts.
            since = since.max(self.piece_at_step(step).map_or(since, |piece| piece.from));
        }
    }

    /// Says what a piece was, from a moment on. Returns the piece that explains it.
    fn step(&self, step: Step, since: Moment, said: &mut Vec<String>) -> Option<Step> {
        let ((tid, index), piece) = (step, self.piece_at_step(step)?);
        let (who, amount, call) = (self.task(tid), piece.amount(), &piece.call);
        match piece.doing {
            Doing::Blocked(On::Timer(_)) => said.push(self.slept(tid, piece)),
            Doing::Blocked(on) => {
                let mut wait = Wait {
                    tid,
                    index,
                    piece,
                    since,
                    said,
                };
                return self.blocked(&mut wait, on);
            }
            Doing::Ready => self.turns_of_others(tid, &[piece], said),
            Doing::Running => said.push(format!("{who} ran for {amount}, up to {call}.")),
            Doing::InCall | Doing::Idle => {
                said.push(format!("{who} was in call for {amount}, up to {call}."));
            }
        }
        None
    }

    fn slept(&self, tid: Tid, piece: &Piece) -> String {
        let (who, amount, at) = (self.task(tid), piece.amount(), place(piece));
        let from = Nanos::from(piece.from.at);
        match &*piece.call {
            "" => format!("{who} began {amount} after its spawn at {from}{at}."),
            call => format!("{who} slept for {amount}, from {from}: {call}{at}."),
        }
    }

    fn blocked(&self, wait: &mut Wait<'_>, on: On) -> Option<Step> {
        let piece = wait.piece;
        let (who, amount, at) = (self.task(wait.tid), piece.amount(), place(piece));
        let (mut thing, from) = (self.thing(on), Nanos::from(piece.from.at));
        if let On::First(1..) = on {
            let sources = piece.call.strip_prefix("select(");
            let sources = sources.and_then(|call| call.strip_suffix(')'));
            thing = sources.map_or(thing, |sources| format!("the first of {sources}"));
        }
        wait.say(match piece.is_endless() {
            true => {
                let holder = self.holder_at_end(piece, on);
                let held = holder.map_or_else(String::new, |tid| format!(", held by task {tid},"));
                format!("{who} waits for {thing}{held} since {from}, to its end{at}.")
            }
            false => format!("{who} waited {amount} for {thing}, from {from}{at}."),
        });
        match on {
            On::Queue(queue, end) => self.queue_cause(wait, queue, end),
            On::Exit(target) => self.meanwhile(target, wait, piece.to),
            On::Device(device, side) => self.device_cause(wait, device, side),
            On::First(_) => self.select_cause(wait),
            _ => None,
        }
    }

    /// Which source ended a select, and why not earlier.
    fn select_cause(&self, wait: &mut Wait<'_>) -> Option<Step> {
        let Ending::Woken { by, waker } = wait.piece.end else {
            return None;
        };
        match (by, waker) {
            (Wake::Exit(tid), _) => {
                wait.say(format!("The end of {} ended it.", self.task(tid)));
                self.meanwhile(tid, wait, wait.piece.to)
            }
            (Wake::Device(device, side), _) => {
                let thing = self.thing(On::Device(device, side));
                wait.say(format!("What ended it was {thing}."));
                self.device_cause(wait, device, side)
            }
            (Wake::Queue(queue), Some(waker)) => {
                let (who, when) = (self.task(waker), Nanos::from(wait.piece.to.at));
                let object = self.queue(queue);
                wait.say(format!(
                    "{who} made {object} ready at {when}, which ended it."
                ));
                self.meanwhile(waker, wait, wait.piece.to)
            }
            (Wake::Timer, _) => {
                wait.say("Its span of time had passed.");
                None
            }
            (Wake::Timeout, _) => {
                wait.say("A timeout ended it.");
                None
            }
            (Wake::Queue(queue), None) => {
                let object = self.queue(queue);
                wait.say(format!(
                    "It was woken by {object}, from outside of all tasks."
                ));
                None
            }
            _ => {
                wait.say(format!("It was woken by {by}."));
                None
            }
        }
    }

    /// Why a queue kept a task waiting.
    fn queue_cause(&self, wait: &mut Wait<'_>, queue: QueueId, end: End) -> Option<Step> {
        let (tid, piece) = (wait.tid, wait.piece);
        let life = self.queues.get(&queue);
        let content = life.map_or(Content::default(), |life| life.content);
        if let (Some(lock), Content::Lock, End::Get) = (life, content, end) {
            return self.holders(wait, lock);
        }
        let ends = match (end, content) {
            (End::Get, Content::Permits) => "released a permit",
            (End::Get, Content::Signals) => "signalled it",
            (End::Get, _) => "put a message into it",
            (End::Put, _) => "got a message from it",
        };
        if let Ending::Woken { by, waker } = piece.end {
            if let Some(waker) = waker {
                let (who, when) = (self.task(waker), Nanos::from(piece.to.at));
                wait.say(format!("{who} {ends} at {when}, which ended the wait."));
                return self.meanwhile(waker, wait, piece.to);
            }
            if let (Some(life), End::Get) = (life.filter(|life| life.is_mailbox), end)
                && let Some(put) = life.put_of(tid, piece.to)
            {
                let (who, when) = (self.task(put.tid), Nanos::from(put.at.at));
                wait.say(format!(
                    "{who} put the message that ended the wait, at {when}."
                ));
                return self.meanwhile(put.tid, wait, put.at);
            }
            if by != Wake::Timeout {
                wait.say(format!(
                    "It was woken by {by}: a thread, or the host, ended the wait."
                ));
                return None;
            }
            wait.say("A timeout ended the wait.");
        }
        let (deed, verb, done) = match (end, content) {
            (End::Get, Content::Permits) => (End::Get, "take one", "taken a permit"),
            (End::Get, Content::Signals) => (End::Put, "signal it", "signalled it"),
            (End::Get, _) => (End::Put, "put one", "put a message into it"),
            (End::Put, _) => (End::Get, "get one", "gotten a message from it"),
        };
        let Some(deed) = life.and_then(|life| life.last_move(deed, tid, piece.to)) else {
            if self.has_gaps() {
                wait.say(format!(
                    "No task has {done} in what is recorded: events are missing."
                ));
                return None;
            }
            wait.say(format!("No other task has ever {done}."));
            // A permit that is released too early is kept.
            if content != Content::Messages || !piece.is_endless() {
                return None;
            }
            let next = self.asked(wait);
            let before = next.is_none().then(|| self.before(tid, wait.index));
            wait.said.extend(before.flatten());
            return next;
        };
        if piece.is_endless() {
            wait.say(format!("No task {ends} again."));
        }
        let (who, when) = (self.task(deed.tid), Nanos::from(deed.at.at));
        wait.say(format!("The last to {verb} was {who}, at {when}."));
        self.meanwhile(deed.tid, wait, piece.to)
    }

    /// Which task got the last message that a task put into a queue before a wait without an answer,
    /// and what that task waits for. It may be idle, since it waits for the next such message.
    fn asked(&self, wait: &mut Wait<'_>) -> Option<Step> {
        let (tid, piece) = (wait.tid, wait.piece);
        let puts = &self.tasks.get(&tid)?.puts;
        let (queue, place, put) = puts.iter().rev().find_map(|(queue, place)| {
            let put = self.queues[queue].moves.get(*place)?;
            (put.at <= piece.from).then_some((*queue, *place, put))
        })?;
        let (thing, when) = (self.queue(queue), Nanos::from(put.at.at));
        wait.say(format!("It put a message into {thing} before, at {when}."));
        let life = &self.queues[&queue];
        let (did, got) = match life.taken(place) {
            Some(got) => ("got it", Some(got)),
            None => {
                let last = life.last_move(End::Get, tid, piece.to);
                ("was the last to get one from there, and not this one", last)
            }
        };
        let Some(got) = got else {
            wait.say("No other task has ever gotten one from there.");
            return None;
        };
        let (who, when) = (self.task(got.tid), Nanos::from(got.at.at));
        wait.say(format!("{who} {did}, at {when}."));
        let next = self.last_wait(got.tid).filter(|step| {
            let waits = self.piece_at_step(*step).map(|piece| piece.doing);
            got.tid != tid && waits != Some(Doing::Blocked(On::Queue(queue, End::Get)))
        });
        wait.said
            .extend(next.is_none().then(|| self.now_does(got.tid)));
        next
    }

    /// The task that holds the lock for which a task waits at the end.
    fn holder_at_end(&self, piece: &Piece, on: On) -> Option<Tid> {
        let On::Queue(queue, End::Get) = on else {
            return None;
        };
        let life = self.queues.get(&queue);
        let lock = life.filter(|life| life.content == Content::Lock)?;
        lock.held(piece).last().map(|(holder, ..)| holder)
    }

    /// The tasks that held a lock during a wait.
    fn holders(&self, wait: &mut Wait<'_>, lock: &QueueLife) -> Option<Step> {
        let (tid, piece) = (wait.tid, wait.piece);
        let held = lock.held(piece).filter(|(holder, ..)| *holder != tid);
        let held: Vec<_> = held.collect();
        let longest = held
            .iter()
            .max_by_key(|(_, from, to)| Amount::of(*from, *to));
        let Some(&(longest, from, to)) = longest else {
            wait.say(match self.has_gaps() {
                true => "Which task held it is not known: events are missing.",
                false => "No other task held it.",
            });
            return None;
        };
        if held.len() == 1 && piece.is_endless() {
            return self.meanwhile(longest, wait, piece.to);
        }
        let held_by = |&(holder, from, to): &(Tid, Moment, Moment)| {
            let (who, doing) = (self.task(holder), self.activity(holder, from, to));
            format!("{who} held it for {} ({doing})", Amount::of(from, to))
        };
        let more = |more| format!("{more} more followed");
        let parts = few(held.iter().map(held_by), NAMED, more).join(", then ");
        wait.say(format!("Meanwhile {parts}."));
        self.next(longest, piece, from, to)
    }

    /// Why a device kept a task waiting, from a moment on.
    fn device_cause(&self, wait: &mut Wait<'_>, device: DeviceId, side: Direction) -> Option<Step> {
        let (tid, piece) = (wait.tid, wait.piece);
        if let Some(accepted) = self.accepted(tid, piece) {
            return self.connection_cause(wait, accepted);
        }
        let Some(peer) = self.devices.peer(device) else {
            let why = match self.devices.is_listener(device) {
                true => "No task connected meanwhile.",
                false if self.has_gaps() => "Its other end is not known: events are missing.",
                false => "The other end is outside of this run, or was never connected.",
            };
            wait.say(why);
            return None;
        };
        let its_side = match side {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        };
        let sent = self.sent(tid, piece);
        let other = sent.map_or_else(|| self.user_of(peer, its_side, piece.to), |sent| sent.tid);
        if other == tid {
            wait.say(format!("It has the other end itself, device {peer}."));
            return None;
        }
        let who = self.task(other);
        wait.say(format!("{who} has the other end, device {peer}."));
        let Some(sent) = sent.filter(|sent| sent.at.at < piece.to.at) else {
            if let Some(at) = self.under_way(peer, (device, side), piece) {
                let when = Nanos::from(at.at);
                wait.say(format!("It sent bytes at {when}, which have not arrived."));
                return None;
            }
            return self.meanwhile(other, wait, piece.to);
        };
        let (when, latency) = (Nanos::from(sent.at.at), Amount::of(sent.at, piece.to));
        let from = piece.from.max(wait.since);
        let was_under_way = sent.at <= from;
        if was_under_way || latency.is_share_of(piece.amount()) {
            wait.say(format!(
                "It sent the bytes at {when}: they were under way for {latency}."
            ));
        }
        if was_under_way {
            return None;
        }
        let did = self.activity(other, from, sent.at);
        wait.say(format!("Meanwhile {who} was {did}."));
        self.longest_wait(other, from, sent.at)
    }

    /// Which task made the connection that a listener waited for.
    fn connection_cause(&self, wait: &mut Wait<'_>, accepted: DeviceId) -> Option<Step> {
        let (tid, piece) = (wait.tid, wait.piece);
        let Some(sent) = self.connected(accepted) else {
            let from = self.devices.addr(accepted);
            let from = from.map_or_else(String::new, |from| format!(" from {from}"));
            wait.say(match self.has_gaps() {
                true => format!("Which task connected{from} is not known: events are missing."),
                false => format!("A connection{from} ended the wait, from outside of this run."),
            });
            return None;
        };
        let when = Nanos::from(sent.at.at);
        if sent.tid == tid {
            wait.say(format!("It connected itself, at {when}."));
            return None;
        }
        let who = self.task(sent.tid);
        wait.say(format!("{who} connected at {when}, which ended the wait."));
        self.meanwhile(sent.tid, wait, sent.at.max(piece.from))
    }

    /// Which tasks had their turns while a task was ready.
    fn turns_of_others(&self, tid: Tid, ready: &[&Piece], said: &mut Vec<String>) {
        let mut by_task: BTreeMap<Tid, Amount> = BTreeMap::new();
        let mut by_call: BTreeMap<&str, u64> = BTreeMap::new();
        let turns = ready.iter().flat_map(|window| self.turns_in(window));
        for (other, piece) in turns.filter(|(other, _)| *other != tid) {
            *by_task.entry(other).or_default() += piece.amount();
            let call = piece.call.split('(').next().unwrap_or_default();
            *by_call.entry(call).or_default() += 1;
        }
        let total: Amount = ready.iter().map(|piece| piece.amount()).sum();
        let mut text = format!(
            "{} was ready for {total}, and waited for its turn.",
            self.task(tid)
        );
        let mut by_task: Vec<_> = by_task.into_iter().collect();
        by_task.sort_by_key(|(other, amount)| (Reverse(*amount), *other));
        let named = by_task.iter();
        let named = named.map(|(other, amount)| format!("{} for {amount}", self.task(*other)));
        let named = few(named, NAMED, |more| format!("{more} more tasks"));
        if !named.is_empty() {
            text += &format!(" Meanwhile others ran: {}.", named.join(", "));
        }
        let turns: u64 = by_call.values().sum();
        if let Some((call, count)) = by_call.into_iter().max_by_key(|(_, count)| *count) {
            text += &format!(" Of their {turns} turns, {count} ended with {call}");
            text += match call {
                "yield" => ", as those of tasks that poll.",
                _ => ".",
            };
        }
        said.push(text);
    }

    /// Says what a task did while another waited for it. Returns what explains that: of a wait that
    /// ended, what held the task up until `to`.
    fn meanwhile(&self, tid: Tid, wait: &mut Wait<'_>, to: Moment) -> Option<Step> {
        let piece = wait.piece;
        let next = self.next(tid, piece, piece.from, to);
        if !piece.is_endless() {
            let did = self.activity(tid, piece.from, piece.to);
            wait.say(format!("Meanwhile {} was {did}.", self.task(tid)));
        } else if next.is_none() {
            wait.say(self.now_does(tid));
        }
        next
    }
}

/// The place in the source at which a task waited.
fn place(piece: &Piece) -> String {
    let place = piece.place.as_ref();
    place.map_or_else(String::new, |place| clean(&format!(" ({place})")))
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use trapline::{
        Event, Kernel, Os, SimWorld,
        record::OwnedEvent,
        sync::{Condition, Mutex, Semaphore},
    };

    use super::*;

    /// What a run of a program leaves, whose tasks share a semaphore.
    fn history(permits: usize, main: impl AsyncFnOnce(&mut Os, Semaphore) + 'static) -> History {
        let history = Rc::new(RefCell::new(History::default()));
        let shared = Rc::clone(&history);
        let tracer = move |event: &Event<'_>| {
            let mut history = shared.borrow_mut();
            history.event(&OwnedEvent::from(event), false);
        };
        let builder = Kernel::builder().world(SimWorld::new(1)).tracer(tracer);
        let mut kernel = builder.build().unwrap();
        let main = async move |os: &mut Os| {
            let semaphore = Semaphore::new(os, permits).await;
            main(os, semaphore).await;
        };
        kernel.spawn("main", main).unwrap();
        // It may end with a deadlock.
        let _ = kernel.run();
        let mut history = history.take();
        history.finish();
        history
    }

    /// Expects why the task of that name waited; its place in the source is left out.
    fn expect_why(history: &History, name: &str, expected: &[&str]) {
        let sentences = history.why(history.find(name)[0], None).sentences;
        let without = |said: &String| match (said.find(" (cli/src/"), said.find(".rs:")) {
            (Some(place), Some(_)) => format!("{}.", &said[..place]),
            _ => said.clone(),
        };
        let sentences: Vec<String> = sentences.iter().map(without).collect();
        assert_eq!(sentences, expected);
    }

    #[test]
    fn the_permit_that_ends_a_wait_is_named_where_another_is_held_for_longer() {
        let history = history(2, async |os: &mut Os, semaphore: Semaphore| {
            for (name, millis) in [("short", 5), ("long", 100), ("waiter", 1)] {
                let semaphore = semaphore.clone();
                let task = async move |os: &mut Os| {
                    let _permit = semaphore.acquire(os).await;
                    os.sleep(Duration::from_millis(millis)).await;
                };
                os.spawn_detached(name, task).await.unwrap();
            }
        });
        let expected = [
            "4 \"waiter\" waited 5ms for semaphore 1, from 00:00.000.",
            "2 \"short\" released a permit at 00:00.005, which ended the wait.",
            "Meanwhile 2 \"short\" was asleep.",
        ];
        expect_why(&history, "waiter", &expected);
    }

    #[test]
    fn a_condition_is_signalled_to_one_or_to_all() {
        let history = history(1, async |os: &mut Os, _| {
            let lock = Mutex::new(os, ()).await;
            let changed = Condition::new(os).await;
            for (name, waits) in [("once", 1), ("twice", 2)] {
                let (lock, changed) = (lock.clone(), changed.clone());
                let task = async move |os: &mut Os| {
                    let mut guard = lock.lock(os).await.unwrap();
                    for _ in 0..waits {
                        guard = changed.wait(os, guard).await.unwrap();
                    }
                };
                os.spawn_detached(name, task).await.unwrap();
            }
            os.sleep(Duration::from_millis(1)).await;
            changed.notify_all(os).await;
        });
        let expected = [
            "2 \"once\" waited 1ms for a signal of condition 3, from 00:00.000.",
            "1 \"main\" signalled it at 00:00.001, which ended the wait.",
            "Meanwhile 1 \"main\" was asleep.",
        ];
        expect_why(&history, "once", &expected);
        let expected = [
            "3 \"twice\" waits for a signal of condition 3 since 00:00.001, to its end.",
            "No task signalled it again.",
            "The last to signal it was 1 \"main\", at 00:00.001.",
            "1 \"main\" ended at 00:00.001: done.",
        ];
        expect_why(&history, "twice", &expected);
    }

    #[test]
    fn tasks_that_hold_permits_and_wait_for_more_are_followed_around_their_cycle() {
        let history = history(2, async |os: &mut Os, semaphore: Semaphore| {
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
        let expected = [
            "2 \"one\" waits for semaphore 1 since 00:00.001, to its end.",
            "No task released a permit again.",
            "The last to take one was 3 \"two\", at 00:00.000.",
            "3 \"two\" waits for semaphore 1 since 00:00.001, to its end.",
            "No task released a permit again.",
            "The last to take one was 2 \"one\", at 00:00.000.",
            "So they wait for one another: 2 -> 3 -> 2.",
        ];
        expect_why(&history, "one", &expected);
    }

    #[test]
    fn a_wait_for_a_permit_that_a_timeout_ends_names_the_timeout() {
        let history = history(1, async |os: &mut Os, semaphore: Semaphore| {
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
        let expected = [
            "1 \"main\" waited 4ms for semaphore 1, from 00:00.000.",
            "A timeout ended the wait.",
            "The last to take one was 2 \"holder\", at 00:00.000.",
            "Meanwhile 2 \"holder\" was asleep.",
        ];
        expect_why(&history, "main", &expected);
    }
}
