//! A timeline as a page of its own. It loads nothing, so it works from any place.

use std::{
    hash::{BuildHasher, RandomState},
    iter,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Map, Value, json};

use super::{
    explain, graph,
    model::{Lane, Timeline},
    pack::pack,
    scale::Scale,
    svg,
    words::{self, Sums},
};
use crate::{
    excerpt::{Excerpt, first_place},
    output::clean,
    trace::source::world,
    units::count,
};

/// In the order of their dependencies.
const SCRIPTS: [&str; 15] = [
    include_str!("data.js"),
    include_str!("view.js"),
    include_str!("twin.js"),
    include_str!("groups.js"),
    include_str!("lanes.js"),
    include_str!("crowd.js"),
    include_str!("arrows.js"),
    include_str!("why.js"),
    include_str!("source.js"),
    include_str!("range.js"),
    include_str!("flame.js"),
    include_str!("instant.js"),
    include_str!("table.js"),
    include_str!("input.js"),
    include_str!("page.js"),
];

/// The number of tasks in the summary's table: those that took the most time.
const TASKS: usize = 200;

/// The largest number of places in the source whose lines are on the page, and the lines before and after
/// each.
const SOURCES: usize = 200;
const AROUND: usize = 4;

/// What two pages share that are above each other.
pub(super) struct Twins {
    pub(super) key: String,
    pub(super) axis: Value,
}

/// The page; its commands read the recording from `file`.
pub(super) fn page(timeline: &Timeline, scale: Scale, file: &str, twins: Option<&Twins>) -> String {
    let (path, table) = explain::path(timeline);
    let (bytes, templates) = pack(timeline, &explain::reasons(timeline), &path);
    let facts = json!({
        "scale": match scale { Scale::Time => "time", Scale::Turns => "turns" },
        "isVirtual": timeline.header.is_simulated,
        "events": timeline.events,
        "file": file,
        "isExplained": timeline.history.is_some(),
        "path": table,
        "sources": sources(timeline),
        "axis": twins.map(|twins| &twins.axis),
        "templates": templates,
        "data": BASE64_STANDARD.encode(bytes),
    });
    let key = twins.map_or_else(random_key, |twins| twins.key.clone());
    let title = words::title(timeline);
    // It cannot end its element.
    let facts = facts.to_string().replace('<', "\\u003c");
    let body = html! {
        header {
            h1 { (title) }
            p id="facts" { (facts_of(timeline)) }
        }
        (summary(timeline, scale))
        noscript { p { "Without scripts, the page shows this summary only." } }
        main id="main" hidden { (stage()) }
        script type="application/json" id="recording" { (PreEscaped(facts)) }
    };
    let class = twins.map(|_| "twin");
    document([&title, &key], class, &style(), &body, &SCRIPTS.concat())
}

/// A page with a title, a key, a class, a style, a body and a script. Its policy allows the page's own
/// scripts and no network, so a script in a name cannot run.
pub(super) fn document(
    [title, key]: [&str; 2],
    class: Option<&str>,
    style: &str,
    body: &Markup,
    script: &str,
) -> String {
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{key}'; \
         base-uri 'none'; form-action 'none'"
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" class=[class] {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · trapline" }
                style { (PreEscaped(style)) }
            }
            body {
                (body)
                script nonce=(key) { (PreEscaped(script)) }
            }
        }
    };
    page.into_string() + "\n"
}

/// The lines of the source around each call that blocked, by its place: the number of the first, and the
/// lines. Files that are not there have none.
fn sources(timeline: &Timeline) -> Value {
    let mut sources = Map::new();
    for row in &timeline.rows {
        let Some(place) = row.places.as_deref().and_then(first_place) else {
            continue;
        };
        if sources.len() == SOURCES {
            break;
        }
        if !sources.contains_key(place)
            && let Some(found) = Excerpt::of(place, AROUND)
        {
            let lines = found.lines.iter().map(|line| clean(line).into());
            let lines: Vec<Value> = iter::once(found.first.into()).chain(lines).collect();
            sources.insert(place.to_string(), lines.into());
        }
    }
    sources.into()
}

/// 128 bits that depend on the operating system's random numbers alone. The recording cannot predict
/// them.
pub(super) fn random_key() -> String {
    let secret = RandomState::new();
    format!("{:016x}{:016x}", secret.hash_one(0), secret.hash_one(1))
}

