//! Programs that show known bugs of `tokio::sync`. The example runs them with the current version, and
//! the crate in `old` with one that had the bugs.

use std::{cell::RefCell, rc::Rc};

use tokio::sync::mpsc;
use trapline::{Error, Kernel, Os};

/// A receiver takes one message, closes the channel of one place, and drains it. Two senders send one
/// message each. A sender outlives them all, as a clone in the state of a service does.
///
/// Up to tokio 1.52.3 (mended in 1.53.0, change 8260): the place of the first message is assigned to the
/// second sender, which waits. If the receiver closes and waits before that sender runs, the sender
/// fails, gives the place back, and does not wake the receiver.
pub fn a_receiver_that_drains(kernel: &mut Kernel) -> Result<(), Error> {
    let (sender, mut receiver) = mpsc::channel::<u32>(1);
    let received = Rc::new(RefCell::new(Vec::new()));
    for n in 1..=2 {
        let sender = sender.clone();
        kernel.spawn(format!("sender {n}"), async move |os: &mut Os| {
            // It fails if the channel is closed.
            let _ = os.run_future(async |_| sender.send(n).await).await;
        })?;
    }
    let list = Rc::clone(&received);
    kernel.spawn("receiver", async move |os: &mut Os| {
        let first = os.run_future(async |_| receiver.recv().await).await;
        list.borrow_mut().extend(first);
        os.yield_now().await;
        os.run_future(async |_| {
            receiver.close();
            while let Some(n) = receiver.recv().await {
                list.borrow_mut().push(n);
            }
        })
        .await;
    })?;
    kernel.run()?.check()?;
    drop(sender);
    kernel.outcome(format!("{:?}", received.borrow()));
    Ok(())
}

/// A receiver closes the channel and drains it, while a task that holds a permit gives it back and keeps
/// the sender.
///
/// Up to tokio 1.52.2 (mended in 1.52.3, change 8075): `OwnedPermit::release` does not wake a receiver
/// that already waits for the last permit.
pub fn a_permit_that_is_released(kernel: &mut Kernel) -> Result<(), Error> {
    let (sender, mut receiver) = mpsc::channel::<u32>(1);
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    kernel.spawn("holder", async move |os: &mut Os| {
        let permit = os.run_future(async |_| sender.reserve_owned().await).await;
        let Ok(permit) = permit else { return };
        os.run_future(async |_| *keep.borrow_mut() = Some(permit.release()))
            .await;
    })?;
    kernel.spawn("receiver", async move |os: &mut Os| {
        os.run_future(async |_| {
            receiver.close();
            assert_eq!(receiver.recv().await, None);
        })
        .await;
    })?;
    kernel.run()?.check()?;
    kernel.outcome(match kept.borrow_mut().take() {
        Some(_) => "released",
        None => "closed first",
    });
    Ok(())
}
