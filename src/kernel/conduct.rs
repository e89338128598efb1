//! A kernel that conducts others on its thread: its policy decides which task of which kernel has each turn, and
//! its log and its notes have what they do. So a search of several kernels is a search of one.

use std::{
    cell::{Cell, RefCell},
    mem,
    rc::Rc,
};

use super::{Error, Kernel, Step, ready::Ready, report::Limit};
use crate::{
    abi::{KernelId, Tid},
    interrupt::{External, ExternalWork, Remote},
    log::{Event, Log},
    sched::{Cause, Policy, Runnable},
    trap::{Footprints, Note, Object, mail_notes},
    world::{SimWorld, World},
};

thread_local! {
    static CONDUCTOR: RefCell<Option<Rc<Conductor>>> = const { RefCell::new(None) };
}

/// What a kernel lends while it conducts.
pub(crate) struct Conductor {
    ready: RefCell<Ready>,
    log: RefCell<Log>,
    /// Its notes, and whether they have the places where turns continue.
    footprints: Option<(Footprints, bool)>,
    remote: Remote,
    world: RefCell<Box<dyn World>>,
    turns: Cell<u64>,
    most: u64,
    /// Whether another thread may have decided what a kernel did.
    counts_on_threads: Cell<bool>,
}

/// The part of a kernel under a conductor that both use.
#[derive(Default)]
pub(crate) struct Part {
    /// The notes of the kernel, if there are any. They outlive it.
    notes: Option<Footprints>,
    remote: Option<Remote>,
    /// What the kernel has told its policy, in order.
    told: RefCell<Vec<Told>>,
    /// The task that has the next turn.
    next: Cell<Option<Runnable>>,
    ready: Cell<usize>,
    /// The ready tasks that the conductor has, and those that it has not, since every processor computes.
    handed: RefCell<Vec<Runnable>>,
    withheld: RefCell<Vec<Runnable>>,
    /// Whether its time has come, and it has not looked yet.
    is_due: Cell<bool>,
    /// Whether another kernel has failed, which shuts this one down, too.
    must_end: Cell<bool>,
    /// Whether the kernel ends in its own next turn.
    is_over: Cell<bool>,
    /// How many interrupts had come before the last turn that it will not take.
    missed: Cell<usize>,
}

/// What a turn of a kernel itself is for.
pub(crate) enum Own {
    Look,
    Shutdown,
    End,
}

enum Told {
    Pushed(Runnable, Cause),
    Removed(Runnable),
    Ended(Runnable),
}

/// The policy of a kernel under a conductor.
struct Conducted(Rc<Part>);

impl Policy for Conducted {
    fn push(&mut self, task: Runnable, cause: Cause) {
        self.0.ready.update(|ready| ready + 1);
        self.0.told.borrow_mut().push(Told::Pushed(task, cause));
    }

    fn pop(&mut self) -> Option<Runnable> {
        let next = self.0.next.take()?;
        self.0.ready.update(|ready| ready - 1);
        Some(next)
    }

    fn remove(&mut self, task: Runnable) {
        self.0.ready.update(|ready| ready - 1);
        self.0.told.borrow_mut().push(Told::Removed(task));
    }

    fn ended(&mut self, task: Runnable) {
        self.0.told.borrow_mut().push(Told::Ended(task));
    }

    fn len(&self) -> usize {
        self.0.ready.get()
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn stays(&self) -> bool {
        true
    }
}

impl Part {
    /// Whether the conductor has a ready task of the kernel, or the kernel itself.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_due.get() || !self.handed.borrow().is_empty()
    }

