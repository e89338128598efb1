//! What a poller says of a device.

/// What the poller says of a device.
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether it has told of the end of the stream or of urgent data, or cannot.
    pub(super) unclear: bool,
}
