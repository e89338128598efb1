//! `--json` of the commands that list what is in a recording: an object a line.

use serde_json::{Value, json};

use super::Place;

fn objects(place: &Place, args: &[&str]) -> Vec<Value> {
    let out = place.print(&[&["trace"], args, &["--json", "run.trap"]].concat());
    let line = |line: &str| serde_json::from_str(line).expect(line);
    out.lines().map(line).collect()
}

/// The values of a key.
fn of(objects: &[Value], key: &str) -> Vec<Value> {
    objects.iter().map(|object| object[key].clone()).collect()
}

#[test]
fn tasks_and_waits_are_shown_as_a_monitor_shows_them() {
    let place = Place::with("objects-of-tasks", &["deadlock"]);
    for command in ["ps", "tree"] {
        let tasks = objects(&place, &[command]);
        assert_eq!(of(&tasks, "tid"), [1, 2, 3], "{command}");
        assert_eq!(tasks[1]["blocked_on"], "mutex 2, held by task 3");
        assert_eq!(tasks[1]["waits_for"], 3);
    }
    let early = objects(&place, &["ps", "--at", "0"]);
    assert!(of(&early, "blocked_on")[1] != "mutex 2, held by task 3");
    let waits = objects(&place, &["waits"]);
    let kinds = ["task", "task", "task", "cycle", "behind"];
    assert_eq!(of(&waits, "is"), kinds);
    assert_eq!(waits[3]["tids"], json!([2, 3]));
    assert_eq!(waits[4]["tids"], json!([1, 2]));
    let (code, _, err) = place.run(&["trace", "waits", "--json", "--format", "dot", "run.trap"]);
    assert_eq!(code, 2, "{err}");
}

#[test]
fn why_has_its_sentences_and_a_path_its_parts() {
    let place = Place::with("objects-of-waits", &["convoy"]);
    let why = objects(&place, &["why", "worker-4"]);
    let text = place.print(&["trace", "why", "worker-4", "run.trap"]);
    let sentences = why[0]["why"].as_array().expect("it is a list");
    let sentences = sentences.iter().map(|sentence| sentence.as_str().unwrap());
    assert_eq!(
        sentences.collect::<Vec<_>>(),
        text.lines().collect::<Vec<_>>()
    );
    assert_eq!((&why[0]["tid"], why.len()), (&json!(5), 1));

    let path = objects(&place, &["path"]);
    let (from, to) = (of(&path, "from"), of(&path, "to"));
    assert_eq!((&from[0], to.last()), (&json!(0.0), Some(&json!(0.062))));
    assert_eq!(from[1..], to[..to.len() - 1], "it has no gap");
    let place = crate::support::place_of("programs/cases/convoy.rs", "os.sleep(FETCH)");
    let place = place.rsplit('/').next().unwrap();
    let was = format!("asleep, holding mutex 1, {place}");
    assert!(of(&path, "was").contains(&was.into()));
}

#[test]
fn events_are_shown_as_objects_with_the_filters_of_the_text() {
    let place = Place::with("objects-of-events", &["wait"]);
    let all = objects(&place, &["show"]);
    let text = place.print(&["trace", "show", "run.trap"]);
    assert_eq!(all.len(), text.lines().count(), "{text}");
    for (object, line) in all.iter().zip(text.lines()) {
        let tid = object["tid"].to_string();
        assert_eq!(line.split_whitespace().nth(1), Some(&*tid), "{line}");
    }
    let foo = objects(&place, &["show", "--task", "foo"]);
    assert!(!foo.is_empty() && of(&foo, "comm").iter().all(|comm| comm == "foo"));
    let yields = objects(&place, &["show", "--call", "yield"]);
    assert_eq!(of(&yields, "call"), ["yield()"; 5]);
}
