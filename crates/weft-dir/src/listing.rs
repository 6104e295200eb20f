//! The text of a consensus that was verified before, relay by relay, as controllers are shown it
//! (control-spec 3.9, `ns/`).
//!
//! C tor answers them from the text, too: what tor-netdoc's parser leaves out of its documents, above
//! all the lines as they stood, is still there. The text comes from a file that another program may have
//! changed, so nothing is expected of it.

use std::fmt::Write as _;
use std::net::SocketAddr;

use base64ct::{Base64Unpadded, Encoding as _};
use tor_llcrypto::pk::rsa::RsaIdentity;

use crate::microdesc::MdDigest;

/// Flags that C tor knows, in the order in which it writes them.
const FLAGS: [&str; 13] = [
    "Authority",
    "BadExit",
    "Exit",
    "Fast",
    "Guard",
    "HSDir",
    "MiddleOnly",
    "Running",
    "Stable",
    "StaleDesc",
    "Sybil",
    "V2Dir",
    "Valid",
];

/// The parts of a microdescriptor consensus that are read.
#[derive(Debug, Default)]
pub struct Listing {
    /// `valid-after`.
    pub valid_after: Option<String>,
    /// `fresh-until`.
    pub fresh_until: Option<String>,
    /// `valid-until`.
    pub valid_until: Option<String>,
    /// `client-versions`.
    pub versions: String,
    /// `server-versions`.
    pub relay_versions: String,
    /// `params`, as `NAME=VALUE` with blanks between them.
    pub params: String,
    /// The values of `shared-rand-current-value` and `shared-rand-previous-value`, in base64.
    pub shared_random: [Option<String>; 2],
    /// In the consensus' order.
    pub entries: Vec<Entry>,
}

/// A relay.
#[derive(Debug)]
pub struct Entry {
    /// Its RSA identity.
    pub rsa: RsaIdentity,
    /// Its nickname.
    pub nickname: String,
    /// Its ORPorts; none that cannot be read.
    pub or_ports: Vec<SocketAddr>,
    /// Its flags that C tor knows, in C tor's order.
    pub flags: Vec<&'static str>,
    /// SHA-256 of its microdescriptor.
    pub microdesc: MdDigest,
    /// Its bandwidth in the consensus, in kilobytes a second; 0 where it has none.
    pub bandwidth: u64,
    /// As version 2 of the directory protocol had it (fmt_routerstatus.c, NS_CONTROL_PORT).
    pub status: String,
}

impl Listing {
    /// Reads all that is well formed of a text; what is not is left out.
    pub fn read(text: &str) -> Self {
        let mut listing = Self::default();
        let body = text.split("\ndirectory-footer").next().unwrap_or_default();
        let mut parts = body.split("\nr ");
        // Behind the number of authorities that revealed theirs.
        let value = |rest: &str| rest.split(' ').nth(1).map(str::to_owned);
        let (mut current, mut previous) = (None, None);
        for line in parts.next().unwrap_or_default().lines() {
            match line.split_once(' ') {
                Some(("client-versions", versions)) => listing.versions = versions.to_owned(),
                Some(("server-versions", versions)) => {
                    listing.relay_versions = versions.to_owned();
                }
                Some(("params", params)) => listing.params = params.to_owned(),
                Some(("valid-after", time)) => listing.valid_after = Some(time.to_owned()),
                Some(("fresh-until", time)) => listing.fresh_until = Some(time.to_owned()),
                Some(("valid-until", time)) => listing.valid_until = Some(time.to_owned()),
                Some(("shared-rand-current-value", rest)) => current = value(rest),
                Some(("shared-rand-previous-value", rest)) => previous = value(rest),
                _ => {}
            }
        }
        listing.shared_random = [current, previous];
        listing.entries.extend(parts.filter_map(Entry::read));
        listing
    }
}

impl Entry {
    /// Reads what stands from behind one `r ` to the next.
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let words: Vec<&str> = lines.next()?.split(' ').collect();
        let [nickname, id, date, time, address, or_port, dir_port] = words[..] else {
            return None;
        };
        let mut entry = Self {
            rsa: RsaIdentity::from(decode::<20>(id)?),
            nickname: nickname.to_owned(),
            or_ports: Vec::new(),
            flags: Vec::new(),
            microdesc: [0; 32],
            bandwidth: 0,
            status: String::new(),
        };
        let (mut ipv6, mut flags, mut weight) = (None, "", "");
        for line in lines {
            match line.split_once(' ') {
                Some(("a", at)) if at.starts_with('[') && ipv6.is_none() => ipv6 = Some(at),
                Some(("m", digest)) => entry.microdesc = decode(digest)?,
                Some(("s", all)) => flags = all,
                Some(("w", all)) => weight = all,
                _ => {}
            }
        }
        // C tor writes as much of the microdescriptor's digest as there is room for that of a server
        // descriptor.
        let digest = entry.microdesc.get(..20).unwrap_or_default();
        let digest = Base64Unpadded::encode_string(digest);
        let _ = writeln!(
            entry.status,
            "r {nickname} {id} {digest} {date} {time} {address} {or_port} {dir_port}"
        );
        entry
            .or_ports
            .extend(format!("{address}:{or_port}").parse::<SocketAddr>().ok());
        if let Some(at) = ipv6 {
            let _ = writeln!(entry.status, "a {at}");
            entry.or_ports.extend(at.parse::<SocketAddr>().ok());
        }
        entry.status.push('s');
        for flag in FLAGS {
            if flags.split(' ').any(|found| found == flag) {
                entry.flags.push(flag);
                let _ = write!(entry.status, " {flag}");
            }
        }
        entry.status.push('\n');
        let bandwidth = weight.split(' ').find_map(|word| {
            let (key, value) = word.split_once('=')?;
            value.parse().ok().filter(|_: &u64| key == "Bandwidth")
        });
        if let Some(bandwidth) = bandwidth {
            entry.bandwidth = bandwidth;
            let _ = writeln!(entry.status, "w Bandwidth={bandwidth}");
        }
        Some(entry)
    }
}

fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = Base64Unpadded::decode_vec(text.trim_end_matches('=')).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONSENSUS: &str = "network-status-version 3 microdesc\nvote-status consensus\n\
        valid-after 2026-11-22 01:00:00\nfresh-until 2026-11-22 02:00:00\n\
        valid-until 2026-11-22 04:00:00\nclient-versions 0.4.8.1,0.4.9.1\nserver-versions 0.4.9.1\nparams x=1\n\
        shared-rand-previous-value 9 AAAA=\nshared-rand-current-value 8 BBBB=\n\
        r one AQEBAQEBAQEBAQEBAQEBAQEBAQE 2038-01-01 00:00:00 192.0.2.1 9001 0\n\
        a [2001:db8::1]:9001\nm IPge+xK2IqGmLR2qv/fwMj4WRqNBaR1uJA4cVPoVrHo\n\
        s Exit Fast Named Running StaleDesc V2Dir Valid\nv Tor 0.4.9.1\n\
        pr Cons=1-2\nw Bandwidth=20 Unmeasured=1\n\
        r two AgICAgICAgICAgICAgICAgICAgI 2038-01-01 00:00:00 192.0.2.2 9001 9030\n\
        s Running Valid\n\
        r bad ??? 2038-01-01 00:00:00 192.0.2.2 9001 9030\ns Running\n\
        directory-footer\nbandwidth-weights Wbd=0\n\
        directory-signature sha256 A B\nr x y\n";

    #[test]
    fn relays_are_read_and_what_is_malformed_is_left_out() {
        let listing = Listing::read(CONSENSUS);
        let random = listing.shared_random.each_ref().map(Option::as_deref);
        assert_eq!(random, [Some("BBBB="), Some("AAAA=")]);
        let times = [
            listing.valid_after,
            listing.fresh_until,
            listing.valid_until,
        ];
        assert_eq!(
            times.map(Option::unwrap),
            [
                "2026-11-22 01:00:00",
                "2026-11-22 02:00:00",
                "2026-11-22 04:00:00"
            ]
        );
        assert_eq!(listing.versions, "0.4.8.1,0.4.9.1");
        assert_eq!(listing.relay_versions, "0.4.9.1");
        assert_eq!(listing.params, "x=1");
        let [one, two] = &listing.entries[..] else {
            panic!("{:?}", listing.entries);
        };
        assert_eq!(
            (&*one.nickname, one.rsa, one.bandwidth),
            ("one", RsaIdentity::from([1; 20]), 20)
        );
        let or_ports = ["192.0.2.1:9001", "[2001:db8::1]:9001"];
        assert_eq!(one.or_ports, or_ports.map(|at| at.parse().unwrap()));
        assert_eq!(
            one.flags,
            ["Exit", "Fast", "Running", "StaleDesc", "V2Dir", "Valid"]
        );
        assert_eq!(one.microdesc[..3], [0x20, 0xf8, 0x1e]);
        assert_eq!(
            one.status,
            "r one AQEBAQEBAQEBAQEBAQEBAQEBAQE IPge+xK2IqGmLR2qv/fwMj4WRqM \
             2038-01-01 00:00:00 192.0.2.1 9001 0\na [2001:db8::1]:9001\n\
             s Exit Fast Running StaleDesc V2Dir Valid\nw Bandwidth=20\n"
        );
        assert_eq!(
            (&*two.nickname, two.rsa, two.bandwidth),
            ("two", RsaIdentity::from([2; 20]), 0)
        );
        assert_eq!(
            two.status,
            "r two AgICAgICAgICAgICAgICAgICAgI AAAAAAAAAAAAAAAAAAAAAAAAAAA \
             2038-01-01 00:00:00 192.0.2.2 9001 9030\ns Running Valid\n"
        );
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "(\nr |\ndirectory-footer|valid-after |\n[amsw] |\
            AQEBAQEBAQEBAQEBAQEBAQEBAQE|one | 9001|Bandwidth=|[ =\\[\n0-9]|\\PC){0,80}") {
            let listing = Listing::read(&text);
            for entry in listing.entries {
                prop_assert!(entry.status.starts_with("r "));
                prop_assert!(entry.status.ends_with('\n'));
            }
        }

        #[test]
        fn no_change_of_a_byte_breaks_it(at in 0..CONSENSUS.len(), byte in 0..128_u8, cut in any::<bool>()) {
            let mut bytes = CONSENSUS.as_bytes().to_vec();
            bytes[at] = byte;
            if cut {
                bytes.truncate(at);
            }
            let text = String::from_utf8(bytes).unwrap();
            prop_assert!(Listing::read(&text).entries.len() <= 4);
        }
    }
}