    /// Whether the task, or the kernel itself, can have a turn.
    fn has(&self, task: Runnable) -> bool {
        match task.tid.is_kernel() {
            true => self.is_due.get(),
            false => self.handed.borrow().contains(&task),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// How many interrupts the kernel has not taken.
    fn pending(&self) -> usize {
        self.remote.as_ref().map_or(0, Remote::pending)
    }

    /// Begins a turn of the kernel itself.
    pub(crate) fn own_turn(&self) -> Own {
        if self.is_over.take() {
            self.is_due.set(false);
            return Own::End;
        }
        match self.must_end.take() {
            true => Own::Shutdown,
            false => Own::Look,
        }
    }

    /// Gives this task the next turn of the kernel.
    pub(crate) fn resume(&self, task: Runnable) {
        self.handed.borrow_mut().retain(|other| *other != task);
        self.next.set(Some(task));
    }
}

/// Gives a kernel back what it has lent.
struct Lent<'a>(&'a mut Kernel, Rc<Conductor>);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        mail_notes::close();
        CONDUCTOR.take();
        let Self(kernel, conductor) = self;
        mem::swap(&mut kernel.ready, &mut conductor.ready.borrow_mut());
        mem::swap(&mut kernel.log, &mut conductor.log.borrow_mut());
        mem::swap(&mut kernel.world, &mut conductor.world.borrow_mut());
        kernel.remote.runs(Tid::KERNEL);
        kernel.stats.ticks = conductor.turns.get();
        if conductor.counts_on_threads.get() {
            drop(ExternalWork::new(&kernel.remote, External::Setter));
        }
    }
}

impl Kernel {
    /// Conducts the kernels that run meanwhile. It has no tasks of its own.
    pub(crate) fn conduct<T>(&mut self, run: impl FnOnce() -> T) -> T {
        assert!(
            Conductor::current().is_none(),
            "a search of several kernels cannot begin within another one"
        );
        let footprints = self.frame.footprints();
        if footprints.is_some() {
            mail_notes::open(&self.remote);
        }
        let conductor = Rc::new(Conductor {
            ready: RefCell::new(mem::replace(&mut self.ready, Ready::new(None, 1))),
            log: RefCell::new(mem::take(&mut self.log)),
            footprints: footprints.map(|notes| (notes, self.frame.is_located())),
            remote: self.remote.clone(),
            world: RefCell::new(mem::replace(&mut self.world, Box::new(SimWorld::new(0)))),
            turns: Cell::new(0),
            counts_on_threads: Cell::new(false),
            most: self.limits.ticks,
        });
        CONDUCTOR.set(Some(Rc::clone(&conductor)));
        let _lent = Lent(self, conductor);
        run()
    }

    /// Puts the kernel under a conductor, which knows its tasks from now on.
    pub(super) fn obey(&mut self, conductor: &Rc<Conductor>) -> Rc<Part> {
        let located = conductor.footprints.as_ref().map(|(_, located)| *located);
        let notes = located.map(|is_located| match is_located {
            true => self.located_footprints(),
            false => self.footprints(),
        });
        if let Some(notes) = &notes {
            // The host has made them: none could have had a turn in an earlier run.
            let made = self.tasks.ready().map(|task| Note::Woken(task.tid));
            made.for_each(|note| notes.note(note));
        }
        let part = Rc::new(Part {
            notes,
            remote: Some(self.remote.clone()),
            ..Part::default()
        });
        self.is_conducted = true;
        let policy = Box::new(Conducted(Rc::clone(&part)));
        self.ready.obey(("of a search", policy));
        self.replace_policy();
        if conductor.log.borrow().is_observed() {
            let (conductor, id, of) = (Rc::clone(conductor), self.id, Rc::clone(&part));
            self.log.add(Box::new(move |event: &Event<'_>| {
                conductor.take_notes(id, &of);
                let event = event.clone().beside(id);
                conductor.log.borrow_mut().pass(&event);
            }));
            for task in self.tasks.ready().collect::<Vec<_>>() {
                self.emit_spawned(task, None);
            }
        }
        part
    }

    /// Gives the task that is next its turn, or one whose computation is over.
    pub(crate) fn have_turn(&mut self) -> Result<Step, Error> {
        self.step_by(|kernel, ends| {
            let ticks = ends.ticks.min(kernel.stats.ticks + 1);
            let ran = kernel.run_pass(ticks);
            kernel.check_policy()?;
            Ok(ran.map_or(Step::Idle, Step::Ran))
        })
    }

    /// Polls the world without a wait, and gives no task a turn.
    pub(crate) fn look(&mut self) -> Result<Step, Error> {
        self.step_by(|kernel, ends| {
            if !kernel.is_over() {
                kernel.poll_world(ends)?;
            }
            Ok(match kernel.is_over() {
                true => Step::Finished,
                false => Step::Idle,
            })
        })
    }

    /// Returns whether a task has its turn before others that are ready: its computation is over.
    pub(crate) fn has_turn_due(&self) -> bool {
        self.processors.has_done()
    }

    /// Returns whether no ready task can have a turn: every processor computes.
    fn computes_only(&self) -> bool {
        !self.ready.is_empty() && self.is_waiting()
    }

    /// Returns whether a task is left that keeps the kernel running.
    pub(crate) fn has_tasks(&self) -> bool {
        self.tasks.lasting() > 0
    }

    /// Whether it has a limit of turns, which any of them may use up.
    fn counts_turns(&self) -> bool {
        self.limits.ticks < u64::MAX
    }

    fn counts_on_setters(&self) -> bool {
        self.remote.started(External::Setter) > 0
    }

    /// Returns the error of a kernel whose conductor has reached its limit.
    pub(crate) fn over_limit(&self, conductor: &Conductor) -> Error {
        self.limit(Limit::Ticks(conductor.most))
    }
}

