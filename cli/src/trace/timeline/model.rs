//! The contents of a timeline, collected from the events of a recording.

use std::{collections::BTreeMap, fmt, time::Duration};

use rustc_hash::FxHashMap;
use trapline::{
    Answered, Deadlock, DeviceId, Direction, Doing, Ending, Event, Exit, Moment, Nanos, On, Reply,
    Span, Tid, Wake,
    record::{Header, OwnedEvent},
};

use crate::{
    output::clean,
    trace::{
        graph::waits,
        history::History,
        life::Amount,
        source::{Failure, Source},
        spans::{Shares, Spans},
    },
    values::instant,
};

/// The largest number of events in a timeline. A page with more would take too much of a browser's
/// memory.
const MOST: u64 = 10_000_000;

/// The part of a recording to show.
#[derive(Default)]
pub(super) struct Window {
    pub(super) from: Option<Bound>,
    pub(super) to: Option<Bound>,
    /// Numbers or names; all tasks, if empty.
    pub(super) tasks: Vec<String>,
}

/// An end of a window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Time(Duration),
    Turn(u64),
}

pub(super) struct Timeline {
    pub(super) header: Header,
    /// Indexed by the task's number.
    pub(super) lanes: Vec<Lane>,
    /// In order.
    pub(super) rows: Vec<Row>,
    /// The spans in which no task was ready and the clock moved.
    pub(super) idle: Vec<(Moment, Moment)>,
    pub(super) begin: Moment,
    pub(super) end: Moment,
    /// The number of events read.
    pub(super) events: u64,
    /// The number of events that were not recorded.
    pub(super) missing: u64,
    /// Whether the window ends before the recording.
    pub(super) is_cut: bool,
    /// Whether the recording has no end, since its writer was killed.
    pub(super) is_torn: bool,
    /// What the tasks waited for at the end, as the kernel reports it.
    pub(super) waits: Deadlock,
    /// Why tasks waited. `None` for a picture, and for a recording that is too long.
    pub(super) history: Option<History>,
    /// What tasks were blocked on and woken by, apart from timers, with the words for it.
    pub(super) words: BTreeMap<String, String>,
    /// The bytes that went from one row to another, in the order of the first.
    pub(super) messages: Vec<Message>,
    /// The cycles of waits that closed in the window.
    pub(super) deadlocks: Vec<Closed>,
    /// How the time up to the end of the window was used.
    pub(super) shares: Shares,
    /// The selected tasks that were not found up to the end of the window.
    pub(super) unknown: Vec<String>,
}

/// A task and its spans.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) tid: u64,
    pub(super) name: String,
    pub(super) parent: u64,
    /// The place of its spawn.
    pub(super) spawned: Option<String>,
    /// In order, without gaps except where events are missing.
    pub(super) bars: Vec<Bar>,
    pub(super) exit: Option<Exit>,
    pub(super) traps: u64,
    /// The row of its last call, or of its spawn.
    row: Option<usize>,
    has_rows: bool,
}

impl Lane {
    /// True for the lane of the kernel.
    pub(super) fn is_kernel(&self) -> bool {
        self.tid == 0
    }
}

/// A span of a lane.
pub(super) struct Bar {
    /// Whether a timeout could end it.
    pub(super) is_timed: bool,
    pub(super) span: Span,
    /// For a turn, the row of the call that ended it; otherwise the row of the last call.
    pub(super) row: Option<usize>,
}

/// A call or a change of state, as a row of a table.
pub(super) struct Row {
    pub(super) at: Moment,
    pub(super) tid: u64,
    pub(super) kind: Kind,
    pub(super) what: String,
    /// The places in the source of a call that blocked and of its task's spawn, in words; or the
    /// place of a spawn or a fault.
    pub(super) places: Option<String>,
    /// The answer to a call, once it exists, and the time that it took.
    pub(super) result: Option<(String, Amount)>,
    /// Whether it is a failure, or a fault.
    pub(super) is_error: bool,
}

/// A cycle of waits that closed: each task waits for the next, and the last for the first.
pub(super) struct Closed {
    pub(super) at: Moment,
    pub(super) tids: Vec<Tid>,
}

