//! The pocket kernel does right what the users of the course's kernel ran into.
#![deny(unsafe_code)]

include!(concat!(env!("OUT_DIR"), "/pocket.rs"));

/// Runs a program to its end, and returns the tasks that are left.
fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(Os) -> F) -> Vec<Tid> {
    let mut kernel = Kernel::new().unwrap();
    kernel.spawn(program(main));
    let left = kernel.run().unwrap();
    assert!(kernel.io.is_empty() && kernel.ready.is_empty());
    assert_eq!(kernel.tasks.keys().copied().collect::<Vec<_>>(), left);
    left
}

/// Both ends of a connection.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// What happened, as the tasks tell it.
#[derive(Clone, Default)]
struct Story(Rc<std::cell::RefCell<Vec<String>>>);

impl Story {
    fn tell(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

/// Tells when it is dropped.
struct Guard(Story, &'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.tell(self.1);
    }
}

#[test]
fn a_panic_ends_its_own_task_and_wakes_its_waiter() {
    let story = Story::default();
    let seen = story.clone();
    let left = run(async move |os| {
        let guard = Guard(seen.clone(), "cleaned up");
        let clumsy = program(async move |os: Os| {
            let _guard = guard;
            os.yield_now().await;
            panic!("on purpose");
        });
        let clumsy = os.spawn(clumsy).await;
        os.wait(clumsy).await.unwrap();
        seen.tell("and the others go on");
    });
    assert_eq!(left, []);
    assert_eq!(story.take(), ["cleaned up", "and the others go on"]);
}

#[test]
fn a_killed_task_leaves_every_queue_and_drops_all_of_its_functions() {
    async fn outer(os: Os, story: Story, source: Rc<TcpStream>) {
        let _guard = Guard(story.clone(), "outer");
        inner(&os, story, &source).await;
    }
    async fn inner(os: &Os, story: Story, source: &Rc<TcpStream>) {
        let _guard = Guard(story, "inner");
        let _ = os.read_wait(source).await;
    }
    let story = Story::default();
    let seen = story.clone();
    let (ours, mut theirs) = connection();
    let left = run(async move |os| {
        let source = Rc::new(ours);
        let (told, shared) = (seen.clone(), source.clone());
        let reader = os.spawn(program(|os| outer(os, told, shared))).await;
        let waiter = program(async move |os: Os| _ = os.wait(reader).await);
        let waiter = os.spawn(waiter).await;
        os.yield_now().await;
        os.kill(waiter).await.unwrap();
        os.kill(reader).await.unwrap();
        seen.tell("killed");
        assert_eq!(
            os.kill(reader).await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
        theirs.write_all(b"x").unwrap();
        os.read_wait(&source).await.unwrap(); // its place is free again
    });
    assert_eq!(left, []);
    assert_eq!(story.take(), ["inner", "outer", "killed"]);
}

#[test]
fn a_task_that_is_killed_while_it_is_ready_has_no_further_turn() {
    let left = run(async |os| {
        let victim = program(async |os: Os| {
            os.yield_now().await;
            unreachable!("it was killed");
        });
        let killer = os.get_tid().await;
        let victim = os.spawn(victim).await;
        os.kill(victim).await.unwrap();
        os.yield_now().await;
        let _ = os.kill(killer).await;
        unreachable!("a task that kills itself never goes on");
    });
    assert_eq!(left, []);
}

#[test]
fn a_second_reader_gets_an_error_and_the_first_is_undisturbed() {
    let story = Story::default();
    let seen = story.clone();
    let (ours, mut theirs) = connection();
    run(async move |os| {
        let source = Rc::new(ours);
        let (told, shared) = (seen.clone(), source.clone());
        let first = program(async move |os: Os| {
            os.read_wait(&shared).await.unwrap();
            told.tell("the first");
        });
        let first = os.spawn(first).await;
        os.yield_now().await;
        let second = os.read_wait(&source).await.unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AlreadyExists);
        theirs.write_all(b"x").unwrap();
        os.wait(first).await.unwrap();
    });
    assert_eq!(story.take(), ["the first"]);
}

#[test]
fn tasks_that_wait_for_one_another_are_returned() {
    let left = run(async |os| {
        let me = os.get_tid().await;
        let other = program(async move |os: Os| _ = os.wait(me).await);
        let other = os.spawn(other).await;
        let _ = os.wait(other).await;
    });
    assert_eq!(left, [1, 2]);
}

#[test]
fn more_bytes_than_fit_into_a_socket_arrive() {
    let (ours, theirs) = connection();
    let total = Rc::new(Cell::new(0));
    let seen = total.clone();
    run(async move |os| {
        let writer = program(async move |os: Os| {
            let ours = Socket::new(ours).unwrap();
            ours.send_all(&os, &vec![7; 20_000_000]).await.unwrap();
        });
        os.spawn(writer).await;
        let theirs = Socket::new(theirs).unwrap();
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = theirs.recv(&os, &mut buf).await {
            seen.update(|seen| seen + n);
        }
    });
    assert_eq!(total.get(), 20_000_000);
}
