//! A client for http and https, by the pool of hyper-util: the engine of reqwest.

mod cached;
mod connector;

use std::{
    collections::BTreeMap,
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::future::{Either, select};
use futures_rustls::TlsConnector;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION},
};
use hyper_util::client::legacy;
use trapline::{Foreign, Os};
use trapline_cli::{Program, duration};

pub use cached::Cached;
pub use connector::{Connection, Connector};

use crate::tls::{self, Provider};

/// The most redirections that a request follows.
const MAX_REDIRECTIONS: usize = 10;

/// Why a request has no answer.
pub type Failed = Box<dyn Error + Send + Sync>;

/// A client with a pool of connections. It works in the guest whose [`Foreign`] it was given, and in those
/// that this one starts.
///
/// Each server has a pool of its own. That of hyper-util has room for many, in a map with random state: it
/// closes their connections in another order in each process, which no seed repeats.
#[derive(Clone)]
pub struct Client {
    pools: Arc<Mutex<BTreeMap<String, Pool>>>,
    tls: Option<TlsConnector>,
    foreign: Foreign,
    timeout: Duration,
}

type Pool = legacy::Client<Connector, Full<Bytes>>;

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into()
    }
}

/// Makes the pool of a client.
pub fn pool<B>(
    foreign: Foreign,
    tls: Option<TlsConnector>,
    http2_only: bool,
) -> legacy::Client<Connector, B>
where
    B: hyper::body::Body + Send,
    B::Data: Send,
{
    let mut builder = legacy::Client::builder(foreign);
    // Without these the pool reads the system's clock.
    builder.timer(foreign.timer()).pool_timer(foreign.timer());
    builder
        .http2_only(http2_only)
        .build(Connector::new(foreign, tls))
}

impl Client {
    /// A client for http, and with a connector of TLS for https.
    pub fn new(foreign: &Foreign, tls: Option<TlsConnector>) -> Self {
        Self {
            pools: Arc::default(),
            tls,
            foreign: *foreign,
            timeout: Duration::from_secs(30),
        }
    }

    /// Changes how long a request may take, with its redirections and its body. Default: 30 seconds.
    #[must_use]
    pub fn timeout(mut self, span: Duration) -> Self {
        self.timeout = span;
        self
    }

    pub async fn get(&self, url: &str) -> Result<Answer, Failed> {
        self.request(Method::GET, url, Bytes::new()).await
    }

    pub async fn put(&self, url: &str, body: impl Into<Bytes>) -> Result<Answer, Failed> {
        self.request(Method::PUT, url, body.into()).await
    }

    pub async fn post(&self, url: &str, body: impl Into<Bytes>) -> Result<Answer, Failed> {
        self.request(Method::POST, url, body.into()).await
    }

    /// Sends a request, and reads the answer. A GET follows redirections.
    pub async fn request(&self, method: Method, url: &str, body: Bytes) -> Result<Answer, Failed> {
        let answer = std::pin::pin!(self.follow(method, url.parse()?, body));
        match select(answer, self.foreign.sleep(self.timeout)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(format!("{url}: no answer within {:?}", self.timeout).into()),
        }
    }

    async fn follow(&self, method: Method, mut url: Uri, body: Bytes) -> Result<Answer, Failed> {
        for _ in 0..=MAX_REDIRECTIONS {
            let answer = self.once(&method, &url, body.clone()).await?;
            let to = answer
                .headers
                .get(LOCATION)
                .filter(|_| answer.status.is_redirection());
            match to {
                Some(to) if method == Method::GET => url = joined(&url, to.to_str()?)?,
                _ => return Ok(answer),
            }
        }
        Err("there are more redirections than a request follows".into())
    }

    fn pool_of(&self, url: &Uri) -> Pool {
        let scheme = url.scheme_str().unwrap_or_default();
        let server = format!(
            "{scheme}://{}",
            url.authority().map_or("", |name| name.as_str())
        );
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || pool(self.foreign, self.tls.clone(), false);
        pools.entry(server).or_insert_with(new).clone()
    }

    async fn once(&self, method: &Method, url: &Uri, body: Bytes) -> Result<Answer, Failed> {
        let mut request = Request::builder().method(method.clone()).uri(url.clone());
        if !body.is_empty() {
            request = request
                .header(CONTENT_TYPE, "text/plain; charset=utf-8")
                .header(CONTENT_LENGTH, body.len());
        }
        let response = self
            .pool_of(url)
            .request(request.body(Full::new(body))?)
            .await?;
        let (parts, body) = response.into_parts();
        Ok(Answer {
            status: parts.status,
            version: parts.version,
            headers: parts.headers,
            body: body.collect().await?.to_bytes(),
        })
    }
}

/// The target of a redirection, which may be a path alone.
fn joined(from: &Uri, to: &str) -> Result<Uri, Failed> {
    let to: Uri = to.parse()?;
    if to.host().is_some() {
        return Ok(to);
    }
    let mut parts = from.clone().into_parts();
    parts.path_and_query = to.into_parts().path_and_query;
    Ok(Uri::from_parts(parts)?)
}

/// Asks for URLs, one after the other, and prints the answers
///
/// Connections are kept for the next URL. A status of 400 or above fails, after its text was printed.
#[derive(clap::Args, Clone, Debug)]
pub struct Fetch {
    /// The method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub method: Method,
    /// The body
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub data: String,
    /// Print the status and the headers, too
    #[arg(short, long)]
    pub include: bool,
    /// Trust servers with a certificate of the authorities in this file
    #[arg(long, value_name = "PEM")]
    pub cacert: Option<String>,
    /// Draw all random numbers of TLS from a seed: no secret, for tests
    #[arg(long, value_name = "N")]
    pub tls_seed: Option<u64>,
    /// How long a request may take
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub timeout: Duration,
    /// The URLs
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<String>,
}

/// Makes what a client needs for https, which trusts the authorities of a file.
pub async fn connector_of(
    os: &mut Os,
    cacert: Option<&str>,
    seed: Option<u64>,
) -> Result<Option<TlsConnector>, Box<dyn Error>> {
    let Some(path) = cacert else {
        return Ok(None);
    };
    let roots = tls::roots(os, path).await?;
    let entropy = tls::entropy(os, seed).await?;
    Ok(Some(Provider::seeded(os, entropy).await.connector(roots)?))
}

impl Program for Fetch {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let tls = connector_of(os, self.cacert.as_deref(), self.tls_seed).await?;
        let (method, data) = (self.method, Bytes::from(self.data));
        let mut client = None;
        let mut refused = None;
        for url in self.urls {
            let (method, data, tls) = (method.clone(), data.clone(), tls.clone());
            let answer = os.run_future(async |foreign| {
                let client = client.get_or_insert_with(|| Client::new(foreign, tls));
                client
                    .clone()
                    .timeout(self.timeout)
                    .request(method, &url, data)
                    .await
            });
            let answer = answer.await.map_err(|error| described(&url, &*error))?;
            if self.include {
                writeln!(os, "{:?} {}", answer.version, answer.status);
                for (name, value) in &answer.headers {
                    writeln!(os, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
                }
                writeln!(os);
            }
            write!(os, "{}", answer.text());
            if answer.status.as_u16() >= 400 {
                refused = Some(format!("{url}: {}", answer.status));
            }
        }
        refused.map_or(Ok(()), |refused| Err(refused.into()))
    }
}

/// An error of hyper does not tell its causes.
fn described(url: &str, error: &(dyn Error + 'static)) -> String {
    let mut text = format!("{url}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
