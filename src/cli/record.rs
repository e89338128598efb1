//! `--record`: the recording of a run, from the options to its last byte.

use std::{num::NonZeroUsize, panic, path::PathBuf};

use clap::ValueEnum;

use super::{FAILURE, args::Boot, log::Log};
use crate::record::{Header, Recorder, Tape};

/// A recording under way.
#[derive(Clone)]
pub(super) struct Recorded {
    path: PathBuf,
    tape: Tape,
}

/// Begins to record, if the options want it. An error says why that cannot be.
pub(super) fn begin(
    options: &Boot,
    command: &[String],
    seed: u64,
) -> Result<Option<(Recorder, Recorded)>, String> {
    let Some(path) = options.record.clone() else {
        return Ok(None);
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
    let recorder = match options.record_last.map(NonZeroUsize::get) {
        None => Recorder::create(&path, &header),
        Some(last) => Recorder::last(last, &path, &header),
    };
    let recorder =
        recorder.map_err(|error| format!("cannot record to {}: {error}", path.display()))?;
    let tape = recorder.tape();
    if options.record_last.is_none() {
        survive_panics(tape.clone());
    }
    Ok(Some((recorder, Recorded { path, tape })))
}

/// A panic may be the end of the process: what led to it is written down before. (Not so with a
/// ring, since each time all of it is written; it hears of faults from the kernel.)
fn survive_panics(tape: Tape) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // An error is told of at the end, if that comes.
        let _ = tape.flush();
        hook(panic);
    }));
}

impl Recorded {
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
