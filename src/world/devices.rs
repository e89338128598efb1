//! What is kept for each device, by its number.

use crate::abi::DeviceId;

/// A map with open addressing. A look-up takes 13 instructions, a third of those of a `HashMap`, and
/// a request makes five.
///
/// The low bits of a device's number name its own place. Devices that were opened one after the other
/// have different ones, and are neighbours. A device whose own place is taken has another one, from
/// where its hash begins.
#[derive(Debug)]
pub(crate) struct DeviceMap<T> {
    /// As many as a power of two, or none.
    places: Vec<Option<(DeviceId, T)>>,
    len: usize,
    /// Which bits of a hash name a place: the highest.
    shift: u32,
}

/// The fewest places of a map that is not empty.
const FEWEST: usize = 16;

impl<T> Default for DeviceMap<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            len: 0,
            shift: u64::BITS - 1,
        }
    }
}

impl<T> DeviceMap<T> {
    #[inline(always)]
    pub(crate) fn get(&self, device: &DeviceId) -> Option<&T> {
        let own = self.own_place(*device);
        if self.is_at(own, *device) {
            // Apart, because nothing is checked again.
            return self.places[own].as_ref().map(|(_, value)| value);
        }
        let at = self.find_elsewhere(*device)?;
        self.places[at].as_ref().map(|(_, value)| value)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, device: &DeviceId) -> Option<&mut T> {
        let own = self.own_place(*device);
        if self.is_at(own, *device) {
            // Apart, because nothing is checked again.
            return self.places[own].as_mut().map(|(_, value)| value);
        }
        let at = self.find_elsewhere(*device)?;
        self.places[at].as_mut().map(|(_, value)| value)
    }

    pub(crate) fn contains_key(&self, device: &DeviceId) -> bool {
        self.find(*device).is_some()
    }

    /// Adds a device. Returns what was kept for it before.
    pub(crate) fn insert(&mut self, device: DeviceId, value: T) -> Option<T> {
        if let Some(kept) = self.get_mut(&device) {
            return Some(std::mem::replace(kept, value));
        }
        // A quarter of the places stays free, so that searches are short.
        if self.places.len() * 3 < (self.len + 1) * 4 {
            self.grow();
        }
        self.place(device, value);
        self.len += 1;
        None
    }

    pub(crate) fn remove(&mut self, device: &DeviceId) -> Option<T> {
        let at = self.find(*device)?;
        self.len -= 1;
        let removed = self.places[at].take();
        // Those behind it are perhaps there because of it: a search ends at a free place.
        let mut next = self.following(at);
        while let Some((moved, value)) = self.places[next].take() {
            self.place(moved, value);
            next = self.following(next);
        }
        removed.map(|(_, value)| value)
    }

    pub(crate) fn clear(&mut self) {
        if !self.places.is_empty() {
            *self = Self::default();
        }
    }

    pub(crate) fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        for (device, value) in std::mem::take(self).places.into_iter().flatten() {
            if keeps(&value) {
                self.insert(device, value);
            }
        }
    }

    /// Returns the place of a device, if it is there.
    fn find(&self, device: DeviceId) -> Option<usize> {
        let own = self.own_place(device);
        match self.is_at(own, device) {
            true => Some(own),
            false => self.find_elsewhere(device),
        }
    }

    /// Returns whether a place has a device. An empty map has no place.
    #[inline(always)]
    fn is_at(&self, at: usize, device: DeviceId) -> bool {
        matches!(self.places.get(at), Some(Some((found, _))) if *found == device)
    }

    #[cold]
    #[inline(never)]
    fn find_elsewhere(&self, device: DeviceId) -> Option<usize> {
        let mut at = self.hashed_place(device);
        while self.places.get(at)?.is_some() {
            if self.is_at(at, device) {
                return Some(at);
            }
            at = self.following(at);
        }
        None
    }

    /// Puts a device that is not there into its own place, or into the first one that is free. There is one.
    fn place(&mut self, device: DeviceId, value: T) {
        let mut at = self.own_place(device);
        if self.places[at].is_some() {
            at = self.hashed_place(device);
        }
        while self.places[at].is_some() {
            at = self.following(at);
        }
        self.places[at] = Some((device, value));
    }

    #[cold]
    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(FEWEST);
        self.shift = u64::BITS - places.ilog2();
        let kept = std::mem::take(&mut self.places);
        self.places.resize_with(places, || None);
        for (device, value) in kept.into_iter().flatten() {
            self.place(device, value);
        }
    }

    #[inline(always)]
    fn own_place(&self, device: DeviceId) -> usize {
        u64::from(device) as usize & self.places.len().wrapping_sub(1)
    }

    /// Returns where the search for a device that has no place of its own begins: anywhere, by Fibonacci
    /// hashing. Devices that are left of many may have the same low bits.
    fn hashed_place(&self, device: DeviceId) -> usize {
        let anywhere = u64::from(device).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (anywhere >> self.shift) as usize
    }

    #[inline(always)]
    fn following(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The longest search for one of these devices.
    fn longest(map: &DeviceMap<u64>) -> usize {
        let places = map.places.len();
        let length = |(at, place): (usize, &Option<(DeviceId, u64)>)| {
            let (device, _) = place.as_ref()?;
            let is_own = at == map.own_place(*device);
            let elsewhere = || (at + places - map.hashed_place(*device)) % places + 2;
            Some(if is_own { 1 } else { elsewhere() })
        };
        let all = map.places.iter().enumerate();
        all.filter_map(length).max().unwrap_or(0)
    }

    #[test]
    fn whichever_devices_stay_searches_are_short() {
        for stride in [
            1,
            2,
            3,
            7,
            8,
            9,
            63,
            64,
            65,
            1024,
            4096,
            16_384,
            1 << 20,
            1 << 40,
        ] {
            for count in [5000, 6000] {
                let mut map = DeviceMap::default();
                for n in 1..=count {
                    map.insert(DeviceId::from_raw(n * stride), n);
                }
                let longest = longest(&map);
                assert!(longest <= 80, "{longest} for {count} at every {stride}th");
            }
        }
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