impl Conductor {
    /// Returns the conductor of this thread.
    pub(crate) fn current() -> Option<Rc<Self>> {
        CONDUCTOR.with_borrow(Clone::clone)
    }

    /// Takes what a kernel has told its policy, and its notes. Without a kernel, it has ended.
    pub(crate) fn follow(&self, id: KernelId, kernel: Option<&Kernel>, part: &Part) {
        let mut ready = self.ready.borrow_mut();
        if kernel.is_some_and(Kernel::counts_on_setters) {
            self.counts_on_threads.set(true);
        }
        let mut has_ended = false;
        let (mut handed, mut withheld) = (part.handed.borrow_mut(), part.withheld.borrow_mut());
        for told in part.told.take() {
            match told {
                Told::Pushed(task, cause) => {
                    ready.push_apart(task.beside(id), cause);
                    handed.push(task);
                }
                Told::Removed(task) => {
                    ready.remove(task.beside(id));
                    handed.retain(|other| *other != task);
                    withheld.retain(|other| *other != task);
                }
                Told::Ended(task) => {
                    has_ended = true;
                    ready.ended(task.beside(id));
                }
            }
        }
        if kernel.is_some_and(Kernel::computes_only) {
            for task in handed.drain(..) {
                ready.remove(task.beside(id));
                withheld.push(task);
                // It could have had its turn before.
                self.touch(Object::Life(task.tid.beside(id)));
            }
        } else {
            for task in withheld.drain(..) {
                ready.push_apart(task.beside(id), Cause::Woken);
                handed.push(task);
            }
        }
        if kernel.is_none() && part.is_due.take() {
            // It is gone: the search has given it up, or it has ended while it looked.
            ready.remove(Runnable::kernel(id));
            part.must_end.set(false);
        }
        drop(ready);
        self.take_notes(id, part);
        if has_ended || kernel.is_some_and(Kernel::counts_turns) {
            // After its last turn, the kernel looks at nothing any more.
            self.touch(Object::Life(Tid::KERNEL.beside(id)));
        }
    }

    fn touch(&self, object: Object) {
        let writes = true;
        self.note(Note::Touched { object, writes });
    }

    fn note(&self, note: Note) {
        if let Some((footprints, _)) = &self.footprints {
            footprints.note(note);
        }
    }

    /// Takes the notes of a kernel, and those of mailboxes.
    fn take_notes(&self, id: KernelId, part: &Part) {
        if let (Some((footprints, _)), Some(notes)) = (&self.footprints, &part.notes) {
            footprints.take_beside(notes, id);
            mail_notes::take()
                .into_iter()
                .for_each(|note| footprints.note(note));
        }
    }

    /// Has a kernel look at the world in a turn of its own: its time has come. Mail may come before.
    pub(crate) fn wake(&self, id: KernelId, part: &Part) {
        if part.is_due.replace(true) {
            return;
        }
        self.note(Note::Woken(Tid::KERNEL.beside(id)));
        let mut ready = self.ready.borrow_mut();
        ready.push_apart(Runnable::kernel(id), Cause::Woken);
    }

