//! The traits of hyper, futures and tokio for what guests use.

/// Implements the traits for bytes by the polls of a type.
#[allow(unused_macros, reason = "without any of the features")]
macro_rules! bytes {
    ($($Type:ty),+) => {$(
        #[cfg(feature = "futures-io")]
        impl futures_io::AsyncRead for $Type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                <$Type>::poll_read(self.get_mut(), cx, buf)
            }
        }

        #[cfg(feature = "futures-io")]
        impl futures_io::AsyncWrite for $Type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                <$Type>::poll_write(self.get_mut(), cx, buf)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$Type>::poll_flush(self.get_mut(), cx)
            }

            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$Type>::poll_close(self.get_mut(), cx)
            }
        }

        #[cfg(feature = "tokio-io")]
        impl tokio::io::AsyncRead for $Type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let room = buf.initialize_unfilled();
                <$Type>::poll_read(self.get_mut(), cx, room).map_ok(|n| buf.advance(n))
            }
        }

        #[cfg(feature = "tokio-io")]
        impl tokio::io::AsyncWrite for $Type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                <$Type>::poll_write(self.get_mut(), cx, buf)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$Type>::poll_flush(self.get_mut(), cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$Type>::poll_close(self.get_mut(), cx)
            }
        }

        #[cfg(feature = "hyper")]
        impl hyper::rt::Read for $Type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut buf: hyper::rt::ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                // The cursor gives no initialised memory without unsafe code.
                let mut piece = [0; 4096];
                let room = buf.remaining().min(piece.len());
                let n = ready!(<$Type>::poll_read(self.get_mut(), cx, &mut piece[..room]))?;
                buf.put_slice(&piece[..n]);
                Poll::Ready(Ok(()))
            }
        }

        #[cfg(feature = "hyper")]
        impl hyper::rt::Write for $Type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                <$Type>::poll_write(self.get_mut(), cx, buf)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$Type>::poll_flush(self.get_mut(), cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$Type>::poll_close(self.get_mut(), cx)
            }
        }
    )+};
}

#[cfg(any(feature = "hyper", feature = "futures-io", feature = "tokio-io"))]
mod io_traits {
    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    #[cfg(feature = "hyper")]
    use std::task::ready;

    use super::super::{ForeignFile, ForeignStream};

    bytes!(ForeignStream, ForeignFile);

    #[cfg(feature = "futures-io")]
    impl futures_io::AsyncSeek for ForeignFile {
        fn poll_seek(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            to: io::SeekFrom,
        ) -> Poll<io::Result<u64>> {
            Self::poll_seek(self.get_mut(), cx, to)
        }
    }

    #[cfg(feature = "tokio-io")]
    impl tokio::io::AsyncSeek for ForeignFile {
        fn start_seek(self: Pin<&mut Self>, to: io::SeekFrom) -> io::Result<()> {
            self.get_mut().start_seek(to);
            Ok(())
        }

        fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
            self.get_mut().poll_complete(cx)
        }
    }
}

#[cfg(feature = "hyper")]
pub use hyper_rt::ForeignTimer;

#[cfg(feature = "hyper")]
mod hyper_rt {
    use std::{
        pin::Pin,
        sync::OnceLock,
        task::{Context, Poll},
        time::{Duration, Instant},
    };

    use super::super::{Foreign, Sleep, hub};

    /// The timer of a guest for hyper, by [`Foreign::timer`].
    ///
    /// Its instants are those of the kernel's clock, counted from a point that they have in common: they
    /// tell nothing beside others.
    #[derive(Clone, Copy, Debug)]
    pub struct ForeignTimer(());

    impl Foreign {
        /// Returns the timer of hyper.
        #[must_use]
        pub fn timer(&self) -> ForeignTimer {
            ForeignTimer(())
        }
    }

    /// The instant of boot for all kernels.
    fn boot() -> Instant {
        static BOOT: OnceLock<Instant> = OnceLock::new();
        *BOOT.get_or_init(Instant::now)
    }

    fn since_boot(instant: Instant) -> Duration {
        instant.saturating_duration_since(boot())
    }

    impl hyper::rt::Timer for ForeignTimer {
        fn sleep(&self, span: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
            Box::pin(HyperSleep(Sleep::after(span)))
        }

        fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
            Box::pin(HyperSleep(Sleep::until(since_boot(deadline))))
        }

        fn now(&self) -> Instant {
            boot() + Duration::from(hub::required("a timer").timers.now())
        }

        fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
            *sleep = self.sleep_until(deadline);
        }
    }

    /// The trait of hyper is not one for every future.
    struct HyperSleep(Sleep);

    impl Future for HyperSleep {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            Pin::new(&mut self.0).poll(cx)
        }
    }

    impl hyper::rt::Sleep for HyperSleep {}

    impl<F: Future + 'static> hyper::rt::Executor<F> for Foreign {
        fn execute(&self, future: F) {
            drop(self.spawn("hyper", future));
        }
    }
}
