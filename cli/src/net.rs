//! `--on`, `--net`, `--fault` and `--chaos`: the simulated network of a run, and what goes wrong in
//! it.

use std::{
    io,
    net::IpAddr,
    num::{NonZeroU64, NonZeroUsize},
    ops::RangeInclusive,
    time::Duration,
};

use clap::Args;
use trapline::{Errno, Fault, Kernel, Os, SimDisk, SimNet};

use super::{
    desk::Desk,
    output::Log,
    program::Placed,
    values::{among, duration, one_of, unknown, usage},
};

/// The host of programs that name none, if others do.
pub(super) const MAIN: &str = "main";

/// When chaos is over.
const CHAOS: Duration = Duration::from_secs(60);

/// The host of programs where there is no other.
pub(super) const LOCALHOST: &str = "localhost";

#[derive(Args, Clone)]
#[group(id = "network", multiple = true)]
#[command(next_help_heading = "Network")]
pub(super) struct Options {
    /// Boot a program on a host of the simulated network; can be repeated. The host gets the next
    /// address from 10.0.0.1 upward, or that of HOST@ADDRESS. PROGRAM may be left out then. It and
    /// those of --with run on a host called main
    #[arg(long, value_name = "HOST:PROGRAM ARGS", value_parser = place)]
    pub(super) on: Vec<Place>,
    /// Set up the network: latency=TIME or latency=TIME..TIME between hosts, loopback=TIME within a
    /// host, bandwidth=BYTES a second, buffer=BYTES of a connection, connect-timeout=TIME,
    /// retransmission-limit=TIME, fragment to read and write in random pieces; loss=SHARE,
    /// duplicate=SHARE, reorder=SHARE of the datagrams, such as 1%; and the disks of all hosts: disk-capacity=BYTES, disk-latency=TIME or TIME..TIME, disk-bandwidth=BYTES a second,
    /// disk-eio=SHARE and disk-rot=SHARE of operations that fail and of reads with a flipped bit, as 1%
    #[arg(long, value_name = "SETTING", value_delimiter = ',', value_parser = setting)]
    net: Vec<Setting>,
    /// Make a fault happen at this time: cut A B, cut-one-way A B, heal A B, hold A B, release A B,
    /// reset A B, slow A FACTOR, fragment on|off, loss SHARE, duplicate SHARE, reorder SHARE, clock-step [A] SPAN as in -1h, clock-leap [A]
    /// repeat|skip, crash A, restart A, power A (both at once), disk:eio A, disk:rot A, disk:full A or
    /// disk:heal A; can be repeated. A host that restarts boots its programs again, on what the crash has
    /// left of its disk
    #[arg(long, value_name = "TIME:FAULT", value_parser = planned,
        allow_hyphen_values = true)]
    fault: Vec<Planned>,
    /// Break things at random for the first 60 seconds: cuts, slow hosts, resets, crashes of the
    /// hosts of --on, and lost, doubled and late datagrams. At level 1 every 5 seconds on average, at 2 every 1.5 seconds, at 3 every 0.4
    /// seconds. The run lasts 60 seconds at least. --seed determines the faults. Needs --on
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=3))]
    chaos: Option<u8>,
}

/// Where a program runs, and the line that names it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) text: String,
    pub(super) host: String,
    address: Option<IpAddr>,
    pub(super) line: String,
}

#[derive(Clone, Debug)]
pub(super) enum Setting {
    Latency(RangeInclusive<Duration>),
    Loopback(Duration),
    Bandwidth(NonZeroU64),
    Buffer(NonZeroUsize),
    ConnectTimeout(Duration),
    RetransmissionLimit(Duration),
    Fragment,
    /// What befalls a share of the datagrams.
    Datagrams(Fault),
    DiskCapacity(NonZeroU64),
    DiskLatency(RangeInclusive<Duration>),
    DiskBandwidth(NonZeroU64),
    DiskEio(f64),
    DiskRot(f64),
}

/// A fault and its time.
#[derive(Clone, Debug)]
struct Planned {
    text: String,
    at: Duration,
    fault: Fault,
}

