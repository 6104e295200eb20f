//! `Guard` lines of C tor's state file (entrynodes.c, `entry_guard_encode_for_state`): words
//! `key=value` in any order. Unknown words are kept.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};
use weft_cell::identity::RsaIdentity;

use super::bias::PathBias;
use super::sampled::{Guard, Reachable};

/// The selection of bridges.
pub(super) const BRIDGES: &str = "bridges";

/// "2026-11-21T00:59:59", always UTC.
const ISO: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");

/// Place in the sample of a guard whose line has none: behind all others.
const LAST: u32 = u32::MAX / 2;

/// Counters in a line are refused above this.
const MOST: f64 = 1e9;

/// Words that belong to Weft's own fields.
const KNOWN: [&str; 19] = [
    "in",
    "rsa_id",
    "bridge_addr",
    "nickname",
    "sampled_on",
    "sampled_idx",
    "sampled_by",
    "unlisted_since",
    "listed",
    "confirmed_on",
    "confirmed_idx",
    "pb_use_attempts",
    "pb_use_successes",
    "pb_circ_attempts",
    "pb_circ_successes",
    "pb_successful_circuits_closed",
    "pb_collapsed_circuits",
    "pb_unusable_circuits",
    "pb_timeouts",
];

/// Reads a line's value: the selection that the guard is in, and the guard. `None`: it makes no sense.
pub(super) fn parse(line: &str, now: SystemTime) -> Option<(String, Guard)> {
    let mut fields: HashMap<&str, &str> = HashMap::new();
    let mut extra = Vec::new();
    for word in line.split_ascii_whitespace() {
        match word.split_once('=') {
            // The first of several counts.
            Some((key, value)) if KNOWN.contains(&key) => {
                fields.entry(key).or_insert(value);
            }
            _ => extra.push(word.to_owned()),
        }
    }
    let get = |key: &str| fields.get(key).copied();
    let selection = get("in")?;
    let bridge = match get("bridge_addr") {
        Some(addr) => Some(addr.parse().ok()?),
        None => None,
    };
    // A bridge is in the selection of bridges, and nothing else is.
    if bridge.is_some() != (selection == BRIDGES) {
        return None;
    }
    let mut rsa = [0; 20];
    hex::decode_to_slice(get("rsa_id")?, &mut rsa).ok()?;
    let rsa = RsaIdentity(rsa);
    let number = |key: &str| get(key).and_then(|text| text.parse::<u32>().ok());
    let counter = |key: &str| {
        get(key)
            .and_then(|text| text.parse::<f64>().ok())
            .filter(|number| (0.0..=MOST).contains(number))
            .unwrap_or(0.0)
    };
    let confirmed_idx = number("confirmed_idx");
    let confirmed_on = get("confirmed_on").and_then(time_of);
    let circ_successes = counter("pb_circ_successes");
    let use_attempts = counter("pb_use_attempts");
    let guard = Guard {
        rsa,
        bridge,
        nickname: match get("nickname") {
            Some(name) => name.to_owned(),
            None => format!("${rsa}"),
        },
        sampled_on: get("sampled_on").and_then(time_of).unwrap_or(now),
        sampled_idx: number("sampled_idx")
            .or(confirmed_idx)
            .unwrap_or(LAST)
            .min(LAST),
        sampled_by: get("sampled_by").map(str::to_owned),
        listed: get("listed").is_some_and(|listed| listed != "0"),
        unlisted_since: get("unlisted_since").and_then(time_of),
        confirmed: confirmed_idx.map(|idx| (confirmed_on.unwrap_or(now), idx)),
        bias: PathBias {
            use_attempts,
            // No more than there can be: the counters of circuits that were still open when C tor
            // wrote the line are guesses (`pathbias_check_use_success_count`).
            use_successes: counter("pb_use_successes").min(use_attempts),
            circ_attempts: counter("pb_circ_attempts"),
            circ_successes,
            successful_circuits_closed: counter("pb_successful_circuits_closed")
                .min(circ_successes),
            collapsed_circuits: counter("pb_collapsed_circuits"),
            unusable_circuits: counter("pb_unusable_circuits"),
            timeouts: counter("pb_timeouts"),
        },
        extra,
        reachable: Reachable::Maybe,
        failing_since: None,
        last_tried: None,
        pending: false,
        filtered: false,
        described: false,
        bias_noted: None,
        bias_disabled: false,
    };
    Some((selection.to_owned(), guard))
}

