//! Relays that an authority does not take as they are: by their addresses, countries and versions (`AuthDirReject`,
//! `AuthDirInvalid`, `AuthDirBadExit`, `AuthDirMiddleOnly`) and by their identities (the file `approved-routers`; C tor
//! `dirserv_get_status_impl`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use base64ct::{Base64Unpadded, Encoding as _};
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_policy::AddressSet;

use crate::versions::{Platform, TorVersion};

/// The answer to a relay of a rejected address, in C tor's words.
const SUSPICIOUS: &str = "Suspicious relay address range -- if you think this is a mistake please set a valid email \
     address in ContactInfo and send an email to bad-relays@lists.torproject.org mentioning your address(es) and \
     fingerprint(s)?";

/// The answer to a relay of a rejected identity.
const REJECTED: &str = "Fingerprint and/or ed25519 identity is marked rejected -- if you think this is a mistake please \
     set a valid email address in ContactInfo and send an email to bad-relays@lists.torproject.org mentioning your \
     fingerprint(s)?";

/// The countries of addresses (`GeoIPFile`).
#[derive(Clone)]
pub struct CountryTable(pub Arc<dyn Fn(IpAddr) -> [u8; 2] + Send + Sync>);

impl CountryTable {
    fn of(&self, address: IpAddr) -> [u8; 2] {
        (self.0)(address)
    }
}

impl Default for CountryTable {
    /// No country is known.
    fn default() -> Self {
        Self(Arc::new(|_| *b"??"))
    }
}

impl fmt::Debug for CountryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CountryTable")
    }
}

/// The lists of an authority.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// AuthDirReject, AuthDirRejectCCs.
    pub reject: AddressSet,
    /// AuthDirInvalid, AuthDirInvalidCCs.
    pub invalid: AddressSet,
    /// AuthDirBadExit, AuthDirBadExitCCs.
    pub bad_exit: AddressSet,
    /// AuthDirMiddleOnly, AuthDirMiddleOnlyCCs.
    pub middle_only: AddressSet,
    /// AuthDirListBadExits: the flag BadExit is given at all.
    pub list_bad_exits: bool,
    /// AuthDirListMiddleOnly: the flag MiddleOnly is given at all.
    pub list_middle_only: bool,
    /// AuthDirSupport048Clients: a descriptor without TAP key is refused.
    pub needs_tap: bool,
    /// MinimalAcceptedServerVersion; empty: any.
    pub minimal_version: String,
    /// GeoIPFile.
    pub countries: CountryTable,
    /// The file `approved-routers`.
    pub named: NamedRelays,
}

/// What the lists have of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    rejected: bool,
    /// It does not get the flag Valid, so that no consensus lists it.
    pub(super) invalid: bool,
    pub(super) bad_exit: bool,
    pub(super) middle_only: bool,
    /// It does not get these flags.
    pub(super) no_guard: bool,
    pub(super) no_hs_dir: bool,
    pub(super) no_directory: bool,
}

impl Standing {
    /// What a line of `approved-routers` begins with; other words are nicknames, and ask for nothing.
    fn of_word(word: &str) -> Self {
        let mut standing = Self::default();
        match word.to_ascii_lowercase().as_str() {
            "!reject" => standing.rejected = true,
            "!invalid" => standing.invalid = true,
            "!badexit" => standing.bad_exit = true,
            "!middleonly" => standing.middle_only = true,
            "!stripguard" => standing.no_guard = true,
            "!striphsdir" => standing.no_hs_dir = true,
            "!stripv2dir" => standing.no_directory = true,
            _ => {}
        }
        standing
    }

    fn or(self, other: Self) -> Self {
        Self {
            rejected: self.rejected || other.rejected,
            invalid: self.invalid || other.invalid,
            bad_exit: self.bad_exit || other.bad_exit,
            middle_only: self.middle_only || other.middle_only,
            no_guard: self.no_guard || other.no_guard,
            no_hs_dir: self.no_hs_dir || other.no_hs_dir,
            no_directory: self.no_directory || other.no_directory,
        }
    }
}

/// Relays by their identities, as C tor's file `approved-routers` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRelays {
    by_rsa: BTreeMap<RsaIdentity, Standing>,
    by_ed: BTreeMap<Ed25519Identity, Standing>,
}

impl NamedRelays {
    /// Reads lines such as `!badexit FINGERPRINT` (`dirserv_load_fingerprint_file`), where an Ed25519 identity, in
    /// base64, may stand for the fingerprint. Lines that name no relay or are no text are passed over, and returned.
    #[must_use]
    pub fn parse(text: &[u8]) -> (Self, Vec<String>) {
        let (mut named, mut bad) = (Self::default(), Vec::new());
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let line = line.trim_ascii();
            let text = std::str::from_utf8(line).unwrap_or_default();
            let Some((word, id)) = text.split_once(char::is_whitespace) else {
                if !line.is_empty() {
                    bad.push(String::from_utf8_lossy(line).into_owned());
                }
                continue;
            };
            let id: String = id.chars().filter(|c| *c != ' ').collect();
            let is_hex = id.len() == 40 && id.is_ascii();
            let rsa = is_hex.then(|| RsaIdentity::from_hex(&id)).flatten();
            let ed = Base64Unpadded::decode_vec(&id).ok();
            let ed: Option<[u8; 32]> = ed.and_then(|bytes| bytes.try_into().ok());
            let held = match (rsa, ed) {
                (Some(rsa), _) => named.by_rsa.entry(rsa).or_default(),
                (None, Some(ed)) => named.by_ed.entry(ed.into()).or_default(),
                (None, None) => {
                    bad.push(text.to_owned());
                    continue;
                }
            };
            *held = held.or(Standing::of_word(word));
        }
        (named, bad)
    }

    fn of(&self, (rsa, ed): (RsaIdentity, Ed25519Identity)) -> Standing {
        let by_rsa = self.by_rsa.get(&rsa).copied().unwrap_or_default();
        by_rsa.or(self.by_ed.get(&ed).copied().unwrap_or_default())
    }
}

