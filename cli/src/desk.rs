//! What the shell can change of the run that it is in, and shows of it.

use std::{cell::Cell, path::PathBuf, rc::Rc, sync::Arc};

use trapline::{SimNet, record::Header};

use super::{
    inject::Rules,
    output::Log,
    policy::{Policy, Registered},
};

/// What `boot` gives to the programs that it boots. A search gives none: it has its own order, and its
/// options inject and break.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) rules: Rules,
    /// The network of the simulated world.
    pub(super) net: Option<SimNet>,
    pub(super) policies: Registered,
    /// The begin of a recording.
    pub(super) header: Header,
    /// How a trace is shown, and whether there is any: a debugger makes the same steps again and again.
    pub(super) shown: Option<Log>,
    /// Whether a user types lines at the terminal of the process.
    pub(super) is_typed_at: bool,
    /// Whether the run reads nothing from outside: it is virtual, and has no `--stdin`.
    pub(super) has_no_input: bool,
    /// Where a shell that `boot` has started leaves its exit code. The largest is that of the run. One that
    /// another shell has started has none, and fails.
    pub(super) code: Option<Rc<Cell<u8>>>,
    /// The directory that is the disk.
    pub(super) disk: Option<Arc<PathBuf>>,
}

impl Desk {
    /// Reads a policy, one of the library or of the binary.
    pub(super) fn policy(&self, text: &str) -> Result<Policy, String> {
        Policy::parse(text, &self.policies)
    }
}
