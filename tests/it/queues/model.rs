//! Random runs of tasks at one queue, against a plain model of it.
//!
//! The model learns of each call just before the task traps, and of each death and timeout from
//! the kernel's own events. It predicts what every call answers. The messages count themselves, so
//! that one that is lost or kept too long shows, even if nobody misses it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use proptest::prelude::*;
use trapline::{
    Closed, Error, Event, Fact, Kernel, Os, Queue, Reply, Tid, TryGetError, TryPutError,
};

use crate::{
    stepping::{Place, spin},
    support::{Mode, spawn_daemons, unscripted},
};

#[derive(Clone, Debug)]
enum Op {
    Put(Option<u64>),
    Get(Option<u64>),
    TryPut,
    TryGet,
    Close,
    Kill(usize),
    Sleep(u64),
    Spin(usize),
}

/// What a call answers; messages by their numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Put,
    Got(u32),
    Full(u32),
    Refused(u32),
    Empty,
    Closed,
    Elapsed,
}

#[derive(Default)]
struct Model {
    capacity: usize,
    closed: bool,
    items: VecDeque<u32>,
    getters: VecDeque<Tid>,
    putters: VecDeque<(Tid, u32)>,
    /// What calls that are answered will be told when their tasks run.
    answers: BTreeMap<Tid, Answer>,
}

impl Model {
    fn put(&mut self, tid: Tid, item: u32, blocks: bool) {
        let answer = if self.closed {
            Answer::Refused(item)
        } else if let Some(getter) = self.getters.pop_front() {
            self.answers.insert(getter, Answer::Got(item));
            Answer::Put
        } else if self.items.len() < self.capacity {
            self.items.push_back(item);
            Answer::Put
        } else if blocks {
            return self.putters.push_back((tid, item));
        } else {
            Answer::Full(item)
        };
        self.answers.insert(tid, answer);
    }

    fn get(&mut self, tid: Tid, blocks: bool) {
        let answer = if let Some(item) = self.items.pop_front() {
            self.refill();
            Answer::Got(item)
        } else if let Some((putter, item)) = self.putters.pop_front() {
            self.answers.insert(putter, Answer::Put);
            Answer::Got(item)
        } else if self.closed {
            Answer::Closed
        } else if blocks {
            return self.getters.push_back(tid);
        } else {
            Answer::Empty
        };
        self.answers.insert(tid, answer);
    }

    fn refill(&mut self) {
        while self.items.len() < self.capacity
            && let Some((putter, item)) = self.putters.pop_front()
        {
            self.items.push_back(item);
            self.answers.insert(putter, Answer::Put);
        }
    }

    fn close(&mut self) {
        self.closed = true;
        for getter in self.getters.drain(..) {
            self.answers.insert(getter, Answer::Closed);
        }
        for (putter, item) in self.putters.drain(..) {
            self.answers.insert(putter, Answer::Refused(item));
        }
    }

    /// The task will not hear the answer of the call that it is at, if it is at one.
    fn forget(&mut self, tid: Tid) {
        self.getters.retain(|getter| *getter != tid);
        self.putters.retain(|(putter, _)| *putter != tid);
        if let Some(Answer::Got(item)) = self.answers.remove(&tid) {
            if let Some(getter) = self.getters.pop_front() {
                self.answers.insert(getter, Answer::Got(item));
            } else {
                // Messages are numbered in the order in which they are put.
                let place = self.items.partition_point(|other| *other < item);
                self.items.insert(place, item);
            }
        }
    }

    fn elapse(&mut self, tid: Tid) {
        self.forget(tid);
        self.answers.insert(tid, Answer::Elapsed);
    }

    /// How many messages there are: in the queue, in front of it, and on their way.
    fn messages(&self) -> usize {
        let on_their_way = self.answers.values().filter(|answer| {
            matches!(
                answer,
                Answer::Got(_) | Answer::Full(_) | Answer::Refused(_)
            )
        });
        self.items.len() + self.putters.len() + on_their_way.count()
    }
}

