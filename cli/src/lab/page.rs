//! The page of a laboratory. It loads nothing, so it works from any place.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::{
    MEANS, SPREADS, chart, means, spreads,
    trial::{FIGURES, Trial},
};
use crate::{output::clean, units::span_of};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1f2937; --paper: #ffffff; --rule: #e5e7eb }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e5e7eb; --paper: #111827; --rule: #374151 }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: var(--ink); background: var(--paper) }
table { border-collapse: collapse; margin: 1rem 0 2rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--rule) }
th:first-child, td:first-child { text-align: left }
div { overflow-x: auto }
@media (max-width: 600px) {
  h1 { overflow-wrap: anywhere }
  table, tbody { display: block }
  tr { display: grid; grid-template-columns: 1fr 1fr; border-bottom: 1px solid var(--rule); padding: .4rem 0 }
  tr.head { display: none }
  td { display: flex; justify-content: space-between; gap: .4rem; border: 0; overflow-wrap: anywhere }
  td::before { content: attr(data-name) }
  td:first-child { grid-column: 1 / -1; font-weight: 600 }
  td:first-child::before { content: none }
}
";

pub(super) fn page(trials: &[Trial], program: &str) -> String {
    let end = chart::end(trials);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (program) " in the laboratory · trapline" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (program) }
                p {
                    "Response, turnaround and waiting: the mean, the median and the 99th percentile \
                     over the tasks that computed. A bar is a computation, a line is a wait for a \
                     processor. All charts have one axis, which ends with the longest run."
                }
                (numbers(&MEANS, &means(trials)))
                (numbers(&SPREADS, &spreads(trials)))
                @for trial in trials {
                    h2 { (clean(&trial.policy)) }
                    div {
                        svg viewBox=(format!("0 0 860 {}", chart::height(trial))) width="860"
                            font-family="system-ui, sans-serif" font-size="12" {
                            (chart::chart(trial, end))
                        }
                    }
                    div {
                        table {
                            tr class="head" { th { "task" } @for figure in FIGURES { th { (figure) } } }
                            @for task in &trial.runs[0].tasks {
                                tr {
                                    td { (clean(&task.measured.name)) }
                                    @for (name, figure) in FIGURES.iter().zip(task.figures()) {
                                        td data-name=(name) { @if let Some(span) = figure { (span_of(span)) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    page.into_string() + "\n"
}

fn numbers<const N: usize>(columns: &[&str; N], rows: &[[Value; N]]) -> Markup {
    html! {
        div {
            table {
                tr class="head" { @for column in columns { th { (column) } } }
                @for row in rows {
                    tr {
                        @for (name, cell) in columns.iter().zip(row) {
                            td data-name=(name) { (clean(cell.as_str().unwrap_or(""))) }
                        }
                    }
                }
            }
        }
    }
}
