//! Which Ed25519 identity belongs to which RSA identity, once a relay with both was reached (`AuthDirPinKeys`; C tor
//! keypin.c), and the file that keeps it over a restart. C tor keeps every pair that it was ever sent, without end.

use std::collections::BTreeMap;

use base64ct::{Base64Unpadded, Encoding as _};
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;

/// Pairs that are kept at most.
const MAX_PINS: usize = 1 << 16;
/// Digits of an RSA identity, a space, and the digits of an Ed25519 identity (`JOURNAL_LINE_LEN`).
const LINE: usize = 27 + 1 + 43;

/// The pairs.
#[derive(Debug)]
pub(super) struct KeyPins {
    by_rsa: BTreeMap<RsaIdentity, Pin>,
    by_ed: BTreeMap<Ed25519Identity, RsaIdentity>,
    /// RSA identities, those that were not seen for longest first.
    by_use: BTreeMap<u64, RsaIdentity>,
    /// Counts uses.
    uses: u64,
    max: usize,
    /// Lines of the file, with those that wait.
    lines: usize,
    /// Lines that are not in the file yet.
    waiting: String,
    /// Some of them were not written.
    incomplete: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    ed: Ed25519Identity,
    /// Its key in `by_use`.
    used: u64,
}

/// What the file lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Journal {
    /// These lines belong behind what is there.
    More(String),
    /// This belongs into it instead of what is there.
    Whole(String),
}

/// What of a file could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loaded {
    pub(super) pairs: usize,
    /// Lines that cannot be read.
    pub(super) corrupt: usize,
}

impl Default for KeyPins {
    fn default() -> Self {
        Self::new(MAX_PINS)
    }
}

impl KeyPins {
    /// Keeps `max` pairs at most.
    fn new(max: usize) -> Self {
        Self {
            by_rsa: BTreeMap::new(),
            by_ed: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            max,
            lines: 0,
            waiting: String::new(),
            incomplete: false,
        }
    }

    /// Whether one of these belongs to another.
    pub(super) fn contradicts(&self, rsa: &RsaIdentity, ed: &Ed25519Identity) -> bool {
        let has_other_ed = self.by_rsa.get(rsa).is_some_and(|pin| pin.ed != *ed);
        has_other_ed || self.by_ed.get(ed).is_some_and(|other| other != rsa)
    }

    /// Keeps a pair in the place of every pair that it contradicts. Where there are too many, the one that was not seen
    /// for longest is forgotten, of those that are not of a relay that is `known`.
    pub(super) fn add(
        &mut self,
        rsa: RsaIdentity,
        ed: Ed25519Identity,
        known: impl Fn(&RsaIdentity) -> bool,
    ) {
        if self.insert(rsa, ed, known) {
            self.waiting += &line(&rsa, &ed);
            self.lines += 1;
        }
    }

    /// The same without the file. Whether the pair is new.
    fn insert(
        &mut self,
        rsa: RsaIdentity,
        ed: Ed25519Identity,
        known: impl Fn(&RsaIdentity) -> bool,
    ) -> bool {
        let is_new = self.by_rsa.get(&rsa).is_none_or(|pin| pin.ed != ed);
        self.remove(&rsa);
        if let Some(other) = self.by_ed.get(&ed).copied() {
            self.remove(&other);
        }
        while self.by_rsa.len() >= self.max {
            let mut oldest = self.by_use.values();
            match oldest.find(|id| !known(id)).copied() {
                Some(oldest) => self.remove(&oldest),
                None => return false,
            }
        }
        self.uses += 1;
        let used = self.uses;
        self.by_rsa.insert(rsa, Pin { ed, used });
        self.by_ed.insert(ed, rsa);
        self.by_use.insert(used, rsa);
        is_new
    }

    fn remove(&mut self, rsa: &RsaIdentity) {
        if let Some(pin) = self.by_rsa.remove(rsa) {
            self.by_ed.remove(&pin.ed);
            self.by_use.remove(&pin.used);
        }
    }

