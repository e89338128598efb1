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
        let mut input = Vec::new();
        if !self.words.is_empty() {
            return ask(os, &server, &self.words, &mut input).await;
        }
        while let Some(line) = os.read_line().await? {
            let words: Vec<&str> = line.split_whitespace().collect();
            ask(os, &server, &words, &mut input).await?;
        }
        Ok(())
    }
}

/// Sends a request, and prints its replies. What comes behind them stays in `input`.
async fn ask(
    os: &mut Os,
    server: &TcpStream,
    words: &[impl AsRef<[u8]>],
    input: &mut Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
    let [name, args @ ..] = &*words else {
        return Ok(());
    };
    let mut request = Vec::new();
    resp::texts(&mut request, &words);
    server.send_all(os, &request).await?;
    for _ in 0..replies(name, args.len()) {
        let is_array = print(os, server, input).await?;
        if !is_array {
            // An error, or that the request is queued, is the only reply.
            break;
        }
    }
    Ok(())
}

/// Returns how many replies a request has, if they are arrays.
fn replies(name: &[u8], args: usize) -> usize {
    match &*name.to_ascii_lowercase() {
        // Messages come up to the end of the server.
        b"subscribe" | b"psubscribe" => usize::MAX,
        b"unsubscribe" | b"punsubscribe" => args.max(1),
        _ => 1,
    }
}

/// Receives a reply, and prints it. Returns whether it is an array.
async fn print(
    os: &mut Os,
    server: &TcpStream,
    input: &mut Vec<u8>,
) -> Result<bool, Box<dyn Error>> {
    loop {
        match resp::reply(input) {
            Ok((text, len)) => {
                writeln!(os, "{text}");
                let is_array = input.starts_with(b"*");
                input.drain(..len);
                return Ok(is_array);
            }
            Err(Unread::Wrong(why)) => return Err(why.into()),
            Err(Unread::Part(least)) => {
                while input.len() < least {
                    if server.recv_into(os, input).await? == 0 {
                        return Err("the server has closed the connection".into());
                    }
                }
            }
        }
    }
}
