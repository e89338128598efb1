//! The compositions over the traits and combinators of futures.

mod names {
    pub use futures::io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader, BufWriter, Cursor, copy, copy_buf,
    };

    pub fn halves<S: AsyncRead + AsyncWrite + Unpin>(
        stream: S,
    ) -> (impl AsyncRead + Unpin, impl AsyncWrite + Unpin) {
        futures::AsyncReadExt::split(stream)
    }

    pub async fn close(writer: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        writer.close().await
    }

    /// Sends by the sink of futures, which closes the writer.
    pub async fn sink(
        writer: &mut (impl AsyncWrite + Unpin),
        pieces: &[Vec<u8>],
        _: &crate::Pause,
    ) -> std::io::Result<()> {
        use futures::StreamExt;
        let pieces = futures::stream::iter(pieces.iter().cloned().map(Ok));
        pieces.forward(writer.into_sink()).await
    }
}

#[path = "flavour.rs"]
mod flavour;
pub use flavour::{client, server};
