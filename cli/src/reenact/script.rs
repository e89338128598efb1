//! [`Script`]: what the peers of a run did, and the hosts that they need.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use trapline::{Signal, SimNet};

use super::answers::Heard;
use crate::net::{LOCALHOST, MAIN};

/// How much longer than the run on the tape a peer waits for bytes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the peers of a run did.
#[derive(Default, Debug)]
pub(super) struct Script {
    /// The listeners of the programs, in the order of their requests.
    pub(super) listeners: Vec<Listener>,
    /// The connections, in the order in which they began, with attempts that failed.
    pub(super) peers: Vec<Peer>,
    /// The names that the program looked up, with their first addresses.
    pub(super) names: Vec<(String, IpAddr)>,
    /// Whether the run ended before its programs: by an interrupt, or where the tape was cut.
    pub(super) is_stopped: bool,
    /// The signals that its tasks had caught, in their order.
    pub(super) signals: Vec<Sent>,
    pub(super) took: Duration,
    pub(super) ticks: u64,
}

/// A signal that came.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) signal: Signal,
    pub(super) at: Duration,
    /// The time since the signal before it, or since the begin.
    pub(super) pause: Duration,
    /// The connections that began before it.
    pub(super) peers: usize,
    /// As [`Peer::before`].
    pub(super) before: Vec<Mark>,
}

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) addr: SocketAddr,
    /// Whether the world chose the port.
    pub(super) has_any_port: bool,
    /// The task that listens, by its name and those of its parents.
    pub(super) task: String,
}

/// The other end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) way: Way,
    pub(super) steps: Vec<Step>,
    /// How many bytes it got until it ended its part.
    pub(super) gets: u64,
    pub(super) heard: Heard,
    /// Whether the program closed the connection, other than at the interrupt.
    pub(super) is_closed: bool,
    /// What came before it connected and after the connection before: other peers' steps and bytes.
    pub(super) before: Vec<Mark>,
    pub(super) outcome: Outcome,
    /// Whether it is the program itself.
    pub(super) is_own: bool,
}

/// How a connection began.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// The peer connected to a listener of the program.
    ToListener { number: usize, from: SocketAddr },
    /// The program connected to this address.
    ToPeer(SocketAddr),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToListener { from, .. } => write!(f, "from {from} then"),
            Self::ToPeer(to) => write!(f, "to {to}"),
        }
    }
}

/// How an attempt to connect came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Established,
    /// Nothing listened at the address.
    Refused,
    /// No host had the address.
    Unreachable,
    /// No answer came until the attempt timed out or was given up.
    Unanswered,
    /// No answer had come at the interrupt, or where the tape ends.
    Pending,
}

impl Outcome {
    /// The outcome with this error, if a simulated network has it.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(Self::Refused),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                Some(Self::Unreachable)
            }
            io::ErrorKind::TimedOut => Some(Self::Unanswered),
            _ => None,
        }
    }

    /// Whether a host has the address, and can be reached.
    fn is_of_host(self) -> bool {
        matches!(self, Self::Established | Self::Refused)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Established => "was established",
            Self::Refused => "was refused",
            Self::Unreachable => "reached no host",
            Self::Unanswered => "got no answer",
            Self::Pending => "got no answer before the end",
        })
    }
}

/// What a peer did after it had got so many bytes.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) after: u64,
    /// The time since the step before, or since the connection began.
    pub(super) pause: Duration,
    pub(super) act: Act,
}

#[derive(PartialEq, Eq, Debug)]
pub(super) enum Act {
    Send(Vec<u8>),
    /// The end of what the peer sends.
    Finish,
    /// The connection broke: the peer resets it.
    Break,
}

/// How far a peer was: its steps, and the bytes that it got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) peer: usize,
    pub(super) steps: usize,
    pub(super) bytes: u64,
}

impl Script {
    /// Finds the connections between two ends in the programs. An error says what a simulated network
    /// cannot do again.
    pub(super) fn judged(mut self) -> Result<Self, String> {
        if self.peers.is_empty() {
            return Err(
                "it has no connection, so no peers: `explore` searches such a program".into(),
            );
        }
        let own = self.own_listeners()?;
        for peer in &mut self.peers {
            peer.is_own = match peer.way {
                Way::ToListener { number, .. } => own.contains(&number),
                Way::ToPeer(to) => own
                    .iter()
                    .any(|number| reaches(to, self.listeners[*number].addr)),
            };
        }
        let scripted: Vec<bool> = self.peers.iter().map(Peer::is_scripted).collect();
        let before_peers = self.peers.iter_mut().map(|peer| &mut peer.before);
        let before_signals = self.signals.iter_mut().map(|sent| &mut sent.before);
        for before in before_peers.chain(before_signals) {
            before.retain(|mark| scripted[mark.peer]);
        }
        self.check_own_addresses()?;
        self.check_outcomes()?;
        Ok(self)
    }

