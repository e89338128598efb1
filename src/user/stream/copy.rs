//! Copies from a device to another one.

use std::io;

use crate::{
    abi::SystemCall,
    trap::Caller,
    user::{
        device::{AsDevice, Device},
        os::{Os, io_checked},
    },
};

impl Os {
    /// Copies bytes from a device to another one, until the first ends. Then it ends the outgoing half of
    /// the other one; a device without halves, such as a pipe, stays as it is. Returns the number of
    /// bytes. Two of these, one for each direction, are a proxy.
    ///
    /// *Blocks* until the end of `from`. At most 64 KiB are under way.
    ///
    /// *Errors:* those of [`Device::recv`], [`Device::send`] and
    /// [`shutdown_write`](crate::TcpStream::shutdown_write).
    ///
    /// A copy that is cut loses the bytes that are under way.
    #[track_caller]
    pub fn copy<A, B>(
        &mut self,
        from: &Device<A>,
        to: &Device<B>,
    ) -> impl Future<Output = io::Result<u64>> {
        let place = self.note_caller();
        self.copy_at(place, from, to, async |_: &mut Self| {})
    }

    /// The same. It calls `moved` whenever bytes have moved: after each `recv`, and each `send`. For
    /// example, it notes the time, for another task that ends an idle connection.
    #[track_caller]
    pub fn copy_noting<A, B>(
        &mut self,
        from: &Device<A>,
        to: &Device<B>,
        moved: impl AsyncFnMut(&mut Self),
    ) -> impl Future<Output = io::Result<u64>> {
        let place = self.note_caller();
        self.copy_at(place, from, to, moved)
    }

    async fn copy_at<A, B>(
        &mut self,
        place: Caller,
        from: &Device<A>,
        to: &Device<B>,
        mut moved: impl AsyncFnMut(&mut Self),
    ) -> io::Result<u64> {
        let (mut bytes, mut copied) = (Vec::new(), 0);
        loop {
            self.frame().set_place(place);
            bytes.clear();
            let receive = from.recv_noted(self, usize::MAX, |more| bytes.extend_from_slice(more));
            if receive.await? == 0 {
                return self.end(to).await.map(|()| copied);
            }
            moved(self).await;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                match to.send_at(place, self, rest, |_| {}).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    n => (rest, copied) = (&rest[n..], copied + n as u64),
                }
                moved(self).await;
            }
        }
    }

    /// Ends the outgoing half of a device that has one.
    async fn end<S>(&mut self, to: &Device<S>) -> io::Result<()> {
        let id = to.device_id(self);
        let ended = self.call(move |_| SystemCall::ShutdownWrite(id), io_checked);
        match ended.await {
            Err(error) if error.raw_os_error() == Some(libc::ENOTSOCK) => Ok(()),
            other => other,
        }
    }
}
