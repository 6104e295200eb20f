//! Diffs as C tor makes them (consdiff.c `gen_ed_diff`), line for line the same.
//!
//! Relays are listed in the order of their identities, so both consensuses are walked relay by relay, and only the
//! lines between two relays that both list are compared with each other (a longest common subsequence by Hirschberg's
//! method). That is near-linear for real consensuses, and bounded for all.
//!
//! tor-consdiff also makes diffs, but others than C tor: its Myers algorithm knows nothing of relays.

use std::collections::HashMap;
use std::fmt::Write as _;

use weft_dir::consdiff::{ConsensusDigest, apply, full_digest};

/// Lines between two common relays, of either consensus, past which none is made (C tor `MAX_LINE_COUNT`): the
/// comparison takes their product.
const MAX_LINES: usize = 10_000;
/// A longer line is none of a consensus (C tor `CONSENSUS_LINE_MAX_LEN`).
const MAX_LINE: usize = 1 << 20;

/// Why no diff is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MakeError {
    /// A consensus does not end with a line end, or has an endless line.
    #[error("a line of the {0} consensus has no end")]
    Lines(&'static str),
    /// Its relays are not sorted.
    #[error("the {0} consensus doesn't have its router entries sorted properly")]
    Unsorted(&'static str),
    /// The consensuses have little in common.
    #[error("we found too few common router ids")]
    TooDifferent,
    /// A line with a dot alone would end the lines to be added.
    #[error("one of the lines to be added is \".\"")]
    Dot,
    /// The generated diff does not lead to the target: a bug of ours.
    #[error("the generated diff does not lead to the target consensus")]
    Wrong,
}

/// The diff that makes `target` of `base`.
///
/// # Errors
/// See [`MakeError`].
pub fn make(base: &str, target: &str) -> Result<String, MakeError> {
    let (from, to) = (split(base, "base")?, split(target, "target")?);
    let signatures = from
        .iter()
        .position(|line| line.starts_with("directory-signature "));
    let from_lines = from
        .get(..signatures.unwrap_or(from.len()))
        .unwrap_or(&from);
    let digest = ConsensusDigest::of(base);
    let mut diff = format!(
        "network-status-diff-version 1\nhash {} {}\n",
        digest.hex(),
        full_digest(target.as_bytes()),
    );
    if let Some(at) = signatures {
        // Writing to a String cannot fail.
        let _ = writeln!(diff, "{},$d", at + 1);
    }
    commands(from_lines, &to, &mut diff)?;
    // C tor tries it, too, before it serves it.
    match apply(base, digest, &diff) {
        Ok(made) if made == target => Ok(diff),
        _ => Err(MakeError::Wrong),
    }
}

/// The lines of a consensus, without their ends.
fn split<'a>(text: &'a str, which: &'static str) -> Result<Vec<&'a str>, MakeError> {
    let lines = text.strip_suffix('\n').ok_or(MakeError::Lines(which))?;
    let lines: Vec<&str> = lines.split('\n').collect();
    if lines.iter().any(|line| line.len() > MAX_LINE) {
        return Err(MakeError::Lines(which));
    }
    Ok(lines)
}

/// The position of a base64 digit among all (which is not that of its byte).
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// The identity in a line that begins a relay's entry, as it stands there (C tor `is_valid_router_entry`,
/// `get_id_hash`).
fn identity(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix("r ")?.split_once(' ')?;
    let end = rest
        .bytes()
        .position(|byte| digit(byte).is_none())
        .unwrap_or(rest.len());
    rest.get(..end).filter(|identity| !identity.is_empty())
}

/// Walks the relays of one consensus.
struct Relays<'a> {
    lines: &'a [&'a str],
    which: &'static str,
    /// The line that the walk has come to; `None`: it has not begun. `lines.len()`: it is over.
    at: Option<usize>,
    /// The identity at that line, or of the last relay.
    identity: Option<&'a str>,
}

impl<'a> Relays<'a> {
    fn new(lines: &'a [&'a str], which: &'static str) -> Self {
        Self {
            lines,
            which,
            at: None,
            identity: None,
        }
    }

    fn is_over(&self) -> bool {
        self.at.is_some_and(|at| at >= self.lines.len())
    }

    /// Goes on to the next relay, or to the end (C tor `find_next_router_line`).
    fn advance(&mut self) -> Result<(), MakeError> {
        if self.is_over() {
            return Ok(());
        }
        let begin = self.at.map_or(0, |at| at + 1);
        let rest = self.lines.get(begin..).unwrap_or_default();
        let found = rest
            .iter()
            .enumerate()
            .find_map(|(at, line)| Some((begin + at, identity(line)?)));
        let Some((at, found)) = found else {
            self.end();
            return Ok(());
        };
        if !is_before(self.identity, Some(found)) {
            return Err(MakeError::Unsorted(self.which));
        }
        (self.at, self.identity) = (Some(at), Some(found));
        Ok(())
    }

    /// Goes to the end.
    fn end(&mut self) {
        self.at = Some(self.lines.len());
    }

    /// The line that the walk has come to.
    fn line(&self) -> usize {
        self.at.unwrap_or(0)
    }
}

