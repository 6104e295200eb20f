//! A list of what is to be attended to, from which a member leaves without a search.

use std::num::NonZeroU32;

/// A member's place in a [`Worklist`]. `Option<Place>` is no larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(NonZeroU32);

impl Place {
    /// The place with this number, counted from 0. Past 2³² - 2 it is that of the last place, which no list
    /// reaches: keys are slots, numbered by u32, and each is listed once.
    fn from_index(index: usize) -> Self {
        let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        Place(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
    }

    /// Its number.
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Keys in the order in which they came, each at most once; the last takes the place of one that leaves. A member remembers its
/// place, which it gets by
/// [`add`](Worklist::add) and is notified of when it moves: to leave is one step, however many others
/// are listed. A peer can end thousands of members at once, and a search for each would be quadratic.
#[derive(Debug)]
pub(crate) struct Worklist<K> {
    /// The members.
    keys: Vec<K>,
}

impl<K> Default for Worklist<K> {
    fn default() -> Self {
        Worklist { keys: Vec::new() }
    }
}

impl<K: Copy> Worklist<K> {
    /// Lists a key that is not listed yet, and returns its place.
    pub(crate) fn add(&mut self, key: K) -> Place {
        self.keys.push(key);
        Place::from_index(self.keys.len() - 1)
    }

    /// Takes out the member at a place. Returns the member that has this place from now on.
    #[must_use]
    pub(crate) fn remove(&mut self, place: Place) -> Option<K> {
        let place = place.index();
        if place < self.keys.len() {
            self.keys.swap_remove(place);
        }
        self.keys.get(place).copied()
    }

    /// Keeps the members for which `keep` returns true. It is called for each member with the place
    /// that the member has if it stays.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(K, Place) -> bool) {
        let mut place = 0;
        self.keys.retain(|key| {
            let stays = keep(*key, Place::from_index(place));
            place += usize::from(stays);
            stays
        });
    }

    /// The member at a place becomes the first, and those before it the last, in their order. Their places are others until the
    /// next [`retain`](Worklist::retain).
    pub(crate) fn begin_at(&mut self, place: Place) {
        let place = place.index();
        if place < self.keys.len() {
            self.keys.rotate_left(place);
        }
    }

    /// The member at a place.
    pub(crate) fn at(&self, place: Place) -> Option<K> {
        self.keys.get(place.index()).copied()
    }

    /// The members.
    pub(crate) fn as_slice(&self) -> &[K] {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members by key, each with its place.
    #[derive(Default)]
    struct Members {
        list: Worklist<usize>,
        places: Vec<Option<Place>>,
        /// Members that had to note another place.
        moved: usize,
    }

    impl Members {
        fn with(count: usize) -> Self {
            let mut members = Members::default();
            for key in 0..count {
                let place = members.list.add(key);
                members.places.push(Some(place));
            }
            members
        }

        fn leave(&mut self, key: usize) {
            let place = self.places[key].take().expect("listed");
            if let Some(moved) = self.list.remove(place) {
                self.places[moved] = Some(place);
                self.moved += 1;
            }
        }

        fn check(&self) {
            let listed = self.places.iter().flatten().count();
            assert_eq!(listed, self.list.as_slice().len());
            for (key, place) in self.places.iter().enumerate() {
                if let Some(place) = place {
                    assert_eq!(self.list.at(*place), Some(key));
                }
            }
        }
    }

    #[test]
    fn one_that_leaves_moves_at_most_one_other() {
        const MANY: usize = 16_384;
        let mut members = Members::with(MANY);
        // Neither the first nor the last in turn, which a search would find at once.
        for step in 0..MANY {
            members.leave(step * 9973 % MANY);
            if step % 1000 == 0 {
                members.check();
            }
        }
        members.check();
        assert!(members.list.as_slice().is_empty());
        assert!(members.moved < MANY, "{} steps", members.moved);
    }

    #[test]
    fn the_list_begins_at_a_member_after_the_next_retain() {
        let mut members = Members::with(5);
        members.list.begin_at(Place::from_index(3));
        let places = &mut members.places;
        members.list.retain(|key, place| {
            places[key] = Some(place);
            true
        });
        members.check();
        assert_eq!(members.list.as_slice(), [3, 4, 0, 1, 2]);
        members.list.begin_at(Place::from_index(9));
        members.check();
    }

    #[test]
    fn those_that_stay_keep_their_order_and_learn_their_places() {
        let mut members = Members::with(100);
        let places = &mut members.places;
        members.list.retain(|key, place| {
            let stays = key % 3 == 0;
            places[key] = stays.then_some(place);
            stays
        });
        members.check();
        assert!(members.list.as_slice().is_sorted());
    }
}
