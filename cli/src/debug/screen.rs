//! The screen of a debugger: the tasks, one of them in detail, what was printed, and a line for
//! commands. A key is short for a command.

use std::{io, time::Duration};

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Stylize,
    text::Line,
    widgets::{Paragraph, Wrap},
};
use termina::event::{KeyCode, KeyEvent, Modifiers};
use trapline::Tid;

use super::{
    command::{Done, perform},
    engine::Engine,
};
use crate::{
    excerpt::{Excerpt, first_place},
    live::{
        draw::{areas, counts, draw_console, draw_details, draw_tasks, halves, hints, pane},
        protocol::Request,
        terminal::{self, Keyboard, Paper, Terminal},
        view::{View, walked},
    },
    output::clean,
    signals,
    table::cut,
};

/// The period for checking the size of the terminal, and for an interrupt.
const BEAT: Duration = Duration::from_millis(100);
/// The largest number of lines of output.
const LINES: usize = 16;
/// The lines of the pane with the source, its frame included.
const SOURCE: u16 = 9;
/// The longest command, in bytes.
const COMMAND: usize = 200;

/// The commands of keys.
const KEYS: &[(char, &str)] = &[
    ('s', "step"),
    ('t', "turn"),
    ('n', "next"),
    ('c', "continue"),
    ('b', "back"),
    ('w', "back wake"),
    ('o', "back spawn"),
    ('q', "queues"),
    ('?', "help"),
];

const HINTS: &[&str] = &[
    "n next", "c go", "b back", "w wake", "o spawn", "q queues", ": type", "? help", "^C end",
];

/// What the screen shows.
struct Desk {
    engine: Engine,
    view: View,
    /// The answer of the last motion.
    moved: String,
    /// The task that the last motion was about, until the user chooses a row. It may have none.
    subject: Option<Tid>,
    /// How the task of the details has ended, if it has.
    end: Option<String>,
    /// The answer of the last view, until a key removes it.
    answer: Option<Shown>,
    /// The command that is typed, if one is.
    typed: Option<String>,
    /// What is wrong with the last command.
    wrong: Option<String>,
    /// The last lines that were printed.
    printed: Vec<String>,
    /// The place in the source of the call of the task of the details, and the lines around it.
    source: Option<(String, Excerpt)>,
}

/// An answer in its pane.
struct Shown {
    text: String,
    /// The first line in the pane.
    top: usize,
    /// How many lines had room when it was drawn.
    room: usize,
}

/// Shows the screen until the user leaves it. An error says why it cannot.
pub(super) fn show(engine: Engine, colored: bool) -> Result<(), String> {
    let terminal = terminal::find()?;
    signals::catch(signals::INTERRUPT)?;
    let shown = Desk::new(engine, colored).show(terminal);
    shown.map_err(|error| format!("the screen cannot go on: {error}"))
}

impl Desk {
    fn new(engine: Engine, colored: bool) -> Self {
        let mut desk = Self {
            engine,
            view: View::halted(colored),
            moved: "#0 before the first call".into(),
            subject: None,
            end: None,
            answer: None,
            typed: None,
            wrong: None,
            printed: Vec::new(),
            source: None,
        };
        desk.look();
        desk
    }

    fn show(&mut self, terminal: Terminal) -> io::Result<()> {
        let mut paper = Paper::take(terminal)?;
        let mut keyboard = Keyboard::default();
        loop {
            self.paint(&mut paper, terminal)?;
            if signals::take() {
                return Ok(());
            }
            for key in keyboard.wait(BEAT)? {
                let Some(line) = self.press(key) else {
                    continue;
                };
                // An older interrupt was not for this command.
                signals::take();
                self.moved = format!("{line} ... (^C stops it)");
                self.paint(&mut paper, terminal)?;
                if !self.perform(&line) {
                    return Ok(());
                }
            }
        }
    }

    fn paint(&mut self, paper: &mut Paper, terminal: Terminal) -> io::Result<()> {
        let text = paper.draw(|frame| self.draw(frame))?;
        match terminal.write(&text) {
            // Reading says so.
            Err(_) if terminal::is_gone() => Ok(()),
            written => written,
        }
    }

