//! A kernel among several.

use super::Kernel;
use crate::abi::KernelId;

impl Kernel {
    /// Gives the kernel its number among those that run side by side. No task has had a turn.
    pub(crate) fn enlist(&mut self, id: KernelId) {
        self.id = id;
        self.frame.kernel.set(id);
    }
}
