//! The form of the chapters: what is new first, with a drawing; what is still wrong, and an exercise
//! with its answer, last.

use std::{fs, path::Path};

use crate::support::ROOT;

/// The chapters of the course. From page 17 on a chapter is about one subject.
const COURSE: std::ops::RangeInclusive<u32> = 1..=16;
/// The last chapter.
const LAST: u32 = 27;

/// The chapters with their numbers, in order.
fn chapters() -> Vec<(u32, String)> {
    let files = fs::read_dir(Path::new(ROOT).join("docs")).expect("there is a book");
    let mut chapters: Vec<(u32, String)> = files
        .map(|file| file.expect("it can be read").path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_string();
            let number = name.split_once('-')?.0.parse().ok()?;
            Some((number, fs::read_to_string(path).expect("it is text")))
        })
        .collect();
    chapters.sort();
    let numbers = chapters.iter().map(|(number, _)| *number);
    assert!(numbers.eq(1..=LAST), "each chapter is there once");
    chapters
}

/// The parts of a page: the text under its title, and each part with its heading.
fn parts(page: &str) -> Vec<&str> {
    let mut cuts = vec![0];
    cuts.extend(page.match_indices("\n## ").map(|(at, _)| at + 1));
    cuts.push(page.len());
    cuts.windows(2).map(|cut| &page[cut[0]..cut[1]]).collect()
}

#[test]
fn a_chapter_of_the_course_begins_with_what_is_new_and_a_drawing() {
    for (number, page) in chapters() {
        if !COURSE.contains(&number) {
            continue;
        }
        let head = parts(&page)[0];
        let drawing = head.find("\n```console\n").unwrap_or(head.len());
        let text = &head[..drawing];
        let has_drawing = drawing < head.len() || text.contains("](pictures/");
        assert!(has_drawing, "page {number}: no picture and no tree");
        let lines = text.trim().lines().skip(1);
        let count = lines.filter(|line| !line.is_empty()).count();
        assert!((3..=15).contains(&count), "page {number}: {count} lines");
        assert!(text.contains("ew here"), "page {number}: what is new?");
    }
}

#[test]
fn a_chapter_of_the_course_says_at_its_end_what_is_still_wrong() {
    for (number, page) in chapters() {
        let parts = parts(&page);
        let wrong = parts.len() - 2;
        if COURSE.contains(&number) {
            let text = parts[wrong];
            assert!(
                text.starts_with("## What is still wrong\n"),
                "page {number}"
            );
            assert!(text.matches("\n- ").count() > 1, "page {number}: {text}");
        }
    }
}

#[test]
fn each_chapter_ends_with_an_exercise_and_its_answer() {
    for (number, page) in chapters() {
        let last = *parts(&page).last().expect("it has parts");
        assert!(last.starts_with("## Exercise"), "page {number}: {last}");
        let (task, answer) = last.split_once("<details>").expect("it has an answer");
        let answer = answer.trim_start();
        let has_head = answer.starts_with("<summary>Answer</summary>\n");
        assert!(has_head, "page {number}: {answer}");
        let lines = task.lines().skip(1).filter(|line| !line.is_empty());
        assert!((1..=8).contains(&lines.count()), "page {number}: {task}");
        assert_eq!(
            last.matches("<details>").count(),
            last.matches("</details>").count(),
            "page {number}"
        );
    }
}