/// The order of identities; none is before all (C tor `base64cmp`).
fn compare(one: Option<&str>, other: Option<&str>) -> std::cmp::Ordering {
    let digits = |identity: &str| identity.bytes().map(digit).collect::<Vec<_>>();
    match (one, other) {
        (Some(one), Some(other)) if one != other => digits(one).cmp(&digits(other)),
        (one, other) => one.is_some().cmp(&other.is_some()),
    }
}

/// True if `one` sorts before `other`.
fn is_before(one: Option<&str>, other: Option<&str>) -> bool {
    compare(one, other).is_lt()
}

/// Both consensuses, and which of their lines the other does not have.
struct Changes<'a> {
    /// Lines by number, so that comparing is cheap.
    from: &'a [u32],
    to: &'a [u32],
    /// Lines that go.
    gone: Vec<bool>,
    /// Lines that are new.
    new: Vec<bool>,
}

/// A part of the lines of a consensus.
#[derive(Clone, Copy, Debug)]
struct Slice {
    begin: usize,
    end: usize,
}

impl Slice {
    fn len(self) -> usize {
        self.end - self.begin
    }

    fn of(self, lines: &[u32]) -> &[u32] {
        lines.get(self.begin..self.end).unwrap_or_default()
    }
}

impl Changes<'_> {
    /// Marks what differs in these parts (C tor `calc_changes`).
    fn compare(&mut self, mut from: Slice, mut to: Slice) {
        // Equal lines at both ends are no changes (`trim_slices`).
        let same = |one: &[u32], other: &[u32]| {
            let pairs = one.iter().zip(other);
            pairs.take_while(|(one, other)| one == other).count()
        };
        let first = same(from.of(self.from), to.of(self.to));
        (from.begin, to.begin) = (from.begin + first, to.begin + first);
        let last = {
            let pairs = from
                .of(self.from)
                .iter()
                .rev()
                .zip(to.of(self.to).iter().rev());
            pairs.take_while(|(one, other)| one == other).count()
        };
        (from.end, to.end) = (from.end - last, to.end - last);

        if from.len() <= 1 {
            mark(
                (self.from, &mut self.gone),
                from,
                (self.to, &mut self.new),
                to,
            );
        } else if to.len() <= 1 {
            mark(
                (self.to, &mut self.new),
                to,
                (self.from, &mut self.gone),
                from,
            );
        } else {
            let middle = from.begin + from.len() / 2;
            let top = Slice {
                end: middle,
                ..from
            };
            let bottom = Slice {
                begin: middle,
                ..from
            };
            let column = to.begin + self.column(top, bottom, to);
            self.compare(top, Slice { end: column, ..to });
            self.compare(
                bottom,
                Slice {
                    begin: column,
                    ..to
                },
            );
        }
    }

    /// Where `to` is split so that most lines are common (C tor `optimal_column_to_split`).
    fn column(&self, top: Slice, bottom: Slice, to: Slice) -> usize {
        let to = to.of(self.to);
        let above = common(top.of(self.from).iter(), || to.iter());
        let below = common(bottom.of(self.from).iter().rev(), || to.iter().rev());
        let sums = above.iter().zip(below.iter().rev()).map(|(a, b)| a + b);
        let mut best = (0, None);
        for (column, sum) in sums.enumerate() {
            if best.1.is_none_or(|most| sum > most) {
                best = (column, Some(sum));
            }
        }
        best.0
    }
}

/// Marks the lines of two parts, of which `short` has one at most, that the other does not have (C tor
/// `set_changed`).
fn mark(
    (short_lines, short_changed): (&[u32], &mut [bool]),
    short: Slice,
    (long_lines, long_changed): (&[u32], &mut [bool]),
    long: Slice,
) {
    let mut kept = None;
    if let [line] = short.of(short_lines) {
        let found = long.of(long_lines).iter().position(|other| other == line);
        kept = found.map(|at| long.begin + at);
        if kept.is_none()
            && let Some(changed) = short_changed.get_mut(short.begin)
        {
            *changed = true;
        }
    }
    let changed = long_changed.get_mut(long.begin..long.end);
    for (at, changed) in (long.begin..).zip(changed.into_iter().flatten()) {
        if Some(at) != kept {
            *changed = true;
        }
    }
}

