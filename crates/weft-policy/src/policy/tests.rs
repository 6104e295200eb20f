//! Tests of policies: the connections that they allow, and their text.

use std::net::IpAddr;

use super::*;
use crate::{MAX_SUMMARY_LEN, PRIVATE_NETS};

fn rules(text: &str) -> Result<Vec<String>, String> {
    let mut entries = Vec::new();
    parse_rules(text, None, &mut entries, &mut Vec::new())?;
    Ok(entries.iter().map(ToString::to_string).collect())
}

fn policy(lines: &[&str]) -> ExitPolicy {
    let settings = PolicySettings {
        ipv6: true,
        reject_private: true,
        reduced: false,
    };
    ExitPolicy::parse(lines, settings, &mut Vec::new()).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn rules_are_spelled_out() {
    for (text, want) in [
        ("accept *:80", &["accept *4:80", "accept *6:80"][..]),
        ("accept *4:80-90", &["accept *4:80-90"]),
        ("reject6 *:*", &["reject *6:*"]),
        ("reject 1.2.3.4", &["reject 1.2.3.4:*"]),
        ("reject 1.2.3.0/24:1-65535", &["reject 1.2.3.0/24:*"]),
        ("reject 1.2.3.0/255.255.255.0:7", &["reject 1.2.3.0/24:7"]),
        (
            "reject [2001:db8::]/32:*, accept [::1]:443",
            &["reject [2001:db8::]/32:*", "accept [::1]:443"],
        ),
        ("accept6 1.2.3.4:5", &[]),
        ("", &[]),
    ] {
        assert_eq!(rules(text).unwrap(), want, "{text:?}");
    }
    assert_eq!(rules("reject private:*").unwrap().len(), PRIVATE_NETS.len());
}

#[test]
fn bad_rules_are_refused() {
    for text in [
        "allow *:*",
        "accept",
        "*:80",
        "accept *:80 x",
        "accept *:0",
        "accept *:65536",
        "accept *:90-80",
        "accept *:80x",
        "accept */8:80",
        "accept 1.2.3.4/33:*",
        "accept 1.2.3.4/255.0.255.0:*",
        "accept 1.2.3:80",
        "accept [::1:80",
        "accept private",
        "accept [::1]/129:*",
        "accept 1.2.3.4/-1:*",
        "accept name:80",
        "accept *5:80",
        "Accept *:80",
    ] {
        assert!(rules(text).is_err(), "{text:?} gave {:?}", rules(text));
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = policy(&["accept 1.2.3.4:25, reject 1.2.3.0/24:*", "accept *:22"]);
    assert!(policy.allows(ip("1.2.3.4"), 25));
    assert!(!policy.allows(ip("1.2.3.4"), 26));
    assert!(!policy.allows(ip("8.8.8.8"), 25));
    assert!(policy.allows(ip("8.8.8.8"), 443));
    assert!(!policy.allows(ip("192.168.1.1"), 443));
    assert!(!policy.allows(ip("fe80::1"), 443));
    assert!(policy.allows(ip("2001:db8::1"), 443));
    assert!(!policy.rejects_all());
    assert!(ExitPolicy::reject_all().rejects_all());
}

#[test]
fn without_ipv6_exit_no_ipv6_address_is_allowed() {
    let policy =
        ExitPolicy::parse(&["accept *:*"], PolicySettings::default(), &mut Vec::new()).unwrap();
    assert!(policy.allows(ip("8.8.8.8"), 80));
    assert!(!policy.allows(ip("2001:db8::1"), 80));
}

#[test]
fn rules_that_cannot_decide_are_left_out() {
    let policy = policy(&["accept *:80,reject *:*", "accept *:443"]);
    let tail: Vec<_> = policy
        .entries()
        .iter()
        .map(ToString::to_string)
        .skip(11)
        .collect();
    assert_eq!(
        tail,
        ["accept *4:80", "accept *6:80", "reject *4:*", "reject *6:*"]
    );
    let lines = policy.descriptor_lines();
    assert_eq!(lines.first().unwrap(), "reject 0.0.0.0/8:*");
    assert_eq!(lines.last().unwrap(), "reject *:*");
}

#[test]
fn own_addresses_are_rejected_first() {
    let policy = policy(&["accept *:*"]).with_rejected([ip("1.2.3.4")]);
    assert!(!policy.allows(ip("1.2.3.4"), 80));
    assert!(policy.allows(ip("1.2.3.5"), 80));
}

#[test]
fn summaries_are_those_of_the_authorities() {
    // The cases of C tor's own test of policy_summarize (src/test/test_policy.c).
    let summary = |text: &str| {
        let mut entries = Vec::new();
        parse_rules(text, None, &mut entries, &mut Vec::new()).unwrap();
        let mut policy = ExitPolicy { entries };
        policy.remove_redundant();
        policy.summary(Family::V4)
    };
    for (text, want) in [
        ("reject 192.0.0.0/8:*,accept *:80,reject *:*", "accept 80"),
        ("accept *:443,accept *:119,reject *:*", "accept 119,443"),
        ("accept *:1,accept *:3,reject *:*", "accept 1,3"),
        ("accept *:1,accept *:2,reject *:*", "accept 1-2"),
        ("reject *:65535,accept *:*", "reject 65535"),
        (
            "reject *:1,reject *:3,reject *:5,reject *:7,reject *:9,accept *:*",
            "reject 1,3,5,7,9",
        ),
        (
            "reject 11.0.0.0/9:80,reject 12.0.0.0/9:80,reject 13.0.0.0/9:80,reject 14.0.0.0/9:80,accept *:*",
            "accept 1-65535",
        ),
        (
            "reject 11.0.0.0/9:80,reject 12.0.0.0/9:80,reject 13.0.0.0/9:80,reject 14.0.0.0/9:80,reject 15.0.0.0:81,accept *:*",
            "accept 1-65535",
        ),
        (
            "reject 11.0.0.0/9:80,reject 12.0.0.0/9:80,reject 13.0.0.0/9:80,reject 14.0.0.0/9:80,reject 15.0.0.0:80,accept *:*",
            "reject 80",
        ),
        ("accept 11.0.0.0/9:80,accept *:*", "accept 1-65535"),
        ("accept 1.2.3.4:80,reject *:*", "reject 1-65535"),
        ("reject 127.0.0.0/8:*,accept *:*", "accept 1-65535"),
    ] {
        assert_eq!(summary(text), want, "{text:?}");
    }
    let odd: String = (1..2000)
        .step_by(2)
        .map(|port| format!("accept *:{port},"))
        .collect();
    let long = summary(&format!("{odd}reject *:*"));
    assert!(
        long.len() <= MAX_SUMMARY_LEN && long.starts_with("accept 1,3,5"),
        "{}",
        long.len()
    );
}
