//! `trace open`: a page in a temporary file, for a browser.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::Place;
use crate::support::{command, has, texts, trapline};

/// Opens the recording with this browser, and temporary files in the place.
fn open(place: &Place, browser: &str, file: &str) -> (i32, String, String) {
    let mut open = trapline(&["trace", "open", file]);
    open.current_dir(&place.0).env("TMPDIR", &place.0);
    open.env("BROWSER", browser).env("PATH", "/bin:/usr/bin");
    texts(open.output().expect("it runs"))
}

/// A page without the random word that lets its scripts run.
fn without_nonce(page: &str) -> String {
    let (_, rest) = page.split_once("'nonce-").expect("it has one");
    let (nonce, _) = rest.split_once('\'').expect("it ends");
    page.replace(nonce, "")
}

#[test]
fn the_browser_gets_a_page_that_only_its_owner_can_read() {
    let place = Place::with("open", &["convoy"]);
    let (code, out, err) = open(&place, "cp -t copy", "run.trap");
    assert_eq!(code, 1, "the folder is missing: {out}{err}");
    fs::create_dir(place.0.join("copy")).expect("there is room");
    let (code, out, err) = open(&place, "cp -t copy", "run.trap");
    assert_eq!((code, &*err), (0, ""));
    let page = Path::new(out.trim());
    let mode = fs::metadata(page)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let shown = place
        .0
        .join("copy")
        .join(page.file_name().expect("it has one"));
    let shown = fs::read_to_string(shown).expect("the browser has it");
    has(&shown, "worker-4");
    let timeline = place.print(&["trace", "timeline", "run.trap", "-o", "-"]);
    assert_eq!(
        without_nonce(&shown),
        without_nonce(&timeline),
        "it is the page of trace timeline"
    );
}

#[test]
fn without_a_browser_the_page_is_named_and_without_a_recording_there_is_none() {
    let place = Place::with("unopened", &["wait"]);
    for browser in ["/bin/false", "no-such-browser --new"] {
        let (code, out, err) = open(&place, browser, "run.trap");
        assert_eq!(code, 1);
        has(&err, "no browser could be started: open this page yourself");
        let page = fs::read_to_string(out.trim()).expect("it is there");
        has(&page, "<!DOCTYPE html>");
        fs::remove_file(out.trim()).expect("it was there");
    }
    let (code, out, err) = open(&place, "/bin/true", "none.trap");
    assert_eq!((code, &*out), (1, ""));
    has(&err, "none.trap");
    assert_eq!(pages(&place), 0);
}

/// How many pages there are in the folder.
fn pages(place: &Place) -> usize {
    let files = fs::read_dir(&place.0).expect("it is there");
    let is_page = |path: &Path| path.extension().is_some_and(|kind| kind == "html");
    files
        .filter(|file| file.as_ref().is_ok_and(|file| is_page(&file.path())))
        .count()
}

#[test]
fn a_page_that_is_not_written_to_its_end_is_not_opened() {
    let place = Place::with("full", &["wait"]);
    // The page has more bytes than a file may have.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let binary = env!("CARGO_BIN_EXE_trapline");
    let args = ["-c", limited, "sh", binary, "trace", "open", "run.trap"];
    let mut open = command("sh", &args);
    open.current_dir(&place.0).env("TMPDIR", &place.0);
    let (code, out, err) = texts(open.env("BROWSER", "/bin/true").output().expect("it runs"));
    assert_eq!((code, &*out), (1, ""), "{err}");
    has(&err, "cannot write ");
    assert_eq!(pages(&place), 0);
}

#[test]
fn of_a_recording_without_its_end_there_is_a_page() {
    let place = Place::with("cut", &["wait"]);
    let path = place.0.join("run.trap");
    let bytes = fs::read(&path).expect("it is there");
    fs::write(path, &bytes[..bytes.len() - 3]).expect("there is room");
    let (code, out, err) = open(&place, "/bin/true", "run.trap");
    assert_eq!(code, 1, "{err}");
    has(&err, "run.trap: ");
    has(
        &fs::read_to_string(out.trim()).expect("it is there"),
        "<!DOCTYPE html>",
    );
}
