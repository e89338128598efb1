//! What was read of standard input and not yet taken.

/// The longest line, in bytes, with its end.
pub(crate) const MAX_LINE: usize = 1 << 20;

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

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
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
