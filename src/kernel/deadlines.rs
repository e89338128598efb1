//! The timeouts around the calls of one task; those of scopes, and shields against them.

use std::rc::Rc;

use super::timers::Timer;
use crate::{
    abi::{Nanos, QueueId},
    trap::ScopeState,
};

#[derive(Default, Debug)]
pub(super) struct Timeouts {
    /// The timeouts that have not fired, the outermost first.
    pub(super) armed: Vec<Timer>,
    /// The outermost timeout that has fired and not cut yet. Those within it are disarmed.
    pub(super) due: Option<Due>,
    /// Apart: few tasks have any.
    guards: Option<Box<Guards>>,
}

/// Scopes and shields, the outermost first.
#[derive(Default, Debug)]
struct Guards {
    /// With the numbers of their timeouts.
    scopes: Vec<(u64, Rc<ScopeState>)>,
    shields: Vec<Shield>,
}

#[derive(Debug)]
struct Shield {
    number: u64,
    /// The number of armed timeouts around it.
    around: usize,
    /// The outermost timeout around it that has fired meanwhile.
    held: Option<u64>,
    /// Closed when it holds a timeout back: a body may wait for that. Or none.
    closes: QueueId,
}

impl Timeouts {
    pub(super) fn take(&mut self, number: u64) -> impl Iterator<Item = Timer> {
        let outer = self.armed.iter();
        let outer = outer.take_while(|(_, other)| *other != number).count();
        self.armed.drain(outer..)
    }

    /// Ends a timeout and those within it, when its body has ended. Disarms those that have not fired.
    #[inline(always)]
    pub(super) fn end(&mut self, number: u64, mut disarm: impl FnMut(Timer)) {
        self.due.take_if(|due| due.number == number);
        if self.is_guarded() {
            self.end_scopes(Some(number));
        }
        match self.armed.pop_if(|(_, innermost)| *innermost == number) {
            Some(timer) => disarm(timer),
            None => self.take(number).for_each(disarm),
        }
    }

    /// Returns whether a timeout can end a wait now. One that a shield holds back cannot.
    pub(super) fn is_timed(&self) -> bool {
        let around = self.shields().last().map_or(0, |shield| shield.around);
        let within = self.armed.iter().skip(around);
        let ends = |(deadline, _): &Timer| *deadline != Nanos::FOREVER;
        self.due.is_some() || within.into_iter().any(ends)
    }

    /// Returns whether there may be a scope or a shield.
    #[inline(always)]
    pub(super) fn is_guarded(&self) -> bool {
        self.guards.is_some()
    }

    // ---- scopes

    fn scopes(&self) -> &[(u64, Rc<ScopeState>)] {
        self.guards.as_ref().map_or(&[], |guards| &guards.scopes)
    }

    pub(super) fn begin_scope(&mut self, number: u64, scope: Rc<ScopeState>) {
        let guards = self.guards.get_or_insert_default();
        guards.scopes.push((number, scope));
    }

    /// Ends the scope of that timeout and those within it; of `None` all of them.
    pub(super) fn end_scopes(&mut self, number: Option<u64>) {
        if let Some(guards) = &mut self.guards {
            let is_it = |(other, _): &(u64, _)| number.is_none_or(|number| number == *other);
            let outer = guards.scopes.iter().position(is_it);
            let outer = outer.unwrap_or(guards.scopes.len());
            for (_, scope) in guards.scopes.drain(outer..) {
                scope.under_way.set(None);
            }
        }
    }

    /// Returns the scope of a timeout.
    pub(super) fn scope(&self, number: u64) -> Option<&ScopeState> {
        let mut scopes = self.scopes().iter();
        scopes.find_map(|(other, scope)| (*other == number).then_some(&**scope))
    }

    /// Returns the outermost scope that is not cancelled, and the number of its timeout.
    pub(super) fn outermost_scope(&self) -> Option<(u64, &ScopeState)> {
        let mut scopes = self.scopes().iter();
        let found = scopes.find(|(_, scope)| !scope.is_cancelled.get());
        found.map(|(number, scope)| (*number, &**scope))
    }

    // ---- shields

    fn shields(&self) -> &[Shield] {
        self.guards.as_ref().map_or(&[], |guards| &guards.shields)
    }

    /// Enters a shield. A due timeout waits until it is left. Returns whether there is one.
    pub(super) fn enter_shield(&mut self, number: u64, closes: QueueId) -> bool {
        let held = self.due.take().map(|due| due.number);
        let around = self.armed.len();
        self.guards.get_or_insert_default().shields.push(Shield {
            number,
            around,
            held,
            closes,
        });
        held.is_some()
    }

    /// Leaves a shield. A timeout that has fired meanwhile is due now.
    pub(super) fn leave_shield(&mut self, number: u64) {
        let Some(guards) = &mut self.guards else {
            return;
        };
        let left = guards
            .shields
            .iter()
            .position(|shield| shield.number == number);
        let left = left.and_then(|at| guards.shields.drain(at..).next());
        let held = left.and_then(|shield| shield.held);
        self.due = held.map(|number| Due::new(number, false)).or(self.due);
    }

    /// Holds back a timeout that fires around a shield, up to the end of that shield. Returns the
    /// timeouts between the two, which are disarmed, and the queue that is to be closed; `None` if there
    /// is no such shield.
    pub(super) fn hold_back(&mut self, number: u64) -> Option<(Vec<Timer>, QueueId)> {
        let at = self.armed.iter().position(|(_, other)| *other == number)?;
        let shields = &mut self.guards.as_mut()?.shields;
        // One whose future is leaked outlives what was armed around it.
        for shield in &mut *shields {
            shield.around = shield.around.min(self.armed.len());
        }
        let outermost = shields.iter().position(|shield| shield.around > at)?;
        shields[outermost].held = Some(number);
        let around = shields[outermost].around;
        for shield in &mut shields[outermost..] {
            shield.around = shield.around.saturating_sub(around - at);
        }
        let closes = shields[outermost].closes;
        Some((self.armed.drain(at..around).skip(1).collect(), closes))
    }
}

/// A timeout that has fired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    /// The calls that it has let through because they only ask.
    asked: u8,
    /// Whether it has let one answer through. Then it cuts the next call before its effect.
    pub(super) spent: bool,
}

impl Due {
    /// The most calls that only ask before the one answer.
    const MOST_ASKED: u8 = 16;

    pub(super) fn new(number: u64, spent: bool) -> Self {
        Self {
            number,
            asked: 0,
            spent,
        }
    }

    pub(super) fn let_through(&mut self, only_asks: bool) {
        if only_asks && self.asked < Self::MOST_ASKED {
            self.asked += 1;
        } else {
            self.spent = true;
        }
    }
}
