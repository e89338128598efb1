use std::error::Error;

use trapline::{Endpoint, Os, TcpStream};
use trapline_cli::Program;

use crate::resp::{self, Unread};

/// Sends commands to a key-value server, such as kv, and prints its replies as redis-cli does
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ask set greeting hello")]
pub(crate) struct Ask {
    /// The server: an address or a host's name, and a port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    addr: Endpoint,
    /// A command; without one, each line of standard input is one
    #[arg(value_name = "WORD", trailing_var_arg = true)]
    words: Vec<String>,
}

impl Program for Ask {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let server = os.connect(self.addr).await;
        let server = server.map_err(|error| format!("{error} (see --addr)"))?;
        if !self.words.is_empty() {
            return ask(os, &server, &self.words).await;
        }
        while let Some(line) = os.read_line().await? {
            let words: Vec<&str> = line.split_whitespace().collect();
            ask(os, &server, &words).await?;
        }
        Ok(())
    }
}

/// Sends a request, and prints its reply: all that come, if it subscribes.
async fn ask(
    os: &mut Os,
    server: &TcpStream,
    words: &[impl AsRef<[u8]>],
) -> Result<(), Box<dyn Error>> {
    let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
    if words.is_empty() {
        return Ok(());
    }
    let (mut request, mut input) = (Vec::new(), Vec::new());
    resp::texts(&mut request, &words);
    server.send_all(os, &request).await?;
    loop {
        match resp::reply(&input) {
            Ok((text, len)) => {
                writeln!(os, "{text}");
                if !words[0].eq_ignore_ascii_case(b"subscribe") {
                    return Ok(());
                }
                input.drain(..len);
            }
            Err(Unread::Wrong(why)) => return Err(why.into()),
            Err(Unread::Part(least)) => {
                while input.len() < least {
                    if server.recv_into(os, &mut input).await? == 0 {
                        return Err("the server has closed the connection".into());
                    }
                }
            }
        }
    }
}