fn place(text: &str) -> Result<Place, String> {
    let usage = || "it takes a host and a program, such as \"server:echo --addr 0.0.0.0:45000\"";
    // An IPv6 address has colons of its own.
    let bracket = text.find("@[").and_then(|_| text.find("]:"));
    let (host, line) = match bracket {
        Some(end) => (&text[..=end], &text[end + 2..]),
        None => text.split_once(':').ok_or_else(usage)?,
    };
    let (host, address) = match host.split_once('@') {
        None => (host, None),
        Some((host, address)) => {
            let bare = address.strip_prefix('[');
            let bare = bare.and_then(|rest| rest.strip_suffix(']'));
            let parsed = bare.unwrap_or(address).parse();
            let parsed = parsed.map_err(|_| format!("'{address}' is no IP address"))?;
            (host, Some(parsed))
        }
    };
    if host.is_empty() {
        return Err(usage().into());
    }
    Ok(Place {
        text: text.into(),
        host: host.into(),
        address,
        line: line.into(),
    })
}

pub(super) fn setting(text: &str) -> Result<Setting, String> {
    const EXAMPLES: [&str; 15] = [
        "latency=1ms..10ms",
        "loopback=10us",
        "bandwidth=1000000",
        "buffer=65536",
        "connect-timeout=10s",
        "retransmission-limit=60s",
        "fragment",
        "loss=1%",
        "duplicate=1%",
        "reorder=1%",
        "disk-capacity=1000000",
        "disk-latency=1ms..10ms",
        "disk-bandwidth=1000000",
        "disk-eio=1%",
        "disk-rot=1%",
    ];
    let word_of = |text: &&str| text.split('=').next().unwrap_or_default().to_string();
    let example = one_of("setting", &word_of(&text), &EXAMPLES, word_of)?;
    let word = &*word_of(&example);
    let Some((_, value)) = text.split_once('=') else {
        return match word {
            "fragment" => Ok(Setting::Fragment),
            _ => Err(format!("'{word}' takes a value, as in {example}")),
        };
    };
    let wrong = |why: &str| format!("{why}, as in {example}");
    let span = |text: &str| duration(text).map_err(|why| wrong(&why));
    let bytes = |_| wrong("it takes a number of bytes from 1 upward");
    let limit = |text: &str| match span(text)? {
        Duration::ZERO => Err(wrong("it takes a time above zero")),
        limit => Ok(limit),
    };
    let range = || {
        let (first, last) = value.split_once("..").unwrap_or((value, value));
        match (span(first)?, span(last)?) {
            (from, to) if from > to => Err(wrong("the range ends before it begins")),
            (from, _) => Ok(from..=limit(last)?),
        }
    };
    let share = || {
        let percent = value.strip_suffix('%').and_then(|value| value.parse().ok());
        let percent = percent.filter(|percent: &f64| (0.0..=100.0).contains(percent));
        let share = percent.map(|percent| percent / 100.0);
        share.ok_or_else(|| wrong("it takes a share from 0% to 100%"))
    };
    match word {
        "latency" => range().map(Setting::Latency),
        "disk-latency" => range().map(Setting::DiskLatency),
        "disk-capacity" => value.parse().map(Setting::DiskCapacity).map_err(bytes),
        "disk-bandwidth" => value.parse().map(Setting::DiskBandwidth).map_err(bytes),
        "disk-eio" => share().map(Setting::DiskEio),
        "disk-rot" => share().map(Setting::DiskRot),
        "loopback" => limit(value).map(Setting::Loopback),
        "connect-timeout" => limit(value).map(Setting::ConnectTimeout),
        "retransmission-limit" => limit(value).map(Setting::RetransmissionLimit),
        "fragment" => Err("'fragment' takes no value".into()),
        "loss" | "duplicate" | "reorder" => {
            let fault = format!("{word} {value}").parse::<Fault>();
            let fault = fault.map_err(|_| wrong("it takes a share from 0% to 100%"));
            fault.map(Setting::Datagrams)
        }
        "buffer" => value.parse().map(Setting::Buffer).map_err(bytes),
        _ => value.parse().map(Setting::Bandwidth).map_err(bytes),
    }
}

