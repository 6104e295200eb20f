//! Which Ed25519 identity belongs to which RSA identity, once it was seen (`AuthDirPinKeys`; C tor keypin.c), and the
//! file that keeps it over a restart.

use std::collections::BTreeMap;

use base64ct::{Base64Unpadded, Encoding as _};
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;

/// Pairs that are kept at most.
const MAX_PINS: usize = 1 << 16;
/// Digits of an RSA identity, a space, and the digits of an Ed25519 identity (`JOURNAL_LINE_LEN`).
const LINE: usize = 27 + 1 + 43;

/// The pairs.
#[derive(Debug, Default)]
pub(super) struct KeyPins {
    by_rsa: BTreeMap<RsaIdentity, Ed25519Identity>,
    by_ed: BTreeMap<Ed25519Identity, RsaIdentity>,
    /// Lines that are not in the file yet.
    journal: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pinned {
    /// These two belong together: known, or from now on.
    Matches,
    /// One of them belongs to another.
    Mismatch,
    /// No more pairs can be kept.
    Full,
}

/// What of a file could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loaded {
    pub(super) pairs: usize,
    /// Lines that cannot be read.
    pub(super) corrupt: usize,
}

impl KeyPins {
    /// Checks a pair, and keeps one that is new. With `replace` it takes the place of every pair that it contradicts.
    pub(super) fn check_and_add(
        &mut self,
        rsa: RsaIdentity,
        ed: Ed25519Identity,
        replace: bool,
    ) -> Pinned {
        if self.by_rsa.get(&rsa) == Some(&ed) {
            return Pinned::Matches;
        }
        if !replace && (self.by_rsa.contains_key(&rsa) || self.by_ed.contains_key(&ed)) {
            return Pinned::Mismatch;
        }
        if self.by_rsa.len() >= MAX_PINS {
            return Pinned::Full;
        }
        self.insert(rsa, ed);
        let rsa = Base64Unpadded::encode_string(rsa.as_bytes());
        let ed = Base64Unpadded::encode_string(ed.as_bytes());
        self.journal += &format!("{rsa} {ed}\n");
        Pinned::Matches
    }

    fn insert(&mut self, rsa: RsaIdentity, ed: Ed25519Identity) {
        if let Some(old) = self.by_rsa.insert(rsa, ed) {
            self.by_ed.remove(&old);
        }
        if let Some(old) = self.by_ed.insert(ed, rsa)
            && old != rsa
        {
            self.by_rsa.remove(&old);
        }
    }

    /// Reads a file; later lines win over earlier ones.
    pub(super) fn load(&mut self, text: &str) -> Loaded {
        let mut loaded = Loaded::default();
        for line in text.split('\n') {
            // `@` is reserved, `#` a comment.
            if line.trim().is_empty() || line.starts_with(['@', '#']) {
                continue;
            }
            match pair(line).filter(|_| self.by_rsa.len() < MAX_PINS) {
                Some((rsa, ed)) => {
                    self.insert(rsa, ed);
                    loaded.pairs += 1;
                }
                None => loaded.corrupt += 1,
            }
        }
        loaded
    }

    /// The lines to append to the file.
    pub(super) fn take_journal(&mut self) -> String {
        std::mem::take(&mut self.journal)
    }
}

fn pair(line: &str) -> Option<(RsaIdentity, Ed25519Identity)> {
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

    #[test]
    fn a_pair_stays_together_over_a_restart() {
        let mut pins = KeyPins::default();
        assert_eq!(pins.check_and_add(rsa(1), ed(1), false), Pinned::Matches);
        assert_eq!(pins.check_and_add(rsa(1), ed(1), false), Pinned::Matches);
        assert_eq!(pins.check_and_add(rsa(1), ed(2), false), Pinned::Mismatch);
        assert_eq!(pins.check_and_add(rsa(2), ed(1), false), Pinned::Mismatch);
        let journal = pins.take_journal();
        assert_eq!(journal.lines().count(), 1, "{journal}");
        assert!(pins.take_journal().is_empty());
        let mut again = KeyPins::default();
        let text = format!("\n@opened-at 2026-11-21 01:00:00\n{journal}");
        let loaded = Loaded {
            pairs: 1,
            corrupt: 0,
        };
        assert_eq!(again.load(&text), loaded);
        assert_eq!(again.check_and_add(rsa(1), ed(2), false), Pinned::Mismatch);
    }

    #[test]
    fn without_pinning_the_newest_pair_takes_the_place_of_all_that_it_contradicts() {
        let mut pins = KeyPins::default();
        for (one, other) in [(1, 1), (2, 2), (1, 2)] {
            assert_eq!(
                pins.check_and_add(rsa(one), ed(other), true),
                Pinned::Matches
            );
        }
        let mut again = KeyPins::default();
        again.load(&pins.take_journal());
        for pins in [&pins, &again] {
            assert_eq!(pins.by_rsa, BTreeMap::from([(rsa(1), ed(2))]));
            assert_eq!(pins.by_ed, BTreeMap::from([(ed(2), rsa(1))]));
        }
    }

    #[test]
    fn torn_lines_of_the_file_are_passed_over() {
        let mut pins = KeyPins::default();
        pins.check_and_add(rsa(3), ed(3), false);
        let good = pins.take_journal();
        let half = good.get(..40).unwrap();
        let text = format!("{half}\n# by hand\nx\n{}\n{good}", "é".repeat(36));
        let mut again = KeyPins::default();
        let loaded = Loaded {
            pairs: 1,
            corrupt: 3,
        };
        assert_eq!(again.load(&text), loaded);
    }
}
