//! A disk with its settings: how long an operation takes, and what fails.

use std::{io::Result, ops::RangeInclusive, rc::Weak, time::Duration};

use rand_pcg::{Pcg64, rand_core::Rng};
use rustix::io::Errno;

use super::{model::Model, tree::Node};
use crate::{
    abi::{Mode, Nanos},
    trap::{DiskOp, FileOp, TrapFrame, disk::put_names},
    world::{Answer, sequence::below},
};

/// As that of a solid-state disk.
const LATENCY: Nanos = Nanos(100_000);
const CAPACITY: u64 = 1 << 30;

/// The shortest time of an operation. Without any, a loop of them would stop the clock.
const SHORTEST: Nanos = Nanos(1);

pub(super) struct State {
    pub(super) model: Model,
    pub(super) settings: Settings,
    /// The disk when a world took it.
    initial: Option<Box<(Model, Settings)>>,
    /// Whether anything has changed since.
    pub(super) is_used: bool,
    /// How often its files were closed from outside: by a crash, or a world that takes the disk.
    pub(super) epoch: u64,
    /// When the last operation on names is over.
    names_busy_until: Nanos,
    /// When the next byte can be moved.
    free_from: Nanos,
    /// The host that it belongs to.
    pub(super) host: String,
    pub(super) kernel: Weak<TrapFrame>,
}

#[derive(Clone)]
pub(in crate::world::sim) struct Settings {
    pub(super) capacity: u64,
    latency: (Nanos, Nanos),
    /// How many bytes it moves in a second; 0 is no limit.
    pub(super) bandwidth: u64,
    /// The share of operations that fail.
    pub(in crate::world::sim) eio: f64,
    /// The share of reads with a flipped bit.
    pub(in crate::world::sim) rot: f64,
    pub(in crate::world::sim) is_full: bool,
}

/// What becomes durable when an operation is over: what was changed before the mark.
#[derive(Clone, Copy)]
pub(super) enum Durable {
    Nothing,
    File(Node, u64),
    /// The sync of a file fails.
    Failed(Node, u64),
    Dir(Node, u64),
}

/// An operation that has begun.
pub(super) struct Begun {
    pub(super) until: Nanos,
    pub(super) result: Result<Answer>,
    /// What was read.
    pub(super) bytes: Vec<u8>,
    pub(super) durable: Durable,
    /// The file that it has opened.
    pub(super) opened: Option<(Node, Mode)>,
}

/// What an operation does at once.
struct Effect {
    answer: Answer,
    bytes: Vec<u8>,
    durable: Durable,
    opened: Option<(Node, Mode)>,
}

impl State {
    pub(super) fn new(model: Model, settings: Settings) -> Self {
        Self {
            model,
            settings,
            initial: None,
            is_used: false,
            epoch: 0,
            names_busy_until: Nanos::ZERO,
            free_from: Nanos::ZERO,
            host: String::new(),
            kernel: Weak::new(),
        }
    }

    /// Begins in a world, as the disk of this host, at time zero.
    pub(super) fn begin(&mut self, host: &str) {
        self.host = host.into();
        self.kernel = Weak::new();
        self.restart();
        self.model.begin();
        self.initial = Some(Box::new((self.model.clone(), self.settings.clone())));
        self.is_used = false;
    }

    /// Makes the disk as it was at its begin in this world.
    pub(super) fn renew(&mut self) {
        if let Some(initial) = &self.initial
            && std::mem::take(&mut self.is_used)
        {
            (self.model, self.settings) = (**initial).clone();
            self.restart();
        }
    }

    /// Replaces what is on the disk by what a crash leaves.
    pub(super) fn crash(&mut self, choose: &mut dyn FnMut(u64) -> u64) {
        self.is_used = true;
        self.model = self.model.image(choose);
        let now = self.free_from;
        self.restart();
        self.free_from = now;
    }

    fn restart(&mut self) {
        self.epoch += 1;
        (self.names_busy_until, self.free_from) = (Nanos::ZERO, Nanos::ZERO);
    }

    /// The bytes that can be written beyond the ends of files.
    fn room(&self) -> u64 {
        let capacity = if self.settings.is_full {
            0
        } else {
            self.settings.capacity
        };
        capacity.saturating_sub(self.model.used())
    }

    // ---- operations

    pub(super) fn on_names(&mut self, op: DiskOp, now: Nanos, random: &mut Pcg64) -> Begun {
        self.is_used = true;
        let fails = draw(self.settings.eio, random);
        let effect = if fails {
            Err(Errno::IO.into())
        } else {
            self.change_names(op)
        };
        let until = self.over(0, now, self.names_busy_until, random);
        self.names_busy_until = until;
        Begun::new(until, effect)
    }

    fn change_names(&mut self, op: DiskOp) -> Result<Effect> {
        let mut effect = Effect::from(Answer::Done);
        match op {
            DiskOp::Open { path, mode } => {
                let node = self.model.open(&path, mode)?;
                effect.opened = Some((node, mode));
            }
            DiskOp::Rename { from, to } => self.model.rename(&from, &to)?,
            DiskOp::Remove(path) => self.model.remove(&path)?,
            DiskOp::CreateDir(path) => self.model.create_dir(&path)?,
            DiskOp::List(path) => put_names(self.model.list(&path)?, &mut effect.bytes),
            DiskOp::SyncDir(path) => {
                let dir = self.model.dir(&path)?;
                effect.durable = Durable::Dir(dir, self.model.names_mark());
            }
        }
        Ok(effect)
    }