fn planned(text: &str) -> Result<Planned, String> {
    let usage = "it takes a time and a fault, such as \"2s:cut server client\"";
    let (at, words) = text.split_once(':').ok_or(usage)?;
    if at.trim_start().starts_with('-') {
        return Err(format!("'{at}' is in the past: the run begins at 0s"));
    }
    let at = duration(at.trim()).map_err(|why| format!("'{at}': {why}"))?;
    let fault = fault(words)?;
    Ok(Planned {
        text: text.into(),
        at,
        fault,
    })
}

/// Reads a fault such as `cut server client`.
pub(super) fn fault(words: &str) -> Result<Fault, String> {
    const WORDS: [&str; 20] = [
        "cut",
        "cut-one-way",
        "heal",
        "hold",
        "release",
        "reset",
        "slow",
        "fragment",
        "loss",
        "duplicate",
        "reorder",
        "clock-step",
        "clock-leap",
        "crash",
        "restart",
        "power",
        "disk:eio",
        "disk:rot",
        "disk:full",
        "disk:heal",
    ];
    words.parse().map_err(|bad: trapline::BadFault| {
        let word = words.split([' ', '=']).find(|word| !word.is_empty());
        let word = word.unwrap_or_default();
        match among("fault", word, &WORDS, |word| (*word).into()) {
            Err(why) if why.contains("did you mean") => why,
            _ => bad.to_string(),
        }
    })
}

/// Makes a fault happen between hosts that exist.
pub(super) fn apply(net: &SimNet, fault: &Fault) -> Result<(), String> {
    let mut hosts = fault.hosts().into_iter();
    hosts.try_for_each(|name| check_host(net, name))?;
    net.apply(fault).map_err(|error| error.to_string())
}

/// An error names the hosts that there are.
pub(super) fn check_host(net: &SimNet, name: &str) -> Result<(), String> {
    let names = net.hosts();
    match names.iter().any(|host| host == name) {
        true => Ok(()),
        false => Err(unknown("host", name, &names)),
    }
}

