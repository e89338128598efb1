//! References to devices.

use std::rc::Rc;

use super::{footprint::Object, frame::TrapFrame};
use crate::abi::{DeviceId, SystemCall};

/// A counted reference that keeps a device open. Dropping the last one closes the device.
pub(crate) struct DeviceRef(Rc<DeviceGuard>);

struct DeviceGuard {
    id: DeviceId,
    frame: Rc<TrapFrame>,
}

impl DeviceRef {
    pub(crate) fn new(id: DeviceId, frame: &Rc<TrapFrame>) -> Self {
        let frame = Rc::clone(frame);
        Self(Rc::new(DeviceGuard { id, frame }))
    }

    pub(crate) fn frame(&self) -> &TrapFrame {
        &self.0.frame
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.0.id
    }

    pub(crate) fn is_of(&self, frame: &Rc<TrapFrame>) -> bool {
        Rc::ptr_eq(&self.0.frame, frame)
    }

    /// Drops the reference and leaves the device open, for raw calls with its number.
    pub(crate) fn leave_open(mut self) {
        if let Some(guard) = Rc::get_mut(&mut self.0) {
            guard.id = DeviceId::NONE;
        }
    }
}

impl Drop for DeviceRef {
    fn drop(&mut self) {
        let left = Rc::strong_count(&self.0) - 1;
        let DeviceGuard { id, frame } = &*self.0;
        if *id == DeviceId::NONE {
            return;
        }
        frame.note_drop(Object::Handles(*id), left);
        if left == 0 {
            frame.defer(SystemCall::Close(*id));
        }
    }
}

impl Clone for DeviceRef {
    fn clone(&self) -> Self {
        let DeviceGuard { id, frame } = &*self.0;
        frame.note_clone(Object::Handles(*id), Rc::strong_count(&self.0));
        Self(Rc::clone(&self.0))
    }
}
