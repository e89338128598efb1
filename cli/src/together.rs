//! What the kernels of a replay print, in the order of their clock, which is one.
//!
//! The threads of a replay run at other speeds than those of the run. So a text is kept until every other kernel
//! has come past its time on the tape, or to its end. There is no limit to what is kept: it is at most what the
//! kernels print that are ahead of the slowest one.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use trapline::{KernelId, tape::Progress};

use super::stdio;

/// The texts of kernels that are replayed together.
pub(super) struct Together(Arc<Mutex<Vec<Part>>>);

/// What a kernel prints.
#[derive(Default)]
struct Part {
    /// `None` before its tape is open: it is at the beginning.
    progress: Option<Progress>,
    /// With the times on its tape.
    texts: VecDeque<(Duration, Vec<u8>)>,
    is_over: bool,
}

/// The console of a kernel. The last copy ends its part.
#[derive(Clone)]
pub(super) struct Console(Arc<OfKernel>);

struct OfKernel {
    parts: Arc<Mutex<Vec<Part>>>,
    at: usize,
}

impl Together {
    pub(super) fn new(kernels: usize) -> Self {
        let parts = (0..kernels).map(|_| Part::default());
        Self(Arc::new(Mutex::new(parts.collect())))
    }

    pub(super) fn console(&self, id: KernelId, progress: Progress) -> Console {
        let (parts, at) = (Arc::clone(&self.0), id.index());
        if let Some(part) = lock(&parts).get_mut(at) {
            part.progress = Some(progress);
        }
        Console(Arc::new(OfKernel { parts, at }))
    }

    /// This kernel prints nothing any more.
    pub(super) fn is_over(&self, id: KernelId) {
        end(&self.0, id.index());
    }

    /// Writes what is left: all kernels have ended.
    pub(super) fn end(&self) {
        let mut parts = lock(&self.0);
        parts.iter_mut().for_each(|part| part.is_over = true);
        // A kernel that prints reports the error.
        let _ = write(&mut parts, &mut stdio::Console::default());
    }
}

impl Part {
    fn now(&self) -> Duration {
        self.progress.as_ref().map_or(Duration::ZERO, Progress::now)
    }
}

/// Writes the texts that no kernel can come before any more. Of one instant, the first kernel prints first.
fn write(parts: &mut [Part], out: &mut impl Write) -> io::Result<()> {
    loop {
        let first = |(at, part): (usize, &Part)| Some((part.texts.front()?.0, at));
        let Some(next) = parts.iter().enumerate().filter_map(first).min() else {
            return Ok(());
        };
        let is_past =
            |(at, part): (usize, &Part)| at == next.1 || part.is_over || (part.now(), at) > next;
        if !parts.iter().enumerate().all(is_past) {
            return Ok(());
        }
        if let Some((_, text)) = parts[next.1].texts.pop_front() {
            out.write_all(&text)?;
        }
    }
}

impl Write for Console {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut parts = lock(&self.0.parts);
        if let Some(part) = parts.get_mut(self.0.at) {
            let now = part.now();
            part.texts.push_back((now, text.to_vec()));
        }
        write(&mut parts, &mut stdio::Console::default())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for OfKernel {
    fn drop(&mut self) {
        end(&self.parts, self.at);
    }
}

fn end(parts: &Mutex<Vec<Part>>, at: usize) {
    let mut parts = lock(parts);
    if let Some(part) = parts.get_mut(at) {
        part.is_over = true;
    }
    // A kernel that prints reports the error.
    let _ = write(&mut parts, &mut stdio::Console::default());
}

fn lock(parts: &Mutex<Vec<Part>>) -> MutexGuard<'_, Vec<Part>> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_wait_for_the_kernels_that_are_behind() {
        let text = |at, text: &str| (Duration::from_secs(at), text.as_bytes().to_vec());
        let part = |texts: Vec<_>, is_over| Part {
            texts: texts.into(),
            is_over,
            ..Part::default()
        };
        let mut parts = [
            part(vec![text(0, "b"), text(2, "d")], true),
            part(vec![text(0, "c"), text(3, "e")], true),
            part(vec![], false),
        ];
        let mut out = Vec::new();
        write(&mut parts, &mut out).unwrap();
        assert_eq!(out, b"bc", "the third is at 0, and behind the others there");
        parts[0].is_over = false;
        parts[2].is_over = true;
        write(&mut parts, &mut out).unwrap();
        assert_eq!(out, b"bcd", "the first prints nothing after that of 2");
        parts[0].is_over = true;
        write(&mut parts, &mut out).unwrap();
        assert_eq!(out, b"bcde");
    }
}
