//! A kernel among several.

use super::Kernel;
use crate::abi::KernelId;

impl Kernel {
    /// Gives the kernel its number among those that run side by side. No task has had a turn. If it
    /// `is_shown`, logs show it before the numbers of tasks.
    pub(crate) fn enlist(&mut self, id: KernelId, is_shown: bool) {
        self.id = id;
        self.log.kernel = is_shown.then_some(id);
        self.frame.kernel.set(id);
    }
}
