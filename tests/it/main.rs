//! One binary, a module per topic.

mod callbacks;
mod promises;
mod queues;
mod sync;
mod threads;
mod three;
mod timeouts;

use std::time::Duration;
use trapline::*;
#[test]
fn smoke() {
    let mut k = Kernel::builder()
        .world(SimWorld::new(1))
        .tracer(|e: &Event<'_>| println!("{e}"))
        .build()
        .unwrap();
    k.spawn("main", async |os| {
        let c = os
            .spawn("child", async |os| {
                os.sleep(Duration::from_secs(4)).await;
                writeln!(os, "hi");
            })
            .await?;
        let l = os
            .spawn("loop", async |os| {
                loop {
                    os.yield_now().await;
                }
            })
            .await?;
        let k = os.kill(l).await;
        writeln!(os, "{k:?}");
        let k = os.wait(c).await;
        writeln!(os, "{k:?}");
        for t in os.tasks().await {
            writeln!(os, "{t}");
        }
        Ok::<(), Errno>(())
    })
    .unwrap();
    k.spawn("bad", async |_os| std::future::pending::<()>().await)
        .unwrap();
    k.spawn("bad2", async |os| {
        os.yield_now().await;
        std::future::pending::<()>().await;
    })
    .unwrap();
    k.spawn("server", async |os| {
        os.attach(std::fs::File::open("/dev/null")?).await?;
        Ok::<(), std::io::Error>(())
    })
    .unwrap();
    println!("{:?}", k.run());
    println!("{}", k.take_console());
}
