use std::{error::Error, io, net::ToSocketAddrs, str::FromStr, time::Duration};

use trapline::{Elapsed, Os, Program, TcpStream, cli};

/// Fetches a page by plain HTTP and writes its body to standard output
#[derive(clap::Args)]
pub(crate) struct HttpGet {
    /// What to fetch, such as http://example.com/
    url: Url,
    /// How long to wait for it
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = cli::duration)]
    timeout: Duration,
    /// Print 1 when the response is in and 2 after the call that asks for it, instead: 2 is first
    #[arg(long)]
    demo_order: bool,
}

impl Program for HttpGet {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let Self { url, timeout, .. } = self;
        if self.demo_order {
            os.call_soon(async move |os: &mut Os| {
                fetch(os, &url, timeout).await?;
                writeln!(os, "1");
                Ok::<(), String>(())
            })
            .await;
            writeln!(os, "2");
            return Ok(());
        }
        let host = &url.host;
        let response = fetch(os, &url, timeout).await?;
        let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let end = end.ok_or_else(|| format!("{host} does not answer in HTTP"))?;
        let (head, body) = (
            String::from_utf8_lossy(&response[..end]),
            &response[end + 4..],
        );
        let status = head.lines().next().unwrap_or_default();
        tracing::info!("{status}");
        write(os, body).await?;
        match status.split(' ').nth(1) {
            Some(code) if code.starts_with('2') => Ok(()),
            _ => Err(format!("{host} answers {status}").into()),
        }
    }
}

/// Asks for a page and answers the response, head and body.
pub(crate) async fn fetch(os: &mut Os, url: &Url, timeout: Duration) -> Result<Vec<u8>, String> {
    let Url { host, path } = url;
    let response = os.timeout(timeout, async |os| {
        let server = connect(os, host).await?;
        // A server answers HTTP/1.0 with the plain body and the end of the stream.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        let sent = server.send_all(os, request.as_bytes()).await;
        sent.map_err(|error| format!("cannot ask {host}: {error}"))?;
        let response = read_to_end(os, &server).await;
        response.map_err(|error| format!("{host} breaks off: {error}"))
    });
    let late = |Elapsed| format!("{host} has not answered within {timeout:?}: raise --timeout");
    response.await.map_err(late)?
}

/// Connects to the first address of a host that answers.
async fn connect(os: &mut Os, host: &str) -> Result<TcpStream, String> {
    // The colons of an IPv6 address are in brackets; one after them leads to a port.
    let addr = if host.rsplit(']').next().is_some_and(|end| end.contains(':')) {
        host.to_string()
    } else {
        format!("{host}:80")
    };
    let name = addr.clone();
    let found = os.run_blocking(move || name.to_socket_addrs()).await;
    let found = found.map_err(|error| format!("cannot look up {host}: {error}"))?;
    let found = found.map_err(|error| format!("cannot find {host}: {error}"))?;
    let mut trouble = "it has no address".to_string();
    for addr in found {
        match os.connect(addr).await {
            Ok(server) => return Ok(server),
            Err(error) => trouble = error.to_string(),
        }
    }
    Err(format!("cannot connect to {addr}: {trouble}"))
}

async fn read_to_end(os: &mut Os, server: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buf = vec![0; 65536];
    loop {
        match server.recv(os, &mut buf).await? {
            0 => return Ok(bytes),
            n => bytes.extend(&buf[..n]),
        }
    }
}

/// Writes bytes, which need not be text, to standard output. That it is closed is no error.
async fn write(os: &mut Os, bytes: &[u8]) -> io::Result<()> {
    let stdout = loop {
        match os.attach(io::stdout()).await {
            // Another task has it, and is writing.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                os.sleep(Duration::from_millis(10)).await;
            }
            result => break result?,
        }
    };
    match stdout.send_all(os, bytes).await {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[derive(Clone)]
pub(crate) struct Url {
    host: String,
    path: String,
}

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        if url.starts_with("https://") {
            return Err("https is more than this can do: try http://");
        }
        let rest = url
            .strip_prefix("http://")
            .ok_or("it begins with http://")?;
        let rest = rest.split('#').next().unwrap_or_default();
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if host.is_empty() || host.contains('@') {
            return Err("after http:// comes the name of a host");
        }
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a space, or what is not ASCII, is written as %20 and the like");
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            host: host.to_string(),
            path: format!("{slash}{path}"),
        })
    }
}
