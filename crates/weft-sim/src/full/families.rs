//! Families: relays of one operator. No circuit has two of them (path-spec 2.2).
//!
//! Two relays are in one family when each names the other on its `family` line, or when both have
//! the same word on their `family-ids` lines (proposal 321). The first is not an equivalence: A may
//! be in one family with B, and B with C, while A and C do not name each other. So each pair is
//! checked. Unrelated relays are recognized at once: relays that a chain of names can join have a
//! number in common.

use std::collections::HashMap;

use crate::microdesc::Microdescs;
use crate::network::Network;

/// No word.
const NONE: u32 = u32::MAX;

/// Family relations of a network's relays.
#[derive(Clone, Debug, Default)]
pub struct Families {
    /// By relay: where its words begin in `words`. One more than relays.
    starts: Box<[u32]>,
    /// Entries of relays' `family` lines, ascending for each: a relay's place, or a nickname's
    /// number.
    words: Box<[u32]>,
    /// By relay: the number of its nickname, where some family line uses the name.
    names: Box<[u32]>,
    /// By relay: where its family ids begin in `ids`. One more than relays.
    id_starts: Box<[u32]>,
    /// Numbers of family ids, ascending for each relay.
    ids: Box<[u32]>,
    /// By relay: relays with different numbers are unrelated; 0 is related to none.
    groups: Box<[u32]>,
}

impl Families {
    /// Reads the families of a network's relays. A relay without a microdescriptor has none.
    pub fn new(network: &Network, microdescs: &Microdescs) -> Families {
        let mut reader = Reader::new(network);
        for relay in &network.relays {
            let microdesc = relay.microdesc.and_then(|digest| microdescs.get(&digest));
            let microdesc = microdesc.unwrap_or_default();
            reader.relay(&microdesc.family, &microdesc.family_ids);
        }
        reader.finish(network)
    }

    /// Returns true if two different relays are in one family.
    #[inline]
    pub fn related(&self, one: u32, other: u32) -> bool {
        let group = |relay: u32| self.groups.get(relay as usize).copied().unwrap_or(0);
        group(one) != 0 && group(one) == group(other) && self.agree(one, other)
    }

    /// Relays that are in a family with another one, by these groups: an upper bound where families
    /// name relays that do not name them back, or use nicknames.
    pub fn grouped(&self) -> usize {
        self.groups.iter().filter(|group| **group != 0).count()
    }

    fn agree(&self, one: u32, other: u32) -> bool {
        let shares_id = || {
            let theirs = part(&self.id_starts, &self.ids, other);
            let mut ours = part(&self.id_starts, &self.ids, one).iter();
            ours.any(|id| theirs.binary_search(id).is_ok())
        };
        (self.names(one, other) && self.names(other, one)) || shares_id()
    }

    /// Returns true if one relay's `family` line names the other, by identity or by nickname.
    fn names(&self, one: u32, other: u32) -> bool {
        let words = part(&self.starts, &self.words, one);
        let name = self.names.get(other as usize).copied().unwrap_or(NONE);
        words.binary_search(&other).is_ok() || (name != NONE && words.binary_search(&name).is_ok())
    }
}

/// Entries of one relay in a list of all relays' entries.
fn part<'a>(starts: &[u32], all: &'a [u32], relay: u32) -> &'a [u32] {
    let bounds = (starts.get(relay as usize), starts.get(relay as usize + 1));
    let (Some(start), Some(end)) = bounds else {
        return &[];
    };
    all.get(*start as usize..*end as usize).unwrap_or_default()
}

/// Families while they are read.
struct Reader<'a> {
    places: HashMap<[u8; 20], u32>,
    /// Numbers of nicknames in small letters; those of relays come first.
    names: HashMap<String, u32>,
    ids: HashMap<&'a str, u32>,
    relays: u32,
    families: Parts,
    family_ids: Parts,
}

/// Numbers of each relay, one relay after the other.
struct Parts {
    starts: Vec<u32>,
    all: Vec<u32>,
}

impl Parts {
    fn new() -> Parts {
        Parts {
            starts: vec![0],
            all: Vec::new(),
        }
    }

    fn push(&mut self, mut numbers: Vec<u32>) {
        numbers.sort_unstable();
        numbers.dedup();
        self.all.append(&mut numbers);
        self.starts.push(number(self.all.len()));
    }
}

/// Places and numbers fit 32 bits: a text that had more would be larger than any memory here.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(NONE)
}

