//! A client that takes each read for a whole reply. It works as long as each reply comes in one
//! piece; after a part of one, every reply is matched with the wrong request.

use std::io;

use trapline::{Endpoint, Os};

/// Asks an echo server, and returns the replies with their requests.
pub(crate) async fn ask_all(
    os: &mut Os,
    to: Endpoint,
    count: u32,
) -> io::Result<Vec<(String, String)>> {
    let stream = os.connect(to).await?;
    let (mut pairs, mut buf) = (Vec::new(), [0; 64]);
    for number in 0..count {
        let request = format!("request {number}");
        stream.send_all(os, request.as_bytes()).await?;
        // The bug: this may be a part of the reply.
        let n = stream.recv(os, &mut buf).await?;
        let reply = String::from_utf8_lossy(&buf[..n]).into_owned();
        pairs.push((request, reply));
    }
    Ok(pairs)
}
