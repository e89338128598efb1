//! The task behind a wait at a queue, as far as the last calls of all tasks tell.
//!
//! A message queue has no owner, and the kernel does not know which task will put a message into it.

use std::time::Duration;

use trapline::{CallInfo, End, Ledger, On, QueueId, Reply, SystemCall, TaskInfo, TaskState, Tid};

/// The task that another waits for, and a sentence about it, or about where the chain ends.
pub(super) fn behind(
    tasks: &[TaskInfo],
    recent: &Ledger,
    task: &TaskInfo,
) -> (Option<Tid>, Option<String>) {
    let TaskState::Blocked { on, .. } = task.state else {
        return (None, None);
    };
    let others = |queue, end| last_move(tasks, recent, queue, end, task.tid);
    match on {
        On::Queue(..) if task.wait.holder.is_some() => (None, None),
        On::Device(..) if task.wait.is_accept => (None, None),
        On::Device(..) => {
            let why = "Only a recording links the ends of a connection: boot with --record FILE, and ask trace why.";
            (None, Some(why.to_string()))
        }
        On::Queue(queue, End::Put) => match others(queue, End::Get) {
            Some(getter) => followed("The last to get a message from it", getter),
            None => ended("got a message from it"),
        },
        On::Queue(queue, End::Get) => {
            if let Some(putter) = others(queue, End::Put) {
                return followed("The last to put a message into it", putter);
            }
            let mut calls = recent.calls(task.tid).rev();
            let asked = calls.find_map(|call| moved(call, End::Put));
            let Some(asked) = asked else {
                return ended("put a message into it");
            };
            match others(asked, End::Get) {
                Some(getter) => {
                    let what = format!(
                        "No task has put a message into it lately. This task has put one into queue {asked}. \
                         The last to get one from there"
                    );
                    followed(&what, getter)
                }
                None => ended("put a message into it"),
            }
        }
        _ => (None, None),
    }
}

fn followed(what: &str, task: &TaskInfo) -> (Option<Tid>, Option<String>) {
    (
        Some(task.tid),
        Some(format!("{what} was {} {:?}.", task.tid, task.name)),
    )
}

fn ended(deed: &str) -> (Option<Tid>, Option<String>) {
    (None, Some(format!("No task has {deed} in its last calls.")))
}

/// The live task that was the last to put a message into a queue or to get one.
fn last_move<'a>(
    tasks: &'a [TaskInfo],
    recent: &Ledger,
    queue: QueueId,
    end: End,
    except: Tid,
) -> Option<&'a TaskInfo> {
    let others = tasks.iter().filter(|task| task.tid != except);
    let last = |task: &&TaskInfo| -> Option<Duration> {
        let mut calls = recent.calls(task.tid).rev();
        Some(calls.find(|call| moved(call, end) == Some(queue))?.at)
    };
    others.filter(|task| last(task).is_some()).max_by_key(last)
}

/// The queue into which a call has put a message, or from which it has gotten one.
fn moved(call: &CallInfo, end: End) -> Option<QueueId> {
    match (end, call.call, call.reply()?.0) {
        (End::Put, SystemCall::Put(queue) | SystemCall::TryPut(queue), Reply::Done)
        | (End::Get, SystemCall::Get(queue) | SystemCall::TryGet(queue), Reply::Message(_)) => {
            Some(queue)
        }
        _ => None,
    }
}
