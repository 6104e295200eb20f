//! `DirAuthority` lines: the directory authorities, and the real network's.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use weft_cell::identity::RsaIdentity;

use crate::text::address::{AddressPort, parse_address_port};
use crate::text::number::{parse_double, parse_long};

/// Use of an authority's extra directory addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirPortUse {
    /// Posting descriptors to it.
    Upload,
    /// Fetching documents from it.
    Download,
    /// Other authorities' votes.
    Vote,
}

/// One directory authority.
#[derive(Clone, Debug, PartialEq)]
pub struct DirAuthority {
    /// Its name, where the line gives one.
    pub nickname: Option<String>,
    /// The digest of its long-term authority identity key; `None`: it does not vote on the
    /// consensus of relays.
    pub v3ident: Option<RsaIdentity>,
    /// The digest of its relay identity key.
    pub fingerprint: RsaIdentity,
    /// Where it answers HTTP.
    pub dir_address: SocketAddrV4,
    /// Its ORPort, at the address of `dir_address`.
    pub or_port: Option<u16>,
    /// Its ORPort by IPv6.
    pub ipv6: Option<SocketAddrV6>,
    /// True for an authority for bridges.
    pub bridge: bool,
    /// Probability of choosing it, relative to the others.
    pub weight: f64,
    /// Further addresses where it answers HTTP, for one use only.
    pub dir_ports: Vec<(DirPortUse, SocketAddr)>,
}

impl DirAuthority {
    /// Returns true if it votes on the consensus.
    #[must_use]
    pub const fn is_v3(&self) -> bool {
        self.v3ident.is_some()
    }

    /// Where to send HTTP requests for this use: the first address given for the use, else its
    /// directory address.
    #[must_use]
    pub fn address_for(&self, usage: DirPortUse) -> SocketAddr {
        self.dir_ports
            .iter()
            .find(|(of, _)| *of == usage)
            .map_or(SocketAddr::V4(self.dir_address), |(_, address)| *address)
    }

    /// Its ORPort by IPv4, where it has one.
    #[must_use]
    pub fn or_address(&self) -> Option<SocketAddrV4> {
        self.or_port
            .map(|port| SocketAddrV4::new(*self.dir_address.ip(), port))
    }
}

/// The authorities of the Tor network, as C tor 0.4.9 has them (src/app/config/auth_dirs.inc).
pub(crate) const DEFAULT_AUTHORITIES: [&str; 10] = [
    "moria1 orport=9201 v3ident=F533C81CEF0BC0267857C99B2F471ADF249FA232 \
     128.31.0.39:9231 1A25C6358DB91342AA51720A5038B72742732498",
    "tor26 orport=443 v3ident=2F3DF9CA0E5D36F2685A2DA67184EB8DCB8CBA8C \
     ipv6=[2a02:16a8:662:2203::1]:443 \
     217.196.147.77:80 FAA4BCA4A6AC0FB4CA2F8AD5A11D9E122BA894F6",
    "dizum orport=443 v3ident=E8A9C45EDE6D711294FADF8E7951F4DE6CA56B58 \
     45.66.35.11:80 7EA6EAD6FD83083C538F44038BBFA077587DD755",
    "Serge orport=9001 bridge \
     66.111.2.131:9030 BA44A889E64B93FAA2B114E02C2A279A8555C533",
    "gabelmoo orport=443 v3ident=ED03BB616EB2F60BEC80151114BB25CEF515B226 \
     ipv6=[2001:638:a000:4140::ffff:189]:443 \
     131.188.40.189:80 F2044413DAC2E02E3D6BCF4735A19BCA1DE97281",
    "dannenberg orport=443 v3ident=0232AF901C31A04EE9848595AF9BB7620D4C5B2E \
     ipv6=[2001:678:558:1000::244]:443 \
     193.23.244.244:80 7BE683E65D48141321C5ED92F075C55364AC7123",
    "maatuska orport=80 v3ident=49015F787433103580E3B66A1707A00E60F2D15B \
     ipv6=[2001:67c:289c::9]:80 \
     171.25.193.9:443 BD6A829255CB08E66FBE7D3748363586E46B3810",
    "longclaw orport=443 v3ident=23D15D965BC35114467363C165C4F724B64B4F66 \
     199.58.81.140:80 74A910646BCEEFBCD2E874FC1DC997430F968145",
    "bastet orport=443 v3ident=27102BC123E7AF1D4741AE047E160C91ADC76B21 \
     ipv6=[2620:13:4000:6000::1000:118]:443 \
     204.13.164.118:80 24E2F139121D4394C54B5BCC368B3B411857C413",
    "faravahar orport=443 v3ident=70849B868D606BAECFB6128C5E3D782029AA394F \
     216.218.219.41:80 E3E42D35F801C9D5AB23584E0025D56FE2B33396",
];

