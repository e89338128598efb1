//! `trace timeline`. What a browser makes of the page is tried by `cli/tests/browser/timeline.mjs`.

use std::{iter, sync::LazyLock, time::Duration};

use proptest::{prelude::*, sample::Index};
use serde_json::Value;
use trapline::{
    Detail, Event, Exit, Fact, Nanos, On, SystemCall, Tracer,
    record::{Header, Recorder},
};

use super::*;

const DRAW: [&str; 3] = ["trace", "timeline", "run.trap"];

fn svg(place: &Place, args: &[&str]) -> String {
    let svg = place.print(&[&DRAW, &["--format", "svg"][..], args].concat());
    assert_well_formed(&svg);
    svg
}

/// Whether elements are closed as they were opened, which XML is strict about.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(
            !text.contains('>') || open.last() == Some(&"style"),
            "{tag}"
        );
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None => open.push(tag.split([' ', '\n']).next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
}

/// The page without its style and its script, which are files of their own, and without the data.
fn page(place: &Place, args: &[&str]) -> (String, Value) {
    let page = place.print(&[&DRAW[..], args].concat());
    let (before, rest) = page.split_once("<style>").unwrap();
    let (_, rest) = rest.split_once("</style>").unwrap();
    let (body, rest) = rest
        .split_once("<script type=\"application/json\"")
        .unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    let (data, rest) = rest.split_once("</script>").unwrap();
    let (script, end) = rest.split_once("</script>").unwrap();
    assert!(script.starts_with("<script nonce="), "{script:.80}");
    assert_eq!(end, "</body></html>\n");
    let key = script.strip_prefix("<script nonce=\"").unwrap();
    let (key, _) = key.split_once('"').unwrap();
    assert_eq!(key.len(), 32, "{key}");
    (
        format!("{before}{body}").replace(key, "KEY"),
        serde_json::from_str(data).unwrap(),
    )
}

/// The packed part of a page, read as the page's script reads it.
struct Packed {
    bytes: std::vec::IntoIter<u8>,
    templates: Vec<String>,
}

impl Packed {
    fn of(facts: &Value) -> Self {
        let templates = facts["templates"].as_array().unwrap().iter();
        let templates = templates.map(|text| text.as_str().unwrap().to_string());
        Self {
            bytes: base64(facts["data"].as_str().unwrap()).into_iter(),
            templates: templates.collect(),
        }
    }

    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let byte = self.bytes.next().expect("there is more");
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
        number
    }

    fn numbers(&mut self, count: usize) -> Vec<u64> {
        iter::repeat_with(|| self.number()).take(count).collect()
    }

    fn text(&mut self) -> String {
        let template = self.number() as usize;
        let template = self.templates[template].clone();
        let Some((before, after)) = template.split_once('\u{1}') else {
            return template;
        };
        let (width, after) = after.split_at(1);
        let width = usize::from(width.as_bytes()[0] - b'0');
        format!("{before}{:0width$}{after}", self.number())
    }

    /// The rows of the table: the lane, what happened, and the answer.
    fn rows(&mut self) -> Vec<(u64, String)> {
        let mut lane = 0;
        let mut rows = Vec::new();
        for _ in 0..self.number() {
            let flags = self.number();
            if flags & 32 == 0 {
                lane = self.number();
            }
            self.numbers(2);
            let mut what = self.text();
            if flags & 16 != 0 {
                what += &format!(" = {}", self.text());
                self.numbers(2);
            }
            if flags & 64 != 0 {
                self.text();
            }
            rows.push((lane, what));
        }
        rows
    }

    /// The lanes: the task, its name, and of how many bars it is running, ready and blocked.
    fn lanes(&mut self) -> Vec<(u64, String, [u64; 3])> {
        let (lanes, total) = (self.number(), self.number());
        let mut list = Vec::new();
        for _ in 0..lanes {
            let (tid, name) = (self.number(), self.text());
            self.numbers(2);
            self.text();
            let mut bars = [0; 3];
            for _ in 0..self.number() {
                let flags = self.number();
                bars[(flags & 7).min(2) as usize] += 1;
                self.numbers(if flags & 32 == 0 { 2 } else { 4 });
                self.numbers((flags >> 6 & 1) as usize);
                if flags & 7 > 3 {
                    self.text();
                }
                if flags >> 3 & 3 == 1 {
                    self.text();
                    self.number();
                }
            }
            list.push((tid, name, bars));
        }
        let bars = list.iter().flat_map(|(_, _, bars)| bars);
        assert_eq!(bars.sum::<u64>(), total);
        list
    }

    /// Why bars are there.
    fn reasons(&mut self) -> Vec<String> {
        let (count, sentences) = (self.number(), self.number());
        let mut seen = 0;
        let reasons = iter::repeat_with(|| {
            let sentences = self.numbers(2)[1];
            seen += sentences;
            let said: Vec<String> = (0..sentences).map(|_| self.text()).collect();
            let steps = self.number() as usize;
            self.numbers(steps);
            said.join(" ")
        });
        let reasons = reasons.take(count as usize).collect();
        assert_eq!(seen, sentences);
        reasons
    }

    /// The critical path: the lane of each part, and what its task did.
    fn path(&mut self) -> Vec<String> {
        let part = |packed: &mut Self| format!("{} {}", packed.numbers(5)[0], packed.text());
        (0..self.number()).map(|_| part(self)).collect()
    }

    /// What tasks were blocked on, with the words of `trace ps` for that.
    fn words(&mut self) -> Vec<[String; 2]> {
        (0..self.number())
            .map(|_| [self.text(), self.text()])
            .collect()
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other} is no base64"),
    };
    let letters: Vec<u8> = text.trim_end_matches('=').bytes().map(value).collect();
    let mut bytes = Vec::new();
    for four in letters.chunks(4) {
        let word = (0..4).fold(0, |word, at| {
            word << 6 | u32::from(four.get(at).copied().unwrap_or(0))
        });
        bytes.extend(&word.to_be_bytes()[1..four.len()]);
    }
    bytes
}

