//! `FallbackDir` lines: relays that a client may ask for its first consensus, and the real
//! network's list of them.

use std::net::{IpAddr, SocketAddr};

use weft_cell::identity::RsaIdentity;

use crate::text::address::{AddressPort, parse_address_port};
use crate::text::dir_authority::parse_fingerprint;
use crate::text::number::{parse_double, parse_long};

/// The fallbacks of the Tor network, as C tor 0.4.9 has them (src/app/config/fallback_dirs.inc of
/// 25 June 2026), one on a line.
pub(crate) const DEFAULT_FALLBACKS: &str = include_str!("fallback_dirs.txt");
/// One fallback.
#[derive(Clone, Debug, PartialEq)]
pub struct FallbackDir {
    /// The digest of its relay identity key.
    pub fingerprint: RsaIdentity,
    /// Its ORPort.
    pub or_address: SocketAddr,
    /// Its ORPort by IPv6, if that is another.
    pub ipv6: Option<SocketAddr>,
    /// Probability of choosing it, relative to the others.
    pub weight: f64,
}

/// The network's fallbacks.
pub(crate) fn default_fallbacks() -> Vec<FallbackDir> {
    DEFAULT_FALLBACKS
        .lines()
        .filter_map(|line| parse_fallback_dir(line, &mut Vec::new()).ok())
        .collect()
}

/// Reads one `FallbackDir` line as C tor's `parse_dir_fallback_line` does.
///
/// # Errors
/// The line is malformed.
pub(crate) fn parse_fallback_dir(
    line: &str,
    warnings: &mut Vec<String>,
) -> Result<FallbackDir, String> {
    let (mut address, mut or_port, mut id, mut ipv6, mut weight) = (None, None, None, None, 1.0);
    for word in line.split_ascii_whitespace() {
        let Some((name, value)) = word.split_once('=') else {
            if address.replace(word).is_some() {
                return Err("it has more than one address".into());
            }
            continue;
        };
        let bad = || format!("its {name} \"{value}\" makes no sense");
        match name {
            "orport" => {
                let port = parse_long(value, 1, 65_535).ok_or_else(bad)?;
                or_port = Some(u16::try_from(port).map_err(|_| bad())?);
            }
            "id" => id = Some(parse_fingerprint(value).ok_or_else(bad)?),
            "weight" => match parse_double(value).filter(|weight| *weight >= 0.0) {
                Some(given) => weight = given,
                None => warnings.push(format!("ignored its bad weight \"{value}\"")),
            },
            _ if name.eq_ignore_ascii_case("ipv6") => match parse_address_port(value) {
                _ if ipv6.is_some() => warnings.push("ignored its second ipv6 address".into()),
                Some(AddressPort {
                    address: ip @ IpAddr::V6(_),
                    port: Some(port),
                }) => ipv6 = Some(SocketAddr::new(ip, port)),
                _ => return Err(bad()),
            },
            // C tor passes over what it does not know.
            _ => {}
        }
    }
    let address = address.ok_or("it has no address")?;
    let ip = parse_address_port(address)
        .ok_or_else(|| format!("its address \"{address}\" is none"))?
        .address;
    let fingerprint = id
        .filter(|id| !id.is_zero())
        .ok_or("it lacks an identity (id=)")?;
    Ok(FallbackDir {
        fingerprint,
        or_address: SocketAddr::new(ip, or_port.ok_or("it lacks an ORPort (orport=)")?),
        ipv6,
        weight,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4F067C5C488173987B568CD7245F1CA71DEE996B";

    fn parse(line: &str) -> Result<(FallbackDir, Vec<String>), String> {
        let mut warnings = Vec::new();
        let fallback = parse_fallback_dir(line, &mut warnings)?;
        Ok((fallback, warnings))
    }

    #[test]
    fn the_networks_fallbacks_are_all_read() {
        let fallbacks = default_fallbacks();
        assert_eq!(fallbacks.len(), 200);
        let first = fallbacks.first().map(|of| of.or_address);
        assert_eq!(first, Some("64.65.62.122:443".parse().unwrap()));
        assert!(fallbacks.iter().any(|of| of.ipv6.is_some()));
    }

    #[test]
    fn lines_are_read_as_c_tor_reads_them() {
        let line = format!("127.0.0.1:80 orport=9001 id={ID} weight=2.5 IPv6=[::1]:9002 new=1");
        let (fallback, warnings) = parse(&line).unwrap();
        assert_eq!(fallback.or_address, "127.0.0.1:9001".parse().unwrap());
        assert_eq!(fallback.ipv6, Some("[::1]:9002".parse().unwrap()));
        assert_eq!(fallback.weight, 2.5);
        assert!(warnings.is_empty());
        let (fallback, warnings) =
            parse(&format!("id={ID} orport=1 weight=x [::1] ipv6=[::1]:1")).unwrap();
        assert_eq!(fallback.or_address, "[::1]:1".parse().unwrap());
        assert_eq!((fallback.weight, warnings.len()), (1.0, 1));
        for bad in [
            format!("orport=1 id={ID}"),
            format!("127.0.0.1:1 id={ID}"),
            "127.0.0.1:1 orport=1".to_string(),
            format!("127.0.0.1:1 orport=0 id={ID}"),
            format!("127.0.0.1:1 orport=99999 id={ID}"),
            "127.0.0.1:1 orport=1 id=12".to_string(),
            format!("127.0.0.1:1 orport=1 id={}", "0".repeat(40)),
            format!("127.0.0.1:1 127.0.0.1:2 orport=1 id={ID}"),
            format!("nowhere orport=1 id={ID}"),
            format!("127.0.0.1:1 orport=1 id={ID} ipv6=127.0.0.1:1"),
        ] {
            assert!(parse(&bad).is_err(), "{bad}");
        }
    }
}
