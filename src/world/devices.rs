//! What is kept for each device, by its number.

use crate::abi::DeviceId;

/// A map with open addressing. A look-up takes a dozen instructions, a third of those of a `HashMap`, and
/// a request makes five.
///
/// Devices that were opened one after the other, and are likely to be served so, are neighbours, in
/// blocks of numbers. The blocks are anywhere.
#[derive(Debug)]
pub(crate) struct DeviceMap<T> {
    /// As many as a power of two, or none.
    places: Vec<Option<(DeviceId, T)>>,
    len: usize,
    /// Which bits of a hash are the number of a block of places: the highest.
    shift: u32,
}

/// The numbers of a block.
const BLOCK: u64 = 8;

/// The fewest places of a map that is not empty: two blocks.
const FEWEST: usize = 2 * BLOCK as usize;

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
        let first = self.first_place(*device);
        if self.is_at(first, *device) {
            // Apart, because nothing is checked again.
            return self.places[first].as_ref().map(|(_, value)| value);
        }
        let at = self.find_after(first, *device)?;
        self.places[at].as_ref().map(|(_, value)| value)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, device: &DeviceId) -> Option<&mut T> {
        let first = self.first_place(*device);
        if self.is_at(first, *device) {
            // Apart, because nothing is checked again.
            return self.places[first].as_mut().map(|(_, value)| value);
        }
        let at = self.find_after(first, *device)?;
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
        // Those behind it were perhaps placed there because of it: a search ends at a free place.
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
        let first = self.first_place(device);
        match self.is_at(first, device) {
            true => Some(first),
            false => self.find_after(first, device),
        }
    }

    /// Returns whether a place has a device. An empty map has no place.
    #[inline(always)]
    fn is_at(&self, at: usize, device: DeviceId) -> bool {
        matches!(self.places.get(at), Some(Some((found, _))) if *found == device)
    }

    #[cold]
    #[inline(never)]
    fn find_after(&self, mut at: usize, device: DeviceId) -> Option<usize> {
        while self.places.get(at)?.is_some() {
            if self.is_at(at, device) {
                return Some(at);
            }
            at = self.following(at);
        }
        None
    }

    /// Puts a device that is not there into the first free place. There is one.
    fn place(&mut self, device: DeviceId, value: T) {
        let mut at = self.first_place(device);
        while self.places[at].is_some() {
            at = self.following(at);
        }
        self.places[at] = Some((device, value));
    }

    #[cold]
    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(FEWEST);
        self.shift = u64::BITS - (places as u64 / BLOCK).ilog2();
        let kept = std::mem::take(&mut self.places);
        self.places.resize_with(places, || None);
        for (device, value) in kept.into_iter().flatten() {
            self.place(device, value);
        }
    }

    /// Returns where the search for a device begins: its block is anywhere, by Fibonacci hashing.
    #[inline(always)]
    fn first_place(&self, device: DeviceId) -> usize {
        let (block, within) = (u64::from(device) / BLOCK, u64::from(device) % BLOCK);
        let anywhere = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (anywhere * BLOCK + within) as usize
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
            Some((at + places - map.first_place(*device)) % places + 1)
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
