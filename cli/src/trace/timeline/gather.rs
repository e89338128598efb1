//! Reading a recording into a timeline.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use trapline::{
    Answered, Call, Detail, DeviceId, Direction, Doing, Ending, Event, KernelId, Moment, On, Reply,
    Span, SystemCall, Tid, Wake, record::OwnedEvent,
};

use super::{
    model::{Bar, Closed, Kind, Lane, Message, Row, Timeline},
    scale::{Bound, Window},
};
use crate::{
    output::clean,
    trace::{
        graph::waits,
        history::History,
        life::Amount,
        source::{Failure, Source},
        spans::Spans,
    },
};

/// The largest number of events in a timeline. A page with more would take too much of a browser's
/// memory.
const MOST: u64 = 10_000_000;

impl Timeline {
    /// Reads a recording up to the end of the window. Explanations are of the whole recording.
    pub(super) fn read(
        source: &mut Source,
        window: &Window,
        is_explained: bool,
    ) -> Result<Self, Failure> {
        let timeline = Self {
            header: source.header().clone(),
            unknown: window.tasks.clone(),
            ..Self::default()
        };
        let mut gather = Gather {
            window,
            timeline,
            spans: Spans::default(),
            places: FxHashMap::default(),
            transfers: BTreeMap::new(),
            posted: BTreeMap::new(),
            posts: BTreeMap::new(),
            counts_posts: true,
            has_begun: false,
        };
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
            if !is_done {
                gather.timeline.missing += gap.unwrap_or(0);
                is_done = !gather.event(event, gap.is_some());
            }
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
        if let Some(history) = &mut history {
            history.finish();
        }
        let timeline = gather.finish(source.is_torn(), history);
        if timeline.lanes.iter().all(Lane::is_kernel) {
            return Err(timeline.nothing(window).into());
        }
        Ok(timeline)
    }
}

struct Gather<'a> {
    window: &'a Window,
    spans: Spans,
    places: FxHashMap<Tid, usize>,
    timeline: Timeline,
    /// What went through each device that was opened since the last gap.
    transfers: BTreeMap<DeviceId, Transfers>,
    /// How many messages the tasks of each kernel have put into mailboxes, and the rows of these calls.
    posted: BTreeMap<KernelId, u64>,
    posts: BTreeMap<(KernelId, u64), usize>,
    counts_posts: bool,
    has_begun: bool,
}

/// How many bytes a device received and sent, and the rows of the transfers, if they have any.
type Transfers = [Vec<(Option<usize>, usize)>; 2];

