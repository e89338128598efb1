//! Signals of the operating system, in processes of their own.

use std::{
    os::unix::process::ExitStatusExt,
    sync::{Arc, Barrier},
    time::Duration,
};

use rustix::process::Signal as Raw;
use trapline::{Elapsed, Kernel, Kernels, Os, Signal, Tid};

use super::milli;
use crate::support::{end_of_own_process, in_own_process, real, run_main};

fn send(signal: Raw) {
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, signal).unwrap();
}

#[test]
fn s73_a_signal_of_the_process_reaches_a_task_in_the_real_world() {
    let test = "signals::real::s73_a_signal_of_the_process_reaches_a_task_in_the_real_world";
    in_own_process(
        test,
        |_| {},
        || {
            // A wait for the outside is neither a deadlock nor a stall.
            let builder = Kernel::builder().max_stall(milli(1));
            let mut kernel = builder.build().unwrap();
            let remote = kernel.remote();
            run_main(&mut kernel, async move |os: &mut Os| {
                let signals = os.catch(&[Signal::Terminate, Signal::User1]).await;
                for (sent, signal) in [(Raw::TERM, Signal::Terminate), (Raw::USR1, Signal::User1)] {
                    let remote = remote.clone();
                    let thread = std::thread::spawn(move || {
                        while remote.running() != Tid::KERNEL {
                            std::thread::yield_now();
                        }
                        send(sent);
                    });
                    assert_eq!(signals.next(os).await, signal);
                    thread.join().unwrap();
                }
            });
            assert_eq!(kernel.ended_by(), None);
        },
    );
}

#[test]
fn s73_a_signal_that_one_of_several_kernels_has_caught_ends_those_without_a_holder() {
    let test = "signals::real::s73_a_signal_that_one_of_several_kernels_has_caught_ends_those_without_a_holder";
    in_own_process(
        test,
        |_| {},
        || {
            let ready = Arc::new(Barrier::new(3));
            let results = Kernels::new(3).run(move |id| {
                let (ready, mut kernel) = (Arc::clone(&ready), Kernel::real()?);
                kernel.spawn("main", async move |os: &mut Os| {
                    if id.index() > 0 {
                        ready.wait();
                        return os.sleep(Duration::from_secs(3600)).await;
                    }
                    let signals = os.catch(&[Signal::Terminate]).await;
                    ready.wait();
                    send(Raw::TERM);
                    assert_eq!(signals.next(os).await, Signal::Terminate);
                    // It ends when it is ready to.
                    os.sleep(milli(5)).await;
                })?;
                Ok(kernel)
            });
            let ended_by = results.into_iter().map(|result| {
                let report = result.unwrap();
                report.check().unwrap();
                report.ended_by
            });
            let by = Some(Signal::Terminate);
            assert!(ended_by.eq([None, by, by]));
        },
    );
}

#[test]
fn s73_each_kernel_of_the_process_gets_what_its_tasks_have_caught() {
    let test = "signals::real::s73_each_kernel_of_the_process_gets_what_its_tasks_have_caught";
    in_own_process(
        test,
        |_| {},
        || {
            let ready = Barrier::new(3);
            std::thread::scope(|threads| {
                for caught in [
                    [Signal::Terminate, Signal::User1],
                    [Signal::Terminate, Signal::User2],
                ] {
                    let ready = &ready;
                    threads.spawn(move || {
                        let mut kernel = Kernel::real().unwrap();
                        let (wait, release) = std::sync::mpsc::channel::<()>();
                        let main = async move |os: &mut Os| {
                            let signals = os.catch(&caught).await;
                            wait.send(()).unwrap();
                            let mut got = [signals.next(os).await, signals.next(os).await];
                            got.sort_unstable();
                            assert_eq!(got, caught);
                        };
                        let main = kernel.spawn("main", main).unwrap();
                        kernel.step().unwrap();
                        kernel.step().unwrap();
                        release.recv().unwrap();
                        ready.wait();
                        kernel.run_until(&[main]).unwrap().check().unwrap();
                    });
                }
                ready.wait();
                send(Raw::USR1);
                send(Raw::USR2);
                send(Raw::TERM);
            });
        },
    );
}

#[test]
fn s73_without_a_holder_the_run_ends_and_without_a_kernel_the_process() {
    let test = "signals::real::s73_without_a_holder_the_run_ends_and_without_a_kernel_the_process";
    let ended = end_of_own_process(
        test,
        |_| {},
        || {
            let mut kernel = Kernel::real().unwrap();
            let main = async |os: &mut Os| {
                drop(os.catch(&[Signal::Terminate]).await);
                os.yield_now().await;
                send(Raw::TERM);
                os.sleep(Duration::from_secs(60)).await;
            };
            kernel.spawn("main", main).unwrap();
            kernel.run().unwrap();
            assert_eq!(kernel.ended_by(), Some(Signal::Terminate));
            drop(kernel);
            println!("the kernel has gone");
            send(Raw::TERM);
            // The thread that receives signals ends the process meanwhile.
            std::thread::park_timeout(Duration::from_secs(60));
        },
    );
    let Some(ended) = ended else { return };
    let out = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.signal(), Some(15), "{out}");
    assert!(out.contains("the kernel has gone"), "{out}");
}

#[test]
fn s73_a_hangup_that_was_ignored_at_the_start_stays_ignored_in_a_library() {
    let test =
        "signals::real::s73_a_hangup_that_was_ignored_at_the_start_stays_ignored_in_a_library";
    let ignoring = |command: &mut std::process::Command| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        *command = shell;
    };
    in_own_process(test, ignoring, || {
        real(async |os: &mut Os| {
            let signals = os.catch(&[Signal::Hangup, Signal::User1]).await;
            send(Raw::HUP);
            send(Raw::USR1);
            assert_eq!(signals.next(os).await, Signal::User1);
            assert_eq!(
                os.timeout(Duration::ZERO, async |os| signals.next(os).await)
                    .await,
                Err(Elapsed)
            );
        });
    });
}

#[test]
fn s46_a_wait_for_no_signal_at_all_is_a_deadlock_in_the_real_world_too() {
    let builder = Kernel::builder().max_time(Duration::from_secs(30));
    let mut kernel = builder.build().unwrap();
    let main = async |os: &mut Os| {
        os.catch(&[]).await.next(os).await;
    };
    kernel.spawn("main", main).unwrap();
    assert!(matches!(kernel.run(), Err(trapline::Error::Deadlock(_))));
}
