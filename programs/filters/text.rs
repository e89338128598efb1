use std::{collections::VecDeque, io};

use trapline::{File, Input, Mode, Os};

/// How much one call reads.
const PIECE: usize = 64 << 10;

/// The longest line in bytes, to the size of a piece.
const MAX_LINE: usize = 1 << 20;

/// The lines of files, one file after the other.
#[derive(Default)]
pub(super) struct Lines {
    texts: VecDeque<Text>,
    /// Why some files could not be opened.
    pub(super) missing: Vec<String>,
}

/// The text of a file of the disk, or of standard input.
struct Text {
    name: String,
    source: Source,
    /// What has been read and not yet been taken.
    bytes: Vec<u8>,
}

enum Source {
    Input(Input),
    File { file: File, at: u64 },
}

/// Opens these files. `-` is standard input, and so is an empty list.
pub(super) async fn open(os: &mut Os, names: &[String]) -> io::Result<Lines> {
    let input = ["-".to_string()];
    let names = if names.is_empty() { &input } else { names };
    let mut lines = Lines::default();
    for name in names {
        let (name, source) = match &**name {
            "-" => ("standard input", Source::Input(os.input().await?)),
            name => match os.disk().open(os, name, Mode::Read).await {
                Ok(file) => (name, Source::File { file, at: 0 }),
                Err(error) => {
                    lines.missing.push(error.to_string());
                    continue;
                }
            },
        };
        lines.texts.push_back(Text {
            name: name.into(),
            source,
            bytes: Vec::new(),
        });
    }
    Ok(lines)
}

impl Lines {
    /// Returns the next line with its end, which the last line of a file may lack.
    pub(super) async fn next(&mut self, os: &mut Os) -> io::Result<Option<String>> {
        while let Some(text) = self.texts.front_mut() {
            let line = text.next(os).await?;
            if line.is_some() {
                return Ok(line);
            }
            self.texts.pop_front();
        }
        Ok(None)
    }

    /// *Errors:* a file could not be opened. The lines of the others have come.
    pub(super) fn end(self) -> Result<(), String> {
        match &self.missing[..] {
            [] => Ok(()),
            missing => Err(missing.join("; ")),
        }
    }
}

impl Text {
    async fn next(&mut self, os: &mut Os) -> io::Result<Option<String>> {
        let mut piece = vec![0; PIECE];
        let len = loop {
            if let Some(last) = self.bytes.iter().position(|byte| *byte == b'\n') {
                break last + 1;
            }
            if self.bytes.len() >= MAX_LINE {
                return Err(self.invalid("a line has more than 1 MiB"));
            }
            let read = match &mut self.source {
                Source::Input(input) => input.recv(os, &mut piece).await?,
                Source::File { file, at } => {
                    let read = file.read_at(os, &mut piece, *at).await?;
                    *at += read as u64;
                    read
                }
            };
            if read == 0 {
                break self.bytes.len();
            }
            self.bytes.extend_from_slice(&piece[..read]);
        };
        let line: Vec<u8> = self.bytes.drain(..len).collect();
        let line = String::from_utf8(line);
        let line = line.map_err(|error| self.invalid(&format!("a line is not UTF-8: {error}")))?;
        Ok((!line.is_empty()).then_some(line))
    }

    fn invalid(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", self.name))
    }
}