    /// Returns the command that a key completes.
    fn press(&mut self, key: KeyEvent) -> Option<String> {
        self.wrong = None;
        if key.modifiers.contains(Modifiers::CONTROL) {
            return None;
        }
        if let Some(typed) = &mut self.typed {
            match key.code {
                KeyCode::Enter => return self.typed.take(),
                KeyCode::Escape => self.typed = None,
                KeyCode::Backspace => drop(typed.pop()),
                KeyCode::Char(letter) if typed.len() < COMMAND => typed.push(letter),
                _ => {}
            }
            return None;
        }
        match key.code {
            KeyCode::Char(':') => self.typed = Some(String::new()),
            KeyCode::Char(letter) => {
                let short = KEYS.iter().find(|(key, _)| *key == letter);
                return short.map(|(_, command)| self.about_chosen(command));
            }
            KeyCode::Escape => self.answer = None,
            code if self.answer.as_mut().is_some_and(|shown| shown.scroll(code)) => {}
            _ => {
                self.view.press(key);
                self.answer = None;
                self.subject = None;
                self.look();
            }
        }
        None
    }

    /// The task that the details and the keys are about.
    fn chosen(&mut self) -> Option<Tid> {
        self.subject.or_else(|| self.view.selected_task())
    }

    /// The command of a key. Those about a task are about the chosen one.
    fn about_chosen(&mut self, command: &str) -> String {
        match (command, self.chosen()) {
            ("next", Some(tid)) => format!("{command} {tid}"),
            ("back wake" | "back spawn", Some(tid)) => format!("{command} tid {tid}"),
            _ => command.to_string(),
        }
    }

    /// Performs a command. Returns `false` if the user leaves.
    fn perform(&mut self, line: &str) -> bool {
        match perform(&mut self.engine, line) {
            Ok(Done::Quit) => return false,
            Ok(Done::Moved(text)) => {
                self.moved = text;
                self.answer = None;
                self.subject = self.engine.run.subject;
                if let Some(subject) = self.subject {
                    self.view.choose_task(subject);
                }
            }
            Ok(Done::Text(text)) => {
                self.moved = self.engine.here();
                let (top, room) = (0, 0);
                self.answer = Some(Shown { text, top, room });
            }
            Err(why) => {
                self.moved = self.engine.here();
                self.wrong = Some(format!("{line}: {why}"));
            }
        }
        self.look();
        true
    }

    /// Takes a snapshot of the run.
    fn look(&mut self) {
        let query = self.view.query.clone();
        if let Ok(listed) = self.engine.answer(&Request::Ps(query)) {
            self.view.update(listed);
        }
        let printed = self.engine.console().lines().rev().take(LINES);
        self.printed = printed.map(str::to_string).collect();
        self.printed.reverse();
        let chosen = self.chosen();
        let details = chosen.map(|tid| self.engine.answer(&Request::Where { tid }));
        self.view.whereabouts = details.and_then(Result::ok);
        let witness = self.engine.witness();
        self.end = chosen.and_then(|tid| witness.ended.get(&tid).cloned());
        drop(witness);
        let place = self.place();
        if place.as_deref() != self.source.as_ref().map(|(place, _)| place.as_str()) {
            self.source = place.and_then(|place| {
                let excerpt = Excerpt::of(&place, usize::from(SOURCE - 3) / 2)?;
                Some((place, excerpt))
            });
        }
    }

    /// The place in the source of the call of the task of the details.
    fn place(&self) -> Option<String> {
        let found = self.view.whereabouts.as_ref()?;
        let place = first_place(found.tasks.first()?.places.as_ref()?)?;
        Some(place.to_string())
    }

    fn draw(&mut self, frame: &mut Frame) {
        let area = frame.area();
        let moved = self.moved.lines().flat_map(|line| narrow(line, area.width));
        let moved: Vec<Line> = moved.map(|line| clean(&line).into()).collect();
        let head = 1 + moved.len().clamp(1, 4) as u16;
        let [header, body, console, footer] = areas(area, head, !self.printed.is_empty());
        let mut lines = vec![counts(&self.view, header.width)];
        lines.extend(moved);
        frame.render_widget(Paragraph::new(lines), header);
        let [tasks, details] = halves(body);
        draw_tasks(frame, &mut self.view, tasks);
        match (&mut self.answer, &self.end) {
            (Some(shown), _) => shown.draw(frame, details),
            (None, Some(end)) => {
                let inner = pane(frame, details, "details");
                let end = Paragraph::new(clean(end));
                frame.render_widget(end.wrap(Wrap { trim: false }), inner);
            }
            (None, None) => {
                let [details, source] = self.with_source(details);
                draw_details(frame, &self.view, details);
                self.draw_source(frame, source);
            }
        }
        draw_console(frame, &self.printed, console);
        frame.render_widget(Paragraph::new(self.foot(footer.width)), footer);
    }

    /// The areas of the details and of the source, which has no height if there is none to show.
    fn with_source(&self, details: Rect) -> [Rect; 2] {
        let lines = match self.source {
            Some(_) if details.height > 2 * SOURCE => SOURCE,
            _ => 0,
        };
        Layout::vertical([Constraint::Min(1), Constraint::Length(lines)]).areas(details)
    }