    fn own_listeners(&self) -> Result<BTreeSet<usize>, String> {
        let mut own = BTreeSet::new();
        for (number, Listener { addr, .. }) in self.listeners.iter().enumerate() {
            let (mut accepted, mut made, mut begun) = (0, 0, 0);
            for peer in &self.peers {
                match (peer.way, peer.outcome) {
                    // Another listener may have had the address before or later.
                    (Way::ToListener { number: other, .. }, _) => {
                        accepted += usize::from(self.listeners[other].addr == *addr);
                    }
                    (Way::ToPeer(to), _) if !reaches(to, *addr) => {}
                    (Way::ToPeer(_), Outcome::Established) => made += 1,
                    // The program gave up: the listener may have accepted it all the same.
                    (Way::ToPeer(_), Outcome::Unanswered | Outcome::Pending) => begun += 1,
                    (Way::ToPeer(_), Outcome::Refused | Outcome::Unreachable) => {}
                }
            }
            if made + begun == 0 {
                continue;
            }
            if accepted > made {
                let most = accepted.min(made + begun);
                return Err(format!(
                    "{most} of {accepted} connections to {addr} may be the program's own, and it \
                     does not say which"
                ));
            }
            own.insert(number);
        }
        Ok(own)
    }

    /// Checks that a simulated host can have all addresses on which the programs listen.
    fn check_own_addresses(&self) -> Result<(), String> {
        let own = self.own_address();
        match self.own_addresses().find(|ip| Some(*ip) != own).zip(own) {
            None => Ok(()),
            Some((other, own)) => Err(format!(
                "the programs listen on {own} and on {other}, and a simulated host has one address"
            )),
        }
    }

    /// Checks that a simulated network can treat the connections of the programs as those on the tape.
    fn check_outcomes(&self) -> Result<(), String> {
        let mut by_addr = BTreeMap::new();
        let mut by_ip = BTreeMap::new();
        let known = |(_, outcome): &(_, Outcome)| *outcome != Outcome::Pending;
        for (to, outcome) in self.attempts().filter(known) {
            let first = *by_addr.entry(to).or_insert(outcome);
            if first != outcome {
                return Err(format!(
                    "a connection to {to} {first}, and another one {outcome}"
                ));
            }
            if self.host_of(to.ip()) == self.home() && !outcome.is_of_host() {
                return Err(format!(
                    "a connection to {to} {outcome}, which cannot be within a simulated host"
                ));
            }
            let (other, first) = *by_ip.entry(to.ip()).or_insert((to, outcome));
            if first != outcome && !(first.is_of_host() && outcome.is_of_host()) {
                return Err(format!(
                    "a connection to {other} {first}, and one to {to} {outcome}: a simulated host \
                     is reached at all ports or at none"
                ));
            }
        }
        Ok(())
    }

    /// The connections that the programs made to others, with their outcomes.
    fn attempts(&self) -> impl Iterator<Item = (SocketAddr, Outcome)> {
        self.peers.iter().filter_map(|peer| match peer.way {
            Way::ToPeer(to) if !peer.is_own => Some((to, peer.outcome)),
            _ => None,
        })
    }

    /// The peers that are tasks, with their places.
    pub(super) fn scripted(&self) -> impl Iterator<Item = (usize, &Peer)> {
        let peers = self.peers.iter().enumerate();
        peers.filter(|(_, peer)| peer.is_scripted())
    }

    /// The scripted peers that connect to listeners, with their places and the listeners' numbers.
    pub(super) fn clients(&self) -> impl Iterator<Item = (usize, &Peer, usize)> {
        self.scripted().filter_map(|(place, peer)| match peer.way {
            Way::ToListener { number, .. } => Some((place, peer, number)),
            Way::ToPeer(_) => None,
        })
    }

    pub(super) fn patience(&self) -> Duration {
        2 * self.took + PATIENCE
    }