/// Bytes that a task sent and another received: the rows of both transfers, and how many.
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Call,
    Spawned,
    Console,
    Device,
    Exited,
    Injected,
    /// A fault of the network.
    Fault,
    /// A cycle of waits closed.
    Deadlocked,
}

impl Bound {
    /// Parses a bound: an instant, or the number of a turn.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(Ok(turn)) = text.strip_suffix('t').map(str::parse) {
            return Ok(Self::Turn(turn));
        }
        match instant(text) {
            Ok(at) => Ok(Self::Time(at)),
            Err(error) => Err(format!("{error}, or a turn, such as 300t")),
        }
    }

    /// Whether it is after another bound of its kind.
    pub(super) fn is_beyond(self, other: Self) -> bool {
        match (self, other) {
            (Self::Time(one), Self::Time(other)) => one > other,
            (Self::Turn(one), Self::Turn(other)) => one > other,
            _ => false,
        }
    }

    fn is_before(self, moment: Moment) -> bool {
        match self {
            Self::Time(at) => at < moment.at,
            Self::Turn(turn) => turn < moment.turn,
        }
    }

    fn is_after(self, moment: Moment) -> bool {
        match self {
            Self::Time(at) => at > moment.at,
            Self::Turn(turn) => turn > moment.turn,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(at) => Nanos::from(*at).fmt(f),
            Self::Turn(turn) => write!(f, "{turn}t"),
        }
    }
}

impl Timeline {
    /// Reads a recording up to the end of the window. Explanations are of the whole recording.
    pub(super) fn read(
        source: &mut Source,
        window: &Window,
        is_explained: bool,
    ) -> Result<Self, Failure> {
        let mut gather = Gather::new(source.header().clone(), window);
        let mut history = is_explained.then(History::default);
        let (mut events, mut is_done) = (0, false);
        while let Some(event) = source.next() {
            let gap = source.gap();
            events += 1;
            if events > MOST {
                history = None;
            }
            if let Some(history) = &mut history {
                history.event(&event, gap.is_some());
            }
            if let Some(missing) = gap.filter(|_| !is_done) {
                gather.gap(missing);
            }
            is_done = is_done || !gather.event(event);
            if is_done && history.is_none() {
                break;
            }
            if gather.timeline.events > MOST {
                return Err(format!(
                    "a timeline of more than {MOST} events would be too large: take a part of it \
                     with --from and --to, or with --task"
                )
                .into());
            }
        }
        let is_torn = source.is_torn();
        if let Some(history) = &mut history {
            history.finish();
        }
        let timeline = gather.finish(is_torn, history);
        if timeline.lanes.iter().all(|lane| lane.tid == 0) {
            return Err(timeline.nothing(window).into());
        }
        Ok(timeline)
    }

    /// Says why there is no lane.
    fn nothing(&self, window: &Window) -> String {
        let is_all = window.from.is_none() && window.to.is_none();
        let why = match (&*window.tasks, &*self.unknown) {
            ([], _) if is_all => "the recording has no task".to_string(),
            ([], _) => "no task was alive in this window".to_string(),
            (wanted, unknown) if wanted.len() == unknown.len() && !self.is_cut => {
                let names: Vec<String> = unknown.iter().map(|task| clean(task)).collect();
                format!("no task is called {}", names.join(" or "))
            }
            _ => "no selected task was alive in this window".to_string(),
        };
        format!("there is nothing to show: {why}")
    }

    /// The words for what a task waits for, or for what woke it.
    pub(super) fn said(&self, of: &impl ToString) -> String {
        let of = of.to_string();
        self.words.get(&of).map_or(of, |words| clean(words))
    }

    /// Whether nothing could happen any more at the end.
    pub(super) fn is_deadlock(&self) -> bool {
        !self.waits.is_partial
    }

    pub(super) fn lane(&self, tid: Tid) -> Option<usize> {
        let tid = u64::from(tid);
        self.lanes.binary_search_by_key(&tid, |lane| lane.tid).ok()
    }
}

/// Builds a timeline.
struct Gather<'a> {
    window: &'a Window,
    spans: Spans,
    /// The indices of the lanes, by task.
    places: FxHashMap<Tid, usize>,
    timeline: Timeline,
    /// What went through each device that was opened since the last gap.
    transfers: BTreeMap<DeviceId, Transfers>,
    has_begun: bool,
}

