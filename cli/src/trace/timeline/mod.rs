//! `trace timeline`: a lane per task, as a page to look around in or as a picture.
//!
//! `gather.rs` collects the contents of `model.rs` from the events. `svg.rs` draws them as a picture, on the lanes of
//! `crowd.rs`. `html.rs` makes the page, with what `explain.rs` says, the picture of `graph.rs`, and a
//! script: a file for each idea, of which `data.js` reads the bytes of `pack.rs`. `pair.rs` makes the
//! page of two runs.

mod crowd;
mod explain;
mod gather;
mod graph;
mod html;
mod model;
mod pack;
pub(super) mod pair;
mod scale;
mod svg;
mod words;

use std::{
    ffi::OsStr,
    io::{self, IsTerminal, Write},
    mem::discriminant,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum, ValueHint};

use crate::{
    outfile::{OutFile, is_stdout},
    output::Log,
    trace::source::{Failure, Source, argument, unknown},
};
use model::Timeline;
use scale::{Scale, Window};

/// Draw a recording: a lane per task, as an HTML page or an SVG picture
#[derive(Args)]
#[command(after_help = "\
The page needs no network: zoom, pan, search and follow wake-ups in any browser. The key `?` shows \
its help. A picture is for documents and has to be small: select a part of a long run. Of more than 50 \
tasks, those of a name are one lane, as on the page: how many run, are ready and are blocked.

Examples:
  boot --virtual --record run.trap convoy   record a run
  trace timeline run.trap -o run.html       open it in a browser
  trace timeline run.trap -o run.svg        put it in a document
  trace timeline --from 10ms --to 40ms --task worker-1 --task worker-2 \\
    run.trap -o part.svg
  trace timeline --scale turns --to 30t run.trap -o order.svg")]
pub(crate) struct TimelineCommand {
    /// The recording, as `boot --record` makes it; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The output file; by default, and for -, standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// A page or a picture; by default the output's suffix decides
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// What the width shows: by default time in the real world, and turns in the simulated one,
    /// where most things take no time. A page has a switch for it
    #[arg(long, value_name = "SCALE")]
    scale: Option<Scale>,
    #[command(flatten)]
    window: Window,
    /// The width of a picture [default: 960]
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(200..=20_000))]
    width: Option<u32>,
}

/// The width of a picture, in pixels, if no option sets another.
const WIDTH: u32 = 960;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Html,
    Svg,
}

impl TimelineCommand {
    /// The page of a whole recording, written to a file.
    pub(super) fn page(file: &Path, output: &Path) -> Self {
        Self {
            file: file.to_path_buf(),
            output: Some(output.to_path_buf()),
            format: Some(Format::Html),
            scale: None,
            window: Window::default(),
            width: None,
        }
    }

    pub(super) fn run(&self, log: Log, out: &mut impl Write) -> Result<ExitCode, Failure> {
        self.draw(log, out)?.end(log)
    }

    /// Writes the page or the picture. Returns the recording at its end, which may be missing or damaged.
    pub(super) fn draw(&self, log: Log, out: &mut impl Write) -> Result<Source, Failure> {
        let format = self.format()?;
        if self.width.is_some() && format == Format::Html {
            let why = "--width is for a picture, and a page is as wide as its window: see --format";
            return Err(why.to_string().into());
        }
        let output = self.file_of_output();
        if output.is_none() && format == Format::Html && io::stdout().is_terminal() {
            let why = "a terminal cannot show a page: name a file with --output";
            return Err(why.to_string().into());
        }
        if let (Some(from), Some(to)) = (self.window.from, self.window.to)
            && discriminant(&from) == discriminant(&to)
            && from > to
        {
            return Err(format!("--from {from} is after --to {to}: nothing is in between").into());
        }
        let mut source = Source::open(&self.file)?;
        let open = |path: &Path| OutFile::open("--output", path, &[&self.file]);
        let output = output.map(open).transpose()?;
        let is_page = format == Format::Html;
        let timeline = match Timeline::read(&mut source, &self.window, is_page) {
            Ok(timeline) => timeline,
            Err(error) => {
                source.end(log)?;
                return Err(error);
            }
        };
        for task in &timeline.unknown {
            log.warn(&unknown(task, &self.file, timeline.is_cut));
        }
        let scale = self.scale.unwrap_or(match timeline.header.is_simulated {
            true => Scale::Turns,
            false => Scale::Time,
        });
        let drawn = match format {
            Format::Html => html::page(&timeline, scale, &argument(&self.file), None),
            Format::Svg => svg::draw(&timeline, scale, self.width.unwrap_or(WIDTH))?,
        };
        match output {
            None => out.write_all(drawn.as_bytes())?,
            Some(file) => file.write(drawn.as_bytes())?,
        }
        Ok(source)
    }

    fn file_of_output(&self) -> Option<&Path> {
        let output = self.output.as_deref();
        output.filter(|path| !is_stdout(path))
    }

    fn format(&self) -> Result<Format, Failure> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let Some(output) = self.file_of_output() else {
            return Ok(Format::Html);
        };
        match output.extension().and_then(OsStr::to_str) {
            Some("html" | "htm") => Ok(Format::Html),
            Some("svg") => Ok(Format::Svg),
            _ => {
                let why = "the output is neither .html nor .svg: choose with --format";
                Err(why.to_string().into())
            }
        }
    }
}