    /// Whether the tables agree.
    pub(super) fn audit(&self) -> Result<(), String> {
        let agree = self.by_rsa.iter().all(|(rsa, pin)| {
            self.by_ed.get(&pin.ed) == Some(rsa) && self.by_use.get(&pin.used) == Some(rsa)
        });
        let lengths = [self.by_ed.len(), self.by_use.len()];
        match agree && lengths == [self.by_rsa.len(); 2] && self.by_rsa.len() <= self.max {
            true => Ok(()),
            false => Err(format!(
                "{} pair(s), by other keys {lengths:?}",
                self.by_rsa.len()
            )),
        }
    }

    /// Reads a file; later lines win over earlier ones.
    pub(super) fn load(&mut self, text: &[u8]) -> Loaded {
        let mut loaded = Loaded::default();
        for line in text.split(|byte| *byte == b'\n') {
            self.lines += 1;
            // `@` is reserved, `#` a comment.
            if line.trim_ascii().is_empty() || line.starts_with(b"@") || line.starts_with(b"#") {
                continue;
            }
            match pair(line) {
                Some((rsa, ed)) => {
                    self.insert(rsa, ed, |_| false);
                    loaded.pairs += 1;
                }
                None => loaded.corrupt += 1,
            }
        }
        loaded
    }

    /// What the file lacks, if anything. One that has many lines without use, or lacks some, is written anew.
    pub(super) fn take_journal(&mut self) -> Option<Journal> {
        if self.waiting.is_empty() && !self.incomplete {
            return None;
        }
        let more = std::mem::take(&mut self.waiting);
        if !std::mem::take(&mut self.incomplete) && self.lines <= 2 * self.max {
            return Some(Journal::More(more));
        }
        self.lines = self.by_rsa.len();
        let pairs = self.by_use.values();
        let pairs = pairs.filter_map(|rsa| Some((rsa, self.by_rsa.get(rsa)?)));
        let lines = pairs.map(|(rsa, pin)| line(rsa, &pin.ed));
        Some(Journal::Whole(lines.collect()))
    }

    /// What was taken was not written.
    pub(super) fn not_written(&mut self) {
        self.incomplete = true;
    }
}

fn line(rsa: &RsaIdentity, ed: &Ed25519Identity) -> String {
    let rsa = Base64Unpadded::encode_string(rsa.as_bytes());
    let ed = Base64Unpadded::encode_string(ed.as_bytes());
    format!("{rsa} {ed}\n")
}