/// The styles of the page and of its picture. A chosen theme wins over the system's.
pub(super) fn style() -> String {
    let (light, dark) = (svg::LIGHT, svg::DARK);
    format!(
        ":root {{\n{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{\n{dark}}} }}\n\
         :root[data-theme=light] {{\ncolor-scheme: light;\n{light}}}\n\
         :root[data-theme=dark] {{\ncolor-scheme: dark;\n{dark}}}\n{}{}",
        svg::STYLE,
        include_str!("page.css"),
    )
}

fn facts_of(timeline: &Timeline) -> String {
    let header = &timeline.header;
    format!(
        "{} in the {} world, seed {}, policy {}, quantum {}, trapline {}",
        count(timeline.events, "event"),
        world(header),
        header.seed,
        clean(&header.policy),
        header.quantum,
        clean(&header.version),
    )
}

/// The summary, for a page without a picture.
fn summary(timeline: &Timeline, scale: Scale) -> Markup {
    let is_news = timeline.deadlock.is_some() || !timeline.deadlocks.is_empty();
    let is_open = is_news || timeline.tasks().any(Lane::has_failed);
    let rows = timeline.tasks().map(|lane| (lane, Sums::of(lane, scale)));
    let mut rows: Vec<(&Lane, Sums)> = rows.collect();
    // What took the most time comes first.
    rows.sort_by(|(_, a), (_, b)| (b.running + b.in_call).total_cmp(&(a.running + a.in_call)));
    let numbers = ["traps", "turns", "running", "in call", "ready", "blocked"];
    html! {
        details id="summary" open[is_open] {
            summary { "Summary" }
            div class="said" {
                div { @for sentence in words::summary(timeline) { p { (sentence) } } }
                @if let Some(stuck) = &timeline.deadlock { div { (graph::draw(stuck)) } }
            }
            div class="scroll" tabindex="0" role="region" aria-label="The tasks" {
                table {
                    thead { tr {
                        th { "tid" } th { "task" }
                        @for name in numbers { th class="n" { (name) } }
                        th { "longest wait" } th { "end" }
                    } }
                    tbody {
                        @for (lane, sums) in rows.iter().take(TASKS) {
                            tr {
                                td { (lane.tid) } td { (lane.name) }
                                td class="n" { (lane.traps) } td class="n" { (sums.turns) }
                                @for sum in [sums.running, sums.in_call, sums.ready, sums.blocked] {
                                    td class="n" { (scale.amount(sum)) }
                                }
                                td { @if let Some((longest, on)) = sums.longest {
                                    (scale.amount(longest)) " on " (on)
                                } }
                                td { (words::end(lane, "alive")) }
                            }
                        }
                    }
                }
            }
            @if let Some(more) = words::more(rows.len(), TASKS, "task") { p { "And " (more) " more." } }
        }
    }
}

fn stage() -> Markup {
    let kinds = [
        ("running", "Running"),
        ("call", "In call"),
        ("ready", "Ready"),
        ("timer", "Sleeps"),
        ("queue", "Queue"),
        ("device", "Device"),
        ("exit", "Task’s end"),
        ("select", "Select"),
        ("rest", "Idle"),
    ];
    html! {
        (tools())
        canvas id="overview" aria-hidden="true" {}
        div id="stage" {
            canvas id="lanes" tabindex="0" role="application" aria-roledescription="timeline"
                aria-label="Lanes of the tasks; arrow keys move from span to span, ? lists the keys"
                aria-describedby="details" {}
            div id="scroller" tabindex="-1" aria-hidden="true" { div {} }
            div id="tip" hidden {}
        }
        ul id="legend" aria-label="Legend: press to highlight" {
            @for (class, word) in kinds {
                li { button data-kind=(class) aria-pressed="false" {
                    canvas width="22" height="14" aria-hidden="true" {} (word)
                } }
            }
        }
        div id="told" aria-live="polite" { p id="details" {} p id="why" {} pre id="source" hidden {} }
        div id="grip" role="separator" aria-orientation="horizontal" tabindex="0"
            aria-label="Height of the lanes in pixels" aria-controls="stage"
            aria-valuemin="80" aria-valuenow="80" {}
        (tabs())
        dialog id="keys" aria-label="Keys" {
            (keys())
            form method="dialog" { button { "Close" } }
        }
    }
}