#[test]
fn the_page_has_a_summary_and_tools() {
    let place = Place::with("page", &["wait"]);
    let (body, facts) = page(&place, &[]);
    assert_golden("timeline.html", &body.replace("><", ">\n<"));
    assert_eq!(facts["scale"], "turns", "nothing takes any time there");
    assert_eq!(facts["events"], 45);
    assert!(
        !body.contains("http:") && !body.contains("https:"),
        "{body}"
    );
    assert!(body.contains("default-src 'none'"), "{body}");
}

#[test]
fn the_key_of_a_pages_scripts_cannot_be_told_from_the_recording() {
    let place = Place::with("key", &["wait"]);
    let key = || {
        let page = place.print(&DRAW);
        let (_, rest) = page.split_once("<script nonce=\"").unwrap();
        rest.split_once('"').unwrap().0.to_string()
    };
    assert_ne!(key(), key());
}

#[test]
fn the_commands_of_a_page_quote_its_file() {
    let place = Place::with("quoted", &["wait"]);
    let name = "it's; a.trap";
    fs::rename(place.0.join("run.trap"), place.0.join(name)).unwrap();
    let page = place.print(&["trace", "timeline", name]);
    assert!(
        page.contains(r#""file":"'it'\\''s; a.trap'""#),
        "{page:.4000}"
    );
    let (_, _, err) = place.run(&["trace", "show", "--task", "nosuch", name]);
    let expected = r"(`trace summary 'it'\''s; a.trap'` lists them)";
    assert!(err.contains(expected), "{err}");
    let mut command = trapline(&["trace", "timeline", "-"]);
    command.stdin(fs::File::open(place.0.join(name)).unwrap());
    let (_, page, _) = texts(command.output().unwrap());
    assert!(page.contains(r#""file":"-""#), "{page:.4000}");
}

#[test]
fn the_page_has_every_call_and_span() {
    let place = Place::with("pack", &["wait"]);
    let (_, facts) = page(&place, &[]);
    let mut packed = Packed::of(&facts);
    assert_eq!(
        packed.numbers(4),
        [0, 0, 0, 11],
        "no time, and eleven turns"
    );
    assert_eq!(packed.number(), 0, "somebody is always ready");
    let rows = packed.rows();
    let rows: Vec<String> = rows
        .iter()
        .map(|(lane, row)| format!("{lane} {row}"))
        .collect();
    let expected = [
        "0 spawned by the host",
        "0 get_tid() = 1",
        "1 spawned by 1",
        "0 new_task(\"foo\") = 2",
        "1 get_tid() = 2",
        "0 Waiting for child",
        "0 wait_task(2) = done",
    ];
    let order = |row: &&str| rows.iter().position(|other| other == row);
    let found: Vec<_> = expected.iter().map(order).collect();
    assert!(found.iter().all(Option::is_some), "{rows:#?}");
    let yields = rows.iter().filter(|row| *row == "1 yield() = ok");
    assert_eq!((rows.len(), yields.count()), (21, 5), "{rows:#?}");
    let lanes = packed.lanes();
    let wait = (1, "wait".to_string(), [4, 4, 1]);
    let foo = (2, "foo".to_string(), [7, 7, 0]);
    assert_eq!(lanes, [wait, foo]);
    assert_eq!(packed.number(), 0, "no bytes went from task to task");
    let reasons = packed.reasons();
    assert_eq!(reasons[0], "1 \"wait\" ran for 1 turn, up to get_tid().");
    let path = [
        "0 running",
        "1 running",
        "1 ready",
        "1 running",
        "0 running",
    ];
    assert_eq!(packed.path(), path);
    let words = packed.words();
    assert!(words.is_empty(), "the end of a task needs no others");
    assert_eq!(packed.number(), 0, "no queue");
    assert_eq!(packed.bytes.next(), None, "and nothing else");
}

#[test]
fn the_page_has_accesses_to_shared_values() {
    let place = Place::with("shared", &["lost-wakeup"]);
    let (_, facts) = page(&place, &[]);
    let mut packed = Packed::of(&facts);
    packed.numbers(4);
    let idle = packed.number() as usize;
    packed.numbers(4 * idle);
    let rows = packed.rows();
    let rows = rows.iter().map(|(lane, what)| format!("{lane} {what}"));
    let accesses: Vec<String> = rows.filter(|row| row.contains("shared")).collect();
    // The reader announces no wait, and finds no letter.
    for row in [
        "1 writes shared 1",
        "1 writes shared 2",
        "0 writes shared 2",
    ] {
        assert!(accesses.iter().any(|access| access == row), "{accesses:?}");
    }
    let shown = place.print(&["trace", "show", "run.trap"]);
    has(&shown, "writes shared 2");
    let csv = place.print(&["trace", "export", "--format", "csv", "run.trap"]);
    has(&csv, ",accessed,,");
}

#[test]
fn the_page_says_what_why_and_path_say() {
    let place = Place::with("explained", &["convoy"]);
    let (_, facts) = page(&place, &[]);
    let mut packed = Packed::of(&facts);
    packed.numbers(4);
    let idle = packed.number() as usize;
    packed.numbers(4 * idle);
    packed.rows();
    let bars = packed.lanes();
    assert_eq!(packed.number(), 0);
    let reasons = packed.reasons();
    assert!(reasons.len() > bars.len(), "{reasons:#?}");
    for at in ["1ms", "10ms", "33ms"] {
        for task in ["1", "3", "5"] {
            let said = place.print(&["trace", "why", task, "--at", at, "run.trap"]);
            let said = said.trim().replace('\n', " ");
            assert!(reasons.contains(&said), "{said} is not in {reasons:#?}");
        }
    }
    let told = place.print(&["trace", "path", "run.trap"]);
    let title = facts["path"]["title"].as_str().unwrap();
    assert!(told.contains(title), "{told} has no {title}");
    let rows = facts["path"]["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        let cells = row.as_array().unwrap();
        let mut line = told.lines().filter(|line| {
            let words: Vec<&str> = line
                .split("  ")
                .map(str::trim)
                .filter(|word| !word.is_empty())
                .collect();
            words == *cells
        });
        assert!(line.next().is_some(), "{row} is no line of {told}");
    }
    assert!(!packed.path().is_empty());
}

#[test]
fn a_picture_is_of_what_happened() {
    let place = Place::with("picture", &["wait"]);
    let svg = svg(&place, &[]);
    let titles = svg.matches("<title>running for 1 turn").count();
    assert_eq!(titles, 11, "a bar for each turn");
    assert!(svg.contains("woken by task 2, through the end of task 2"));
    assert!(svg.contains("@media (prefers-color-scheme: dark)"));
    assert!(!svg.contains("var("), "{svg}");
    assert_golden("timeline.svg", &svg);
}

#[test]
fn the_output_says_what_is_drawn() {
    let place = Place::with("output", &["wait"]);
    for (file, begin) in [("a.svg", "<svg "), ("a.html", "<!DOCTYPE html>")] {
        assert_eq!(place.print(&[&DRAW, &["-o", file][..]].concat()), "");
        let text = fs::read_to_string(place.0.join(file)).unwrap();
        assert!(text.starts_with(begin), "{text:.40}");
    }
    let (code, _, err) = place.run(&[&DRAW, &["-o", "a.png"][..]].concat());
    let expected = "error: the output is neither .html nor .svg: choose with --format\n";
    assert_eq!((code, &*err), (1, expected));
    let (code, _, err) = place.run(&[&DRAW, &["--width", "500"][..]].concat());
    let expected =
        "error: --width is for a picture, and a page is as wide as its window: see --format\n";
    assert_eq!((code, &*err), (1, expected));
    for (options, expected) in [(&[][..], 960), (&["--width", "500"], 500)] {
        let wide = place.print(&[&DRAW[..], &["--format", "svg"], options].concat());
        assert!(
            wide.contains(&format!(" width=\"{expected}\" ")),
            "{wide:.200}"
        );
    }
    let (code, _, err) = place.run(&[&DRAW, &["-o", "no/such/place.svg"][..]].concat());
    assert_eq!(code, 1);
    let expected = "error: cannot write no/such/place.svg: there is no folder no: make it first\n";
    assert_eq!(err, expected);
    let dash = place.print(&[&DRAW, &["--format", "svg", "-o", "-"][..]].concat());
    assert!(dash.starts_with("<svg ") && !place.0.join("-").exists());
    let same = ["--format", "html", "-o", "run.trap"];
    let before = fs::read(place.0.join("run.trap")).unwrap();
    let (code, _, err) = place.run(&[&DRAW, &same[..]].concat());
    let expected = "error: --output would replace run.trap: name another file\n";
    assert_eq!((code, &*err), (1, expected));
    assert!(fs::read(place.0.join("run.trap")).unwrap() == before);
}

#[test]
fn what_cannot_be_drawn_is_named() {
    let place = Place::with("nothing", &["wait"]);
    let (_, _, err) = place.run(&[&DRAW, &["--task", "nosuch"][..]].concat());
    let expected = "error: there is nothing to show: no task is called nosuch\n";
    assert_eq!(err, expected);
    let some = ["--format", "svg", "--task", "wait", "--task", "nosuch"];
    let (code, _, err) = place.run(&[&DRAW, &some[..]].concat());
    let expected = "warning: there is no task nosuch (`trace summary run.trap` lists them)\n";
    assert_eq!((code, &*err), (0, expected));
    let path = place.0.join("run.trap");
    let bytes = fs::read(&path).unwrap();
    let is_read = |len: &usize| {
        let begin = io::Cursor::new(bytes[..*len].to_vec());
        Recording::from_reader(begin).is_ok()
    };
    let header = (0..bytes.len()).find(is_read).unwrap();
    fs::write(&path, &bytes[..header]).unwrap();
    let (_, _, err) = place.run(&DRAW);
    begins(&err, "error: run.trap: the recording ends at byte ");
}

#[test]
fn a_part_can_be_taken() {
    let place = Place::with("part", &["producer-consumer"]);
    let (_, facts) = page(
        &place,
        &["--task", "consumer", "--from", "2s", "--to", "4500ms"],
    );
    let mut packed = Packed::of(&facts);
    let second = 1_000_000_000;
    assert_eq!(packed.number(), 2 * second);
    packed.number();
    assert!(packed.number() <= 2 * second + second / 2);
    packed.number();
    let idle = packed.number() as usize;
    packed.numbers(4 * idle);
    let rows = packed.rows();
    let gets = rows
        .iter()
        .filter(|(_, row)| row.starts_with("get(queue 1) = message"));
    assert_eq!(gets.count(), 2, "{rows:#?}");
    assert_eq!(
        rows.last(),
        Some(&(0, "get(queue 1)".to_string())),
        "not answered yet"
    );
    let lanes = packed.lanes();
    assert_eq!(lanes.len(), 1);
    assert_eq!((lanes[0].0, &*lanes[0].1), (3, "consumer"));
    let turns = svg(&place, &["--from", "10t", "--to", "20t", "--task", "2"]);
    assert!(
        turns.contains(">20</text>") && !turns.contains(">30</text>"),
        "{turns}"
    );
    assert!(turns.contains("This is a part of the recording"), "{turns}");
    let (code, _, err) = place.run(&[&DRAW, &["--from", "soon"][..]].concat());
    assert_eq!(code, 2);
    assert!(err.contains("or a turn, such as 300t"), "{err}");
    for nothing in [["--task", "nobody"], ["--from", "1h"]] {
        let (code, out, err) = place.run(&[&DRAW, &nothing[..]].concat());
        assert_eq!((code, &*out), (1, ""));
        assert!(err.starts_with("error: there is nothing to show"), "{err}");
    }
}

#[test]
fn a_picture_that_could_not_be_read_is_refused() {
    let place = Place::new("large");
    let mut recorder = Recorder::create(place.0.join("run.trap"), &Header::default()).unwrap();
    for tid in 1..=101 {
        let name = "x".repeat(tid);
        let (at, tid, parent) = (Duration::ZERO, (tid as u64).into(), 0.into());
        let name = name.into();
        let fact = Fact::Spawned { parent, name };
        recorder.event(&Event {
            at,
            tid,
            fact,
            place: None,
        });
    }
    drop(recorder);
    let (code, out, err) = place.run(&[&DRAW, &["--format", "svg"][..]].concat());
    assert_eq!((code, &*out), (1, ""));
    assert!(err.contains("101 lanes"), "{err}");
    has(&err, "--from and --to, or with --task, or make it HTML");
    svg(&place, &["--task", "1"]);
}

#[test]
fn many_tasks_of_a_name_are_a_lane_of_a_picture() {
    let place = Place::with("crowd", &["sleepers"]);
    let all = svg(&place, &["--scale", "time"]);
    assert!(all.contains("sleeper × 1000</text>"), "{all}");
    has(&all, "at most 0 run or are ready, and 999 are blocked");
    assert!(all.contains("class=\"timer area\"") && all.contains(">sleeps<"));
    let place = Place::with("no-crowd", &["sleepers", "--count", "49"]);
    let each = svg(&place, &["--scale", "time"]);
    assert!(
        !each.contains(" area\"") && each.contains("50 sleeper</text>"),
        "{each}"
    );
}

#[test]
fn the_lane_of_the_kernel_is_no_task() {
    let picture = |tasks: u64| {
        let place = Place::new(&format!("kernel-and-{tasks}"));
        let mut recorder = Recorder::create(place.0.join("run.trap"), &Header::default()).unwrap();
        let mut note = |tid: u64, fact| {
            recorder.event(&Event {
                at: Duration::ZERO,
                tid: tid.into(),
                fact,
                place: None,
            });
        };
        note(
            0,
            Fact::Fault {
                text: "heal".into(),
            },
        );
        for tid in 1..=tasks {
            let (parent, name) = (0.into(), "worker");
            let name = name.into();
            note(tid, Fact::Spawned { parent, name });
        }
        drop(recorder);
        svg(&place, &[])
    };
    let most = picture(50);
    assert!(most.contains("kernel</text>"), "{most}");
    assert!(most.contains("50 worker</text>"), "{most}");
    assert!(picture(51).contains("worker × 51</text>"));
}

/// A select used to look as if its task waited for the end of another.
#[test]
fn a_select_looks_like_no_other_wait() {
    let place = Place::with("select", &["echo"]);
    let picture = svg(&place, &[]);
    has(&picture, "<rect class=\"select\"");
    has(&picture, "waits for the first of several</text>");
    assert!(!picture.contains("<rect class=\"exit\""), "{picture}");
    let (body, _) = page(&place, &[]);
    has(&body, "data-kind=\"select\"");
}

#[test]
fn a_deadlock_shows_who_waits_for_whom() {
    let place = Place::with("stuck", &["deadlock"]);
    let said = "Cycle: 2 → 3 → 2.";
    let picture = svg(&place, &[]);
    assert_eq!(
        picture.matches("class=\"wait\"").count(),
        4,
        "three, and the legend"
    );
    assert!(picture.contains(said), "{picture}");
    let (body, _) = page(&place, &[]);
    assert!(body.contains(said), "{body}");
    assert!(
        body.contains("<details id=\"summary\" open>"),
        "it is the news"
    );
    assert_eq!(body.matches("class=\"wait\"").count(), 3);
    let holder = "Task 3 &quot;spend&quot; waits for mutex 1, held by task 2, since \
                  00:00.001, at programs/cases/deadlock.rs:42.";
    assert!(body.contains(holder), "{body}");
    let part = svg(&place, &["--to", "6t"]);
    assert!(!part.contains("Deadlock"), "it is not known yet: {part}");
}

#[test]
fn a_deadlock_in_a_run_that_goes_on_is_marked_where_it_began() {
    let place = Place::with("stuck-server", &["stuck-server"]);
    let recording = Recording::open(place.0.join("run.trap")).unwrap();
    let mut events = recording.map(Result::unwrap);
    let is_deadlock = |event: &OwnedEvent| matches!(event.fact, Fact::Deadlocked { .. });
    let at = events.find(is_deadlock).expect("it closes a cycle").at;
    let (from, until) = (format!("{:.6}", Nanos::from(at)), "6 -> 5 -> 6");
    let line = place.print(&["trace", "show", "--errors", "run.trap"]);
    assert_eq!(
        line,
        format!("{from}    6 session      deadlocked {until}\n")
    );
    let csv = place.print(&["trace", "export", "--format", "csv", "run.trap"]);
    has(&csv, &format!(",deadlocked,get,{until},1\n"));
    let summary = place.print(&["trace", "summary", "run.trap"]);
    let said = format!("\ndeadlock at {from}: 6 session -> 5 session -> 6\n");
    assert!(summary.contains(&said), "{summary}");
    let json = place.print(&["trace", "summary", "--json", "run.trap"]);
    let lines: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["deadlocks"], 1);
    let closed =
        serde_json::json!({ "summary": "deadlock", "at": at.as_secs_f64(), "cycle": [6, 5] });
    assert!(lines.contains(&closed), "{json}");

    let said = format!("Deadlock at {from}: 6 → 5 → 6 wait for one another.");
    let (body, facts) = page(&place, &[]);
    assert!(body.contains(&said), "{body}");
    assert!(
        body.contains("<details id=\"summary\" open>"),
        "it is the news"
    );
    let mut packed = Packed::of(&facts);
    packed.numbers(4);
    let idle = packed.number() as usize;
    packed.numbers(4 * idle);
    let rows = packed.rows();
    assert!(
        rows.iter()
            .any(|(_, row)| row.starts_with("deadlocked 6 -> 5 -> 6")),
        "{rows:?}"
    );

    // The mark spans the lanes of both tasks, at the instant of the event.
    let picture = svg(&place, &["--scale", "time"]);
    assert!(picture.contains(&said), "{picture}");
    let (_, mark) = picture.split_once("<path class=\"closed\" d=\"M").unwrap();
    let numbers = mark.split([' ', 'V', 'M']).take(3);
    let numbers: Vec<f64> = numbers.map(|number| number.parse().expect(mark)).collect();
    let [x, top, bottom] = numbers[..] else {
        panic!("{mark}")
    };
    let middle = |tid: u64| {
        let name = format!(">{tid} session</text>");
        let (before, _) = picture.split_once(&name).unwrap();
        let (_, y) = before.rsplit_once(" y=\"").unwrap();
        y.split('"').next().unwrap().parse::<f64>().unwrap() - 1.0
    };
    assert_eq!([top, bottom], [middle(5), middle(6)]);
    // The second is that of the task that closes the cycle.
    let blocked = picture.split("<rect class=\"queue\" x=\"").nth(2).unwrap();
    let begin: f64 = blocked.split('"').next().unwrap().parse().unwrap();
    assert!(
        (x - begin).abs() < 0.2,
        "{x} is where both wait from: {begin}"
    );
    let part = svg(&place, &["--to", "1ms"]);
    assert!(
        !part.contains("\"closed\"") && !part.contains("Deadlock at"),
        "{part}"
    );
    let one = svg(&place, &["--task", "5"]);
    assert!(one.contains(&said) && one.contains("\"closed\""), "{one}");
}

/// A recording of so many tasks, each of which waits for the next, and the last for the first.
fn ring(place: &Place, tasks: u64) {
    let path = place.0.join("run.trap");
    let mut recorder = Recorder::create(path, &Header::default()).unwrap();
    let at = Duration::ZERO;
    for tid in 1..=tasks {
        let (parent, name, detail) = (0.into(), "ring".into(), Detail::None);
        let next = (tid % tasks + 1).into();
        let call = SystemCall::WaitTask(next);
        for fact in [
            Fact::Spawned { parent, name },
            Fact::Trapped { call, detail },
            Fact::Blocked { on: On::Exit(next) },
        ] {
            let tid = tid.into();
            recorder.event(&Event {
                at,
                tid,
                fact,
                place: None,
            });
        }
    }
}

#[test]
fn a_long_cycle_is_named_as_far_as_it_can_be_read() {
    let place = Place::new("timeline-ring");
    ring(&place, 1000);
    let (page, _) = page(&place, &[]);
    let cycle = page.split_once(" Cycle: ").expect("there is one").1;
    let cycle = cycle.split_once('.').unwrap().0;
    assert!(cycle.starts_with("1 → 2 → 3 → "), "{cycle}");
    assert!(cycle.ends_with(" → 24 → 976 more → 1"), "{cycle}");
    assert!(page.contains("The picture leaves out 976 of the tasks that wait."));
    let all = place.print(&["trace", "waits", "run.trap"]);
    assert!(all.contains(" -> 999 -> 1000 -> 1\n"));
}

/// A recording of a task with this name, that prints it and fails with it.
fn named(place: &Place, name: &str) {
    let header = Header::default();
    let mut recorder = Recorder::create(place.0.join("run.trap"), &header).unwrap();
    let exit = Exit::Failed(name.to_string());
    let facts = [
        Fact::Spawned {
            parent: 0.into(),
            name: name.into(),
        },
        Fact::Resumed,
        Fact::Console { text: name.into() },
        Fact::Trapped {
            call: SystemCall::NewTask,
            detail: Detail::Name(name.into()),
        },
        Fact::Exited { exit },
    ];
    for (micros, fact) in (0..).zip(facts) {
        let at = Duration::from_micros(micros);
        recorder.event(&Event {
            at,
            tid: 1.into(),
            fact,
            place: None,
        });
    }
    recorder.handle().close().unwrap();
}

#[test]
fn a_name_is_no_script() {
    let place = Place::new("hostile");
    let name = "</script></style><script>alert(1)</script><!--<b onclick='x'>\u{202e}&\u{1}\u{7}";
    named(&place, name);
    let whole = place.print(&DRAW);
    assert_eq!(
        whole.matches("<script").count(),
        2,
        "the data, and the script"
    );
    assert_eq!(whole.matches("</script").count(), 2);
    assert!(!whole.contains("<b ") && !whole.contains("<!--"));
    let (body, facts) = page(&place, &[]);
    let shown = "&lt;/script&gt;&lt;/style&gt;&lt;script&gt;alert(1)";
    assert!(body.contains(shown), "{body}");
    let mut packed = Packed::of(&facts);
    packed.numbers(5);
    packed.rows();
    let lanes = packed.lanes();
    assert_eq!(lanes[0].1, "kernel");
    assert!(
        lanes[1].1.starts_with("</script></style><script>alert(1)"),
        "{lanes:?}"
    );
    assert!(!lanes[1].1.contains(['\u{202e}', '\u{1}']), "{lanes:?}");
    let picture = svg(&place, &[]);
    assert!(!picture.contains("<script"), "{picture}");
    let is_harmful = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
    assert!(!picture.contains(is_harmful), "{picture:?}");
}

#[test]
fn a_recording_without_an_end_is_drawn_as_far_as_it_goes() {
    let place = Place::with("torn", &["deadlock"]);
    let path = place.0.join("run.trap");
    let whole = fs::read(&path).unwrap();
    // The mark of the end is a chunk of its own: its length, its sum, and a byte.
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let (code, out, err) = place.run(&DRAW);
    assert_eq!(code, 1);
    begins(&err, "error: run.trap: the recording ends at byte ");
    assert!(out.contains("The recording has no end"), "{out:.4000}");
    assert!(!out.contains("Deadlock: "), "nobody knows what came then");
    fs::write(&path, b"not a recording").unwrap();
    let (code, out, err) = place.run(&DRAW);
    assert_eq!((code, &*out), (1, ""));
    assert_eq!(
        err,
        "error: cannot read run.trap: this is no recording of trapline: it does not begin like one\n"
    );
}

#[test]
fn what_was_not_kept_is_a_gap() {
    let place = Place::new("gap");
    let boot = [
        "boot",
        "-q",
        "--virtual",
        "--seed",
        "1",
        "--record",
        "run.trap",
    ];
    place.run(
        &[
            &boot,
            &[
                "--record-last",
                "50",
                "multitask",
                "--foo",
                "9000",
                "--bar",
                "9000",
            ][..],
        ]
        .concat(),
    );
    let (body, facts) = page(&place, &[]);
    has(&body, "events are missing, since only the last were kept");
    let mut packed = Packed::of(&facts);
    packed.numbers(4);
    let idle = packed.number() as usize;
    packed.numbers(4 * idle);
    packed.rows();
    assert_eq!(packed.lanes().len(), 2);
    svg(&place, &["--from", "0t"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nobody vouches for what a recording says: its events may come in any order, at any time.
    #[test]
    fn events_that_make_no_sense_are_drawn_nevertheless(
        picks in prop::collection::vec((any::<Index>(), any::<Index>()), 0..60),
        turn in 0..40_u64,
    ) {
        static EVENTS: LazyLock<Vec<OwnedEvent>> = LazyLock::new(|| {
            let runs = [&["kill"][..], &["deadlock"], &["countdown"], &["producer-consumer"]];
            let mut events = Vec::new();
            for run in runs {
                let place = Place::with("sense", run);
                let recording = Recording::open(place.0.join("run.trap")).unwrap();
                events.extend(recording.map(Result::unwrap));
            }
            events
        });
        let times = [0, 1, 1_000_000, 1 << 53, u64::MAX];
        let place = Place::new("nonsense");
        let mut recorder = Recorder::create(place.0.join("run.trap"), &Header::default()).unwrap();
        for (event, time) in &picks {
            let event = event.get(&EVENTS[..]);
            let at = Duration::from_nanos(*time.get(&times));
            recorder.event(&Event { at, ..event.clone() });
        }
        recorder.handle().close().unwrap();
        let from = format!("{turn}t");
        for args in [&["--format", "svg"][..], &[], &["--from", &from], &["--to", &from]] {
            let (code, out, err) = place.run(&[&DRAW, args].concat());
            if code == 0 {
                prop_assert!(!out.contains("NaN") && !out.contains("inf\""), "{}", out);
            } else {
                prop_assert_eq!(code, 1, "{}", err);
                prop_assert!(err.starts_with("error: there is nothing to show"), "{}", err);
            }
        }
    }
}
