//! The relay's identity: its name, contact and family.

use base64ct::{Base64Unpadded, Encoding as _};

use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;
use crate::text::dir_authority::{is_legal_nickname, parse_fingerprint};

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
    /// `FamilyId`: the families whose keys the relay has.
    pub families: Option<FamilyIds>,
}

/// Families by their keys' identities (proposal 321).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyIds {
    /// True for the families of all keys that are found (`*`).
    pub all: bool,
    /// Families whose keys must exist: Ed25519 identities.
    pub ids: Vec<[u8; 32]>,
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
        families: families(settings, report),
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

/// Families of `FamilyId` (relay_config.c, `options_validate_relay_mode`).
fn families(settings: &Settings, report: &mut Report) -> Option<FamilyIds> {
    let mut families = None;
    for line in settings.lines(keys::FamilyId) {
        let families = families.get_or_insert_with(FamilyIds::default);
        let mut id = [0; 32];
        let text = line.value.trim_end_matches('=');
        if line.value == "*" {
            families.all = true;
        } else if Base64Unpadded::decode(text, &mut id).is_ok_and(|bytes| bytes.len() == 32) {
            families.ids.push(id);
        } else {
            report.error(
                Some(&line.origin),
                format!("Invalid FamilyId {}", line.value),
            );
        }
    }
    families
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::MemoryHost;
    use crate::load_text;

    const RELAY: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\nDataDirectory /d\n";

    #[test]
    fn families_are_named_by_their_identities_or_all_at_once() {
        let read = |lines: &str| {
            let loaded = load_text(&format!("{RELAY}{lines}"), &MemoryHost::new());
            loaded
                .map(|loaded| loaded.options)
                .map_err(|why| why.to_string())
        };
        let options = read("").unwrap();
        assert_eq!(options.identity.families, None);
        assert_eq!(options.files.family_key_directory.to_str(), Some("/d/keys"));
        let id = Base64Unpadded::encode_string(&[7; 32]);
        let padded = format!("{id}=");
        let lines =
            format!("FamilyId {id}\nFamilyId *\nFamilyId {padded}\nFamilyKeyDirectory /f\n");
        let options = read(&lines).unwrap();
        let families = FamilyIds {
            all: true,
            ids: vec![[7; 32], [7; 32]],
        };
        assert_eq!(options.identity.families, Some(families));
        assert_eq!(options.files.family_key_directory.to_str(), Some("/f"));
        for bad in ["x", "**", &id[1..], &format!("{id}AA")] {
            let why = read(&format!("FamilyId {bad}\n")).unwrap_err();
            assert!(why.contains(&format!("Invalid FamilyId {bad}")), "{why}");
        }
    }
}
