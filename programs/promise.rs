use std::{error::Error, thread, time::Duration};

use trapline::{Os, Promise};
use trapline_cli::Program;

/// The uses of a promise: a value that does not exist yet
#[derive(clap::Args)]
pub(crate) struct Promises {}

impl Program for Promises {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        set_once(os).await?;
        abandoned(os).await?;
        set_by_a_thread(os).await?;
        a_task_is_a_promise(os).await
    }
}

async fn set_once(os: &mut Os) -> Result<(), Box<dyn Error>> {
    let (setter, promise) = Promise::new(os).await;
    writeln!(os, "before it is set: {:?}", promise.get());
    for n in 1..=2 {
        let callback = async move |os: &mut Os, value| writeln!(os, "callback {n}: {value:?}");
        promise.on_done(os, callback).await?;
    }
    os.call_later(Duration::from_millis(200), async move |os: &mut Os| {
        for value in [42, 43] {
            match setter.set(os, value).await {
                Ok(()) => writeln!(os, "set to {value}"),
                Err(error) => writeln!(os, "not set to {value}: {error}"),
            }
        }
    })
    .await;
    let value = promise.wait(os).await?;
    writeln!(os, "awaited: {value}");
    writeln!(os, "after it is set: {:?}", promise.get());
    Ok(())
}

async fn abandoned(os: &mut Os) -> Result<(), Box<dyn Error>> {
    let (setter, promise) = Promise::<u32>::new(os).await;
    let forgetful = async move |_: &mut Os| drop(setter);
    os.spawn("forgetful", forgetful).await?;
    if let Err(error) = promise.wait(os).await {
        writeln!(os, "abandoned: {error}");
    }
    Ok(())
}

async fn set_by_a_thread(os: &mut Os) -> Result<(), Box<dyn Error>> {
    let (setter, promise) = Promise::new(os).await;
    let remote = setter.remote();
    thread::Builder::new().spawn(move || remote.set("hello"))?;
    let value = promise.wait(os).await?;
    writeln!(os, "from a thread: {value}");
    Ok(())
}

async fn a_task_is_a_promise(os: &mut Os) -> Result<(), Box<dyn Error>> {
    let sleep = async |os: &mut Os| os.sleep(Duration::from_millis(200)).await;
    let task = os.spawn("sleeper", sleep).await?;
    let exit = os.wait(task).await?;
    writeln!(os, "a task promises its exit: {exit}");
    Ok(())
}
