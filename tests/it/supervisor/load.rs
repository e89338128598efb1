//! A server under load that crashes a thousand times, and leaves nothing behind.

use std::{cell::Cell, fs, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{
    Endpoint, Kernel, Os, Queue, Restart, Source, Strategy, Supervisor, TcpListener, sync::Group,
};

use crate::support::{in_own_process, real};

/// Requests until the crash of a life. The others are answered.
const LIFE: u32 = 4;

/// The parts of a run: where the server is, and how often it has begun.
#[derive(Clone)]
struct Run {
    bound: Queue<SocketAddr>,
    lives: Rc<Cell<u32>>,
}

/// A server with a task for each client, which panics at its fourth request: it has a listener, clients,
/// their connections, a queue and messages.
async fn server(os: &mut Os, run: Run) -> io::Result<()> {
    run.lives.set(run.lives.get() + 1);
    let listener = os.listen("127.0.0.1:0".parse().unwrap()).await?;
    let _ = run.bound.put(os, listener.local_addr()?).await;
    let requests = Queue::<Vec<u8>>::unbounded(os).await;
    let mut clients = Group::new(os).await;
    let mut count = 0;
    loop {
        let sources = [Source::message(&requests), Source::readable(&listener)];
        if os.select(&sources).await == 1 {
            accept(os, &listener, &mut clients, &requests).await?;
            continue;
        }
        count += 1;
        assert!(count < LIFE, "the last request of this life");
        let _ = requests.get(os).await;
    }
}

async fn accept(
    os: &mut Os,
    listener: &TcpListener,
    clients: &mut Group,
    requests: &Queue<Vec<u8>>,
) -> io::Result<()> {
    let (stream, _) = listener.accept(os).await?;
    let requests = requests.clone();
    let serve = async move |os: &mut Os| {
        let mut buf = [0; 64];
        loop {
            match stream.recv(os, &mut buf).await? {
                0 => return io::Result::Ok(()),
                n => {
                    let _ = requests.put(os, buf[..n].to_vec()).await;
                    stream.send_all(os, &buf[..n]).await?;
                }
            }
        }
    };
    clients.spawn(os, "client", serve).await.map(drop)?;
    Ok(())
}

/// Asks the server of each life until the last one, and returns the number of answers.
async fn client(os: &mut Os, at: Rc<Cell<SocketAddr>>, is_over: Rc<Cell<bool>>) -> u32 {
    let mut answers = 0;
    while !is_over.get() {
        let asked = async |os: &mut Os| -> io::Result<()> {
            let stream = os.connect(Endpoint::from(at.get())).await?;
            let mut buf = [0; 64];
            loop {
                stream.send_all(os, b"hello").await?;
                match stream.recv(os, &mut buf).await? {
                    0 => return Ok(()),
                    _ => answers += 1,
                }
            }
        };
        // Each life of the server ends the connection.
        let _ = os.timeout(Duration::from_millis(100), asked).await;
        os.yield_now().await;
    }
    answers
}

/// Lets a server crash so often, with three clients.
async fn crash(os: &mut Os, crashes: u32) {
    let run = Run {
        bound: Queue::unbounded(os).await,
        lives: Rc::default(),
    };
    let at = Rc::new(Cell::new(([127, 0, 0, 1], 1).into()));
    let is_over = Rc::new(Cell::new(false));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (at, is_over) = (at.clone(), is_over.clone());
        let program = async move |os: &mut Os| client(os, at, is_over).await;
        clients.push(os.spawn_child("caller", program).await.unwrap());
    }
    let (source, target) = (run.bound.clone(), at.clone());
    let address = async move |os: &mut Os| {
        while let Ok(bound) = source.get(os).await {
            target.set(bound);
        }
    };
    let address = os.spawn("address", address).await.unwrap();
    let theirs = run.clone();
    let supervisor = Supervisor::new(Strategy::OneForOne)
        .restarts(crashes - 1, Duration::MAX)
        .child("server", Restart::Permanent, move || {
            let run = theirs.clone();
            async move |os: &mut Os| server(os, run).await
        });
    let gone = supervisor.run(os).await.unwrap_err();
    assert!(
        gone.to_string().contains("the last request of this life"),
        "{gone}"
    );
    assert_eq!(run.lives.get(), crashes);
    is_over.set(true);
    let mut answers = 0;
    for mut client in clients {
        answers += client.wait(os).await.unwrap();
    }
    assert!(answers >= crashes, "{answers} answers");
    run.bound.close(os).await;
    os.wait(address).await.unwrap();
    // Only this task is left.
    assert_eq!(os.tasks().await.len(), 1);
}

#[test]
fn s76_a_server_that_crashes_a_thousand_times_leaves_no_task_queue_or_byte() {
    let mut kernel = Kernel::simulated(1);
    for _ in 0..3 {
        kernel
            .spawn("main", async |os: &mut Os| crash(os, 1000).await)
            .unwrap();
        let report = kernel.run().unwrap();
        report.check().unwrap();
        kernel.audit_all();
        assert_eq!(kernel.queues().count(), 0);
        assert!(report.peak_tasks < 30, "{}", report.peak_tasks);
    }
}

#[test]
fn s76_a_server_that_crashes_leaves_no_descriptor_and_no_memory() {
    const NAME: &str =
        "supervisor::load::s76_a_server_that_crashes_leaves_no_descriptor_and_no_memory";
    in_own_process(
        NAME,
        |_| {},
        || {
            real(async |os: &mut Os| {
                // The first time opens what the process keeps.
                crash(os, 2).await;
                let before = descriptors();
                crash(os, 100).await;
                assert_eq!(descriptors(), before);
            });
            let mut kernel = Kernel::simulated(1);
            let mut resident = Vec::new();
            for _ in 0..5 {
                let main = async |os: &mut Os| crash(os, 500).await;
                kernel.spawn("main", main).unwrap();
                kernel.run().unwrap().check().unwrap();
                resident.push(pages());
            }
            assert!(resident[4] < resident[0] + 64, "{resident:?} pages");
        },
    );
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The pages of memory that the process has.
fn pages() -> u64 {
    let counts = fs::read_to_string("/proc/self/statm").unwrap();
    counts.split(' ').nth(1).unwrap().parse().unwrap()
}
