//! What the tasks of the server share.

use std::time::Duration;

use trapline::{
    Queue, Shared,
    sync::{Flag, Watch},
};

use super::{db::Db, log::Progress};

pub(super) struct Server {
    pub(super) db: Shared<Db>,
    pub(super) slow: Duration,
    /// How far the append-only file has come.
    pub(super) progress: Watch<Progress>,
    pub(super) nudge_log: Queue<()>,
    pub(super) nudge_expiry: Queue<()>,
    pub(super) rewrites: Flag,
    /// Set to have the server end, and when its clients have finished.
    pub(super) stop: Flag,
    pub(super) drained: Flag,
}
