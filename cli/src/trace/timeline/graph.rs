//! The wait-for graph at the end, as a picture. Each task is a box; an arc leads to the task that
//! it waits for.

use maud::{Markup, html};
use trapline::{Deadlock, TaskInfo, Tid};

use super::svg::{arc, patterns, px, shortened};
use crate::output::clean;

/// The largest number of tasks in a picture.
const MOST: usize = 24;
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 40.0;
const STEP: f64 = 52.0;

/// Draws the tasks that are on cycles, and as many others as there is room for.
pub(super) fn draw(stuck: &Deadlock) -> Markup {
    let tasks = chosen(stuck);
    let place = |tid: Tid| tasks.iter().position(|waiting| waiting.tid == tid);
    let arcs: Vec<(usize, usize)> = (0..)
        .zip(&tasks)
        .filter_map(|(from, waiting)| Some((from, place(waiting.waits_for_when_stuck()?)?)))
        .collect();
    let farthest = arcs.iter().map(|(from, to)| from.abs_diff(*to)).max();
    let width = WIDTH + 60.0 + 24.0 * farthest.unwrap_or(0) as f64;
    let height = STEP * tasks.len() as f64;
    let middle = |place: f64| STEP * place + 4.0 + HEIGHT / 2.0;
    html! {
        svg class="graph" viewBox={ "0 0 " (px(width)) " " (px(height)) } width=(px(width))
            height=(px(height)) role="img" aria-label="The waits between tasks, as described above" {
            defs { (patterns()) }
            @for (waiting, at) in tasks.iter().zip(0..) { (task(waiting, STEP * f64::from(at))) }
            @for &(from, to) in &arcs {
                @let [from, to] = [from, to].map(|place| place as f64);
                @let ends = [middle(from) + 7.0, middle(to) - 7.0];
                (arc(WIDTH + 2.0, ends, 26.0 + 24.0 * (from - to).abs(), [8.0, 4.0]))
            }
        }
        @let more = stuck.blocked.len() - tasks.len();
        @if more > 0 { p { "The picture leaves out " (more) " of the tasks that wait." } }
    }
}

/// The tasks on cycles come first, in the order of the cycle.
fn chosen(stuck: &Deadlock) -> Vec<&TaskInfo> {
    let find = |tid: &Tid| stuck.blocked.iter().find(|waiting| waiting.tid == *tid);
    let mut tasks: Vec<&TaskInfo> = Vec::new();
    let on_cycles = stuck.cycles.iter().flatten().take(MOST).filter_map(find);
    for waiting in on_cycles.chain(&stuck.blocked) {
        if tasks.len() < MOST && !tasks.iter().any(|other| other.tid == waiting.tid) {
            tasks.push(waiting);
        }
    }
    tasks
}

fn task(waiting: &TaskInfo, y: f64) -> Markup {
    let name = format!("{} {}", waiting.tid, clean(&waiting.name));
    let on = clean(&waiting.blocked_on().unwrap_or_default());
    let on = format!("waits for {on}");
    html! {
        rect class="box" x="1" y=(px(y + 4.0)) width=(px(WIDTH)) height=(px(HEIGHT)) rx="6" {}
        text class="head" x="12" y=(px(y + 20.0)) { (shortened(&name, WIDTH - 24.0)) }
        text class="small" x="12" y=(px(y + 36.0)) { (shortened(&on, (WIDTH - 24.0) * 1.2)) }
    }
}
