//! What was read of standard input and not yet taken.

use std::collections::BTreeMap;

use crate::abi::DeviceId;

/// The longest line, in bytes, with its end.
pub(crate) const MAX_LINE: usize = 1 << 20;

/// By the device of the input. The line that a task takes next is noted.
#[derive(Default)]
pub(crate) struct AllUnread {
    of: BTreeMap<DeviceId, Unread>,
    /// The input of the last line that was found.
    found: Option<DeviceId>,
}

impl AllUnread {
    pub(crate) fn has_any(&self, device: DeviceId) -> bool {
        self.of
            .get(&device)
            .is_some_and(|unread| !unread.is_empty())
    }

    pub(crate) fn clear(&mut self) {
        if !self.of.is_empty() {
            *self = Self::default();
        }
    }

    pub(crate) fn of(&mut self, device: DeviceId) -> &mut Unread {
        self.found = Some(device);
        self.of.entry(device).or_default()
    }

    /// Takes so many bytes of the input that was asked for last.
    pub(crate) fn read_found(&mut self, len: usize) -> Vec<u8> {
        let unread = self.found.and_then(|device| self.of.get_mut(&device));
        unread.map_or_else(Vec::new, |unread| unread.read_vec(len))
    }

    /// Forgets what was read ahead of an input.
    pub(crate) fn remove(&mut self, device: DeviceId) {
        self.of.remove(&device);
    }
}

#[derive(Default)]
pub(crate) struct Unread {
    bytes: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
    /// How many of them have no end of a line, from the first on.
    searched: usize,
}

impl Unread {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.searched = self.searched.saturating_sub(self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the length of the first line, with its end, if it is complete and not too long.
    pub(crate) fn find_line(&mut self) -> Option<usize> {
        let from = self.searched.max(self.taken);
        let end = self.bytes[from..].iter().position(|byte| *byte == b'\n');
        self.searched = end.map_or(self.bytes.len(), |end| from + end);
        let len = end.map(|end| from + end + 1 - self.taken)?;
        (len <= MAX_LINE).then_some(len)
    }

    /// Takes bytes from the front, as many as there are room for.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> usize {
        let len = self.len().min(buf.len());
        buf[..len].copy_from_slice(&self.bytes[self.taken..][..len]);
        self.take(len);
        len
    }

    /// Takes so many bytes from the front.
    pub(crate) fn read_vec(&mut self, len: usize) -> Vec<u8> {
        let bytes = self.bytes[self.taken..][..len].to_vec();
        self.take(len);
        bytes
    }

    fn take(&mut self, len: usize) {
        self.taken += len;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            (self.taken, self.searched) = (0, 0);
        }
    }
}