/// How many bytes a device received and sent, and the rows of the transfers, if they have any.
type Transfers = [Vec<(Option<usize>, usize)>; 2];

impl<'a> Gather<'a> {
    fn new(header: Header, window: &'a Window) -> Self {
        Self {
            window,
            spans: Spans::default(),
            places: FxHashMap::default(),
            timeline: Timeline {
                header,
                lanes: Vec::new(),
                rows: Vec::new(),
                idle: Vec::new(),
                begin: Moment::default(),
                end: Moment::default(),
                events: 0,
                missing: 0,
                is_cut: false,
                is_torn: false,
                waits: Deadlock::among([]),
                history: None,
                words: BTreeMap::new(),
                messages: Vec::new(),
                deadlocks: Vec::new(),
                shares: Shares::default(),
                unknown: window.tasks.clone(),
            },
            transfers: BTreeMap::new(),
            has_begun: false,
        }
    }

    fn gap(&mut self, missing: u64) {
        self.timeline.missing += missing;
        self.spans.gap();
        self.transfers.clear();
    }

    /// Takes the next event. Returns whether more are needed.
    fn event(&mut self, mut event: OwnedEvent) -> bool {
        let before = self.spans.now();
        // A damaged recording may contain anything, even a time that goes back.
        event.at = event.at.max(before.at);
        let event = &event;
        if self.window.to.is_some_and(|to| {
            to.is_before(Moment {
                at: event.at,
                turn: before.turn,
            })
        }) {
            self.timeline.is_cut = true;
            return false;
        }
        let spans = self.spans.event(event);
        let now = self.spans.now();
        if !self.has_begun && !self.window.from.is_some_and(|from| from.is_after(now)) {
            self.has_begun = true;
            self.timeline.begin = match self.window.from {
                Some(Bound::Time(at)) => Moment { at, ..now },
                Some(Bound::Turn(turn)) => Moment { turn, ..now },
                None => Moment {
                    at: event.at,
                    turn: before.turn,
                },
            };
        }
        self.timeline.events += 1;
        self.timeline.end = now;
        let fact = &event.fact;
        let place = match (event.tid, fact.cycle()) {
            (_, Some(cycle)) => self.deadlocked(cycle),
            // Chaos and the host: `boot --fault`.
            (Tid::KERNEL, _) if fact.word() == "fault" => self.kernel_place(),
            (Tid::KERNEL, _) => None,
            _ => self.place(event),
        };
        let is_end = fact.call().is_some() || fact.exit().is_some();
        for span in spans {
            if span.doing == Doing::Idle && self.has_begun && now.turn > self.timeline.begin.turn {
                self.timeline.idle.push((span.from, span.to));
            }
            self.span(span, is_end);
        }
        let row = self.timeline.rows.len();
        if let Some(place) = place {
            self.note(place, event);
        }
        let is_row = self.timeline.rows.len() > row;
        self.transfer(event, is_row.then_some(row));
        true
    }

    /// Notes a cycle of waits, unless none of its tasks is shown. Returns the lane of the first that is.
    fn deadlocked(&mut self, cycle: &[Tid]) -> Option<usize> {
        let place = cycle.iter().find_map(|tid| self.places.get(tid).copied())?;
        if self.has_begun {
            let (at, tids) = (self.spans.now(), cycle.to_vec());
            self.timeline.deadlocks.push(Closed { at, tids });
        }
        Some(place)
    }

    /// Notes what went through a device.
    fn transfer(&mut self, event: &Event<'_>, row: Option<usize>) {
        if let Some(Answered(Reply::Device(device), _)) = event.fact.answer() {
            self.transfers.insert(device, Transfers::default());
        }
        if let Some((device, direction, Ok(bytes @ 1..))) = event.fact.device_io()
            && let Some(transfers) = self.transfers.get_mut(&device)
        {
            transfers[direction as usize].push((row, bytes));
        }
    }