/// A guard's line, in C tor's order, with this record of circuits. `idx`: its place in the sample.
pub(super) fn write(selection: &str, guard: &Guard, bias: &PathBias, idx: u32) -> String {
    let mut words = vec![format!("in={selection}"), format!("rsa_id={}", guard.rsa)];
    words.extend(guard.bridge.map(|addr| format!("bridge_addr={addr}")));
    if !guard.nickname.starts_with('$') {
        words.push(format!("nickname={}", guard.nickname));
    }
    words.push(format!("sampled_on={}", text_of(guard.sampled_on)));
    words.push(format!("sampled_idx={idx}"));
    if let Some(by) = &guard.sampled_by {
        words.push(format!("sampled_by={by}"));
    }
    if let Some(since) = guard.unlisted_since {
        words.push(format!("unlisted_since={}", text_of(since)));
    }
    words.push(format!("listed={}", u8::from(guard.listed)));
    if let Some((on, idx)) = guard.confirmed {
        words.push(format!("confirmed_on={}", text_of(on)));
        words.push(format!("confirmed_idx={idx}"));
    }
    for (key, counter) in [
        ("use_attempts", bias.use_attempts),
        ("use_successes", bias.use_successes),
        ("circ_attempts", bias.circ_attempts),
        ("circ_successes", bias.circ_successes),
        (
            "successful_circuits_closed",
            bias.successful_circuits_closed,
        ),
        ("collapsed_circuits", bias.collapsed_circuits),
        ("unusable_circuits", bias.unusable_circuits),
        ("timeouts", bias.timeouts),
    ] {
        if counter >= 1e-6 {
            words.push(format!("pb_{key}={counter:.6}"));
        }
    }
    words.extend(guard.extra.iter().cloned());
    words.join(" ")
}

fn time_of(text: &str) -> Option<SystemTime> {
    let when = PrimitiveDateTime::parse(text, ISO).ok()?.assume_utc();
    let seconds = u64::try_from(when.unix_timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn text_of(when: SystemTime) -> String {
    OffsetDateTime::from(when).format(ISO).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::now;

    /// A word of a line: a known key or another, with a value that may be one of its kind.
    fn word() -> impl Strategy<Value = String> {
        let key = prop_oneof![
            8 => prop::sample::select(KNOWN.to_vec()).prop_map(str::to_owned),
            1 => "[a-z_]{0,6}",
        ];
        let value = prop_oneof![
            Just("default".to_owned()),
            "[0-9A-Fa-f]{40}",
            "20[0-9]{2}-1[0-2]-[0-2][0-9]T0[0-9]:[0-5][0-9]:[0-9]{2}",
            "[0-9]{1,12}",
            "[0-9]{0,3}\\.[0-9]{1,8}",
            "[!-~]{0,8}",
        ];
        (key, value, any::<bool>()).prop_map(|(key, value, eq)| match eq {
            true => format!("{key}={value}"),
            false => key,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(
            words in prop::collection::vec(word(), 0..12),
            digits in "[0-9a-f]{40}",
        ) {
            let line = format!("in=default rsa_id={digits} {}", words.join(" "));
            let Some((name, guard)) = parse(&line, now()) else {
                return Ok(());
            };
            let written = write(&name, &guard, &guard.bias, 3);
            let (name, guard) = parse(&written, now()).unwrap();
            prop_assert_eq!(write(&name, &guard, &guard.bias, 3), written);
        }
    }
}