fn pair(line: &[u8]) -> Option<(RsaIdentity, Ed25519Identity)> {
    let line = std::str::from_utf8(line).ok()?;
    let (rsa, ed) = line.split_once(' ').filter(|_| line.len() == LINE)?;
    let rsa: [u8; 20] = Base64Unpadded::decode_vec(rsa).ok()?.try_into().ok()?;
    let ed: [u8; 32] = Base64Unpadded::decode_vec(ed).ok()?.try_into().ok()?;
    Some((rsa.into(), ed.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rsa(byte: u8) -> RsaIdentity {
        [byte; 20].into()
    }

    fn ed(byte: u8) -> Ed25519Identity {
        [byte; 32].into()
    }

    fn add(pins: &mut KeyPins, one: u8, other: u8) {
        pins.add(rsa(one), ed(other), |_| false);
    }

    /// Lines that belong behind those that are there.
    fn more(pins: &mut KeyPins) -> String {
        match pins.take_journal() {
            Some(Journal::More(lines)) => lines,
            other => panic!("{other:?}"),
        }
    }

    fn pairs(pins: &KeyPins) -> Vec<(u8, u8)> {
        pins.audit().unwrap();
        let pairs = pins.by_use.values().map(|rsa| (rsa, pins.by_rsa[rsa].ed));
        let first =
            |(rsa, ed): (&RsaIdentity, Ed25519Identity)| (rsa.as_bytes()[0], ed.as_bytes()[0]);
        pairs.map(first).collect()
    }

    #[test]
    fn a_pair_stays_together_over_a_restart() {
        let mut pins = KeyPins::default();
        assert!(!pins.contradicts(&rsa(1), &ed(1)));
        add(&mut pins, 1, 1);
        add(&mut pins, 1, 1);
        let journal = more(&mut pins);
        assert_eq!(journal.lines().count(), 1, "{journal}");
        assert_eq!(pins.take_journal(), None);
        let mut again = KeyPins::default();
        let text = format!("\n@opened-at 2026-11-21 01:00:00\n{journal}");
        let loaded = Loaded {
            pairs: 1,
            corrupt: 0,
        };
        assert_eq!(again.load(text.as_bytes()), loaded);
        for pins in [&pins, &again] {
            assert!(!pins.contradicts(&rsa(1), &ed(1)));
            assert!(pins.contradicts(&rsa(1), &ed(2)));
            assert!(pins.contradicts(&rsa(2), &ed(1)));
            assert!(!pins.contradicts(&rsa(2), &ed(2)));
        }
    }

    #[test]
    fn a_pair_takes_the_place_of_all_that_it_contradicts() {
        let mut pins = KeyPins::default();
        for (one, other) in [(1, 1), (2, 2), (1, 2)] {
            add(&mut pins, one, other);
        }
        let mut again = KeyPins::default();
        again.load(more(&mut pins).as_bytes());
        for pins in [&pins, &again] {
            assert_eq!(pairs(pins), [(1, 2)]);
        }
    }

    #[test]
    fn of_too_many_pairs_those_that_were_not_seen_for_longest_are_forgotten() {
        let mut pins = KeyPins::new(3);
        for byte in 1..=3 {
            add(&mut pins, byte, byte);
        }
        add(&mut pins, 1, 1);
        pins.add(rsa(4), ed(4), |id| *id == rsa(2));
        assert_eq!(
            pairs(&pins),
            [(2, 2), (1, 1), (4, 4)],
            "2 is a known relay's"
        );
        pins.add(rsa(5), ed(5), |_| true);
        assert_eq!(pairs(&pins), [(2, 2), (1, 1), (4, 4)], "all are");
        // The newest of a file that has more are those that count.
        let mut again = KeyPins::new(2);
        again.load(more(&mut pins).as_bytes());
        assert_eq!(pairs(&again), [(3, 3), (4, 4)]);
    }

    #[test]
    fn a_file_does_not_grow_without_end() {
        let mut pins = KeyPins::new(3);
        let mut longest = 0;
        let mut file = String::new();
        for byte in 1..=100 {
            add(&mut pins, byte, byte);
            match pins.take_journal().unwrap() {
                Journal::More(lines) => file += &lines,
                Journal::Whole(lines) => file = lines,
            }
            longest = longest.max(file.lines().count());
        }
        assert_eq!(longest, 6, "twice as many lines as pairs");
        let mut again = KeyPins::new(3);
        again.load(file.as_bytes());
        assert_eq!(pairs(&again), [(98, 98), (99, 99), (100, 100)]);
    }

    #[test]
    fn lines_that_were_not_written_are_written_with_the_next_ones() {
        let mut pins = KeyPins::default();
        add(&mut pins, 1, 1);
        let lines = more(&mut pins);
        pins.not_written();
        assert_eq!(pins.take_journal(), Some(Journal::Whole(lines)));
        assert_eq!(pins.take_journal(), None);
    }

    #[test]
    fn torn_lines_of_the_file_are_passed_over() {
        let mut pins = KeyPins::default();
        add(&mut pins, 3, 3);
        let good = more(&mut pins);
        let half = good.get(..40).unwrap();
        let text = format!("{half}\n# by hand\nx\n{}\n", "é".repeat(36));
        let text = [text.as_bytes(), b"\xff\xfe\n", good.as_bytes()].concat();
        let mut again = KeyPins::default();
        let loaded = Loaded {
            pairs: 1,
            corrupt: 4,
        };
        assert_eq!(again.load(&text), loaded);
        assert_eq!(pairs(&again), [(3, 3)]);
    }
}
