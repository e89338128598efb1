//! To look for a while before a sleep. A wake-up of a thread takes 13 to 58 us: as long as an append to a
//! file, or as a program takes for its next call.

use std::{
    hint,
    sync::atomic::{AtomicU8, Ordering},
    task::Waker,
    thread,
    time::{Duration, Instant},
};

use super::affinity;

/// How long a thread looks before it sleeps: about as long as a wake-up takes. So it never takes much
/// more than twice the time of the better choice.
pub(super) const LOOK: Duration = Duration::from_micros(50);

/// How long it looks for what has come within this time when it came last: a sync of a fast disk takes
/// 160 to 300 us. (Linux does so for a virtual processor: its `halt_poll_ns` grows and shrinks.)
pub(super) const LONG_LOOK: Duration = Duration::from_micros(400);

/// How many times a look reads its word before it lets others run, and asks for the time.
const READS: usize = 64;

/// Whether another thread can run meanwhile.
pub(super) fn is_of_use() -> bool {
    affinity::count() > 1
}

/// Looks for a microsecond or two. Returns whether it is there.
pub(super) fn glance(is_there: impl Fn() -> bool) -> bool {
    for _ in 0..READS {
        if is_there() {
            return true;
        }
        hint::spin_loop();
    }
    // A thread that waits for this core may be the one that is waited for.
    thread::yield_now();
    is_there()
}

/// Looks for as long as it is worth it.
pub(super) fn look(is_there: impl Fn() -> bool) {
    let until = Instant::now() + LOOK;
    while is_of_use() && !glance(&is_there) && Instant::now() < until {}
}

/// A word by which threads tell the kernel that there is news. It is woken only if it sleeps.
///
/// The kernel goes to sleep, and a thread tells, each by one exchange of the word: so one of them sees
/// what the other has done.
pub(super) struct News {
    state: AtomicU8,
    waker: Waker,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const TOLD: u8 = 2;

impl News {
    /// `waker` ends a wait of the kernel, or the next one if none is under way.
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            state: AtomicU8::new(AWAKE),
            waker,
        }
    }

    /// Called by a thread, once the news can be taken.
    pub(super) fn tell(&self) {
        if self.state.swap(TOLD, Ordering::AcqRel) == ASLEEP {
            self.waker.wake_by_ref();
        }
    }

    /// Whether there is news. Reads one word.
    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.state.load(Ordering::Acquire) == TOLD
    }

    /// The kernel takes the news, or looks for it: in both cases it need not be woken. Called before the
    /// news is taken.
    pub(super) fn take(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// The kernel looks for news: it need not be woken.
    pub(super) fn begin_look(&self) {
        self.exchange(ASLEEP, AWAKE);
    }

    /// The kernel is about to sleep. Returns `false` if there is news.
    pub(super) fn sleep(&self) -> bool {
        self.exchange(AWAKE, ASLEEP);
        !self.is_told()
    }

    fn exchange(&self, from: u8, to: u8) {
        // It fails where the word has the other value already, or there is news.
        let _ = self
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicUsize, mpsc},
        task::Wake,
    };

    use super::*;

    struct Bell(AtomicUsize, mpsc::SyncSender<()>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            // A bell that rings already need not ring twice.
            let _ = self.1.try_send(());
        }
    }

    fn news() -> (Arc<News>, Arc<Bell>, mpsc::Receiver<()>) {
        let (ring, rung) = mpsc::sync_channel(1);
        let bell = Arc::new(Bell(AtomicUsize::new(0), ring));
        (Arc::new(News::new(Arc::clone(&bell).into())), bell, rung)
    }

    #[test]
    fn only_a_kernel_that_sleeps_is_woken_and_once() {
        let (news, bell, _rung) = news();
        let rings = || bell.0.load(Ordering::Relaxed);
        news.tell();
        assert!(news.is_told() && !news.sleep(), "it does not sleep on news");
        news.take();
        assert!(news.sleep() && news.sleep() && !news.is_told());
        news.begin_look();
        news.tell();
        assert_eq!(rings(), 0);
        news.take();
        assert!(news.sleep());
        news.tell();
        news.tell();
        assert_eq!(rings(), 1);
        news.begin_look();
        assert!(news.is_told(), "a look forgets nothing");
    }

    /// A kernel that looks for a random while, and sleeps without a time limit: a lost wake-up is a test
    /// that never ends.
    #[test]
    fn no_news_is_lost_between_a_look_and_a_sleep() {
        const ROUNDS: usize = 20_000;
        let (news, _bell, rung) = news();
        let (ask, asked) = mpsc::channel::<usize>();
        let done = Arc::new(AtomicUsize::new(0));
        let (teller, count) = (Arc::clone(&news), Arc::clone(&done));
        let thread = thread::spawn(move || {
            for pause in asked {
                (0..pause).for_each(|_| hint::spin_loop());
                count.fetch_add(1, Ordering::Relaxed);
                teller.tell();
            }
        });
        for round in 1..=ROUNDS {
            ask.send(round * 7919 % 200).unwrap();
            news.begin_look();
            (0..round * 104_729 % 200).any(|_| {
                hint::spin_loop();
                news.is_told()
            });
            while !news.is_told() {
                if news.sleep() {
                    rung.recv().unwrap();
                }
            }
            news.take();
            assert_eq!(done.load(Ordering::Relaxed), round);
        }
        drop(ask);
        thread.join().unwrap();
    }
}