    /// Matches what went into one end of a connection with what came out of the other.
    fn messages(&self, history: &History) -> Vec<Message> {
        let mut messages = Vec::new();
        for (device, transfers) in &self.transfers {
            let peer = history.peer(*device);
            let Some(others) = peer.and_then(|peer| self.transfers.get(&peer)) else {
                continue;
            };
            let sent = &transfers[Direction::Write as usize];
            let mut received = others[Direction::Read as usize].iter().copied();
            let mut now = received.next();
            for &(from, mut left) in sent {
                while let Some((to, room)) = now.filter(|_| left > 0) {
                    let bytes = left.min(room);
                    if let (Some(from), Some(to)) = (from, to) {
                        messages.push(Message { from, to, bytes });
                    }
                    left -= bytes;
                    now = match room - bytes {
                        0 => received.next(),
                        rest => Some((to, rest)),
                    };
                }
            }
        }
        // A pair of ends that is not one would show bytes before they were sent.
        messages.retain(|message| message.from < message.to);
        messages.sort_by_key(|message| (message.from, message.to));
        messages
    }

    /// Adds a span to the lane of its task, or of the kernel.
    fn span(&mut self, span: Span, has_ended_by_row: bool) {
        let place = match span.tid {
            // On a virtual clock its work takes no time, and the background shows when it is idle.
            Tid::KERNEL if self.timeline.header.is_simulated => None,
            Tid::KERNEL => self.kernel_place(),
            tid => self.places.get(&tid).copied(),
        };
        if let Some(place) = place {
            self.word(span);
            self.bar(place, span, has_ended_by_row);
        }
    }

    /// Notes the words for what a task waits for, and for what woke it.
    fn word(&mut self, span: Span) {
        let (tasks, words) = (self.spans.tasks(), &mut self.timeline.words);
        if let Doing::Blocked(on @ (On::Queue(..) | On::Device(..))) = span.doing {
            let said = words.entry(on.to_string());
            said.or_insert_with(|| tasks.thing(on));
        }
        if let Ending::Woken { by, .. } = span.end
            && let Wake::Queue(_) = by
        {
            words
                .entry(by.to_string())
                .or_insert_with(|| tasks.cause(by));
        }
    }

    /// The lane of the kernel, unless only some tasks are selected.
    fn kernel_place(&mut self) -> Option<usize> {
        let is_shown = self.window.tasks.is_empty();
        let lanes = &mut self.timeline.lanes;
        let place = is_shown.then(|| {
            self.places.entry(Tid::KERNEL).or_insert_with(|| {
                lanes.push(Lane {
                    name: "kernel".to_string(),
                    ..Lane::default()
                });
                lanes.len() - 1
            })
        });
        place.copied()
    }

    /// The lane of an event's task, if it is selected.
    fn place(&mut self, event: &Event<'_>) -> Option<usize> {
        if let Some(&place) = self.places.get(&event.tid) {
            return Some(place);
        }
        let (parent, name) = event.fact.spawned().unwrap_or((Tid::KERNEL, "?"));
        let name = clean(name);
        let is_wanted = |task: &String| match task.parse::<u64>() {
            Ok(number) => event.tid == number.into(),
            Err(_) => name == clean(task),
        };
        let tasks = &self.window.tasks;
        if !tasks.is_empty() && !tasks.iter().any(is_wanted) {
            return None;
        }
        self.timeline.unknown.retain(|task| !is_wanted(task));
        let place = self.timeline.lanes.len();
        self.places.insert(event.tid, place);
        self.timeline.lanes.push(Lane {
            tid: event.tid.into(),
            name,
            parent: parent.into(),
            spawned: event.place.as_ref().map(|place| clean(&place.to_string())),
            ..Lane::default()
        });
        Some(place)
    }