    /// The addresses of their machine on which the programs listen.
    fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let addresses = self.listeners.iter().map(|listener| listener.addr.ip());
        addresses.filter(|ip| is_of_machine(*ip))
    }

    fn own_address(&self) -> Option<IpAddr> {
        self.own_addresses().next()
    }

    pub(super) fn home(&self) -> &'static str {
        match self.own_address() {
            Some(_) => MAIN,
            None => LOCALHOST,
        }
    }

    /// The host of a peer with this address, to which the program connects.
    pub(super) fn host_of(&self, ip: IpAddr) -> String {
        if !is_of_machine(ip) || self.own_address() == Some(ip) {
            return self.home().into();
        }
        let name = self.names.iter().find(|(_, address)| *address == ip);
        let unnamed = || format!("peer-{ip}").replace(':', "_");
        name.map_or_else(unnamed, |(name, _)| name.clone())
    }

    /// A network with the hosts of the peers. The programs cannot reach one that gave no answer.
    pub(super) fn network(&self) -> Result<SimNet, String> {
        let mut hosts = BTreeMap::new();
        hosts.extend(self.own_address().map(|own| (own, false)));
        for (to, outcome) in self.attempts() {
            if !is_of_machine(to.ip()) {
                continue;
            }
            match outcome {
                Outcome::Unreachable => {}
                // Other attempts tell whether the host can be reached.
                Outcome::Pending => drop(hosts.entry(to.ip()).or_insert(true)),
                outcome => drop(hosts.insert(to.ip(), outcome == Outcome::Unanswered)),
            }
        }
        let net = SimNet::new();
        for (address, is_cut) in hosts {
            let name = self.host_of(address);
            let placed = net.host_at(&name, address).and_then(|()| match is_cut {
                true => net.cut(self.home(), &name),
                false => Ok(()),
            });
            placed.map_err(|error| format!("cannot place a host at {address}: {error}"))?;
        }
        Ok(net)
    }

    /// The address of a listener of the tape in a run with these listeners so far: the same, except
    /// for a port that the world chose. There it is the listener that the same task has asked for, and
    /// of several the one in the same place. `None` if the run does not have the listener yet.
    pub(super) fn address_now(&self, number: usize, opened: &[Listener]) -> Option<SocketAddr> {
        let listeners = &self.listeners[..=number];
        let then = listeners[number].addr;
        let is_choice = |other: &Listener| other.has_any_port && other.addr.port() == then.port();
        // A program may listen again at a port that was chosen for it before.
        let choice = listeners.iter().rposition(is_choice);
        let port = match choice {
            None => then.port(),
            Some(choice) => {
                let task = &listeners[choice].task;
                let nth = chosen(&listeners[..choice], task).count();
                chosen(opened, task).nth(nth)?.addr.port()
            }
        };
        let now = SocketAddr::new(then.ip(), port);
        // An earlier listener may have had the address.
        let count = |addr, all: &[Listener]| all.iter().filter(|other| other.addr == addr).count();
        let nth = count(then, &listeners[choice.unwrap_or(0)..]);
        (count(now, opened) >= nth).then_some(now)
    }
}

/// The listeners of a task with a port that the world chose.
fn chosen<'a>(listeners: &'a [Listener], task: &'a str) -> impl Iterator<Item = &'a Listener> {
    let is_one = move |listener: &&Listener| listener.has_any_port && listener.task == task;
    listeners.iter().filter(is_one)
}

impl Peer {
    pub(super) fn new(way: Way, outcome: Outcome, before: Vec<Mark>) -> Self {
        Self {
            way,
            steps: Vec::new(),
            gets: 0,
            heard: Heard::default(),
            is_closed: false,
            before,
            outcome,
            is_own: false,
        }
    }

    /// How far the peer of this place has come on the tape.
    pub(super) fn mark(&self, peer: usize) -> Mark {
        Mark {
            peer,
            steps: self.steps.len(),
            bytes: self.gets,
        }
    }

    /// Which of its steps is the first that is no send.
    pub(super) fn first_end(&self) -> Option<usize> {
        let is_end = |step: &Step| !matches!(step.act, Act::Send(_));
        self.steps.iter().position(is_end)
    }

    /// Whether it sends the same as another, after as many bytes.
    pub(super) fn does_as(&self, other: &Self) -> bool {
        let same = |(one, other): (&Step, &Step)| one.after == other.after && one.act == other.act;
        let as_many = (self.steps.len(), self.gets) == (other.steps.len(), other.gets);
        as_many && self.steps.iter().zip(&other.steps).all(same)
    }

    /// Whether it is a task in a search.
    fn is_scripted(&self) -> bool {
        !self.is_own && self.outcome == Outcome::Established
    }
}

fn is_of_machine(ip: IpAddr) -> bool {
    !ip.is_loopback() && !ip.is_unspecified()
}

fn reaches(to: SocketAddr, listener: SocketAddr) -> bool {
    let (ip, other) = (to.ip(), listener.ip());
    let is_same = ip == other || other.is_unspecified() && !is_of_machine(ip);
    to.port() == listener.port() && is_same
}
