//! The countries of addresses, by tables (`GeoIPFile`, `GeoIPv6File`; C tor: geoip.c).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of one table at most; the real ones have some 400,000.
const MAX_RANGES: usize = 4_000_000;

/// The country of an address that no table knows.
pub(crate) const UNKNOWN: [u8; 2] = *b"??";

/// Tables of countries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Countries {
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u128>>,
}

/// Addresses from `first` to `last` are in a country; two letters, in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range<T> {
    first: T,
    last: T,
    country: [u8; 2],
}

/// A line of a table that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no range of addresses with a country, or there are too many")]
pub struct CountriesError {
    /// Its number, from 1.
    pub line: usize,
}

impl Countries {
    /// Reads C tor's tables, `FIRST,LAST,CC` in each line: IPv4 addresses as numbers or in dots,
    /// IPv6 addresses with colons.
    ///
    /// # Errors
    ///
    /// The first line that cannot be read.
    pub fn parse(v4: &str, v6: &str) -> Result<Self, CountriesError> {
        Ok(Self {
            v4: ranges(v4, |text| {
                let dotted = || text.parse().map(Ipv4Addr::to_bits);
                text.parse().or_else(|_| dotted()).ok()
            })?,
            v6: ranges(v6, |text| text.parse().map(Ipv6Addr::to_bits).ok())?,
        })
    }

    /// Whether addresses of this family are known at all.
    #[must_use]
    pub fn knows(&self, v4: bool) -> bool {
        match v4 {
            true => !self.v4.is_empty(),
            false => !self.v6.is_empty(),
        }
    }

    /// The country of an address: two letters in lower case, or `??`.
    #[must_use]
    pub fn of(&self, addr: IpAddr) -> [u8; 2] {
        match addr {
            IpAddr::V4(addr) => find(&self.v4, addr.to_bits()),
            IpAddr::V6(addr) => find(&self.v6, addr.to_bits()),
        }
        .unwrap_or(UNKNOWN)
    }
}

/// Reads one table; in order afterwards.
fn ranges<T: Copy + Ord>(
    text: &str,
    address: impl Fn(&str) -> Option<T>,
) -> Result<Vec<Range<T>>, CountriesError> {
    let mut ranges = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let read = || {
            let mut parts = line.split(',');
            let first = address(parts.next()?)?;
            let last = address(parts.next()?)?;
            let country: [u8; 2] = parts.next()?.as_bytes().try_into().ok()?;
            let ok = first <= last && parts.next().is_none() && ranges.len() < MAX_RANGES;
            ok.then_some(Range {
                first,
                last,
                country: country.map(|letter| letter.to_ascii_lowercase()),
            })
        };
        let range = read().ok_or(CountriesError { line: number })?;
        ranges.push(range);
    }
    ranges.sort_by_key(|range| range.first);
    Ok(ranges)
}

/// The country of an address, by the last range that begins before it.
fn find<T: Copy + Ord>(ranges: &[Range<T>], addr: T) -> Option<[u8; 2]> {
    let after = ranges.partition_point(|range| range.first <= addr);
    let range = ranges.get(after.checked_sub(1)?)?;
    (addr <= range.last).then_some(range.country)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_countries_of_the_tables() {
        let v4 = "# a comment\n16777216,16777471,AU\n10.0.0.0,10.255.255.255,DE\n\n";
        let v6 = "2001:db8::,2001:db8:ffff:ffff:ffff:ffff:ffff:ffff,FR\n";
        let countries = Countries::parse(v4, v6).unwrap();
        let of = |text: &str| countries.of(text.parse().unwrap());
        assert_eq!(of("1.0.0.0"), *b"au");
        assert_eq!(of("1.0.0.255"), *b"au");
        assert_eq!(of("1.0.1.0"), UNKNOWN);
        assert_eq!(of("10.20.30.40"), *b"de");
        assert_eq!(of("0.0.0.1"), UNKNOWN);
        assert_eq!(of("2001:db8::7"), *b"fr");
        assert_eq!(of("2001:db9::"), UNKNOWN);
        assert!(countries.knows(true) && countries.knows(false));
        assert!(!Countries::default().knows(true));
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, line) in [
            ("1,2,DE\nx", 2),
            ("2,1,DE", 1),
            ("1,2,DEU", 1),
            ("1,2", 1),
            ("1,2,DE,x", 1),
            ("\n\n1,99999999999,DE", 3),
        ] {
            assert_eq!(
                Countries::parse(text, ""),
                Err(CountriesError { line }),
                "{text}"
            );
        }
        assert!(Countries::parse("", "1,2,DE").is_err());
    }
}
