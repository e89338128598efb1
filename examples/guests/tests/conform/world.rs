//! Two ends of connections, in the simulated network and over real sockets.

use std::{io, net::SocketAddr, time::Duration};

use trapline::{Kernel, Os, SimNet, SimWorld, TcpListener, TcpStream};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum World {
    Simulated,
    Real,
}

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

impl World {
    /// The unit of the cases' times. The real world does not wait long.
    pub fn seconds(self, number: f64) -> Duration {
        let unit = match self {
            Self::Simulated => Duration::from_secs(1),
            Self::Real => Duration::from_millis(60),
        };
        unit.mul_f64(number)
    }

    /// The port of a second listener.
    pub fn second_port(self) -> u16 {
        if self == Self::Simulated { 81 } else { 0 }
    }

    fn kernel(self) -> Kernel {
        match self {
            Self::Simulated => {
                let net =
                    SimNet::new().latency(Duration::from_millis(1)..=Duration::from_millis(9));
                let world = SimWorld::new(7).net(&net);
                Kernel::builder()
                    .world(world)
                    .build()
                    .expect("a simulated world")
            }
            Self::Real => Kernel::real().expect("a real world"),
        }
    }

    async fn listen(self, os: &mut Os) -> io::Result<(TcpListener, SocketAddr)> {
        match self {
            Self::Simulated => {
                let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
                let ip = os.resolve("server").await?[0];
                Ok((listener, (ip, 80).into()))
            }
            Self::Real => {
                let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
                let addr = listener.local_addr()?;
                Ok((listener, addr))
            }
        }
    }
}

/// Runs a server and a client in both worlds. Each returns its error, or panics.
pub fn both<S, C>(name: &str, server: S, client: C)
where
    S: AsyncFnOnce(&mut Os, TcpListener, World) -> Outcome + Clone + 'static,
    C: AsyncFnOnce(&mut Os, SocketAddr, World) -> Outcome + Clone + 'static,
{
    for world in [World::Simulated, World::Real] {
        let (server, client) = (server.clone(), client.clone());
        let mut kernel = world.kernel();
        let boot = async move |os: &mut Os| -> Outcome {
            let (listener, addr) = world.listen(os).await?;
            let client = async move |os: &mut Os| {
                os.timeout(Duration::from_secs(60), async |os| {
                    client(os, addr, world).await
                })
                .await?
            };
            match world {
                World::Simulated => os.spawn_on("laptop", "client", client).await?,
                World::Real => os.spawn("client", client).await?,
            };
            os.timeout(Duration::from_secs(60), async |os| {
                server(os, listener, world).await
            })
            .await?
        };
        let booted = match world {
            World::Simulated => kernel.spawn_on("server", "server", boot),
            World::Real => kernel.spawn("server", boot),
        };
        booted.expect("the server starts");
        let report = kernel
            .run()
            .unwrap_or_else(|error| panic!("{name}, {world:?}: {error}"));
        report
            .check()
            .unwrap_or_else(|error| panic!("{name}, {world:?}: {error}"));
        kernel.audit_all();
    }
}

/// The only connection of a case.
pub async fn accept(os: &mut Os, listener: &TcpListener) -> io::Result<TcpStream> {
    Ok(listener.accept(os).await?.0)
}
