//! Any event that can happen.

use std::{io, net::SocketAddr, sync::LazyLock, time::Duration};

use proptest::{prelude::*, sample::select};
use trapline::{
    Argument, Detail, DeviceId, Direction, End, Errno, Event, Exit, Fact, Inject, KernelId, Nanos,
    On, Place, Queue, QueueId, Reply, Share, SystemCall, Tid, Wake, record::OwnedEvent,
};

use crate::support::*;

/// Real queues: nobody else can make up their names.
static QUEUES: LazyLock<Vec<QueueId>> = LazyLock::new(|| {
    let diary = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let ids = diary.clone();
    let tracer = move |event: &Event<'_>| {
        if let Fact::Replied {
            reply: Reply::Queue(id),
            ..
        } = event.fact
        {
            ids.lock().unwrap().push(id);
        }
    };
    let mut kernel = sim().tracer(tracer).build().unwrap();
    run_main(&mut kernel, async |os| {
        let mut kept = Vec::new();
        for n in 0..300 {
            let queue = Queue::<u8>::unbounded(os).await;
            if n % 3 == 0 {
                kept.push(queue);
            }
        }
    });
    let ids = diary.lock().unwrap().clone();
    assert_eq!(ids.len(), 300);
    ids
});

fn queue() -> impl Strategy<Value = QueueId> {
    select(&QUEUES[..])
}

/// Small numbers mostly.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, 0..100_000_u64, any::<u64>()]
}

fn a_tid() -> impl Strategy<Value = Tid> {
    number().prop_map(Tid::from)
}

fn device() -> impl Strategy<Value = DeviceId> {
    number().prop_map(DeviceId::from_raw)
}

fn nanos() -> impl Strategy<Value = Nanos> {
    number().prop_map(|n| Duration::from_nanos(n).into())
}

fn direction() -> impl Strategy<Value = Direction> {
    select(&[Direction::Read, Direction::Write][..])
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter)
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        Just(Exit::Done),
        text().prop_map(Exit::Failed),
        text().prop_map(Exit::Faulted),
        Just(Exit::Killed),
    ]
}

