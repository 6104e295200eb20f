//! The relay's identity: its name, contact and family.

use crate::authority::{is_legal_nickname, parse_fingerprint};
use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;

/// The relay's name, contact and family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityOptions {
    /// `Nickname`: 1 to 19 letters and digits; "Unnamed" where none is set.
    pub nickname: String,
    /// `ContactInfo`.
    pub contact_info: Option<String>,
    /// `MyFamily`: relays of the same operator, each a `$FINGERPRINT` in upper case or a nickname in
    /// lower case.
    pub my_family: Vec<String>,
}

/// Checks them; a relay without a name gets C tor's.
pub(crate) fn check(settings: &mut Settings, is_relay: bool, report: &mut Report) {
    match settings.text(keys::Nickname).map(str::to_owned) {
        Some(nickname) if !is_legal_nickname(&nickname) => report.error(settings.origin(keys::Nickname),
            format!("Nickname \"{nickname}\": a nickname has 1 to 19 characters, each a letter or digit (a-z, A-Z, 0-9)"),
        ),
        None if is_relay => settings.correct_text(keys::Nickname, "Unnamed"),
        _ => {}
    }
    let has_contact = settings.text(keys::ContactInfo).is_some();
    if is_relay && !has_contact {
        report.warn(
            None,
            "ContactInfo is not set. Please consider setting it, so that you can be reached if \
             your relay is misconfigured or something else goes wrong; without it your relay \
             may be rejected from the network",
        );
    }
    if !settings.lines(keys::MyFamily).is_empty() && !has_contact {
        report.warn(
            settings.origin(keys::MyFamily),
            "MyFamily is set but ContactInfo is not; set ContactInfo too",
        );
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings, report: &mut Report) -> IdentityOptions {
    IdentityOptions {
        nickname: settings
            .text(keys::Nickname)
            .unwrap_or("Unnamed")
            .to_owned(),
        contact_info: settings.text(keys::ContactInfo).map(str::to_owned),
        my_family: my_family(settings, report),
    }
}

/// Relays of `MyFamily`, as the descriptor has them (relay_config.c,
/// `normalize_nickname_list`; nodefamily.c): fingerprints with `$`, without the nickname that
/// may follow, in upper case; nicknames in lower case.
fn my_family(settings: &Settings, report: &mut Report) -> Vec<String> {
    let mut family = Vec::new();
    for line in settings.lines(keys::MyFamily) {
        for word in line
            .value
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            let digest = word.strip_prefix('$');
            if digest.is_none() && is_legal_nickname(word) {
                report.warn(
                    Some(&line.origin),
                    format!("MyFamily: {word} is a nickname, which any relay may have; write the relay's fingerprint instead"),
                );
                family.push(word.to_ascii_lowercase());
            } else if is_hex_digest(digest.unwrap_or(word)) {
                let digest: String = digest.unwrap_or(word).chars().take(40).collect();
                family.push(format!("${}", digest.to_ascii_uppercase()));
            } else {
                report.error(
                    Some(&line.origin),
                    format!("MyFamily: \"{word}\" is neither a fingerprint of 40 hexadecimal digits nor a nickname"),
                );
            }
        }
    }
    family
}

/// Forty hexadecimal digits, and behind `=` or `~` the relay's nickname (nickname.c,
/// `is_legal_hexdigest`).
fn is_hex_digest(text: &str) -> bool {
    let (digest, nickname) = match text.split_once(['=', '~']) {
        Some((digest, nickname)) => (digest, Some(nickname)),
        None => (text, None),
    };
    parse_fingerprint(digest).is_some() && nickname.is_none_or(is_legal_nickname)
}