    pub(super) fn on_file(
        &mut self,
        (node, mode): (Node, Mode),
        op: FileOp,
        now: Nanos,
        random: &mut Pcg64,
    ) -> Begun {
        self.is_used = true;
        let mut moved = match &op {
            FileOp::WriteAt { bytes, .. } | FileOp::Append(bytes) => bytes.len(),
            _ => 0,
        };
        let is_sync = op == FileOp::Sync;
        let checked = op.check(mode);
        let fails = checked.is_ok() && draw(self.settings.eio, random);
        let effect = checked.and_then(|()| match fails {
            true => Err(Errno::IO.into()),
            false => self.change_file(node, op, random),
        });
        if let Ok(effect) = &effect {
            moved = moved.max(effect.bytes.len());
        }
        let busy_until = self.model.file(node).busy_until;
        let until = self.over(moved, now, busy_until, random);
        self.model.file(node).busy_until = until;
        let mut begun = Begun::new(until, effect);
        if fails && is_sync {
            begun.durable = Durable::Failed(node, self.model.mark(node));
        }
        begun
    }

    fn change_file(&mut self, node: Node, op: FileOp, random: &mut Pcg64) -> Result<Effect> {
        let len = self.model.len(node) as u64;
        Ok(match op {
            FileOp::ReadAt { offset, len } => {
                let mut bytes = self.model.read(node, offset, len).to_vec();
                if !bytes.is_empty() && draw(self.settings.rot, random) {
                    let bit = below(random, 8 * bytes.len() as u64);
                    bytes[bit as usize / 8] ^= 1 << (bit % 8);
                }
                let answer = Answer::Bytes(bytes.len());
                Effect {
                    bytes,
                    ..Effect::from(answer)
                }
            }
            FileOp::WriteAt { offset, bytes } => self.write_at(node, offset, bytes)?,
            FileOp::Append(bytes) if bytes.len() as u64 > self.room() => {
                return Err(Errno::NOSPC.into());
            }
            FileOp::Append(bytes) => self.write_at(node, len, bytes)?,
            FileOp::Len => Answer::Bytes(len as usize).into(),
            FileOp::Truncate(new) if new.saturating_sub(len) > self.room() => {
                return Err(Errno::NOSPC.into());
            }
            FileOp::Truncate(new) => {
                self.model.truncate(node, new as usize);
                Answer::Done.into()
            }
            FileOp::Sync => {
                let durable = Durable::File(node, self.model.mark(node));
                Effect {
                    durable,
                    ..Effect::from(Answer::Done)
                }
            }
        })
    }

    /// Writes as much as the disk has room for.
    fn write_at(&mut self, node: Node, offset: u64, mut bytes: Vec<u8>) -> Result<Effect> {
        let all = bytes.len();
        let end = (self.model.len(node) as u64).saturating_add(self.room());
        let fits = end.saturating_sub(offset);
        bytes.truncate(usize::try_from(fits).unwrap_or(usize::MAX));
        let written = bytes.len();
        self.model.write(node, offset as usize, bytes);
        match written == all {
            true => Ok(Answer::Bytes(all).into()),
            false => Err(Errno::NOSPC.into()),
        }
    }

    /// Makes durable what an operation has made so.
    pub(super) fn settle(&mut self, durable: Durable) {
        match durable {
            Durable::Nothing => {}
            Durable::File(node, mark) => self.model.sync(node, mark),
            Durable::Failed(node, mark) => self.model.fail_sync(node, mark),
            Durable::Dir(dir, mark) => self.model.sync_dir(dir, mark),
        }
    }

    /// When an operation is over that begins now, after one before it.
    fn over(&mut self, moved: usize, now: Nanos, before: Nanos, random: &mut Pcg64) -> Nanos {
        let mut begin = now;
        if self.settings.bandwidth > 0 {
            let takes = moved as u128 * 1_000_000_000 / u128::from(self.settings.bandwidth);
            let takes = Nanos(u64::try_from(takes).unwrap_or(u64::MAX));
            self.free_from = now.max(self.free_from).saturating_add(takes);
            begin = self.free_from;
        }
        let (from, to) = self.settings.latency;
        let latency = match to.0 - from.0 {
            0 => from,
            width => Nanos(from.0 + below(random, width.saturating_add(1))),
        };
        begin.saturating_add(latency).max(before)
    }
}

impl Begun {
    fn new(until: Nanos, effect: Result<Effect>) -> Self {
        let (result, (bytes, durable, opened)) = match effect {
            Ok(effect) => (
                Ok(effect.answer),
                (effect.bytes, effect.durable, effect.opened),
            ),
            Err(error) => (Err(error), (Vec::new(), Durable::Nothing, None)),
        };
        Self {
            until,
            result,
            bytes,
            durable,
            opened,
        }
    }
}

impl From<Answer> for Effect {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            bytes: Vec::new(),
            durable: Durable::Nothing,
            opened: None,
        }
    }
}

impl Settings {
    pub(super) fn new() -> Self {
        Self {
            capacity: CAPACITY,
            latency: (LATENCY, LATENCY),
            bandwidth: 0,
            eio: 0.0,
            rot: 0.0,
            is_full: false,
        }
    }

    pub(super) fn set_latency(&mut self, range: RangeInclusive<Duration>) {
        let (from, to) = range.into_inner();
        let from = SHORTEST.max(from.into());
        self.latency = (from, from.max(to.into()));
    }

    /// These settings, without what fails.
    pub(in crate::world::sim) fn healthy(&self) -> Self {
        Self {
            eio: 0.0,
            rot: 0.0,
            is_full: false,
            ..self.clone()
        }
    }
}

/// Whether one of such a share is met. Nothing is drawn where that is certain.
fn draw(share: f64, random: &mut Pcg64) -> bool {
    match share {
        share if share <= 0.0 => false,
        share if share >= 1.0 => true,
        share => (random.next_u64() as f64 / 2f64.powi(64)) < share,
    }
}