/// A message that counts itself.
struct Message {
    number: u32,
    alive: Rc<Cell<usize>>,
}

impl Drop for Message {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

#[derive(Clone)]
struct Shared {
    model: Rc<RefCell<Model>>,
    alive: Rc<Cell<usize>>,
    numbers: Rc<Cell<u32>>,
    /// The messages that arrived, in order of their arrival.
    arrived: Rc<RefCell<Vec<u32>>>,
    wrong: Rc<RefCell<Option<String>>>,
    /// A handle that outlives every task: what is left stays in the queue.
    queue: Place<Queue<Message>>,
}

impl Shared {
    fn message(&self) -> Message {
        self.alive.set(self.alive.get() + 1);
        self.numbers.set(self.numbers.get() + 1);
        Message {
            number: self.numbers.get(),
            alive: Rc::clone(&self.alive),
        }
    }

    fn check_len(&self, len: usize) {
        let expected = self.model.borrow().items.len();
        if len != expected {
            let what = format!("expected {expected} in the queue, there are {len}");
            self.wrong.borrow_mut().get_or_insert(what);
        }
    }

    fn check(&self, tid: Tid, answer: Answer) {
        let expected = self.model.borrow_mut().answers.remove(&tid);
        if expected != Some(answer) {
            let what = format!("task {tid}: expected {expected:?}, answered {answer:?}");
            self.wrong.borrow_mut().get_or_insert(what);
        }
        if let Answer::Got(number) = answer {
            self.arrived.borrow_mut().push(number);
        }
    }
}

async fn put(os: &mut Os, me: Tid, queue: &Queue<Message>, shared: &Shared) -> Answer {
    let message = shared.message();
    shared.model.borrow_mut().put(me, message.number, true);
    match queue.put(os, message).await {
        Ok(()) => Answer::Put,
        Err(Closed(message)) => Answer::Refused(message.number),
    }
}

async fn get(os: &mut Os, me: Tid, queue: &Queue<Message>, shared: &Shared) -> Answer {
    shared.model.borrow_mut().get(me, true);
    match queue.get(os).await {
        Ok(message) => Answer::Got(message.number),
        Err(Closed(())) => Answer::Closed,
    }
}

async fn act(os: &mut Os, me: Tid, op: Op, queue: &Queue<Message>, shared: &Shared) {
    let within = Duration::from_millis;
    let answer = match op {
        Op::Put(None) => put(os, me, queue, shared).await,
        Op::Get(None) => get(os, me, queue, shared).await,
        Op::Put(Some(span)) => {
            let put = async |os: &mut Os| put(os, me, queue, shared).await;
            let put = os.timeout(within(span), put).await;
            put.unwrap_or(Answer::Elapsed)
        }
        Op::Get(Some(span)) => {
            let get = async |os: &mut Os| get(os, me, queue, shared).await;
            let get = os.timeout(within(span), get).await;
            get.unwrap_or(Answer::Elapsed)
        }
        Op::TryPut => {
            let message = shared.message();
            shared.model.borrow_mut().put(me, message.number, false);
            match queue.try_put(os, message).await {
                Ok(()) => Answer::Put,
                Err(TryPutError::Full(message)) => Answer::Full(message.number),
                Err(TryPutError::Closed(message)) => Answer::Refused(message.number),
            }
        }
        Op::TryGet => {
            shared.model.borrow_mut().get(me, false);
            match queue.try_get(os).await {
                Ok(message) => Answer::Got(message.number),
                Err(TryGetError::Empty) => Answer::Empty,
                Err(TryGetError::Closed) => Answer::Closed,
            }
        }
        Op::Close => {
            shared.model.borrow_mut().close();
            return queue.close(os).await;
        }
        Op::Kill(task) => {
            os.kill((task as u64 + 2).into()).await;
            return;
        }
        Op::Sleep(span) => return os.sleep(within(span)).await,
        Op::Spin(ticks) => return spin(os, ticks).await,
    };
    shared.check(me, answer);
}

fn boot(mode: Mode, capacity: Option<usize>, scripts: Vec<Vec<Op>>) -> (Kernel, Shared) {
    let model = Model {
        capacity: capacity.unwrap_or(usize::MAX),
        ..Model::default()
    };
    let shared = Shared {
        model: Rc::new(RefCell::new(model)),
        alive: Rc::default(),
        numbers: Rc::default(),
        arrived: Rc::default(),
        wrong: Rc::default(),
        queue: Place::default(),
    };
    let model = Rc::clone(&shared.model);
    // Deaths and timeouts: what the kernel does to a task of its own accord.
    let tracer = move |event: &Event<'_>| match event.fact {
        Fact::Replied {
            reply: Reply::Elapsed(_),
            ..
        } => model.borrow_mut().elapse(event.tid),
        Fact::Exited { .. } => model.borrow_mut().forget(event.tid),
        _ => {}
    };
    let builder = mode.configure(unscripted().tracer(tracer), |_: &Event<'_>| {});
    let mut kernel = mode.slice(builder).build().unwrap();
    if mode.daemons {
        spawn_daemons(&mut kernel);
    }
    let mine = shared.clone();
    let main = async move |os: &mut Os| {
        let queue = match capacity {
            Some(capacity) => Queue::bounded(os, capacity).await,
            None => Queue::unbounded(os).await,
        };
        mine.queue.put(queue.clone());
        for script in scripts {
            let (queue, shared) = (queue.clone(), mine.clone());
            let program = async move |os: &mut Os| {
                let me = os.get_tid().await;
                for op in script {
                    act(os, me, op, &queue, &shared).await;
                    shared.check_len(queue.len());
                }
            };
            os.spawn("actor", program).await.unwrap();
        }
        // What is left is drained in order, long after the last timeout.
        os.sleep(Duration::from_secs(1)).await;
        let me = os.get_tid().await;
        while mine.model.borrow().messages() > 0 {
            act(os, me, Op::TryGet, &queue, &mine).await;
            os.yield_now().await;
        }
        assert!(queue.is_empty());
    };
    kernel.spawn("main", main).unwrap();
    (kernel, shared)
}

fn compare(
    mode: Mode,
    capacity: Option<usize>,
    scripts: Vec<Vec<Op>>,
) -> Result<(), TestCaseError> {
    let (mut kernel, shared) = boot(mode, capacity, scripts);
    loop {
        let advance = mode.advance(&mut kernel);
        kernel.audit();
        prop_assert_eq!(shared.wrong.borrow().clone(), None);
        prop_assert_eq!(shared.alive.get(), shared.model.borrow().messages());
        match advance {
            Ok(true) | Err(Error::Deadlock(_)) => break,
            Ok(false) => {}
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
    // Nothing arrives twice.
    let mut arrived = shared.arrived.borrow().clone();
    let all = arrived.len();
    arrived.sort_unstable();
    arrived.dedup();
    prop_assert_eq!(arrived.len(), all);
    drop(kernel);
    drop(shared.queue.take());
    prop_assert_eq!(shared.alive.get(), 0);
    Ok(())
}

fn op() -> impl Strategy<Value = Op> {
    let span = || proptest::option::of(0..4u64);
    prop_oneof![
        6 => span().prop_map(Op::Put),
        6 => span().prop_map(Op::Get),
        2 => Just(Op::TryPut),
        2 => Just(Op::TryGet),
        1 => Just(Op::Close),
        2 => (0..6usize).prop_map(Op::Kill),
        2 => (0..4u64).prop_map(Op::Sleep),
        2 => (1..6usize).prop_map(Op::Spin),
        1 => (200..300usize).prop_map(Op::Spin),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s40_to_s43_random_runs_do_what_a_plain_model_does(
        capacity in prop_oneof![Just(None), (0..4usize).prop_map(Some)],
        scripts in proptest::collection::vec(proptest::collection::vec(op(), 0..12), 1..6),
        mode in Mode::any(),
    ) {
        compare(mode, capacity, scripts)?;
    }
}
