//! `--record`: the recording of a run, from the options to its last byte.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::ValueEnum;

use super::{FAILURE, args::Boot, log::Log};
use crate::{
    Builder,
    record::{Header, Recorder, Tape},
};

/// A recording under way.
#[derive(Clone)]
pub(super) struct Recorded {
    path: PathBuf,
    tape: Tape,
    /// How many events it is to have, if not all.
    last: Option<usize>,
}

impl Recorded {
    /// Begins to record, if the options want it. An error says why that cannot be.
    pub(super) fn begin(
        options: &Boot,
        command: &[String],
        seed: u64,
        builder: Builder,
    ) -> Result<(Builder, Option<Self>), String> {
        let Some(path) = options.record.clone() else {
            return Ok((builder, None));
        };
        let policy = options.policy.to_possible_value();
        let header = Header {
            command: command.to_vec(),
            seed,
            policy: policy.map_or_else(String::new, |policy| policy.get_name().to_string()),
            quantum: options.quantum.get(),
            is_simulated: options.simulated,
            ..Header::default()
        };
        let last = options.record_last.map(NonZeroUsize::get);
        let recorder = match last {
            None => Recorder::create(&path, &header),
            Some(last) => Recorder::last(last, &path, &header),
        };
        let recorder =
            recorder.map_err(|error| format!("cannot record to {}: {error}", path.display()))?;
        let tape = recorder.tape();
        Ok((builder.tracer(recorder), Some(Self { path, tape, last })))
    }

    /// A panic may end the process: what led to it is written down before. Of a ring, the kernel's
    /// word about a fault must do, since each time all of it is written.
    pub(super) fn survive_panic(&self) {
        if self.last.is_none() {
            // It is told of at the end, if that comes.
            let _ = self.tape.flush();
        }
    }

    /// Writes down what is missing, and says what became of it. Answers the exit code of a run
    /// that would have ended with `code`.
    pub(super) fn end(&self, log: Log, code: u8) -> u8 {
        let path = self.path.display();
        match self.tape.close() {
            Ok(()) => {
                log.note(&format!("recorded to {path}"));
                code
            }
            Err(error) => {
                log.error(&format!("the recording {path} is not complete: {error}"));
                if code == 0 { FAILURE } else { code }
            }
        }
    }
}
