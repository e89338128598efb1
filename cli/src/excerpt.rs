//! Lines of a source file, around a place that a report names.
//!
//! A recording may come from anywhere, and a page may go anywhere. So a place selects only a file of Rust
//! below the current directory.

use std::{
    fs,
    io::Read,
    path::{Component, Path},
};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// Some lines of a file.
pub(super) struct Excerpt {
    /// The number of the first, from 1.
    pub(super) first: usize,
    pub(super) lines: Vec<String>,
    /// The number of the line that the place names.
    pub(super) at: usize,
}

impl Excerpt {
    /// The lines around a place such as `src/main.rs:14`: so many before it and after it.
    pub(super) fn of(place: &str, around: usize) -> Option<Self> {
        let (file, line) = place.rsplit_once(':')?;
        let at: usize = line.parse().ok()?;
        let path = Path::new(file);
        let is_below = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let is_rust = path.extension().is_some_and(|end| end == "rs");
        if !is_below || !is_rust || !path.metadata().is_ok_and(|found| found.is_file()) {
            return None;
        }
        let mut text = String::new();
        let file = fs::File::open(path).ok()?;
        file.take(LARGEST).read_to_string(&mut text).ok()?;
        let first = at.saturating_sub(around).max(1);
        let end = at.checked_add(around + 1)?;
        let lines = text.lines().skip(first - 1).take(end - first);
        let lines: Vec<String> = lines.map(str::to_string).collect();
        (at >= 1 && at < first + lines.len()).then_some(Self { first, lines, at })
    }
}

/// The first place in a text such as `lock at src/main.rs:14, spawned at src/main.rs:9`.
pub(super) fn first_place(text: &str) -> Option<&str> {
    let words = text.split([' ', ',', '(', ')']);
    let is_place = |word: &&str| {
        let line = word.rsplit_once(".rs:").map(|(_, line)| line);
        line.is_some_and(|line| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()))
    };
    words.into_iter().find(is_place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_selects_lines_of_a_source_file_below_the_folder_and_nothing_else() {
        // The tests of a package run in its folder.
        let found = Excerpt::of("src/excerpt.rs:1", 2).unwrap();
        assert_eq!((found.first, found.at, found.lines.len()), (1, 1, 3));
        assert!(found.lines[0].starts_with("//! Lines of a source file"));
        let found = Excerpt::of("src/excerpt.rs:12", 3).unwrap();
        assert_eq!((found.first, found.lines.len()), (9, 7));
        let absolute = format!("{}/src/excerpt.rs:1", env!("CARGO_MANIFEST_DIR"));
        for place in [
            "src/excerpt.rs:0",
            "src/excerpt.rs:100000",
            "src/excerpt.rs:18446744073709551615",
            "src/excerpt.rs",
            "../cli/src/excerpt.rs:1",
            "Cargo.toml:1",
            "src:1",
            "src/none.rs:1",
            &absolute,
        ] {
            assert!(Excerpt::of(place, 3).is_none(), "{place}");
        }
    }

    #[test]
    fn the_first_place_of_a_text_is_found() {
        let text = "lock at src/main.rs:14, spawned at src/main.rs:9";
        assert_eq!(first_place(text), Some("src/main.rs:14"));
        assert_eq!(first_place("in src/main.rs: nowhere"), None);
        assert_eq!(first_place(""), None);
    }
}
