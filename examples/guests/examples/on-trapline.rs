//! A small service on trapline. Page 21 of the book moves it.

use std::{error::Error, time::Duration};

use axum::{Router, routing::get};
use hyper::server::conn::http1;
use hyper_util::service::TowerToHyperService;
use trapline::{Foreign, Kernel, Os, Signal, Source, TcpStream};

fn main() -> Result<(), Box<dyn Error>> {
    let mut kernel = Kernel::real()?;
    kernel.spawn("service", serve)?;
    Ok(kernel.run()?.check()?)
}

async fn serve(os: &mut Os) -> Result<(), Box<dyn Error>> {
    let listener = os.listen("127.0.0.1:0".parse()?).await?;
    writeln!(os, "listening on {}", listener.local_addr()?);
    let signals = os.catch(&[Signal::Interrupt]).await;
    let sources = [Source::readable(&listener), Source::signal(&signals)];
    loop {
        match os.select(&sources).await {
            0 => {
                let (stream, _) = listener.accept(os).await?;
                os.spawn_daemon("connection", async move |os: &mut Os| {
                    os.run_future(async |foreign: &Foreign| converse(*foreign, stream).await)
                        .await;
                })
                .await?;
            }
            _ => return Ok(()),
        }
    }
}

async fn converse(foreign: Foreign, stream: TcpStream) {
    let hello = async move || {
        foreign.sleep(Duration::from_millis(10)).await;
        "hello\n"
    };
    let app = Router::new().route("/", get(hello));
    let served = http1::Builder::new()
        .serve_connection(foreign.stream(stream), TowerToHyperService::new(app))
        .await;
    if let Err(error) = served {
        eprintln!("{error}");
    }
}
