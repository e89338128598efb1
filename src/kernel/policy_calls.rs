//! The call that replaces the policy.

use super::{Kernel, outcome::Outcome};
use crate::{
    abi::{Errno, Reply},
    trap::Payload,
};

impl Kernel {
    /// Notes the policy that the next pass begins with.
    pub(super) fn set_policy(&mut self) -> Outcome {
        let Some(Payload::Policy(policy)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        if !self.ready.set_next(("of Os::set_policy", policy)) {
            return Errno::Invalid.into();
        }
        self.poll_soon();
        Reply::Done.into()
    }
}
