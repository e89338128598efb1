//! The faults that may happen in a search, in the words of `--inject` and `--fault`.

use std::{fmt, io::ErrorKind, str::FromStr, time::Duration};

use crate::{Fault, Inject, SystemCall};

/// A fault that may happen in the schedules of a search ([`Check::faults`](crate::Check::faults)): one
/// of the simulated network and its disks, or what befalls a call.
///
/// Its text is that of a [`Fault`], as in `reset server client`, or a call and what is done to it:
/// `CALL:error=KIND` with the name of an [`ErrorKind`], `CALL:delay=TIME` or `CALL:kill`.
///
/// ```
/// use trapline::MayFault;
///
/// for text in ["cut server client", "send:error=ConnectionReset", "get:delay=2s"] {
///     assert_eq!(text.parse::<MayFault>().unwrap().to_string(), text);
/// }
/// assert!("yield:error=Other".parse::<MayFault>().unwrap_err().contains("cannot fail"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MayFault {
    pub(super) text: String,
    pub(super) what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// It happens before a turn.
    Between(Fault),
    /// It befalls each call of this kind.
    Call(SystemCall, Inject),
}

/// The kinds of errors that calls on devices fail with.
const KINDS: [ErrorKind; 24] = [
    ErrorKind::AddrInUse,
    ErrorKind::AddrNotAvailable,
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionAborted,
    ErrorKind::ConnectionRefused,
    ErrorKind::ConnectionReset,
    ErrorKind::HostUnreachable,
    ErrorKind::Interrupted,
    ErrorKind::InvalidData,
    ErrorKind::InvalidInput,
    ErrorKind::NetworkDown,
    ErrorKind::NetworkUnreachable,
    ErrorKind::NotConnected,
    ErrorKind::Other,
    ErrorKind::OutOfMemory,
    ErrorKind::PermissionDenied,
    ErrorKind::QuotaExceeded,
    ErrorKind::ResourceBusy,
    ErrorKind::StorageFull,
    ErrorKind::TimedOut,
    ErrorKind::UnexpectedEof,
    ErrorKind::Unsupported,
    ErrorKind::WouldBlock,
    ErrorKind::WriteZero,
];

impl MayFault {
    /// Returns the fault that ends a lasting one.
    pub(super) fn end_of(fault: &Fault) -> Option<Fault> {
        let fault = fault.clone();
        Some(match fault {
            Fault::Cut(a, b) | Fault::CutOneWay(a, b) => Fault::Heal(a, b),
            Fault::Hold(a, b) => Fault::Release(a, b),
            Fault::Slow(host, factor) if factor > 1 => Fault::Slow(host, 1),
            Fault::Crash(host) => Fault::Restart(host),
            Fault::DiskEio(host) | Fault::DiskRot(host) | Fault::DiskFull(host) => {
                Fault::DiskHeal(host)
            }
            _ => return None,
        })
    }

    /// Returns the name of the call that it befalls, if it befalls one.
    pub(super) fn call_name(&self) -> Option<&'static str> {
        match &self.what {
            What::Call(call, _) => Some(call.name()),
            What::Between(_) => None,
        }
    }

    /// Returns the fault that happens between turns, if it is one.
    pub(super) fn between(&self) -> Option<&Fault> {
        match &self.what {
            What::Call(..) => None,
            What::Between(fault) => Some(fault),
        }
    }

    /// Returns the call of this name.
    ///
    /// *Errors:* a text that says that there is none.
    pub fn call(name: &str) -> Result<SystemCall, String> {
        let mut calls = (0..=u8::MAX).filter_map(SystemCall::from_number);
        calls.find(|call| call.name() == name).ok_or_else(|| {
            let hint = match name {
                "lock" => ": a lock is a 'get' of a mutex",
                _ => "",
            };
            format!("there is no call '{name}'{hint}")
        })
    }

    /// Returns the name of the call that a text is about: what is before its colon, unless it is a fault of
    /// the network or of a disk.
    pub fn call_of(text: &str) -> Option<&str> {
        let (name, _) = text.split_once(':')?;
        (!text.contains(' ') && name != "disk").then_some(name)
    }

    /// The kinds of errors that the text of a fault can name: those that calls on devices fail with.
    pub fn kinds() -> &'static [ErrorKind] {
        &KINDS
    }
}

impl FromStr for MayFault {
    type Err = String;

    /// *Errors:* a text that says what is wrong.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("{text:?}: {why}");
        let is_call = |name: &str| SystemCall::NAMES.contains(&name);
        let what = match (Self::call_of(text), text.split_once(':')) {
            (Some(name), Some((_, rest))) => call(name, rest).map_err(wrong)?,
            _ if is_call(text) => return Err(wrong(TO_DO.into())),
            _ => {
                let fault = text.parse::<Fault>().map_err(|bad| {
                    format!(
                        "{bad}; or a call and what befalls it, as in send:error=ConnectionReset"
                    )
                })?;
                if fault_is_idle(&fault) {
                    return Err(wrong(
                        "it ends another fault, and happens with that one".into(),
                    ));
                }
                What::Between(fault)
            }
        };
        let text = text.to_string();
        Ok(Self { text, what })
    }
}

const TO_DO: &str = "say what to do: 'error=KIND', 'delay=TIME' or 'kill'";

/// Whether a fault has no effect by itself.
fn fault_is_idle(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Heal(..) | Fault::Release(..) | Fault::Restart(_) | Fault::DiskHeal(_)
    )
}

fn call(name: &str, rest: &str) -> Result<What, String> {
    let call = MayFault::call(name)?;
    if rest.contains("when=") {
        return Err("a search decides when: leave 'when' out".into());
    }
    let inject = match rest.split_once('=') {
        None if rest == "kill" => Inject::Kill,
        Some(("error", kind)) => fail(call, kind)?,
        Some(("delay", span)) => Inject::Delay(span_of(span)?),
        _ => return Err(TO_DO.into()),
    };
    Ok(What::Call(call, inject))
}

fn fail(call: SystemCall, kind: &str) -> Result<Inject, String> {
    if !call.is_io() {
        return Err(format!(
            "'{}' cannot fail: only calls that return an io::Result can, such as 'recv'; 'delay' and \
             'kill' work with every call",
            call.name()
        ));
    }
    let mut kinds = KINDS.into_iter();
    let found = kinds.find(|known| format!("{known:?}") == kind);
    found.map(Inject::Fail).ok_or_else(|| {
        let all: Vec<String> = KINDS.iter().map(|kind| format!("{kind:?}")).collect();
        format!(
            "there is no kind of error '{kind}': there are {}",
            all.join(", ")
        )
    })
}

/// Reads a time such as `500ms`.
fn span_of(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'delay={text}': it takes a number and a unit, such as 500ms or 10s");
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (number, unit) = text.split_at(end.ok_or_else(wrong)?);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let nanos = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(wrong()),
    };
    let nanos = number.checked_mul(nanos).ok_or_else(wrong)?;
    Ok(Duration::from_nanos(nanos))
}

impl fmt::Display for MayFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl AsRef<str> for MayFault {
    fn as_ref(&self) -> &str {
        &self.text
    }
}