    /// Has a kernel shut down in a turn of its own: another one has failed. It may have other turns before.
    pub(crate) fn end(&self, id: KernelId, part: &Part) {
        part.must_end.set(true);
        self.wake(id, part);
    }

    /// Has a kernel that is over end in a turn of its own: others may have turns before. Its tasks have none any
    /// more, and it does not look at what comes.
    pub(crate) fn finish(&self, id: KernelId, kernel: &Kernel, part: &Part) {
        let mut ready = self.ready.borrow_mut();
        part.withheld.take();
        for task in part.handed.take() {
            ready.remove(task.beside(id));
            // It could have had its turn before.
            self.touch(Object::Life(task.tid.beside(id)));
        }
        drop(ready);
        let of = Tid::KERNEL.beside(id);
        if !kernel.tasks.is_empty() || kernel.frame.mailboxes.are_held() {
            // What comes could have come before, when the kernel looked at it.
            self.touch(Object::Poll(of));
        }
        if part.must_end.take() {
            // So could what shuts it down.
            self.touch(Object::Life(of));
        }
        part.is_over.set(true);
        part.missed.set(part.pending());
        self.wake(id, part);
    }

    /// Notes whether something has come in the last turn to a kernel that is over or gone: a turn touches the same
    /// as when the kernel looks at what comes.
    pub(crate) fn note_missed(&self, id: KernelId, part: &Part) {
        let come = part.pending();
        if part.missed.replace(come) < come {
            self.note(Note::Touched {
                object: Object::Poll(Tid::KERNEL.beside(id)),
                writes: false,
            });
        }
    }

    /// Notes that a kernel has failed: nothing commutes with that.
    pub(crate) fn note_failure(&self) {
        self.touch(Object::All);
    }

    /// Decides a choice of a task.
    pub(crate) fn choose(&self, of: u64, drawn: u64) -> u64 {
        self.world.borrow_mut().choose(of, drawn)
    }

    /// Notes that a kernel takes what has come.
    pub(crate) fn polls(&self, id: KernelId, kernel: Option<&Kernel>, part: &Part) {
        let of = Tid::KERNEL.beside(id);
        // What shuts it down is still under way.
        let was_due = !part.must_end.get() && part.is_due.take();
        if was_due {
            self.ready.borrow_mut().remove(Runnable::kernel(id));
            // It could have looked before.
            self.touch(Object::Life(of));
        }
        // Daemons have their turns in the next poll, whatever causes it.
        let has_daemons = kernel.is_some_and(|kernel| kernel.ready.daemons() > 0);
        self.note(Note::Touched {
            object: Object::Poll(of),
            writes: was_due || has_daemons,
        });
    }

    /// Forgets what was noted of mailboxes while kernels were booted: the host has done it.
    pub(crate) fn begin(&self) {
        drop(mail_notes::take());
        self.note_wait();
    }

    /// Notes that what follows commutes with nothing: the clock goes on for all kernels, or the host acts.
    pub(crate) fn note_wait(&self) {
        self.remote.runs(Tid::KERNEL);
        self.note(Note::Barrier);
    }

    /// Returns the task that has the next turn, and its kernel, of which this returns the part. `None` if the
    /// policy gives none, or has failed.
    pub(crate) fn next<'a>(
        &self,
        part: impl Fn(KernelId) -> &'a Part,
    ) -> Option<(KernelId, Runnable)> {
        self.remote.runs(Tid::KERNEL);
        loop {
            let task = self.ready.borrow_mut().pop_apart()?;
            let (kernel, alone) = task.alone()?;
            // A policy may keep a task that is gone.
            if part(kernel).has(alone) {
                self.remote.runs(task.tid);
                self.turns.update(|turns| turns + 1);
                return Some((kernel, alone));
            }
        }
    }

    pub(crate) fn is_at_limit(&self) -> bool {
        self.turns.get() >= self.most
    }

    /// Says why the policy gives no task.
    pub(crate) fn failure(&self) -> String {
        let failure = self.ready.borrow_mut().take_failure();
        failure.unwrap_or_else(|| "the policy of the search withholds a task".into())
    }
}
