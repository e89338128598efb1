//! Lines over a connection of the simulated network: by a `Reader`, and as a program parses them itself.

use std::io;

use trapline::{Kernel, Os, Reader, TcpStream};

/// The longest line in bytes, and the size of a read.
const MAX: usize = 1000;
const PIECE: usize = 8192;

/// A server sends so many lines of 10 to 90 bytes, and a client reads them.
pub(crate) fn run<T: AsyncFn(&mut Os, TcpStream) -> io::Result<usize> + 'static>(
    laps: u64,
    client: T,
) {
    let mut kernel = Kernel::simulated(0);
    let server = async move |os: &mut Os| {
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
        let (stream, _) = listener.accept(os).await?;
        let mut text = Vec::new();
        for lap in 0..laps {
            text.extend((0..10 + lap % 80).map(|n| b'a' + (n % 26) as u8));
            text.push(b'\n');
            if text.len() > PIECE || lap + 1 == laps {
                stream.send_all(os, &text).await?;
                text.clear();
            }
        }
        io::Result::Ok(())
    };
    kernel.spawn("server", server).expect("there is room");
    let client = async move |os: &mut Os| {
        let stream = os.connect(([127, 0, 0, 1], 80)).await?;
        let len = client(os, stream).await?;
        let all: u64 = (0..laps).map(|lap| 10 + lap % 80).sum();
        assert_eq!(len as u64, all);
        io::Result::Ok(())
    };
    kernel.spawn("client", client).expect("there is room");
    let report = kernel.run().expect("the tasks come to an end");
    report.check().expect("they end well");
}

/// The loop that a program has without a reader. It keeps the limit, too.
pub(crate) async fn by_hand(os: &mut Os, stream: TcpStream) -> io::Result<usize> {
    let (mut bytes, mut buf, mut len) = (Vec::new(), [0; PIECE], 0);
    loop {
        let n = stream.recv(os, &mut buf).await?;
        if n == 0 {
            return Ok(len);
        }
        bytes.extend_from_slice(&buf[..n]);
        let mut at = 0;
        while let Some(end) = bytes[at..].iter().position(|byte| *byte == b'\n') {
            let line = &bytes[at..at + end];
            if line.len() > MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let line = str::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData)?;
            len += line.trim_end_matches('\r').to_string().len();
            at += end + 1;
        }
        bytes.drain(..at);
        if bytes.len() > MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

pub(crate) async fn by_reader(os: &mut Os, stream: TcpStream) -> io::Result<usize> {
    let (mut reader, mut len) = (Reader::new(&stream, MAX), 0);
    while let Some(line) = reader.read_line(os).await? {
        len += line.len();
    }
    Ok(len)
}