impl Lists {
    /// What the lists have of a relay, or why it is rejected, in C tor's words.
    pub(super) fn standing(
        &self,
        ids: (RsaIdentity, Ed25519Identity),
        address: Ipv4Addr,
        platform: &Platform,
    ) -> Result<Standing, &'static str> {
        if *platform == Platform::Malformed {
            return Err("Malformed platform string.");
        }
        let is_old = match TorVersion::parse(&self.minimal_version) {
            Some(least) => !platform.is_as_new_as(&least),
            // Nothing is as new as what is no version.
            None => !self.minimal_version.is_empty() && matches!(platform, Platform::Tor(_)),
        };
        if is_old {
            return Err("Tor version is insecure or unsupported. Please upgrade!");
        }
        let named = self.named.of(ids);
        if named.rejected {
            return Err(REJECTED);
        }
        let is_in = |set: &AddressSet| set.contains(address, |address| self.countries.of(address));
        if is_in(&self.reject) {
            return Err(SUSPICIOUS);
        }
        Ok(named.or(Standing {
            invalid: is_in(&self.invalid),
            bad_exit: is_in(&self.bad_exit),
            middle_only: is_in(&self.middle_only),
            ..Standing::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rules: &str, countries: &[&str]) -> AddressSet {
        AddressSet::parse(rules, countries).unwrap()
    }

    fn ids(byte: u8) -> (RsaIdentity, Ed25519Identity) {
        ([byte; 20].into(), [byte; 32].into())
    }

    fn standing(lists: &Lists, address: [u8; 4]) -> Result<Standing, &'static str> {
        lists.standing(ids(1), address.into(), &Platform::Other)
    }

    #[test]
    fn relays_are_named_by_either_identity_in_approved_routers() {
        let hex = "01".repeat(20);
        let spaced = "0202 ".repeat(10);
        let ed = Base64Unpadded::encode_string(&[3; 32]);
        let text = format!(
            "# ours\n\nfriend {hex}\n!BadExit {hex} # bad\n!middleonly {hex}\n!reject {spaced}\n\
             !stripguard {ed}\n!striphsdir {ed}\n!stripv2dir {ed}\n!invalid 00\nlonely\n"
        );
        let (named, bad) = NamedRelays::parse(text.as_bytes());
        assert_eq!(bad, ["!invalid 00", "lonely"]);
        let lists = Lists {
            named,
            ..Lists::default()
        };
        let of = |byte| lists.standing(ids(byte), Ipv4Addr::LOCALHOST, &Platform::Other);
        let one = of(1).unwrap();
        assert!(one.bad_exit && one.middle_only && !one.invalid && !one.no_guard);
        assert_eq!(of(2), Err(REJECTED));
        let three = of(3).unwrap();
        assert!(three.no_guard && three.no_hs_dir && three.no_directory && !three.bad_exit);
        assert_eq!(of(4), Ok(Standing::default()));
    }

    #[test]
    fn addresses_are_listed_by_the_first_rule_that_matches_and_by_country() {
        let lists = Lists {
            reject: list("accept 10.0.0.1, 10.0.0.0/8", &["DE"]),
            invalid: list("192.0.2.0/24", &[]),
            bad_exit: list("198.51.100.7", &["??"]),
            middle_only: list("", &["fr"]),
            countries: CountryTable(Arc::new(|address| match address {
                IpAddr::V4(ip) if ip.octets()[0] == 5 => *b"de",
                IpAddr::V4(ip) if ip.octets()[0] == 6 => *b"fr",
                _ => *b"??",
            })),
            ..Lists::default()
        };
        assert_eq!(standing(&lists, [10, 0, 0, 2]), Err(SUSPICIOUS));
        assert!(standing(&lists, [10, 0, 0, 1]).is_ok());
        assert_eq!(standing(&lists, [5, 1, 1, 1]), Err(SUSPICIOUS));
        let french = standing(&lists, [6, 1, 1, 1]).unwrap();
        assert!(french.middle_only && !french.bad_exit && !french.invalid);
        let unknown = standing(&lists, [192, 0, 2, 200]).unwrap();
        assert!(unknown.invalid && unknown.bad_exit && !unknown.middle_only);
    }

    #[test]
    fn without_lists_everybody_is_welcome() {
        let lists = Lists::default();
        assert_eq!(standing(&lists, [127, 0, 0, 1]), Ok(Standing::default()));
    }

    #[test]
    fn old_versions_of_c_tor_and_torn_platform_lines_are_rejected() {
        let lists = Lists {
            minimal_version: "0.4.9.0-alpha-dev".into(),
            ..Lists::default()
        };
        let of = |platform: &str| {
            lists.standing(ids(1), Ipv4Addr::LOCALHOST, &Platform::parse(platform))
        };
        assert!(of("Tor 0.4.9.11 on Linux").is_ok() && of("Weft 0.1 on Linux").is_ok());
        assert!(of("Tor 0.4.8.21 on Linux").unwrap_err().contains("upgrade"));
        assert!(of("Tor x").unwrap_err().contains("Malformed"));
        let torn = Lists {
            minimal_version: "new".into(),
            ..Lists::default()
        };
        let of =
            |platform: &str| torn.standing(ids(1), Ipv4Addr::LOCALHOST, &Platform::parse(platform));
        assert!(of("Tor 0.4.9.11 on Linux").is_err() && of("Weft 0.1 on Linux").is_ok());
    }
}
