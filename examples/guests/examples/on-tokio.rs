//! A small service on tokio. Page 21 of the book moves it.

use std::{error::Error, time::Duration};

use axum::{Router, routing::get};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{net::TcpListener, net::TcpStream, select, signal::ctrl_c, time::sleep};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                tokio::spawn(converse(stream));
            }
            _ = ctrl_c() => return Ok(()),
        }
    }
}

async fn converse(stream: TcpStream) {
    let hello = async || {
        sleep(Duration::from_millis(10)).await;
        "hello\n"
    };
    let app = Router::new().route("/", get(hello));
    let served = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app))
        .await;
    if let Err(error) = served {
        eprintln!("{error}");
    }
}
