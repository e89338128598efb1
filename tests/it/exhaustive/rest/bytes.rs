//! The steps with bytes: a pair of sockets and two of UDP.

use std::io;

use trapline::{Either2, Os, Source};

use super::{Actor, Step, World};

impl Actor {
    /// Makes a call on a socket. Its log says what came of it.
    pub(super) async fn bytes(&mut self, os: &mut Os, step: Step) -> io::Result<String> {
        let World { ends, udp, .. } = &self.world;
        let mut buf = [0; 3];
        Ok(match step {
            Step::Send(end) => ends[end].send(os, b"12").await?.to_string(),
            Step::Recv(end) => ends[end].recv(os, &mut buf).await?.to_string(),
            Step::ShutdownWrite(end) => {
                ends[end].shutdown_write(os).await?;
                "shut".into()
            }
            Step::ShutdownRead(end) => {
                ends[end].shutdown_read(os).await?;
                "shut".into()
            }
            Step::CloseEnd(end) => format!("{:?}", ends[end].close(os).await),
            Step::SendTo(from) => {
                let to = udp[1 - from].local_addr()?;
                udp[from].send_to(os, b"123", to).await?.to_string()
            }
            Step::RecvFrom(at) => {
                let got = udp[at].recv_from(os, &mut buf);
                got.await?.0.to_string()
            }
            Step::CloseUdp(at) => format!("{:?}", udp[at].close(os).await),
            Step::SelectBytes(bits) => {
                let all = [
                    Source::readable(&ends[0]),
                    Source::readable(&ends[1]),
                    Source::writable(&ends[0]),
                    Source::readable(&udp[0]),
                    Source::readable(&udp[1]),
                    Source::exit(self.world.tids[0]),
                ];
                let some: Vec<usize> = (0..all.len()).filter(|at| bits >> at & 1 == 1).collect();
                let sources: Vec<Source> = some.iter().map(|at| all[*at]).collect();
                let at = some[os.select(&sources).await];
                let seen = match at {
                    0 | 1 => ends[at].recv(os, &mut buf).await?,
                    3 | 4 => udp[at - 3].recv_from(os, &mut buf).await?.0,
                    _ => 0,
                };
                format!("{at}:{seen}")
            }
            Step::FirstBytes(end) => {
                let arm = ends[end].recv_arm(&mut buf);
                let arms = (arm, self.world.stop.wait_arm());
                match os.first(arms).await {
                    Either2::First(got) => got?.to_string(),
                    Either2::Second(()) => "stopped".into(),
                }
            }
            _ => unreachable!("it is of another kind"),
        })
    }
}