/// Reads one `DirAuthority` line as C tor's `parse_dir_authority_line` does.
///
/// Flags that C tor only warns about are left out and added to `warnings`.
///
/// # Errors
/// The line is malformed.
pub(crate) fn parse_dir_authority(
    line: &str,
    warnings: &mut Vec<String>,
) -> Result<DirAuthority, String> {
    let mut words = line.split_ascii_whitespace().peekable();
    let nickname = words
        .next_if(|word| is_legal_nickname(word))
        .map(str::to_owned);
    let mut authority = DirAuthority {
        nickname,
        v3ident: None,
        fingerprint: RsaIdentity([0; 20]),
        dir_address: SocketAddrV4::new([0, 0, 0, 0].into(), 0),
        or_port: None,
        ipv6: None,
        bridge: false,
        weight: 1.0,
        dir_ports: Vec::new(),
    };
    while let Some(flag) = words.next_if(|word| !word.starts_with(|c: char| c.is_ascii_digit())) {
        parse_flag(&mut authority, flag, warnings)?;
    }
    let address = words.next().ok_or("it has no address")?;
    authority.dir_address = match parse_address_port(address) {
        Some(AddressPort {
            address: IpAddr::V4(ip),
            port: Some(port),
        }) => SocketAddrV4::new(ip, port),
        Some(AddressPort {
            address: IpAddr::V4(_),
            port: None,
        }) => {
            return Err(format!("its address \"{address}\" lacks a port"));
        }
        _ => {
            return Err(format!(
                "its address \"{address}\" is not an IPv4 address and port"
            ));
        }
    };
    let fingerprint: String = words.collect();
    authority.fingerprint = parse_fingerprint(&fingerprint)
        .ok_or_else(|| format!("its fingerprint \"{fingerprint}\" is not 40 hexadecimal digits"))?;
    Ok(authority)
}

fn parse_flag(
    authority: &mut DirAuthority,
    flag: &str,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    let (name, value) = flag
        .split_once('=')
        .map_or((flag, None), |(name, value)| (name, Some(value)));
    match (name.to_ascii_lowercase().as_str(), value) {
        ("hs" | "no-hs", None) => warnings.push(format!("the flag \"{flag}\" is obsolete")),
        ("no-v2", None) => {}
        ("bridge", None) => authority.bridge = true,
        ("orport", Some(port)) => match parse_port(port) {
            Some(port) => authority.or_port = Some(port),
            None => warnings.push(format!("ignored its bad ORPort \"{port}\"")),
        },
        ("weight", Some(weight)) if name == "weight" => {
            match parse_double(weight).filter(|w| *w >= 0.0) {
                Some(weight) => authority.weight = weight,
                None => warnings.push(format!("ignored its bad weight \"{weight}\"")),
            }
        }
        ("v3ident", Some(digest)) => match parse_fingerprint(digest) {
            Some(digest) => authority.v3ident = Some(digest),
            None => warnings.push(format!("ignored its bad v3ident \"{digest}\"")),
        },
        ("ipv6", Some(address)) => match parse_address_port(address) {
            _ if authority.ipv6.is_some() => {
                warnings.push("ignored its second ipv6 address".to_owned())
            }
            Some(AddressPort {
                address: IpAddr::V6(ip),
                port: Some(port),
            }) => {
                authority.ipv6 = Some(SocketAddrV6::new(ip, port, 0, 0));
            }
            _ => return Err(format!("\"{address}\" is not an IPv6 address and port")),
        },
        ("upload", Some(url)) => authority
            .dir_ports
            .push((DirPortUse::Upload, parse_url(url)?)),
        ("download", Some(url)) => authority
            .dir_ports
            .push((DirPortUse::Download, parse_url(url)?)),
        ("vote", Some(url)) => authority
            .dir_ports
            .push((DirPortUse::Vote, parse_url(url)?)),
        _ => warnings.push(format!("ignored its unknown flag \"{flag}\"")),
    }
    Ok(())
}

