//! An exhaustive search of the key-value server.

use std::{collections::BTreeSet, io, time::Duration};

use trapline::{Kernel, Os, SimNet, check};

use super::{super::boot, Wire};
use crate::networked::kv::Kv;

/// In every order of turns of a server that is up and two clients that ask at the same instant.
#[test]
fn two_clients_never_get_the_same_number() {
    let body = |kernel: &mut Kernel| {
        boot::<Kv>(kernel, "server", &["--addr", "0.0.0.0:6379"]);
        let mut clients = Vec::new();
        for name in ["one", "two"] {
            let client = async move |os: &mut Os| {
                os.sleep(Duration::from_millis(1)).await;
                let mut wire = Wire::connect(os).await?;
                wire.stream.send_all(os, b"INCR n\r\n").await?;
                let line = wire.line(os).await?;
                writeln!(os, "{name} {line}");
                io::Result::Ok(())
            };
            clients.push(kernel.spawn_on(name, name, client)?);
        }
        kernel.run_until(&clients)?.check()?;
        let console = kernel.take_console();
        let mut lines: Vec<&str> = console.lines().skip(1).collect();
        lines.sort_unstable();
        kernel.outcome(lines.join(", "));
        Ok(())
    };
    let ms = Duration::from_millis(1);
    let net = move || SimNet::new().latency(ms..=ms);
    let explored = check(body).net(net).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    let both = ["one :1, two :2", "one :2, two :1"];
    assert_eq!(explored.outcomes, BTreeSet::from(both.map(str::to_string)));
    // It is 672. Beside a daemon, which of the clients ends first counts.
    assert!(explored.schedules <= 800, "{explored}");
}
