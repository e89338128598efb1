//! The compositions over the traits and combinators of tokio.

mod names {
    pub use std::io::Cursor;
    pub use tokio::io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader, BufWriter, copy, copy_buf,
    };

    pub fn halves<S: AsyncRead + AsyncWrite + Unpin>(
        stream: S,
    ) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin) {
        tokio::io::split(stream)
    }

    pub async fn close(writer: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        writer.shutdown().await
    }

    /// Tokio has no sink: `tokio::select!` writes what it can, between pauses.
    pub async fn sink(
        writer: &mut (impl AsyncWrite + Unpin),
        pieces: &[Vec<u8>],
        pause: &crate::Pause,
    ) -> std::io::Result<()> {
        let bytes = pieces.concat();
        let mut rest = &bytes[..];
        let mut round = 0;
        while !rest.is_empty() {
            round += 1;
            tokio::select! {
                n = writer.write(rest) => rest = &rest[n?..],
                () = pause(crate::spins(round, 1)) => {}
            }
        }
        writer.shutdown().await
    }
}

// The other copy is over the names of futures.
#[allow(clippy::duplicate_mod)]
#[path = "flavour.rs"]
mod flavour;
pub use flavour::{client, server};
