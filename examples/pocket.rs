//! A whole operating system in 300 lines: tasks, a scheduler, exits, system calls, kill, wait, I/O
//! and subroutines. The book in `docs/` builds it in eight pages, of which this is the last listing.
#![deny(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{cell::Cell, mem, os::fd::AsFd, pin::Pin, rc::Rc, time::Duration};

use genawaiter::rc::{Co, Gen};
use genawaiter::{Coroutine, GeneratorState};
use polling::{Event, Events, Poller};

type Tid = usize;
type Program = Pin<Box<dyn Coroutine<Yield = Call, Resume = Reply, Return = ()>>>;

enum Call {
    Yield,
    GetTid,
    NewTask(Program),
    KillTask(Tid),
    WaitTask(Tid),
    ReadWait(Rc<dyn AsFd>),
    WriteWait(Rc<dyn AsFd>),
}

/// A number or an error, as from a system call of Unix.
type Reply = io::Result<usize>;

/// What a program knows of the kernel.
struct Os(Co<Call, Reply>);

impl Os {
    async fn yield_now(&self) {
        let _ = self.0.yield_(Call::Yield).await;
    }

    async fn get_tid(&self) -> Tid {
        self.0.yield_(Call::GetTid).await.unwrap() // it cannot fail
    }

    async fn spawn(&self, program: Program) -> Tid {
        self.0.yield_(Call::NewTask(program)).await.unwrap() // nor can this
    }

    async fn kill(&self, tid: Tid) -> Reply {
        self.0.yield_(Call::KillTask(tid)).await
    }

    async fn wait(&self, tid: Tid) -> Reply {
        self.0.yield_(Call::WaitTask(tid)).await
    }

    async fn read_wait(&self, source: &Rc<impl AsFd + 'static>) -> Reply {
        self.0.yield_(Call::ReadWait(source.clone())).await
    }

    async fn write_wait(&self, source: &Rc<impl AsFd + 'static>) -> Reply {
        self.0.yield_(Call::WriteWait(source.clone())).await
    }
}

fn program<F: Future<Output = ()> + 'static>(main: impl FnOnce(Os) -> F) -> Program {
    Box::pin(Gen::new(|co| main(Os(co))))
}

struct Kernel {
    poller: Poller, // dropped before `io`: a source must stay open while it is watched
    io: BTreeMap<Tid, Rc<dyn AsFd>>, // the source that each task waits for
    waiting: BTreeMap<Tid, Vec<Tid>>, // the tasks that wait for the end of each task
    tasks: BTreeMap<Tid, Program>,
    ready: VecDeque<(Tid, Reply)>,
    last: Tid,
}

impl Kernel {
    fn new() -> io::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            io: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tasks: BTreeMap::new(),
            ready: VecDeque::new(),
            last: 0,
        })
    }

    fn spawn(&mut self, program: Program) -> Tid {
        self.last += 1;
        self.tasks.insert(self.last, program);
        self.ready.push_back((self.last, Ok(0)));
        self.last
    }

    /// Runs until no task can go on. Returns the tasks that wait for ever.
    fn run(&mut self) -> io::Result<Vec<Tid>> {
        while !self.ready.is_empty() || !self.io.is_empty() {
            for (tid, reply) in mem::take(&mut self.ready) {
                self.turn(tid, reply);
            }
            if !self.io.is_empty() {
                self.poll()?;
            }
        }
        Ok(self.tasks.keys().copied().collect())
    }

    fn turn(&mut self, tid: Tid, reply: Reply) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return; // killed since it was ready
        };
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().resume_with(reply))) {
            Ok(GeneratorState::Yielded(call)) => self.handle(tid, call),
            Ok(GeneratorState::Complete(())) | Err(_) => _ = self.exit(tid),
        }
    }

    /// Asks the operating system which waits are over. Blocks if no task is ready.
    fn poll(&mut self) -> io::Result<()> {
        let timeout = (!self.ready.is_empty()).then_some(Duration::ZERO);
        let mut events = Events::new();
        self.poller.wait(&mut events, timeout)?;
        for event in events.iter() {
            self.unwatch(event.key);
            self.answer(event.key, Ok(0));
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "a watched source must stay open")]
    fn watch(&mut self, source: Rc<dyn AsFd>, interest: Event) {
        // SAFETY: the source is in `io`, and so open, until `unwatch` or until the poller is gone.
        match unsafe { self.poller.add(&source.as_fd(), interest) } {
            Ok(()) => _ = self.io.insert(interest.key, source),
            Err(error) => self.answer(interest.key, Err(error)),
        }
    }

    fn unwatch(&mut self, tid: Tid) {
        if let Some(source) = self.io.remove(&tid) {
            self.poller.delete(&source).expect("it was added");
        }
    }

    fn handle(&mut self, tid: Tid, call: Call) {
        let reply = match call {
            Call::Yield => Ok(0),
            Call::GetTid => Ok(tid),
            Call::NewTask(program) => Ok(self.spawn(program)),
            Call::KillTask(victim) => self.exit(victim),
            Call::WaitTask(target) if self.tasks.contains_key(&target) => {
                self.waiting.entry(target).or_default().push(tid);
                return; // without a reply, and so without a place on the ready queue
            }
            Call::WaitTask(_) => Err(ErrorKind::NotFound.into()),
            Call::ReadWait(source) => return self.watch(source, Event::readable(tid)),
            Call::WriteWait(source) => return self.watch(source, Event::writable(tid)),
        };
        self.answer(tid, reply);
    }

    /// Makes a task ready, unless it has killed itself.
    fn answer(&mut self, tid: Tid, reply: Reply) {
        if self.tasks.contains_key(&tid) {
            self.ready.push_back((tid, reply));
        }
    }

    /// Takes a task out of the table and of every queue. Fails if there is none.
    fn exit(&mut self, tid: Tid) -> Reply {
        let task = self.tasks.remove(&tid).ok_or(ErrorKind::NotFound)?;
        for waiters in self.waiting.values_mut() {
            waiters.retain(|waiter| *waiter != tid);
        }
        self.unwatch(tid);
        drop(task); // and with it all that the program owns
        for waiter in self.waiting.remove(&tid).unwrap_or_default() {
            self.answer(waiter, Ok(0));
        }
        Ok(0)
    }
}