    fn note(&mut self, place: usize, event: &Event<'_>) {
        let (tasks, fact) = (self.spans.tasks(), &event.fact);
        let line = tasks.line(fact, event.tid);
        let kind = match fact.word() {
            "blocked" => {
                let at = event.place.as_ref().map(|place| clean(&place.to_string()));
                return self.place_call(place, at);
            }
            "replied" => {
                let answer = clean(&line.answer().unwrap_or_default());
                let is_error = tasks.is_error(event);
                return self.answer(place, answer, is_error);
            }
            "trapped" => Kind::Call,
            "spawned" => Kind::Spawned,
            "console" => Kind::Console,
            "device_io" => Kind::Device,
            "fault" => Kind::Fault,
            "deadlocked" => Kind::Deadlocked,
            "injected" => Kind::Injected,
            "exited" => Kind::Exited,
            _ => return,
        };
        let what = match kind {
            Kind::Call => tasks.last(event.tid).map(|call| clean(&call.to_string())),
            Kind::Spawned | Kind::Exited => Some(clean(&line.to_string())),
            Kind::Console => fact
                .printed()
                .map(|text| clean(text.trim_end_matches('\n'))),
            _ => Some(fact.to_string()),
        };
        let at = event.place.as_ref();
        let row = Row {
            at: self.spans.now(),
            tid: self.timeline.lanes[place].tid,
            kind,
            what: what.unwrap_or_default(),
            places: at.map(|place| clean(&format!("at {place:#}"))),
            result: None,
            is_error: kind == Kind::Fault || fact.is_error(),
        };
        if let Some(exit) = fact.exit() {
            self.timeline.lanes[place].exit = Some(exit.clone());
        }
        if self.has_begun {
            self.push(place, row);
        }
    }

    fn push(&mut self, place: usize, row: Row) {
        let lane = &mut self.timeline.lanes[place];
        lane.has_rows = true;
        lane.traps += u64::from(row.kind == Kind::Call);
        if let Kind::Call | Kind::Spawned = row.kind {
            lane.row = Some(self.timeline.rows.len());
        }
        self.timeline.rows.push(row);
    }

    /// Adds the places of a call that blocks, and of its task's spawn.
    fn place_call(&mut self, place: usize, at: Option<String>) {
        let Lane { row, spawned, .. } = &self.timeline.lanes[place];
        if let Some(row) = row.and_then(|row| self.timeline.rows.get_mut(row))
            && row.kind == Kind::Call
        {
            let method = row.what.split('(').next().unwrap_or_default();
            let at = at.map(|at| format!("{method} at {at}"));
            let spawned = spawned.as_ref().map(|at| format!("spawned at {at}"));
            let places: Vec<String> = at.into_iter().chain(spawned).collect();
            row.places = (!places.is_empty()).then(|| places.join(", "));
        }
    }

    fn answer(&mut self, place: usize, answer: String, is_error: bool) {
        let now = self.spans.now();
        let row = self.timeline.lanes[place].row;
        if let Some(row) = row.and_then(|row| self.timeline.rows.get_mut(row))
            && row.kind == Kind::Call
        {
            row.result = Some((answer, Amount::of(row.at, now)));
            row.is_error = is_error;
        }
    }

    /// Adds a bar to a lane, if it overlaps the window.
    fn bar(&mut self, place: usize, mut span: Span, has_ended_by_row: bool) {
        let begin = self.timeline.begin;
        if !self.has_begun || (span.to < begin || span.to.turn < begin.turn) {
            return;
        }
        span.from.at = span.from.at.max(begin.at);
        span.from.turn = span.from.turn.max(begin.turn);
        let row = if has_ended_by_row && span.doing == Doing::Running {
            Some(self.timeline.rows.len())
        } else {
            self.timeline.lanes[place].row
        };
        self.timeline.lanes[place].bars.push(Bar {
            is_timed: self.spans.tasks().is_timed(span.tid),
            span,
            row,
        });
    }

    fn finish(mut self, is_torn: bool, history: Option<History>) -> Timeline {
        // A span that the window cuts might have continued.
        let is_whole = !self.timeline.is_cut && !is_torn;
        let waits = waits(self.spans.tasks(), is_whole);
        let now = self.spans.now();
        for mut span in self.spans.finish() {
            // A deadlock is drawn a turn wide, though it takes no time.
            span.to.turn += u64::from(!waits.is_partial);
            self.span(span, false);
        }
        self.timeline.shares = self.spans.shares();
        if !waits.is_partial {
            self.timeline.end.turn += 1;
            self.timeline.idle.push((now, self.timeline.end));
        }
        let messages = history.as_ref().map(|history| self.messages(history));
        let mut timeline = self.timeline;
        timeline.messages = messages.unwrap_or_default();
        timeline.history = history;
        timeline
            .lanes
            .retain(|lane| lane.has_rows || !lane.bars.is_empty());
        timeline.lanes.sort_by_key(|lane| lane.tid);
        timeline.is_torn = is_torn;
        timeline.waits = waits;
        timeline
    }
}