/// The lengths of the longest common subsequences of all of `one` and each beginning of the other (C tor
/// `lcs_lengths`).
fn common<'a, I: Iterator<Item = &'a u32>>(
    one: impl Iterator<Item = &'a u32>,
    other: impl Fn() -> I,
) -> Vec<u32> {
    let mut lengths = vec![0_u32; other().count() + 1];
    for line in one {
        // `lengths` is overwritten from the left; these two are what stood there and to the left of it.
        let mut before_left = 0;
        let mut left = 0;
        for (length, against) in lengths.iter_mut().skip(1).zip(other()) {
            let before = *length;
            *length = if line == against {
                before_left + 1
            } else {
                left.max(before)
            };
            (before_left, left) = (before, *length);
        }
    }
    lengths
}

/// Writes the commands that make `to` of `from`, last line first.
fn commands<'a>(from: &[&'a str], to: &[&'a str], diff: &mut String) -> Result<(), MakeError> {
    let mut numbers = HashMap::new();
    let mut number = |lines: &[&'a str]| -> Vec<u32> {
        let numbered = lines.iter().map(|line| {
            // Lines are fewer than bytes, and a document has 32 MiB at most.
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(*line).or_insert(next)
        });
        numbered.collect()
    };
    let (from_numbers, to_numbers) = (number(from), number(to));
    let mut changes = Changes {
        from: &from_numbers,
        to: &to_numbers,
        gone: vec![false; from.len()],
        new: vec![false; to.len()],
    };
    let (mut base, mut target) = (Relays::new(from, "base"), Relays::new(to, "target"));
    let (mut from_begin, mut to_begin) = (0, 0);
    while !base.is_over() || !target.is_over() {
        base.advance()?;
        target.advance()?;
        if !base.is_over() || !target.is_over() {
            meet(&mut base, &mut target)?;
        }
        let from_part = Slice {
            begin: from_begin,
            end: base.line(),
        };
        let to_part = Slice {
            begin: to_begin,
            end: target.line(),
        };
        if from_part.len() > MAX_LINES || to_part.len() > MAX_LINES {
            return Err(MakeError::TooDifferent);
        }
        changes.compare(from_part, to_part);
        (from_begin, to_begin) = (base.line(), target.line());
    }
    write(&changes.gone, &changes.new, to, diff)
}

/// Walks on until both are at the same relay, or at their ends.
fn meet(base: &mut Relays<'_>, target: &mut Relays<'_>) -> Result<(), MakeError> {
    loop {
        let order = compare(base.identity, target.identity);
        if order.is_eq() {
            return Ok(());
        }
        if !base.is_over() && order.is_lt() {
            base.advance()?;
            if base.is_over() {
                target.end();
                return Ok(());
            }
        } else if !target.is_over() && order.is_gt() {
            target.advance()?;
            if target.is_over() {
                base.end();
                return Ok(());
            }
        } else {
            base.end();
            target.end();
            return Ok(());
        }
    }
}

