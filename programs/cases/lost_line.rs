//! A client that connects again after an error, and forgets the line that was under way. It works as
//! long as no connection breaks.

use std::{io, time::Duration};

use trapline::{Endpoint, Os, TcpStream};

/// Sends lines to a server that echoes, a second apart, and returns how many came back.
pub(crate) async fn send_lines(os: &mut Os, to: Endpoint, count: u32) -> u32 {
    let second = Duration::from_secs(1);
    let (mut stream, mut answered) = (None, 0);
    for line in 0..count {
        let attempt = os.timeout(3 * second, async |os| {
            let stream = match &stream {
                Some(stream) => stream,
                None => stream.insert(os.connect(to.clone()).await?),
            };
            ask(os, stream, format!("line {line:04}").as_bytes()).await
        });
        match attempt.await {
            Ok(Ok(())) => answered += 1,
            // The bug: the next line comes after this one, which is lost.
            Ok(Err(_)) | Err(_) => stream = None,
        }
        os.sleep(second).await;
    }
    answered
}

async fn ask(os: &mut Os, stream: &TcpStream, line: &[u8]) -> io::Result<()> {
    stream.send_all(os, line).await?;
    let (mut got, mut buf) = (0, [0; 16]);
    while got < line.len() {
        match stream.recv(os, &mut buf).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => got += n,
        }
    }
    Ok(())
}
