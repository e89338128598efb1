mod response;

use std::{error::Error, fs, io, path::PathBuf, str::FromStr, time::Duration};

pub(crate) use response::Response;
use trapline::{Device, Elapsed, Os};
use trapline_cli::{Program, duration};

/// Fetches a page by plain HTTP and writes its body to standard output
#[derive(clap::Args)]
pub(crate) struct HttpGet {
    /// The URL to fetch, such as http://example.com/; for --demo-order a file is enough, such as
    /// /etc/hosts
    #[arg(value_name = "URL")]
    from: Origin,
    /// How long to wait for the answer, and for each later piece of it
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    timeout: Duration,
    /// Print 1 when the response is in and 2 after the call that asks for it, instead: 2 comes
    /// first
    #[arg(long)]
    demo_order: bool,
}

impl Program for HttpGet {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let Self { from, timeout, .. } = self;
        if self.demo_order {
            os.call_soon(async move |os: &mut Os| {
                from.read(os, timeout).await?;
                writeln!(os, "1");
                Ok::<(), String>(())
            })
            .await;
            writeln!(os, "2");
            return Ok(());
        }
        match from {
            Origin::Url(url) => get(os, &url, timeout).await,
            Origin::File(path) => {
                let path = path.display();
                Err(format!("{path} is a file, which only --demo-order reads").into())
            }
        }
    }
}

async fn get(os: &mut Os, url: &Url, timeout: Duration) -> Result<(), Box<dyn Error>> {
    let mut response = Response::to(os, url, timeout).await?;
    let status = response.head.lines().next().unwrap_or_default().to_string();
    tracing::info!("{status}");
    let stdout = stdout(os).await?;
    while let Some(piece) = response.piece(os).await? {
        let Some(stdout) = &stdout else {
            write!(os, "{}", String::from_utf8_lossy(&piece));
            continue;
        };
        match stdout.send_all(os, &piece).await {
            // The reader closed the output early.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
    }
    match response.status {
        200..300 => Ok(()),
        _ => Err(format!("{} answers {status}", url.host).into()),
    }
}

/// Standard output as a device: a body need not be text. The simulated world has only the console.
async fn stdout(os: &mut Os) -> io::Result<Option<Device<io::Stdout>>> {
    loop {
        match os.attach(io::stdout()).await {
            // Another task has it and is writing.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                os.sleep(Duration::from_millis(10)).await;
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
            result => return result.map(Some),
        }
    }
}

#[derive(Clone)]
enum Origin {
    Url(Url),
    File(PathBuf),
}

impl Origin {
    /// Reads all of it and keeps nothing.
    async fn read(&self, os: &mut Os, timeout: Duration) -> Result<(), String> {
        match self {
            Self::Url(url) => {
                let mut response = Response::to(os, url, timeout).await?;
                while response.piece(os).await?.is_some() {}
                Ok(())
            }
            Self::File(path) => {
                let (name, path) = (path.display(), path.clone());
                let work = move || io::copy(&mut fs::File::open(path)?, &mut io::sink());
                let read = os.timeout(timeout, async |os| os.run_blocking(work).await);
                let done = match read.await {
                    Ok(done) => done.map_err(|panic| panic.to_string())?,
                    Err(Elapsed) => return Err(format!("{name} is not read within {timeout:?}")),
                };
                done.map(drop)
                    .map_err(|error| format!("cannot read {name}: {error}"))
            }
        }
    }
}

impl FromStr for Origin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.starts_with(['/', '.']) {
            true => Ok(Self::File(text.into())),
            false => text.parse().map(Self::Url),
        }
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
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return Err("https is not supported: use http://");
            }
            _ => return Err("it must begin with http://"),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if host.is_empty() || host.contains('@') {
            return Err("the name of a host must follow http://");
        }
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("write a space as %20, and escape what is not ASCII likewise");
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let (host, path) = (host.to_string(), format!("{slash}{path}"));
        Ok(Self { host, path })
    }
}
