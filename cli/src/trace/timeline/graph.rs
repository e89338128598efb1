//! The wait-for graph at the end, as a picture. Each task is a box; an arc leads to the task that
//! it waits for.

use maud::{Markup, html};
use trapline::{Deadlock, TaskInfo, Tid};

use super::svg::{arc, patterns, px, shortened};
use crate::output::clean;

/// The largest number of tasks in a picture, and of those whose boxes have two lines. A picture of them has
/// at most 1000 x 700 pixels.
const MOST: usize = 24;
const MOST_TALL: usize = 13;

/// The boxes of a picture: how far apart they are, their height and width, and how much farther an arc
/// reaches per task that it passes.
#[derive(Clone, Copy)]
struct Boxes {
    step: f64,
    height: f64,
    width: f64,
    reach: f64,
}

const TALL: Boxes = Boxes {
    step: 52.0,
    height: 40.0,
    width: 420.0,
    reach: 24.0,
};
const FLAT: Boxes = Boxes {
    step: 29.0,
    height: 23.0,
    width: 560.0,
    reach: 14.0,
};

/// Draws the tasks that are on cycles, and as many others as there is room for.
pub(super) fn draw(stuck: &Deadlock) -> Markup {
    let tasks = chosen(stuck);
    let boxes = if tasks.len() > MOST_TALL { FLAT } else { TALL };
    let place = |tid: Tid| tasks.iter().position(|waiting| waiting.tid == tid);
    let arcs: Vec<(usize, usize)> = (0..)
        .zip(&tasks)
        .filter_map(|(from, waiting)| Some((from, place(waiting.waits_for_when_stuck()?)?)))
        .collect();
    let farthest = arcs.iter().map(|(from, to)| from.abs_diff(*to)).max();
    let width = boxes.width + 60.0 + boxes.reach * farthest.unwrap_or(0) as f64;
    let height = boxes.step * tasks.len() as f64;
    let middle = |place: f64| boxes.step * place + 3.0 + boxes.height / 2.0;
    let is_on_cycle = |tid: Tid| stuck.cycles.iter().any(|ring| ring.contains(&tid));
    html! {
        svg class="graph" viewBox={ "0 0 " (px(width)) " " (px(height)) } width=(px(width))
            height=(px(height)) role="img" aria-label="The waits between tasks, as described above" {
            defs { (patterns()) }
            @for (waiting, at) in tasks.iter().zip(0..) {
                (task(waiting, boxes, boxes.step * f64::from(at), is_on_cycle(waiting.tid)))
            }
            @for &(from, to) in &arcs {
                @let [from, to] = [from, to].map(|place| place as f64);
                @let ends = [middle(from) + 5.0, middle(to) - 5.0];
                (arc(boxes.width + 2.0, ends, 26.0 + boxes.reach * (from - to).abs(), [8.0, 4.0]))
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

fn task(waiting: &TaskInfo, boxes: Boxes, y: f64, is_on_cycle: bool) -> Markup {
    let name = format!("{} {}", waiting.tid, clean(&waiting.name));
    let on = clean(&waiting.blocked_on().unwrap_or_default());
    let on = format!("waits for {on}");
    let room = boxes.width - 24.0;
    let class = if is_on_cycle { "box ring" } else { "box" };
    html! {
        rect class=(class) x="1" y=(px(y + 3.0)) width=(px(boxes.width)) height=(px(boxes.height)) rx="6" {}
        @if boxes.height < TALL.height {
            text class="small" x="12" y=(px(y + 19.0)) {
                (shortened(&format!("{name} {on}"), room * 1.2))
            }
        } @else {
            text class="head" x="12" y=(px(y + 19.0)) { (shortened(&name, room)) }
            text class="small" x="12" y=(px(y + 35.0)) { (shortened(&on, room * 1.2)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use trapline::{Kernel, Os, sync::Mutex};

    use super::*;

    /// The picture of a ring of so many tasks, each of which waits for the next.
    fn ring(size: usize) -> String {
        let mut kernel = Kernel::simulated(1);
        let main = async move |os: &mut Os| {
            let mut locks = Vec::new();
            for _ in 0..size {
                locks.push(Mutex::new(os, ()).await);
            }
            for at in 0..size {
                let [first, next] = [at, (at + 1) % size].map(|at| locks[at].clone());
                let name = format!("a-task-with-a-long-name-in-the-ring-of-tasks-{at}");
                let task = async move |os: &mut Os| {
                    let _held = first.lock(os).await;
                    os.yield_now().await;
                    let _ = next.lock(os).await;
                };
                os.spawn_detached(&name, task).await.unwrap();
            }
        };
        kernel.spawn("main", main).unwrap();
        let Err(trapline::Error::Deadlock(stuck)) = kernel.run() else {
            panic!("it is no deadlock");
        };
        draw(&stuck).into_string()
    }

    #[test]
    fn a_picture_of_waits_fits_1000_x_700_pixels_and_has_its_cycle() {
        for size in [2, 13, 14, 24, 100] {
            let picture = ring(size);
            let number = |name: &str| -> f64 {
                let (_, rest) = picture.split_once(&format!(" {name}=\"")).unwrap();
                rest.split('"').next().unwrap().parse().unwrap()
            };
            let (width, height) = (number("width"), number("height"));
            assert!(
                width <= 1000.0 && height <= 700.0,
                "{size}: {width} x {height}"
            );
            let shown = size.min(MOST);
            assert_eq!(picture.matches("box ring").count(), shown, "{size}");
            // The last of a longer ring waits for a task that is left out.
            let arcs = if size > MOST { shown - 1 } else { shown };
            assert_eq!(picture.matches("class=\"wait\"").count(), arcs, "{size}");
        }
    }
}
