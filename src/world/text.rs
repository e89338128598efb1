//! A text as the standard input of a world.

use std::io::{Error, ErrorKind, Result};

use super::{Answer, Request};
use crate::abi::{DeviceId, Direction};

/// A text that is read from its begin, by one device at a time.
pub(super) struct Text {
    bytes: Vec<u8>,
    at: usize,
    pub(super) device: Option<DeviceId>,
}

impl Text {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            at: 0,
            device: None,
        }
    }

    pub(super) fn rewind(&mut self) {
        (self.at, self.device) = (0, None);
    }

    /// Whether this is for the text to answer.
    #[inline]
    pub(super) fn is(&self, device: DeviceId, request: &Request<'_>) -> bool {
        self.device == Some(device) && !matches!(request, Request::Input)
    }

    pub(super) fn read(&mut self, buf: &mut [u8]) -> usize {
        let left = &self.bytes[self.at..];
        let n = left.len().min(buf.len());
        buf[..n].copy_from_slice(&left[..n]);
        self.at += n;
        n
    }

    /// Answers a request to its device. It is always ready.
    pub(super) fn io(&mut self, request: Request<'_>) -> Result<Answer> {
        match request {
            Request::Recv(buf) => Ok(Answer::Bytes(self.read(buf))),
            Request::Drained => Ok(Answer::Ready(false)),
            Request::Ready(direction) => Ok(Answer::Ready(direction == Direction::Read)),
            Request::Close => {
                self.device = None;
                Ok(Answer::Done)
            }
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                "standard input is only read",
            )),
        }
    }
}