fn tools() -> Markup {
    html! {
        div id="tools" role="toolbar" aria-label="Timeline" {
            span class="group" {
                input id="search" type="search" placeholder="Search: call, result, task…"
                    aria-label="Search calls, results and tasks" aria-keyshortcuts="/";
                button id="previous" title="Previous match (Shift+N)" { "↑" span class="hide" { " previous match" } }
                button id="next" title="Next match (N)" { "↓" span class="hide" { " next match" } }
                output id="found" for="search" {}
            }
            span class="group" {
                button id="out" title="Zoom out (-)" { "−" span class="hide" { " zoom out" } }
                button id="in" title="Zoom in (+)" { "+" span class="hide" { " zoom in" } }
                button id="fit" title="All of it (0)" { "Fit" }
            }
            label class="group" { "Width is "
                select id="scale" { option value="time" { "time" } option value="turns" { "turns" } }
            }
            label class="group" { "Groups "
                select id="groups" aria-keyshortcuts="f" {
                    option value="none" { "none" } option value="host" { "by host" }
                    option value="name" { "by name" } option value="parent" { "by parent" }
                }
            }
            label class="group" { "Order "
                select id="order" {
                    option value="number" { "by number" }
                    option value="activity" { "by activity in view" }
                }
            }
            label class="group" { input id="arrows" type="checkbox" checked; "Wake-ups" }
            label class="group" { input id="messages" type="checkbox" checked; "Messages" }
            label class="group" { input id="present" type="checkbox"; "Only tasks in view" }
            label class="group" { input id="errors" type="checkbox"; "Errors only" }
            button id="path" aria-pressed="false" title="The chain of work and waits that decided when the run ended (C)" { "Critical path" }
            button id="theme" title="Light or dark (T)" { "Theme" }
            button id="help" title="Keys (?)" aria-haspopup="dialog" { "?" span class="hide" { " keys" } }
        }
    }
}

/// What is below the lanes.
fn tabs() -> Markup {
    let tabs = [
        ("calls", "Calls"),
        ("range", "Range"),
        ("instant", "Instant"),
        ("path", "Critical path"),
        ("flame", "Flame graph"),
    ];
    html! {
        div id="tabs" role="tablist" aria-label="Below the lanes" {
            @for (name, word) in tabs {
                button role="tab" id={ "show-" (name) } data-tab=(name) aria-controls={ "tab-" (name) }
                    aria-selected=(if name == "calls" { "true" } else { "false" })
                    tabindex=(if name == "calls" { "0" } else { "-1" }) { (word) }
            }
        }
        section id="tab-range" role="tabpanel" aria-labelledby="show-range" class="panel" hidden {}
        section id="tab-instant" role="tabpanel" aria-labelledby="show-instant" class="panel" hidden {
            p {
                button id="before" title="The event before (,)" { "◀" span class="hide" { " the event before" } }
                input id="instant" type="range" aria-label="Instant" aria-describedby="instant-text";
                button id="after" title="The event after (.)" { "▶" span class="hide" { " the event after" } }
                output id="instant-text" for="instant" {}
            }
            div id="standing" {}
        }
        section id="tab-flame" role="tabpanel" aria-labelledby="show-flame" class="panel" hidden {}
        section id="tab-path" role="tabpanel" aria-labelledby="show-path" class="panel" hidden {}
        section id="tab-calls" role="tabpanel" aria-labelledby="show-calls" {
            div id="head" {
                label { input id="follow" type="checkbox" checked; "Only what is in view" }
                label { input id="mine" type="checkbox"; "Only the selected task" }
                output id="shown" {}
            }
            div id="table" role="grid" tabindex="0" aria-label="Calls, and what else happened" {}
        }
    }
}

fn keys() -> Markup {
    let keys = [
        ("← →", "the span before, the span after"),
        ("↑ ↓", "the lane above, the lane below"),
        ("+ −", "zoom in, zoom out"),
        ("A D, Shift+← Shift+→", "pan"),
        ("Home End", "the first span, the last span of the lane"),
        ("0", "all of it"),
        ("Z", "zoom to the selected span or range"),
        ("W", "to the task that woke this one"),
        ("/", "search"),
        ("N Shift+N", "the next match, the previous match"),
        ("Enter", "to the call in the table; there: to the lanes"),
        ("Enter, ← →, click on a group", "fold it, unfold it"),
        ("F", "fold all groups, unfold them"),
        ("P, click on a name", "pin a lane at the top, release it"),
        ("E", "only errors"),
        ("C", "the critical path"),
        ("R", "select what is in view as a range"),
        ("I", "the tasks at an instant"),
        (", .", "the event before, the event after"),
        ("S", "width is time or turns"),
        ("T", "light or dark"),
        ("Esc", "select nothing"),
        (
            "drag, one finger",
            "pan; along the ruler, or with Shift: select a range",
        ),
        ("Ctrl+wheel, two fingers", "zoom"),
        ("double click", "zoom to a span"),
    ];
    html! {
        h2 { "Keys" }
        dl { @for (key, what) in keys { div { dt { (key) } dd { (what) } } } }
    }
}
