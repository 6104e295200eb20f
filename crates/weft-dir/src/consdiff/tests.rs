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
    // Annotations before the document, as in a cache file, are not signed.
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
fn a_diff_for_something_else_or_that_was_changed_is_not_applied() {
    let base = consensus(1, &[("AA", "w 1\n"), ("AB", "w 1\n")], "x");
    let target = consensus(2, &[("AA", "w 2\n"), ("AB", "w 1\n")], "x");
    let from = ConsensusDigest::of(&base);
    let diff = format!(
        "network-status-diff-version 1\nhash {} {}\n5c\nw 2\n.\n2c\nvalid-after 2\n.\n",
        from.hex(),
        sha3(&target),
    );
    assert_eq!(apply(&base, from, &diff).unwrap(), target);
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

proptest! {
    #[test]
    fn no_diff_makes_more_than_its_lines_and_the_bases(commands in "([0-9]{1,2}(,([0-9]{1,2}|\\$))?[acd]\n([a-z.]{0,2}\n){0,3}){0,8}") {
        let base = consensus(1, &[("AA", "w 1\n"), ("AB", "w 1\n")], "x");
        let from = ConsensusDigest::of(&base);
        let diff = format!("network-status-diff-version 1\nhash {} {}\n{commands}", from.hex(), "A".repeat(64));
        // Nobody knows a text of that digest.
        prop_assert!(apply(&base, from, &diff).is_err());
    }
}
