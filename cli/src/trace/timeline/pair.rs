//! Two runs above each other, on one axis: the page of `trace diff --html`.

use std::path::Path;

use maud::html;
use serde_json::json;

use super::{
    html::{self, Twins},
    model::Timeline,
    scale::{Scale, Window},
};
use crate::{
    output::clean,
    trace::source::{Failure, Source, argument},
    words::command_line,
};

/// A page with the timelines of two recordings, and a text about their differences.
pub(in crate::trace) fn pair(files: [&Path; 2], differences: &str) -> Result<String, Failure> {
    let read = |file: &Path| {
        let mut source = Source::open(file)?;
        let timeline = Timeline::read(&mut source, &Window::default(), true)?;
        Ok::<_, Failure>((timeline, source.name().to_string()))
    };
    let runs = [read(files[0])?, read(files[1])?];
    let [a, b] = runs.each_ref().map(|(timeline, _)| timeline);
    let ends = [a.begin.min(b.begin), a.end.max(b.end)];
    // Where no time passes, the order is all there is to see.
    let has_time = ends[0].at < ends[1].at;
    let scale = if has_time { Scale::Time } else { Scale::Turns };
    let twins = Twins {
        key: html::random_key(),
        axis: json!({
            "time": ends.map(|end| end.at.as_nanos() as f64),
            "turns": [a.begin.turn.min(b.begin.turn), a.end.turn.max(b.end.turn)],
        }),
    };
    let title = format!("{} and {}", clean(&runs[0].1), clean(&runs[1].1));
    let style = html::style() + include_str!("pair.css");
    let lines: Vec<String> = differences.lines().map(clean).collect();
    let body = html! {
        details id="differences" {
            summary { "What differs" }
            pre tabindex="0" { (lines.join("\n")) }
        }
        @for ((letter, file), (timeline, name)) in ["A", "B"].iter().zip(files).zip(&runs) {
            @let command = clean(&command_line(&timeline.header.command));
            h2 { (letter) ": " (clean(name)) " · " (command) }
            iframe title=(letter) sandbox="allow-scripts"
                srcdoc=(html::page(timeline, scale, &argument(file), Some(&twins))) {}
        }
    };
    let script = include_str!("pair.js");
    Ok(html::document(
        [&title, &twins.key],
        None,
        &style,
        &body,
        script,
    ))
}
