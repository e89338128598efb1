//! What tasks leave for the kernel without a trap, mostly from destructors.

use std::vec;

use super::{Kernel, contain};
use crate::{abi::Exit, event::Fact, frame::Mail, sched::Runnable};

impl Kernel {
    /// Sees to the mail of a task. Answers whether the task is still alive: it may have killed
    /// itself that way.
    ///
    /// Whom the mail ends may leave mail of its own, which comes first and may end others, in a
    /// chain of any length: so the mail under way waits in a list, and not on the stack.
    #[cold]
    #[inline(never)]
    pub(super) fn take_mail(&mut self, me: Runnable) -> bool {
        let mut under_way = Vec::new();
        let (mut owner, mut post) = (me, self.open_mail(me));
        loop {
            if let Some(mail) = post.next() {
                if let Some(victim) = self.see_to(owner, mail) {
                    self.strip(victim, &Exit::Killed);
                    under_way.push((owner, post));
                    (owner, post) = (victim, self.open_mail(victim));
                }
            } else if self.frame.has_mail() {
                // From a destructor that the mail itself has run: of a source, a tracer or a message.
                post = self.open_mail(owner);
            } else if let Some(outer) = under_way.pop() {
                self.bury(owner, Exit::Killed);
                self.reap_zombie(owner.tid);
                (owner, post) = outer;
            } else {
                return self.is_live(me);
            }
        }
    }

    /// Empties the mail box: prints what is to be printed and answers the rest.
    fn open_mail(&mut self, me: Runnable) -> vec::IntoIter<Mail> {
        let (text, post) = self.frame.take_mail();
        if !text.is_empty() {
            self.log
                .emit(&mut *self.world, me.tid, || Fact::Console { text: &text });
            self.print(&text);
        }
        post.into_iter()
    }

    /// Sees to a piece of mail. Answers whom it ends.
    fn see_to(&mut self, me: Runnable, mail: Mail) -> Option<Runnable> {
        match mail {
            Mail::Kill(tid) => {
                self.reap_zombie(tid);
                return self.find_live(tid);
            }
            Mail::CloseDevice(device) => drop(self.close(device)),
            Mail::FreeQueue(queue) => self.free_queue(queue),
            Mail::Put(queue, message) => self.put_posted(queue, message),
            Mail::Disarm(number) => self.disarm(me, number),
            Mail::Observe(number, tracer) => {
                self.log.attach(number, tracer);
                // The turns that are under way are given without a word.
                self.next_look = 0;
            }
            Mail::Unobserve(number) => contain(|| self.log.detach(number)),
        }
        None
    }
}