/// A socket whose calls block their task and no other.
struct Socket<S>(Rc<S>);

impl Socket<TcpListener> {
    async fn accept(&self, os: &Os) -> io::Result<Socket<TcpStream>> {
        loop {
            match self.0.accept() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => os.read_wait(&self.0).await?,
                result => return Socket::new(result?.0),
            };
        }
    }
}

impl Socket<TcpStream> {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(Rc::new(stream)))
    }

    async fn recv(&self, os: &Os, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&*self.0).read(buf) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => os.read_wait(&self.0).await?,
                result => return result,
            };
        }
    }

    async fn send_all(&self, os: &Os, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match (&*self.0).write(buf) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => _ = os.write_wait(&self.0).await?,
                result => buf = &buf[result?..],
            }
        }
        Ok(())
    }
}

async fn turns(os: Os, name: &str, count: u32) {
    let me = os.get_tid().await;
    for _ in 0..count {
        println!("I'm {name} {me}");
        os.yield_now().await;
    }
    println!("Task {me} terminated");
}

async fn server(os: Os, listener: Socket<TcpListener>) {
    loop {
        match listener.accept(&os).await {
            Ok(client) => _ = os.spawn(program(|os| echo(os, client))).await,
            Err(_) => os.yield_now().await, // out of descriptors, until a client leaves
        }
    }
}

async fn echo(os: Os, client: Socket<TcpStream>) {
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = client.recv(&os, &mut buf).await
        && client.send_all(&os, &buf[..n]).await.is_ok()
    {}
}

async fn client(os: Os, addr: SocketAddr, total: Rc<Cell<usize>>) {
    let server = TcpStream::connect(addr).and_then(Socket::new).unwrap();
    server.send_all(&os, &[7; 50_000]).await.unwrap();
    server.0.shutdown(Shutdown::Write).unwrap();
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = server.recv(&os, &mut buf).await {
        total.update(|total| total + n);
    }
}

/// The steps of the course, one after the other.
async fn tour(os: Os) {
    for (name, count) in [("foo", 2), ("bar", 3)] {
        os.spawn(program(move |os| turns(os, name, count))).await;
    }
    let endless = os.spawn(program(|os| turns(os, "endless", u32::MAX))).await;
    for _ in 0..4 {
        os.yield_now().await;
    }
    println!("Killed {endless}: {:?}", os.kill(endless).await);
    let child = os.spawn(program(|os| turns(os, "child", 1))).await;
    println!("Waiting for child");
    println!("Child done: {:?}", os.wait(child).await);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    let server = os
        .spawn(program(|os| server(os, Socket(Rc::new(listener)))))
        .await;
    let mut others = vec![os.spawn(program(|os| turns(os, "alive", 3))).await];
    let total = Rc::new(Cell::new(0));
    for _ in 0..50 {
        let total = total.clone();
        others.push(os.spawn(program(move |os| client(os, addr, total))).await);
    }
    for other in others {
        let _ = os.wait(other).await;
    }
    let _ = os.kill(server).await;
    println!("50 clients got {} bytes back", total.get());
}

fn main() -> io::Result<()> {
    let mut kernel = Kernel::new()?;
    kernel.spawn(program(tour));
    println!("Tasks that wait for ever: {:?}", kernel.run()?);
    Ok(())
}
