//! All attacks, by name.

use anyhow::{Context as _, Result};

use super::definition::Attack;
use super::{circuits, far_ends, held, names, ports, streams};

/// All attacks.
pub const ATTACKS: [Attack; 33] = [
    streams::BEGIN_END_BEGIN,
    streams::NEVER_SENDME,
    streams::DRAINED_STREAMS,
    circuits::DEAD_EXTENDS,
    ports::KEY_UPDATES_BEFORE,
    ports::KEY_UPDATES_AFTER,
    ports::TLS_FRAGMENTS,
    streams::SLOW_DNS_POST,
    names::SILENT_BEGIN_DIR,
    streams::DATA_FOR_NO_STREAM,
    circuits::MADE_UP_RELAYS,
    names::SILENT_DNS,
    streams::END_STREAMS,
    circuits::SNIPER,
    streams::SNIPER_SENDMES,
    circuits::ONIONSKIN_FLOOD,
    ports::HALF_OPEN_LINKS,
    ports::LORIS_OR,
    ports::LORIS_DIR,
    ports::LORIS_SOCKS,
    ports::LORIS_CONTROL,
    ports::LORIS_METRICS,
    names::RESOLVE_FLOOD,
    streams::STREAM_FLOOD,
    circuits::EXTEND_FLOOD,
    circuits::DESTROY_CHURN,
    circuits::PADDING_FLOOD,
    circuits::RENDEZVOUS_COOKIES,
    far_ends::CREATE_FAST_BACK,
    far_ends::UNLISTED_EXTENDS,
    held::YOUNG_MEMORY,
    held::UNREAD_ANSWERS,
    ports::CLIENT_HELLOS,
];

/// The attack of this name.
///
/// # Errors
///
/// There is none.
pub fn find(name: &str) -> Result<Attack> {
    let mut attacks = ATTACKS.into_iter();
    attacks
        .find(|attack| attack.name == name)
        .with_context(|| format!("there is no attack {name:?}: `weft lab attack --list` names all"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_are_found() {
        for (number, attack) in ATTACKS.iter().enumerate() {
            assert_eq!(find(attack.name).expect("an attack").what, attack.what);
            let later = ATTACKS.iter().skip(number + 1);
            assert!(later.clone().all(|other| other.name != attack.name));
        }
        assert!(find("nothing").is_err());
    }
}