    fn draw_source(&self, frame: &mut Frame, area: Rect) {
        if area.height == 0 {
            return;
        }
        if let Some((place, found)) = &self.source {
            let inner = pane(frame, area, &cut(place, area.width.into()));
            let lines = found.lines.iter().zip(found.first..).map(|(line, number)| {
                let mark = if number == found.at { '>' } else { ' ' };
                let line = Line::from(clean(&format!("{mark}{number:4} {line}")));
                if number == found.at {
                    line.bold()
                } else {
                    line
                }
            });
            frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
        }
    }

    fn foot(&self, width: u16) -> Line<'static> {
        match (&self.typed, &self.wrong) {
            (Some(typed), _) => Line::from(format!(":{typed}_")),
            (None, Some(wrong)) => Line::from(clean(wrong).reversed()),
            (None, None) => Line::from(hints("s step".into(), HINTS, width)),
        }
    }
}

/// Breaks a line that is too wide before its place in the source, whose end says the line there.
fn narrow(line: &str, width: u16) -> Vec<String> {
    let width = usize::from(width);
    match line.rsplit_once("  at ") {
        Some((call, place)) if line.chars().count() > width => {
            let room = width.saturating_sub("   at ".len());
            vec![cut(call, width), format!("   at {}", cut(place, room))]
        }
        _ => vec![line.to_string()],
    }
}

impl Shown {
    /// The last line that can be the first one in the pane; 0 if all have room.
    fn last_top(&self) -> usize {
        self.text.lines().count().saturating_sub(self.room)
    }

    /// Scrolls the text, if it is longer than its pane and this is a key for that.
    fn scroll(&mut self, key: KeyCode) -> bool {
        let last = self.last_top();
        let top = walked(key, self.top, self.room).filter(|_| last > 0);
        self.top = top.unwrap_or(self.top).min(last);
        top.is_some()
    }

    fn draw(&mut self, frame: &mut Frame, area: Rect) {
        let borders = pane(frame, area, "");
        self.room = usize::from(borders.height);
        self.top = self.top.min(self.last_top());
        let title = match self.last_top() {
            0 => "answer (esc)",
            _ => "answer (arrows and pages scroll it, esc)",
        };
        let inner = pane(frame, area, title);
        let lines = self.text.lines().skip(self.top).take(self.room);
        let lines: Vec<Line> = lines.map(|line| clean(line).into()).collect();
        frame.render_widget(Paragraph::new(lines), inner);
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::{super::engine, *};
    use crate::Program;
    use trapline::Os;

    /// Has so many tasks of one name that they share a row
    #[derive(clap::Args)]
    struct Crowd {}

    impl Program for Crowd {
        async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
            for number in 0..30 {
                let naps = async move |os: &mut Os| {
                    for _ in 0..10 + number {
                        os.sleep(Duration::from_secs(1)).await;
                    }
                };
                os.spawn_detached("napper", naps).await?;
            }
            Ok(())
        }
    }

    #[test]
    fn a_wide_line_is_broken_before_its_place_whose_end_is_kept() {
        let line =
            "#5 00:00.000000    2 foo          sleep(1s) ...  at programs/cases/convoy.rs:67";
        assert_eq!(narrow(line, 100), [line]);
        let [call, place] = &narrow(line, 60)[..] else {
            panic!("it has two parts");
        };
        assert_eq!(call, "#5 00:00.000000    2 foo          sleep(1s) ...");
        assert_eq!(place, "   at programs/cases/convoy.rs:67");
        let short = narrow(line, 30);
        assert!(
            short.iter().all(|line| line.chars().count() <= 30),
            "{short:?}"
        );
        assert!(
            short[0].ends_with('…') && short[1].ends_with("rs:67"),
            "{short:?}"
        );
    }

    #[test]
    fn the_keys_are_about_the_task_of_the_motion_if_no_row_is_its_own() {
        let mut desk = Desk::new(engine::tests::engine::<Crowd>(), false);
        assert!(desk.perform("goto 95"));
        let subject = desk.engine.run.subject.expect("it has made a call");
        assert_ne!(desk.view.selected_task(), Some(subject), "it has no row");
        let details = desk.view.whereabouts.as_ref().expect("it has details");
        assert_eq!(details.tasks[0].tid, subject);
        let woken = desk.about_chosen("back wake");
        assert_eq!(woken, format!("back wake tid {subject}"));
        assert!(desk.perform(&woken));
        assert_eq!(desk.engine.run.subject, Some(subject));
        // The user chooses the row of the crowd.
        desk.press(KeyCode::Down.into());
        assert_eq!(desk.about_chosen("back wake"), "back wake");
    }
}
