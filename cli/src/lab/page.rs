//! The page of a laboratory. It loads nothing, so it works from any place.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::{
    MEANS, SPREADS, chart, means, spreads,
    trial::{FIGURES, Trial},
};
use crate::{output::clean, units::thousandths};

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1f2937; background: #ffffff }
table { border-collapse: collapse; margin: 1rem 0 2rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #e5e7eb }
th:first-child, td:first-child { text-align: left }
div { overflow-x: auto }
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
                            tr { th { "task" } @for figure in FIGURES { th { (figure) } } }
                            @for task in &trial.runs[0].tasks {
                                tr {
                                    td { (clean(&task.measured.name)) }
                                    @for figure in task.figures() {
                                        td { @if let Some(span) = figure { (thousandths(span)) } }
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
                tr { @for column in columns { th { (column) } } }
                @for row in rows {
                    tr { @for cell in row { td { (clean(cell.as_str().unwrap_or(""))) } } }
                }
            }
        }
    }
}