impl<'a> Reader<'a> {
    fn new(network: &Network) -> Reader<'a> {
        let mut places = HashMap::with_capacity(network.relays.len());
        for (relay, place) in network.relays.iter().zip(0..) {
            places.entry(relay.fingerprint).or_insert(place);
        }
        Reader {
            places,
            names: HashMap::new(),
            ids: HashMap::new(),
            relays: number(network.relays.len()),
            families: Parts::new(),
            family_ids: Parts::new(),
        }
    }

    /// Takes in the next relay.
    fn relay(&mut self, family: &[&'a str], ids: &[&'a str]) {
        let words = family.iter().filter_map(|word| self.word(word)).collect();
        self.families.push(words);
        let next = |count: usize| number(count);
        let mut numbers = Vec::with_capacity(ids.len());
        for id in ids {
            let fresh = next(self.ids.len());
            numbers.push(*self.ids.entry(id).or_insert(fresh));
        }
        self.family_ids.push(numbers);
    }

    /// The number of a word of a `family` line: `$` and 40 hexadecimal digits, perhaps with `=` or `~` and
    /// a name behind, or a nickname of 1 to 19 letters and digits. None for anything else, and for
    /// identities that are not in this network.
    fn word(&mut self, word: &str) -> Option<u32> {
        let is_name = |word: &str| {
            (1..=19).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        if is_name(word) {
            let fresh = self.relays.checked_add(number(self.names.len()))?;
            return Some(*self.names.entry(word.to_ascii_lowercase()).or_insert(fresh));
        }
        let word = word.strip_prefix('$').unwrap_or(word).as_bytes();
        let (digits, rest) = word.split_at_checked(40)?;
        if !matches!(rest.first(), None | Some(b'=' | b'~')) {
            return None;
        }
        let mut identity = [0; 20];
        for (byte, pair) in identity.iter_mut().zip(digits.as_chunks().0) {
            let [high, low] = *pair;
            *byte = digit(high)? << 4 | digit(low)?;
        }
        self.places.get(&identity).copied()
    }

    fn finish(self, network: &Network) -> Families {
        let own_name = |name: &str| self.names.get(&name.to_ascii_lowercase()).copied();
        let names = network.relays.iter();
        let names: Box<[u32]> = names
            .map(|relay| own_name(&relay.nickname).unwrap_or(NONE))
            .collect();
        let mut families = Families {
            starts: self.families.starts.into(),
            words: self.families.all.into(),
            names,
            id_starts: self.family_ids.starts.into(),
            ids: self.family_ids.all.into(),
            groups: Box::default(),
        };
        let names = number(self.names.len());
        families.groups = families.join(self.relays, names, number(self.ids.len()));
        families
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

impl Families {
    /// Numbers of relays that chains of names and ids join. A name joins all relays that bear it and all that
    /// list it, so that the work is proportional to what was read.
    fn join(&self, relays: u32, names: u32, ids: u32) -> Box<[u32]> {
        let mut sets = Sets::new(relays as usize + names as usize + ids as usize);
        for relay in 0..relays {
            for word in part(&self.starts, &self.words, relay) {
                if *word >= relays || self.names(*word, relay) {
                    sets.join(relay, *word);
                }
            }
            if let Some(name) = self.names.get(relay as usize)
                && *name != NONE
            {
                sets.join(relay, *name);
            }
            for id in part(&self.id_starts, &self.ids, relay) {
                sets.join(relay, relays + names + id);
            }
        }
        let mut sizes = vec![0u32; relays as usize];
        let roots: Vec<u32> = (0..relays).map(|relay| sets.root(relay)).collect();
        let mut numbers = HashMap::new();
        for root in &roots {
            let fresh = number(numbers.len());
            let set = *numbers.entry(*root).or_insert(fresh);
            if let Some(size) = sizes.get_mut(set as usize) {
                *size += 1;
            }
        }
        let group = |root: &u32| {
            let set = numbers.get(root).copied().unwrap_or(0);
            let is_alone = sizes.get(set as usize).is_none_or(|size| *size < 2);
            if is_alone { 0 } else { set + 1 }
        };
        roots.iter().map(group).collect()
    }
}

/// Sets that grow together (union by linking to the smaller number, halving paths).
struct Sets(Vec<u32>);

impl Sets {
    fn new(count: usize) -> Sets {
        Sets((0..number(count)).collect())
    }

    fn root(&mut self, mut member: u32) -> u32 {
        loop {
            let parent = self.0.get(member as usize).copied().unwrap_or(member);
            if parent == member {
                return member;
            }
            let above = self.0.get(parent as usize).copied().unwrap_or(parent);
            if let Some(slot) = self.0.get_mut(member as usize) {
                *slot = above;
            }
            member = above;
        }
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.root(one), self.root(other));
        if let Some(slot) = self.0.get_mut(one.max(other) as usize) {
            *slot = one.min(other);
        }
    }
}