/// Writes one command for each run of changes.
fn write(gone: &[bool], new: &[bool], to: &[&str], diff: &mut String) -> Result<(), MakeError> {
    // The number of trailing `changed` that are set.
    let run = |changed: &[bool]| changed.iter().rev().take_while(|set| **set).count();
    // Lines that are still ahead, from the end.
    let (mut from_left, mut to_left) = (gone.len(), new.len());
    while from_left > 0 || to_left > 0 {
        let deleted = run(gone.get(..from_left).unwrap_or_default());
        let added = run(new.get(..to_left).unwrap_or_default());
        if deleted == 0 && added == 0 {
            from_left = from_left.saturating_sub(1);
            to_left = to_left.saturating_sub(1);
            continue;
        }
        let (end, first_added) = (from_left, to_left - added);
        from_left -= deleted;
        let begin = from_left + 1;
        let command = if added == 0 { 'd' } else { 'c' };
        // Writing to a String cannot fail.
        let _ = match deleted {
            0 => writeln!(diff, "{from_left}a"),
            1 => writeln!(diff, "{begin}{command}"),
            _ => writeln!(diff, "{begin},{end}{command}"),
        };
        if added > 0 {
            for line in to.get(first_added..to_left).unwrap_or_default() {
                if *line == "." {
                    return Err(MakeError::Dot);
                }
                diff.push_str(line);
                diff.push('\n');
            }
            diff.push_str(".\n");
        }
        to_left = first_added;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A consensus of these entries, each with its lines.
    fn consensus(valid_after: u32, relays: &[(&str, &str)], signature: &str) -> String {
        let mut text =
            format!("network-status-version 3 microdesc\nvalid-after {valid_after}\nparams a=1\n");
        for (id, lines) in relays {
            text += &format!("r name {id} 2038-01-01\n{lines}");
        }
        text + &format!("directory-footer\ndirectory-signature sha256 {signature}\nend\n")
    }

    #[test]
    fn a_diff_has_c_tors_commands_last_line_first() {
        // "B+" comes before "B/", and "a" after "Z": by the value of the digit, not of the byte.
        let base = consensus(
            1,
            &[
                ("Az", "s Fast\nw 1\n"),
                ("B+", "s Fast\n"),
                ("B/", "w 1\n"),
                ("a1", "w 2\n"),
            ],
            "x",
        );
        let target = consensus(
            2,
            &[
                ("Az", "s Fast\nw 2\n"),
                ("B/", "w 1\n"),
                ("Zz", "w 3\n"),
                ("a1", "w 2\nnew\n"),
            ],
            "y",
        );
        let diff = make(&base, &target).unwrap();
        let header = format!(
            "network-status-diff-version 1\nhash {} {}\n",
            ConsensusDigest::of(&base).hex(),
            full_digest(target.as_bytes()),
        );
        let commands = "14,$d\n\
            13a\ndirectory-signature sha256 y\nend\n.\n\
            12a\nnew\n.\n\
            10a\nr name Zz 2038-01-01\nw 3\n.\n\
            6,8c\nw 2\n.\n\
            2c\nvalid-after 2\n.\n";
        let expected = format!("{header}{commands}");
        assert_eq!(diff, expected);
        assert_eq!(
            apply(&base, ConsensusDigest::of(&base), &diff).unwrap(),
            target
        );
    }

    #[test]
    fn what_is_no_sorted_consensus_is_refused() {
        // As in C tor, what is behind the last relay of the other is not looked at.
        let good = consensus(1, &[("zz", "")], "x");
        let unsorted = consensus(1, &[("AB", ""), ("AA", "")], "x");
        assert_eq!(make(&unsorted, &good), Err(MakeError::Unsorted("base")));
        assert_eq!(make(&good, &unsorted), Err(MakeError::Unsorted("target")));
        let twice = consensus(1, &[("AA", ""), ("AA", "")], "x");
        assert_eq!(make(&twice, &good), Err(MakeError::Unsorted("base")));
        let dot = consensus(1, &[("AA", ".\n")], "x");
        assert_eq!(make(&good, &dot), Err(MakeError::Dot));
        assert_eq!(make("no end", &good), Err(MakeError::Lines("base")));
        let endless = format!("{}\n", "x".repeat((1 << 20) + 1));
        assert_eq!(make(&good, &endless), Err(MakeError::Lines("target")));
        let many: String = (0..10_001).map(|n| format!("a {n}\n")).collect();
        let different = consensus(1, &[("AA", &many)], "x");
        assert_eq!(make(&good, &different), Err(MakeError::TooDifferent));
        assert!(make(&good, &good).is_ok());
    }

    /// Relays by identity, each with its lines.
    fn relays() -> impl Strategy<Value = Vec<(String, String)>> {
        let relay = ("[A-Za-z0-9+/]{1,2}", "(w [12]\n|s Fast\n){0,3}");
        proptest::collection::vec(relay, 0..12).prop_map(|mut relays| {
            let value = |byte: u8| {
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
                    .find(char::from(byte))
            };
            relays.sort_by_key(|(id, _)| id.bytes().map(value).collect::<Vec<_>>());
            relays.dedup_by(|one, other| one.0 == other.0);
            relays
        })
    }

    proptest! {
        #[test]
        fn what_is_made_of_any_two_consensuses_leads_from_one_to_the_other(one in relays(), other in relays()) {
            let borrowed = |relays: &[(String, String)], n| {
                let relays: Vec<(&str, &str)> = relays.iter().map(|(id, lines)| (id.as_str(), lines.as_str())).collect();
                consensus(n, &relays, "s")
            };
            let (base, target) = (borrowed(&one, 1), borrowed(&other, 2));
            let diff = make(&base, &target).unwrap();
            prop_assert_eq!(apply(&base, ConsensusDigest::of(&base), &diff).unwrap(), target);
        }
    }
}