impl Options {
    /// The host of PROGRAM and of `--with`.
    pub(super) fn main_host(&self) -> &'static str {
        match self.on.is_empty() {
            true => LOCALHOST,
            false => MAIN,
        }
    }

    /// Whether an option of the simulated network is given.
    pub(super) fn is_any(&self) -> bool {
        self.given().iter().any(|(_, is_given)| *is_given)
    }

    /// Returns the options, and whether each is given.
    pub(super) fn given(&self) -> [(&'static str, bool); 4] {
        let Self {
            on,
            net,
            fault,
            chaos,
        } = self;
        [
            ("--on", !on.is_empty()),
            ("--net", !net.is_empty()),
            ("--fault", !fault.is_empty()),
            ("--chaos", chaos.is_some()),
        ]
    }

    pub(super) fn network(
        &self,
        hosts: &[String],
        limit: Option<Duration>,
    ) -> Result<SimNet, clap::Error> {
        if self.chaos.is_some() && self.on.is_empty() {
            return Err(usage(
                "--chaos breaks what is between hosts, and there is one: see --on",
            ));
        }
        let net = self.hosts(hosts)?;
        // Errors show in a rehearsal: it has the same hosts, and is of no world.
        let rehearsal = self.hosts(hosts)?;
        for Planned { text, at, fault } in self.plan() {
            let wrong = |why: &str| usage(format!("in --fault {text:?}: {why}"));
            if limit.is_some_and(|limit| at > limit) {
                return Err(wrong("it is after --max-time, and would not happen"));
            }
            apply(&rehearsal, &fault).map_err(|error| wrong(&error))?;
        }
        for setting in self.net.iter().cloned() {
            set(&net, setting).map_err(usage)?;
        }
        if let Some(level) = self.chaos {
            net.chaos(level);
        }
        Ok(net)
    }

    /// A network with all hosts: first those with an address of their own.
    fn hosts(&self, hosts: &[String]) -> Result<SimNet, clap::Error> {
        let net = SimNet::new();
        let make = |place: &Place| match place.address {
            Some(address) if !is_at(&net, &place.host, address)? => {
                net.host_at(&place.host, address)
            }
            _ => net.host(&place.host).map(drop),
        };
        let mut places: Vec<&Place> = self.on.iter().collect();
        places.sort_by_key(|place| place.address.is_none());
        for place in places {
            make(place).map_err(|error| usage(format!("in --on {:?}: {error}", place.text)))?;
        }
        for host in hosts {
            net.host(host).map_err(usage)?;
        }
        Ok(net)
    }

    fn plan(&self) -> Vec<Planned> {
        let mut plan = self.fault.clone();
        plan.sort_by_key(|planned| planned.at);
        plan
    }

    /// Has hosts boot their programs again when they restart, and starts the task that makes the
    /// faults happen.
    pub(super) fn arrange(
        &self,
        kernel: &mut Kernel,
        programs: &[Placed],
        desk: Option<&Desk>,
        log: Log,
    ) -> Result<(), Errno> {
        let on_hosts = programs.iter().filter(|_| !self.on.is_empty());
        for placed in on_hosts.cloned() {
            let (host, desk) = (placed.host.clone(), desk.cloned());
            kernel.on_restart(host, move |kernel| {
                if let Err(errno) = placed.spawn(kernel, desk.as_ref()) {
                    let host = &placed.host;
                    log.error(&format!("cannot boot a program of {host} again: {errno}"));
                }
            })?;
        }
        let (plan, net) = (self.plan(), kernel.net());
        let has_chaos = self.chaos.is_some();
        if plan.is_empty() && !has_chaos {
            return Ok(());
        }
        let faults = async move |os: &mut Os| {
            for Planned { text, at, fault } in plan {
                os.sleep_until(at).await;
                if let Err(error) = net.apply(&fault) {
                    log.warn(&format!("--fault {text:?} did nothing: {error}"));
                }
            }
            if has_chaos {
                // All hosts may be down at once. They restart, so the run is not over.
                os.sleep_until(CHAOS).await;
            }
        };
        kernel.spawn("faults", faults).map(drop)
    }
}

pub(super) fn set(net: &SimNet, setting: Setting) -> io::Result<()> {
    let on_disks = |change: &dyn Fn(&SimDisk) -> SimDisk| {
        let mut disks = net.hosts().into_iter().map(|host| net.disk(host));
        disks.try_for_each(|disk| disk.map(|disk| drop(change(&disk))))
    };
    let _ = match setting {
        Setting::Latency(range) => net.latency(range),
        Setting::Loopback(span) => net.loopback(span),
        Setting::Bandwidth(bytes) => net.bandwidth(bytes.get()),
        Setting::Buffer(bytes) => net.buffer(bytes.get()),
        Setting::ConnectTimeout(span) => net.connect_timeout(span),
        Setting::RetransmissionLimit(span) => net.retransmission_limit(span),
        Setting::Fragment => net.fragment(true),
        Setting::Datagrams(fault) => return net.apply(&fault),
        Setting::DiskCapacity(bytes) => return on_disks(&|disk| disk.capacity(bytes.get())),
        Setting::DiskLatency(range) => return on_disks(&|disk| disk.latency(range.clone())),
        Setting::DiskBandwidth(bytes) => return on_disks(&|disk| disk.bandwidth(bytes.get())),
        Setting::DiskEio(share) => return on_disks(&|disk| disk.eio(share)),
        Setting::DiskRot(share) => return on_disks(&|disk| disk.rot(share)),
    };
    Ok(())
}

fn is_at(net: &SimNet, host: &str, address: IpAddr) -> io::Result<bool> {
    let is_known = net.hosts().iter().any(|name| name == host);
    Ok(is_known && net.host(host)? == address)
}
