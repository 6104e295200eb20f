use super::*;
use proptest::prelude::*;
use tor_llcrypto::d::Sha3_256;

/// A consensus of these entries, each with its lines.
fn consensus(valid_after: u32, relays: &[(&str, &str)], signature: &str) -> String {
    let mut text =
        format!("network-status-version 3 microdesc\nvalid-after {valid_after}\nparams a=1\n");
    for (id, lines) in relays {
        text += &format!("r name {id} 2038-01-01\n{lines}");
    }
    text + &format!("directory-footer\ndirectory-signature sha256 {signature}\nend\n")
}

fn sha3(text: &str) -> String {
    hex::encode_upper(Sha3_256::digest(text.as_bytes()))
}

#[test]
fn the_digest_as_signed_ends_with_the_space_before_the_first_signature() {
    let text = consensus(1, &[], "x");
    let signed = text.split_once("sha256 x").unwrap().0;
    assert_eq!(ConsensusDigest::of(&text).hex(), sha3(signed));
    // What stands before the document, as in a cache file, is not signed.
    let annotated = format!("@note\n{text}");
    assert_eq!(ConsensusDigest::of(&annotated).hex(), sha3(signed));
    assert_eq!(ConsensusDigest::of("nothing").hex(), sha3("nothing"));
    let digest = ConsensusDigest::of(&text);
    assert_eq!(
        ConsensusDigest::from_hex(&digest.hex().to_lowercase()),
        Some(digest)
    );
    assert_eq!(ConsensusDigest::from_hex("AB"), None);
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
        sha3(&target),
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

#[test]
fn a_diff_for_something_else_or_that_was_changed_is_not_applied() {
    let base = consensus(1, &[("AA", "w 1\n"), ("AB", "w 1\n")], "x");
    let target = consensus(2, &[("AA", "w 2\n"), ("AB", "w 1\n")], "x");
    let from = ConsensusDigest::of(&base);
    let diff = make(&base, &target).unwrap();
    assert!(apply(&target, ConsensusDigest::of(&target), &diff).is_err());
    let header = diff
        .lines()
        .take(2)
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    for forged in [
        diff.replace("w 2", "w 3"),
        diff.replace("version 1", "version 2"),
        diff.replace("\n.\n", "\n"),
        format!("{header}9999999,$d\n"),
        format!("{header}0a\nx\n.\n"),
        format!("{header}2a\nx\n.\n1d\n5d\n"),
        format!("{header}18446744073709551615c\nx\n.\n"),
        format!("{header}1x\n"),
        header.clone(),
        "network-status-diff-version 1\nhash AB CD\n".into(),
        String::new(),
    ] {
        assert!(apply(&base, from, &forged).is_err(), "{forged}");
    }
    // A million lines for a base of eight.
    let explodes = format!("{header}8a\n{}.\n", "x\n".repeat(1 << 20));
    let error = apply(&base, from, &explodes).unwrap_err().to_string();
    assert!(error.contains("large"), "{error}");
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

    #[test]
    fn no_diff_makes_more_than_its_lines_and_the_bases(commands in "([0-9]{1,2}(,([0-9]{1,2}|\\$))?[acd]\n([a-z.]{0,2}\n){0,3}){0,8}") {
        let base = consensus(1, &[("AA", "w 1\n"), ("AB", "w 1\n")], "x");
        let from = ConsensusDigest::of(&base);
        let diff = format!("network-status-diff-version 1\nhash {} {}\n{commands}", from.hex(), "A".repeat(64));
        // Nobody knows a text of that digest.
        prop_assert!(apply(&base, from, &diff).is_err());
    }
}
