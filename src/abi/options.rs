//! The options of sockets: plain data. A world applies them.

use std::{fmt, time::Duration};

/// The longest keepalive in seconds: Linux takes no more.
const MAX_KEEPALIVE: u64 = 32_767;

/// The options of a listener: see [`Os::listen_with`](crate::Os::listen_with). What is not set stays as
/// the world has it.
///
/// ```
/// use trapline::ListenOptions;
///
/// let options = ListenOptions::new().backlog(128).reuse_port(true);
/// assert_eq!(options.to_string(), "backlog=128 reuse_port");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct ListenOptions {
    /// How many connections wait to be accepted, as `listen` of the system has it: Linux keeps one
    /// more, and no more than `net.core.somaxconn`. Default: 4096.
    pub backlog: Option<u32>,
    /// Whether other sockets with this option may listen on the same address. The system gives each
    /// connection to one of them.
    pub reuse_port: bool,
    /// The size of the buffer of received bytes, of the accepted connections.
    pub recv_buffer: Option<usize>,
    /// The size of the buffer of bytes to be sent, of the accepted connections.
    pub send_buffer: Option<usize>,
}

impl ListenOptions {
    /// No option.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many connections wait to be accepted.
    #[must_use]
    pub fn backlog(self, connections: u32) -> Self {
        Self {
            backlog: Some(connections),
            ..self
        }
    }

    /// Sets whether other sockets may listen on the same address.
    #[must_use]
    pub fn reuse_port(self, reuse_port: bool) -> Self {
        Self { reuse_port, ..self }
    }

    /// Sets the size of the buffer of received bytes.
    #[must_use]
    pub fn recv_buffer(self, bytes: usize) -> Self {
        Self {
            recv_buffer: Some(bytes),
            ..self
        }
    }

    /// Sets the size of the buffer of bytes to be sent.
    #[must_use]
    pub fn send_buffer(self, bytes: usize) -> Self {
        Self {
            send_buffer: Some(bytes),
            ..self
        }
    }
}

/// The options of a socket: see [`Device::set_options`](crate::Device::set_options). What is not set
/// stays as it is.
///
/// The sizes of buffers are in bytes. Linux doubles them, to make room for its own bookkeeping, and
/// bounds them (`net.core.rmem_max`). The simulated network takes them as they are.
///
/// ```
/// use std::time::Duration;
/// use trapline::StreamOptions;
///
/// let options = StreamOptions::new().nodelay(false).linger(Some(Duration::ZERO));
/// assert_eq!(options.to_string(), "nodelay=false linger=0ns");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct StreamOptions {
    /// TCP: whether small pieces are sent at once (`TCP_NODELAY`). Default: `true`.
    pub nodelay: Option<bool>,
    /// TCP: after how much silence the system asks whether the peer is still there, in whole seconds from
    /// 1 to 32,767; `None` is never, the default.
    pub keepalive: Option<Option<Duration>>,
    /// TCP: with `Some(Duration::ZERO)` a close resets the connection. `None` is the default: a close
    /// ends the connection in order, in the background. A longer time would have each close block all
    /// tasks.
    pub linger: Option<Option<Duration>>,
    /// The size of the buffer of received bytes.
    pub recv_buffer: Option<usize>,
    /// The size of the buffer of bytes to be sent.
    pub send_buffer: Option<usize>,
}

impl StreamOptions {
    /// No option.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether small pieces are sent at once.
    #[must_use]
    pub fn nodelay(self, nodelay: bool) -> Self {
        Self {
            nodelay: Some(nodelay),
            ..self
        }
    }

    /// Sets after how much silence the system asks whether the peer is still there. A fraction of a second
    /// is left off.
    #[must_use]
    pub fn keepalive(self, after: Option<Duration>) -> Self {
        Self {
            keepalive: Some(after),
            ..self
        }
    }

    /// Sets whether a close resets the connection: with zero. A longer time is refused.
    #[must_use]
    pub fn linger(self, span: Option<Duration>) -> Self {
        Self {
            linger: Some(span),
            ..self
        }
    }

    /// Sets the size of the buffer of received bytes.
    #[must_use]
    pub fn recv_buffer(self, bytes: usize) -> Self {
        Self {
            recv_buffer: Some(bytes),
            ..self
        }
    }

    /// Sets the size of the buffer of bytes to be sent.
    #[must_use]
    pub fn send_buffer(self, bytes: usize) -> Self {
        Self {
            send_buffer: Some(bytes),
            ..self
        }
    }

    /// Returns why a world cannot apply these; `is_tcp` says whether the socket is a TCP connection.
    pub(crate) fn refusal(self, is_tcp: bool) -> Option<&'static str> {
        let of_tcp = self.nodelay.is_some() || self.keepalive.is_some() || self.linger.is_some();
        match (self.linger.flatten(), self.keepalive.flatten()) {
            _ if of_tcp && !is_tcp => Some("nodelay, keepalive and linger are options of TCP"),
            (Some(span), _) if span > Duration::ZERO => {
                Some("a linger above zero would have a close block all tasks: use zero or none")
            }
            (_, Some(after)) if !(1..=MAX_KEEPALIVE).contains(&after.as_secs()) => {
                Some("a keepalive takes from 1 to 32767 seconds, or none")
            }
            _ => None,
        }
    }
}

impl fmt::Display for ListenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Words(f, false);
        words.put("backlog", self.backlog)?;
        if self.reuse_port {
            words.word(format_args!("reuse_port"))?;
        }
        words.put("recv_buffer", self.recv_buffer)?;
        words.put("send_buffer", self.send_buffer)
    }
}

impl fmt::Display for StreamOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Words(f, false);
        words.put("nodelay", self.nodelay)?;
        for (name, span) in [("keepalive", self.keepalive), ("linger", self.linger)] {
            match span {
                Some(Some(span)) => words.word(format_args!("{name}={span:?}"))?,
                Some(None) => words.word(format_args!("{name}=none"))?,
                None => {}
            }
        }
        words.put("recv_buffer", self.recv_buffer)?;
        words.put("send_buffer", self.send_buffer)
    }
}

/// Writes words with spaces between them.
struct Words<'a, 'f>(&'a mut fmt::Formatter<'f>, bool);

impl Words<'_, '_> {
    fn word(&mut self, word: fmt::Arguments<'_>) -> fmt::Result {
        let space = if std::mem::replace(&mut self.1, true) {
            " "
        } else {
            ""
        };
        write!(self.0, "{space}{word}")
    }

    fn put(&mut self, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
        match value {
            Some(value) => self.word(format_args!("{name}={value}")),
            None => Ok(()),
        }
    }
}
