//! What is outside of the kernel of a run: its world, with a tape around it or from one.

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
};

use trapline::{
    Builder, RealWorld, SimNet, SimWorld, World,
    tape::{Header, Playing, Taping},
};

use super::{
    attached::Attached, options::Boot, outfile, output::Log, record, signals, stdio, tape::Tape,
};

pub(super) struct Outside {
    set: Box<dyn FnOnce(Builder) -> Builder>,
    /// Whether the screen has to copy what the world prints to a file or a pipe.
    pub(super) copies: bool,
}

/// What a world is made of: a network, or the world of `--world`, or a tape.
pub(super) struct Place {
    pub(super) net: SimNet,
    pub(super) own: Option<Box<dyn World>>,
    /// The tape of a replay, with its size in bytes.
    pub(super) playing: Option<(Playing, u64)>,
}

/// What the terminal is used for beside what the programs print.
#[derive(Clone, Copy)]
pub(super) struct Screen {
    /// Whether the tasks are shown on it.
    pub(super) is_drawn: bool,
    /// Whether lines are edited on it.
    pub(super) is_typed_at: bool,
}

impl Outside {
    pub(super) fn of(world: impl World + 'static) -> Self {
        Self {
            set: Box::new(|builder| builder.world(world)),
            copies: false,
        }
    }

    /// The world that the options ask for, or the one that is on a tape. An error says what is wrong.
    pub(super) fn new(
        place: Place,
        options: &Boot,
        header: &Header,
        screen: Screen,
        log: Log,
    ) -> Result<(Self, Tape), String> {
        if let Some((playing, bytes)) = place.playing {
            return Self::played(playing, bytes, stdio::Console::default, log);
        }
        if options.simulated {
            let world = SimWorld::new(header.seed).net(&place.net);
            return Ok((
                Self::of(world.print_to(stdio::Console::default())),
                Tape::No,
            ));
        }
        let tape = options.tape.as_deref();
        if let Some(own) = place.own {
            return Self::maybe_taped(own, tape, options, header, log);
        }
        let world = RealWorld::new().map_err(|error| format!("cannot boot: {error}"))?;
        let mut world = world.disk_advice("give it one by --disk DIR");
        if let Some(dir) = &options.disk {
            world = world.disk(dir).map_err(|error| error.to_string())?;
        }
        let prints_to_screen = screen.is_drawn && io::stdout().is_terminal();
        if prints_to_screen || screen.is_typed_at {
            world = world.print_to(stdio::Console::default());
        }
        let (mut outside, tape) = Self::maybe_taped(world, tape, options, header, log)?;
        outside.copies = screen.is_drawn && !prints_to_screen;
        Ok((outside, tape))
    }

    /// The world on a tape, whose file has this size. It prints to this console.
    pub(super) fn played<C: Write + 'static>(
        playing: Playing,
        bytes: u64,
        console: impl Fn() -> C,
        log: Log,
    ) -> Result<(Self, Tape), String> {
        let progress = playing.progress();
        let tape = Tape::From { progress, bytes };
        let playing = playing.print_to(console()).stop_when(signals::is_raised);
        let attached = Attached::replayed(playing, log, console(), log)?;
        Ok((Self::of(attached), tape))
    }

    /// This world, with a tape around it in this file, if there is one.
    pub(super) fn maybe_taped(
        world: impl World + 'static,
        path: Option<&Path>,
        options: &Boot,
        header: &Header,
        log: Log,
    ) -> Result<(Self, Tape), String> {
        let Some(path) = path else {
            return Ok((Self::of(world), Tape::No));
        };
        record::refuse_output("--tape", path)?;
        let world = Taping::create(world, path, header, options.tape_max).map_err(|error| {
            let why = outfile::why(path, &error);
            format!("cannot tape to {}: {why}", path.display())
        })?;
        let (writer, path) = (world.writer(), path.to_path_buf());
        let world = Attached::taped(world, log);
        Ok((Self::of(world), Tape::To { writer, path }))
    }

    pub(super) fn set(self, builder: Builder) -> Builder {
        (self.set)(builder)
    }
}