impl Gather<'_> {
    /// Takes the next event, and whether events are missing before it. Returns whether more are needed.
    fn event(&mut self, mut event: OwnedEvent, has_gap: bool) -> bool {
        if has_gap {
            self.spans.gap();
            self.transfers.clear();
        }
        let before = self.spans.now();
        // A damaged recording may contain anything, even a time that goes back.
        event.at = event.at.max(before.at);
        let event = &event;
        let start = Moment {
            at: event.at,
            turn: before.turn,
        };
        let Window { from, to, .. } = *self.window;
        if to.is_some_and(|to| to < to.of(start)) {
            self.timeline.is_cut = true;
            return false;
        }
        let spans = self.spans.event(event);
        self.word_of_wait(event);
        let now = self.spans.now();
        if !self.has_begun && from.is_none_or(|from| from <= from.of(now)) {
            self.has_begun = true;
            self.timeline.begin = match from {
                Some(Bound::Time(at)) => Moment { at, ..now },
                Some(Bound::Turn(turn)) => Moment { turn, ..now },
                None => start,
            };
        }
        self.timeline.events += 1;
        self.timeline.end = now;
        let fact = &event.fact;
        let place = match (event.tid, fact.cycle()) {
            (_, Some(cycle)) => self.deadlocked(cycle),
            // Chaos and the host: `boot --fault`.
            (tid, _) if tid.is_kernel() && fact.word() == "fault" => self.kernel_place(tid),
            (tid, _) if tid.is_kernel() => None,
            _ => self.place(event),
        };
        let is_end = fact.call().is_some() || fact.exit().is_some();
        for span in spans {
            // Of several kernels, each has its idle time in a lane of its own.
            let is_all = span.doing == Doing::Idle && span.tid == Tid::KERNEL;
            if is_all && self.has_begun && now.turn > self.timeline.begin.turn {
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
        self.mail(event, is_row.then_some(row), place, has_gap);
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

    /// Notes the puts into mailboxes, and joins each with the get of its message, which has a row then.
    fn mail(&mut self, event: &Event<'_>, row: Option<usize>, place: Option<usize>, has_gap: bool) {
        let alone = self.timeline.header.kernel.map(|(kernel, _)| kernel);
        let kernel = event.tid.kernel().or(alone).unwrap_or_default();
        if has_gap {
            // The numbers of the puts are not known from here on.
            self.posts.clear();
            self.counts_posts = false;
        }
        if let Some(Call(SystemCall::Post, _)) = event.fact.call() {
            let count = self.posted.entry(kernel).or_default();
            *count += 1;
            if let Some(row) = row.filter(|_| self.counts_posts) {
                self.posts.insert((kernel, *count), row);
            }
        }
        if let (Some(Answered(_, &Detail::Mail(kernel, put))), Some(place)) =
            (event.fact.answer(), place)
            && let Some(&from) = self.posts.get(&(kernel, put))
        {
            let sender = self.timeline.rows[from].tid;
            let name = self.spans.tasks().comm(sender);
            let what = clean(&format!("mail from {sender} {name:?}"));
            let lane = &self.timeline.lanes[place];
            let to = self.timeline.rows.len();
            self.timeline.rows.push(Row {
                at: self.spans.now(),
                tid: lane.tid,
                kind: Kind::Mail,
                what,
                places: None,
                result: None,
                is_error: false,
            });
            self.timeline.messages.push(Message { from, to, bytes: 0 });
        }
    }

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
            let peer = history.devices.peer(*device);
            let Some(others) = peer.and_then(|peer| self.transfers.get(&peer)) else {
                continue;
            };
            let mut received = others[Direction::Read as usize].iter().copied();
            let mut now = received.next();
            for &(from, mut left) in &transfers[Direction::Write as usize] {
                while let Some((to, room)) = now.filter(|_| left > 0) {
                    let bytes = left.min(room);
                    // A pair of ends that is not one would show bytes before they were sent.
                    if let (Some(from), Some(to)) = (from, to)
                        && from < to
                    {
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
        messages
    }

    /// Adds a span to the lane of its task, or of the kernel.
    fn span(&mut self, span: Span, has_ended_by_row: bool) {
        let place = match span.tid {
            // On a virtual clock its work takes no time, and the background shows when it is idle.
            tid if tid.is_kernel() && self.timeline.header.is_simulated => None,
            tid if tid.is_kernel() => self.kernel_place(tid),
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
        if let Ending::Woken { by, .. } = span.end
            && let Wake::Queue(_) = by
        {
            let said = words.entry(by.to_string());
            said.or_insert_with(|| tasks.cause(by));
        }
    }

    /// Notes the words for what a task begins to wait for: when the wait ends, the object may be gone.
    fn word_of_wait(&mut self, event: &OwnedEvent) {
        if let Some(on @ (On::Queue(..) | On::Device(..))) = event.fact.blocked_on() {
            let tasks = self.spans.tasks();
            let said = self.timeline.words.entry(on.to_string());
            said.or_insert_with(|| tasks.thing(on));
        }
    }

    /// The lane of a kernel, unless only some tasks are selected.
    fn kernel_place(&mut self, tid: Tid) -> Option<usize> {
        let is_shown = self.window.tasks.is_empty();
        let lanes = &mut self.timeline.lanes;
        let place = is_shown.then(|| {
            self.places.entry(tid).or_insert_with(|| {
                let number = tid.kernel().map(|kernel| format!(" {kernel}"));
                lanes.push(Lane {
                    tid,
                    name: format!("kernel{}", number.unwrap_or_default()),
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
        let is_wanted = |task: &String| match task.parse::<Tid>() {
            Ok(number) => event.tid == number,
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
            tid: event.tid,
            name,
            parent,
            spawned: event.place.as_ref().map(|place| clean(&place.to_string())),
            ..Lane::default()
        });
        Some(place)
    }

    fn note(&mut self, place: usize, event: &Event<'_>) {
        let (tasks, fact, tid) = (self.spans.tasks(), &event.fact, event.tid);
        let Timeline { lanes, rows, .. } = &mut self.timeline;
        let (lane, now) = (&mut lanes[place], self.spans.now());
        let line = tasks.line(fact, tid);
        let said = || clean(&line.to_string());
        let (kind, what) = match fact.word() {
            "blocked" => return block(lane, rows, event),
            "replied" => {
                if let Some(row) = lane.call(rows) {
                    let answer = clean(&line.answer().unwrap_or_default());
                    row.result = Some((answer, Amount::of(row.at, now)));
                    row.is_error = tasks.is_error(event);
                }
                return;
            }
            "trapped" => {
                let call = tasks.last(tid).map(|call| clean(&call.to_string()));
                (Kind::Call, call.unwrap_or_default())
            }
            "spawned" => (Kind::Spawned, said()),
            "exited" => (Kind::Exited, said()),
            "console" => {
                let text = fact.printed().unwrap_or_default();
                (Kind::Console, clean(text.trim_end_matches('\n')))
            }
            "device_io" => (Kind::Device, fact.to_string()),
            "fault" => (Kind::Fault, fact.to_string()),
            "deadlocked" => (Kind::Deadlocked, fact.to_string()),
            "accessed" => (Kind::Accessed, clean(&fact.to_string())),
            "injected" => (Kind::Injected, fact.to_string()),
            _ => return,
        };
        if let Some(exit) = fact.exit() {
            lane.exit = Some(exit.clone());
        }
        if !self.has_begun {
            return;
        }
        lane.has_rows = true;
        lane.traps += u64::from(kind == Kind::Call);
        if let Kind::Call | Kind::Spawned = kind {
            lane.row = Some(rows.len());
        }
        let at = event.place.as_ref();
        rows.push(Row {
            at: now,
            tid: lane.tid,
            kind,
            what,
            places: at.map(|place| clean(&format!("at {place:#}"))),
            result: None,
            is_error: kind == Kind::Fault || fact.is_error(),
        });
    }

    /// Adds a bar to a lane, if it overlaps the window.
    fn bar(&mut self, place: usize, mut span: Span, has_ended_by_row: bool) {
        let begin = self.timeline.begin;
        if !self.has_begun || (span.to < begin || span.to.turn < begin.turn) {
            return;
        }
        span.from.at = span.from.at.max(begin.at);
        span.from.turn = span.from.turn.max(begin.turn);
        let is_timed = self.spans.tasks().is_timed(span.tid);
        let lane = &mut self.timeline.lanes[place];
        let row = match has_ended_by_row && span.doing == Doing::Running {
            true => Some(self.timeline.rows.len()),
            false => lane.row,
        };
        lane.bars.push(Bar {
            is_timed,
            span,
            row,
        });
    }

    fn finish(mut self, is_torn: bool, history: Option<History>) -> Timeline {
        // A span that the window cuts might have continued.
        let is_whole = !self.timeline.is_cut && !is_torn;
        let waits = waits(self.spans.tasks(), is_whole);
        let deadlock = Some(waits).filter(|waits| !waits.is_partial);
        let now = self.spans.now();
        for mut span in self.spans.finish() {
            // A deadlock is drawn a turn wide, though it takes no time.
            span.to.turn += u64::from(deadlock.is_some());
            self.span(span, false);
        }
        let messages = history.as_ref().map(|history| self.messages(history));
        let mut timeline = self.timeline;
        timeline.messages.extend(messages.unwrap_or_default());
        timeline
            .messages
            .sort_by_key(|message| (message.from, message.to));
        if deadlock.is_some() {
            timeline.end.turn += 1;
            timeline.idle.push((now, timeline.end));
        }
        let is_shown = |lane: &Lane| lane.has_rows || !lane.bars.is_empty();
        timeline.lanes.retain(is_shown);
        timeline.lanes.sort_by_key(|lane| lane.tid);
        Timeline {
            shares: self.spans.shares(),
            history,
            is_torn,
            deadlock,
            ..timeline
        }
    }
}

/// Adds the places of a call that blocks, and of its task's spawn.
fn block(lane: &Lane, rows: &mut [Row], event: &Event<'_>) {
    if let Some(row) = lane.call(rows) {
        let method = row.what.split('(').next().unwrap_or_default();
        let at = event.place.as_ref();
        let at = at.map(|at| clean(&format!("{method} at {at}")));
        let spawned = lane.spawned.as_ref().map(|at| format!("spawned at {at}"));
        let places: Vec<String> = at.into_iter().chain(spawned).collect();
        row.places = (!places.is_empty()).then(|| places.join(", "));
    }
}
