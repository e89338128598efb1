//! An axum service with a database of its own.
//!
//! | request | answer |
//! |---|---|
//! | `GET /notes` | all notes, as JSON |
//! | `GET /notes/{id}` | a note; 404 if there is none |
//! | `PUT /notes/{id}` | 204 once the text of the note is durable |
//! | `POST /notes/{id}` | the note, to which the text was appended |
//! | `DELETE /notes/{id}` | 204 once it is gone; 404 if there is none |

mod log;
mod store;

use std::{collections::BTreeMap, error::Error, net::SocketAddr, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use trapline::{Os, Source};
use trapline_cli::{Program, addr, duration};

pub use store::{Gone, Jobs, Store, channel, database};

use crate::{
    serve::serve,
    tls::{self, Identity, Provider},
};

/// A service that keeps notes, by axum, on the disk
///
/// SIGTERM drains it: each request that has begun is answered. In the real world it needs --disk.
#[derive(clap::Args, Clone, Debug)]
pub struct Notes {
    /// The address to listen on; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:8443")]
    pub addr: SocketAddr,
    /// The certificates for TLS, in a file
    #[arg(long, value_name = "PEM", requires = "key")]
    pub cert: Option<String>,
    /// The key for TLS, in a file
    #[arg(long, value_name = "PEM", requires = "cert")]
    pub key: Option<String>,
    /// Draw all random numbers of TLS from a seed: no secret, for tests
    #[arg(long, value_name = "N")]
    pub tls_seed: Option<u64>,
    /// Leave TLS to the random numbers of the system, so that no replay can repeat them
    #[arg(long, conflicts_with = "tls_seed")]
    pub unseeded: bool,
    /// How long connections may take to end
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub drain: Duration,
    /// Have a bug: an append is a read and a write
    #[arg(long)]
    pub racy: bool,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            addr: ([0, 0, 0, 0], 80).into(),
            cert: None,
            key: None,
            tls_seed: None,
            unseeded: false,
            drain: Duration::from_secs(5),
            racy: false,
        }
    }
}

impl Program for Notes {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let identity = Identity::read(os, cert, key).await?;
                let provider = if self.unseeded {
                    Provider::unseeded(os).await
                } else {
                    let entropy = tls::entropy(os, self.tls_seed).await?;
                    Provider::seeded(os, entropy).await
                };
                Some(provider.acceptor(identity)?)
            }
            _ => None,
        };
        let listener = os.listen(self.addr).await?;
        let (store, jobs) = channel();
        let database = async move |os: &mut Os| database(os, jobs).await;
        let mut database = os.spawn_child("database", database).await?;
        writeln!(os, "Listening at {}", listener.local_addr()?);
        let app = router(store, self.racy);
        let needed = Some(Source::child(&database));
        let killed = serve(os, listener, tls, app, needed, self.drain).await?;
        writeln!(os, "Drained; {killed} connections were killed");
        match database.wait(os).await {
            Ok(over) => Ok(over?),
            Err(exit) => Err(format!("the database {exit}").into()),
        }
    }
}

type Reply<T> = Result<T, Refused>;

/// A status that is no success.
struct Refused(StatusCode);

impl From<Gone> for Refused {
    fn from(_: Gone) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

/// A note that is not there.
const MISSING: Refused = Refused(StatusCode::NOT_FOUND);

#[derive(Clone)]
struct App {
    store: Store,
    is_racy: bool,
}

/// The service. Nothing here is of trapline.
pub fn router(store: Store, is_racy: bool) -> Router {
    Router::new()
        .route("/notes", get(list))
        .route(
            "/notes/{id}",
            get(read).put(write).post(append).delete(remove),
        )
        .with_state(App { store, is_racy })
}

async fn list(State(app): State<App>) -> Reply<Json<BTreeMap<u64, String>>> {
    Ok(Json(app.store.all().await?))
}

async fn read(State(app): State<App>, Path(id): Path<u64>) -> Reply<String> {
    app.store.get(id).await?.ok_or(MISSING)
}

async fn write(State(app): State<App>, Path(id): Path<u64>, text: String) -> Reply<StatusCode> {
    app.store.put(id, text).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn append(State(app): State<App>, Path(id): Path<u64>, line: String) -> Reply<String> {
    let text = match app.is_racy {
        true => app.store.append_in_two(id, line).await?,
        false => app.store.append(id, line).await?,
    };
    Ok(text.unwrap_or_default())
}

async fn remove(State(app): State<App>, Path(id): Path<u64>) -> Reply<StatusCode> {
    let before = app.store.delete(id).await?;
    before.map(|_| StatusCode::NO_CONTENT).ok_or(MISSING)
}