fn parse_url(url: &str) -> Result<SocketAddr, String> {
    let bad = || format!("\"{url}\" is not of the form http://address:port/");
    let address = url.strip_prefix("http://").ok_or_else(bad)?;
    let address = address.strip_suffix('/').unwrap_or(address);
    match parse_address_port(address) {
        Some(AddressPort {
            address,
            port: Some(port),
        }) => Ok(SocketAddr::new(address, port)),
        _ => Err(bad()),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    parse_long(text, 1, 65535).and_then(|port| u16::try_from(port).ok())
}

/// Forty hexadecimal digits.
pub(crate) fn parse_fingerprint(text: &str) -> Option<RsaIdentity> {
    let mut digest = [0; 20];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(RsaIdentity(digest))
}

/// Returns true if a text can be a relay's nickname (dir-spec 1.3): 1 to 19 letters and digits.
pub(crate) fn is_legal_nickname(text: &str) -> bool {
    (1..=19).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(DirAuthority, Vec<String>), String> {
        let mut warnings = Vec::new();
        parse_dir_authority(line, &mut warnings).map(|authority| (authority, warnings))
    }

    #[test]
    fn the_networks_own_authorities_are_nine_and_one_for_bridges() {
        let all: Vec<_> = DEFAULT_AUTHORITIES
            .iter()
            .map(|line| parse(line).unwrap())
            .collect();
        assert!(all.iter().all(|(_, warnings)| warnings.is_empty()));
        assert_eq!(all.iter().filter(|(a, _)| a.is_v3()).count(), 9);
        assert_eq!(all.iter().filter(|(a, _)| a.bridge).count(), 1);
        let (maatuska, _) = &all[6];
        assert_eq!(
            maatuska.or_address().unwrap().to_string(),
            "171.25.193.9:80"
        );
        assert_eq!(maatuska.ipv6.unwrap().to_string(), "[2001:67c:289c::9]:80");
        assert_eq!(
            maatuska.fingerprint.to_string(),
            "BD6A829255CB08E66FBE7D3748363586E46B3810"
        );
    }

    #[test]
    fn flags_come_in_any_order_and_a_fingerprint_may_be_spaced() {
        let (authority, warnings) = parse(
            "v3ident=E8A9C45EDE6D711294FADF8E7951F4DE6CA56B58 no-v2 ORPORT=5001 \
             upload=http://127.0.0.1:7000/ vote=http://[::1]:7001 127.0.0.1:7002 \
             7EA6 EAD6 FD83 083C 538F 4403 8BBF A077 587D D755",
        )
        .unwrap();
        assert_eq!(authority.nickname, None);
        assert_eq!(authority.or_port, Some(5001));
        assert_eq!(
            authority.address_for(DirPortUse::Upload).to_string(),
            "127.0.0.1:7000"
        );
        assert_eq!(
            authority.address_for(DirPortUse::Vote).to_string(),
            "[::1]:7001"
        );
        assert_eq!(
            authority.address_for(DirPortUse::Download).to_string(),
            "127.0.0.1:7002"
        );
        assert!(warnings.is_empty());
    }

    #[test]
    fn an_authority_has_what_its_flags_give_it_and_the_first_address_counts() {
        const FP: &str = "7EA6EAD6FD83083C538F44038BBFA077587DD755";
        let of = |flags: &str| parse(&format!("a {flags} 1.2.3.4:5 {FP}")).unwrap();
        let (authority, warnings) = of("bridge weight=0.5 download=http://1.2.3.4:7/");
        assert!(authority.bridge && warnings.is_empty());
        assert!((authority.weight - 0.5).abs() < 1e-9);
        let download = authority.address_for(DirPortUse::Download);
        assert_eq!(download.to_string(), "1.2.3.4:7");
        let (authority, warnings) = of("weight=0 no-hs");
        assert!(authority.weight == 0.0 && warnings == ["the flag \"no-hs\" is obsolete"]);
        let (authority, warnings) = of("weight=-1");
        assert!((authority.weight - 1.0).abs() < 1e-9 && warnings.len() == 1);
        let (authority, warnings) = of("ipv6=[2001:db8::1]:5 ipv6=[2001:db8::2]:5");
        assert_eq!(authority.ipv6.unwrap().to_string(), "[2001:db8::1]:5");
        assert_eq!(warnings, ["ignored its second ipv6 address"]);
    }

    #[test]
    fn a_bad_flag_is_a_warning_and_a_bad_address_an_error() {
        const FP: &str = "7EA6EAD6FD83083C538F44038BBFA077587DD755";
        let (authority, warnings) =
            parse(&format!("a orport=0 v3ident=12 what 1.2.3.4:5 {FP}")).unwrap();
        assert_eq!((authority.or_port, authority.v3ident), (None, None));
        assert_eq!(warnings.len(), 3);
        for line in [
            String::new(),
            "name".to_owned(),
            format!("a 1.2.3.4 {FP}"),
            format!("a 1.2.3.4:0 {FP}"),
            format!("a ipv6=1.2.3.4:5 1.2.3.4:5 {FP}"),
            format!("a upload=https://1.2.3.4:5/ 1.2.3.4:5 {FP}"),
            format!("a 1.2.3.4:5 {FP}0"),
            "a 1.2.3.4:5".to_owned(),
        ] {
            assert!(parse(&line).is_err(), "{line:?}");
        }
    }
}