pub(super) fn call() -> impl Strategy<Value = SystemCall> {
    let calls: Vec<_> = (0..=u8::MAX).filter_map(SystemCall::from_number).collect();
    (select(calls), arguments()).prop_map(|(call, arguments)| {
        let made = arguments.iter().find_map(|it| call.with_argument(*it));
        made.expect("an argument of each kind")
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    let replies: Vec<_> = (0..=u8::MAX).filter_map(Reply::from_number).collect();
    (select(replies), arguments()).prop_map(|(reply, arguments)| {
        let made = arguments.iter().find_map(|it| reply.with_argument(*it));
        made.expect("an argument of each kind")
    })
}

/// An argument of each kind.
fn arguments() -> impl Strategy<Value = [Argument; 10]> {
    let ids = (a_tid(), device(), queue(), errno());
    (ids, nanos(), number()).prop_map(|((tid, device, queue, errno), nanos, number)| {
        [
            Argument::None,
            Argument::Task(tid),
            Argument::Span(nanos),
            Argument::Instant(nanos),
            Argument::Device(device),
            Argument::Queue(queue),
            Argument::Capacity(number),
            Argument::Number(number),
            Argument::Errno(errno),
            Argument::Share(Share::priority(number as i32)),
        ]
    })
}

fn errno() -> impl Strategy<Value = Errno> {
    select(
        &[
            Errno::NoSuchTask,
            Errno::WouldDeadlock,
            Errno::TooManyTasks,
            Errno::BadFd,
            Errno::Busy,
            Errno::Closed,
            Errno::Invalid,
        ][..],
    )
}

fn on() -> impl Strategy<Value = On> {
    prop_oneof![
        a_tid().prop_map(On::Exit),
        nanos().prop_map(On::Timer),
        (device(), direction()).prop_map(|(device, direction)| On::Device(device, direction)),
        (queue(), select(&[End::Put, End::Get][..])).prop_map(|(queue, end)| On::Queue(queue, end)),
    ]
}

fn wake() -> impl Strategy<Value = Wake> {
    prop_oneof![
        a_tid().prop_map(Wake::Exit),
        select(&[Wake::Timer, Wake::Timeout][..]),
        (device(), direction()).prop_map(|(device, direction)| Wake::Device(device, direction)),
        device().prop_map(Wake::Closed),
        queue().prop_map(Wake::Queue),
    ]
}

fn error_kind() -> impl Strategy<Value = io::ErrorKind> {
    use io::ErrorKind as E;
    select(
        &[
            E::Other,
            E::WouldBlock,
            E::NotFound,
            E::BrokenPipe,
            E::TimedOut,
            E::OutOfMemory,
        ][..],
    )
}

/// What texts a detail or a fact may borrow from.
#[derive(Clone, Debug)]
struct Texts {
    text: String,
    exit: Exit,
    addr: SocketAddr,
    size: usize,
    error: io::ErrorKind,
}

fn texts() -> impl Strategy<Value = Texts> {
    (
        text(),
        exit(),
        any::<SocketAddr>(),
        any::<usize>(),
        error_kind(),
    )
        .prop_map(|(text, exit, addr, size, error)| Texts {
            text,
            exit,
            addr,
            size,
            error,
        })
}

pub(super) fn event() -> impl Strategy<Value = OwnedEvent> {
    let calls = (call(), reply(), on(), wake());
    let rest = (a_tid(), device(), direction(), nanos());
    let which = (0..17, 0..9, any::<bool>());
    let whose = (nanos(), a_tid());
    (which, whose, calls, rest, texts()).prop_map(
        |(which, (at, tid), (call, reply, on, by), (parent, device, direction, from), texts)| {
            let (fact, detail, fails) = which;
            let text = &*texts.text;
            let detail = match detail {
                0 => Detail::None,
                1 => Detail::Name(text.into()),
                7 => Detail::Object(text.into(), text.into()),
                2 => Detail::Addr(texts.addr),
                3 => Detail::Len(texts.size),
                4 => Detail::Exit(texts.exit.clone()),
                5 => Detail::Count(texts.size),
                6 => Detail::Mail(KernelId::at(texts.size % 1024), texts.size as u64),
                _ => Detail::Io(texts.error, text.into()),
            };
            let fact = match fact {
                0 => Fact::Spawned {
                    parent,
                    name: text.into(),
                },
                1 => Fact::Resumed,
                2 => Fact::Trapped { call, detail },
                3 => Fact::Replied { reply, detail },
                4 => Fact::Blocked { on },
                5 => Fact::Woken { by },
                6 => {
                    let result = if fails {
                        Err(texts.error)
                    } else {
                        Ok(texts.size)
                    };
                    Fact::DeviceIo {
                        device,
                        direction,
                        result,
                    }
                }
                7 => Fact::Console { text: text.into() },
                8 => Fact::Exited { exit: texts.exit },
                9 => Fact::Reaped,
                10 => Fact::Injected {
                    inject: match detail {
                        Detail::None => Inject::Kill,
                        _ if fails => Inject::Fail(texts.error),
                        _ => Inject::Delay(from.into()),
                    },
                },
                11 => Fact::Deadlocked {
                    cycle: vec![parent, tid].into(),
                },
                12 => Fact::Fault { text: text.into() },
                13 => Fact::Computing {
                    processor: texts.size,
                },
                14 => Fact::Preempted { left: from.into() },
                15 => Fact::Accessed {
                    value: parent.into(),
                    name: text.into(),
                    writes: fails,
                },
                _ => Fact::ClockJumped { from: from.into() },
            };
            let at = at.into();
            let place = fails.then(|| {
                let mut place = Place::default();
                place.file = texts.text.clone().into();
                place.line = texts.size as u32;
                place.chain = texts.text.clone().into();
                place
            });
            OwnedEvent::from(&Event {
                at,
                tid,
                fact,
                place,
            })
        },
    )
}
