//! Addresses of clients, by country (`entry-ips`, `dirreq-v3-ips`; C tor `geoip_get_client_history`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use rand::Rng;

use crate::extrainfo::distinct::Distinct;
use crate::extrainfo::obscure::round_up;

/// Two letters in lower case, or `??`.
pub type Country = [u8; 2];

/// Numbers of a country are rounded up to a multiple of this (`IP_GRANULARITY`).
pub(crate) const GRANULARITY: u64 = 8;

/// Numbers by country.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByCountry(BTreeMap<Country, u64>);

impl ByCountry {
    pub(crate) fn add(&mut self, country: Country) {
        *self.0.entry(country).or_default() += 1;
    }

    /// `de=16,us=8`: most first, among equals by their letters. Numbers are rounded before, as their
    /// order would show what rounding hides.
    pub(crate) fn list(&self) -> String {
        let mut rounded: Vec<(u64, Country)> = self
            .0
            .iter()
            .map(|(country, count)| (round_up(*count, GRANULARITY), *country))
            .collect();
        rounded.sort_by_key(|(count, country)| (std::cmp::Reverse(*count), *country));
        let entries: Vec<String> = rounded
            .iter()
            .map(|(count, country)| {
                let letters: String = country.iter().copied().map(letter).collect();
                format!("{letters}={count}")
            })
            .collect();
        entries.join(",")
    }
}

/// A letter of a country; tables are files, which could contain anything.
fn letter(byte: u8) -> char {
    match byte {
        b'a'..=b'z' | b'0'..=b'9' => char::from(byte),
        _ => '?',
    }
}

/// Different addresses of a day, by country.
#[derive(Clone, Debug)]
pub struct Clients {
    seen: Distinct,
    countries: ByCountry,
}

impl Clients {
    /// A day that begins.
    pub fn new(rng: &mut impl Rng) -> Self {
        Self {
            seen: Distinct::new(rng),
            countries: ByCountry::default(),
        }
    }

    /// A client at an address. `country` is asked once for each.
    pub fn note(&mut self, addr: IpAddr, country: impl FnOnce(IpAddr) -> Country) {
        let addr = addr.to_canonical();
        if self.seen.note(addr) {
            self.countries.add(country(addr));
        }
    }

    /// See [`ByCountry::list`].
    pub(crate) fn list(&self) -> String {
        self.countries.list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn addresses_count_once_by_country_and_are_rounded_up_before_they_are_sorted() {
        let mut clients = Clients::new(&mut ChaCha8Rng::seed_from_u64(1));
        let countries = |addr: IpAddr| match addr {
            IpAddr::V4(addr) if addr.octets()[0] == 10 => *b"us",
            IpAddr::V4(_) => *b"de",
            IpAddr::V6(_) => *b"??",
        };
        // Nine of one country, two of another: after rounding only their order shows.
        for number in 0..9_u8 {
            for _ in 0..3 {
                clients.note(IpAddr::from([10, 0, 0, number]), countries);
            }
        }
        clients.note("::ffff:10.0.0.1".parse().unwrap(), countries);
        clients.note(IpAddr::from([192, 0, 2, 1]), countries);
        for number in 0..7_u16 {
            clients.note(
                IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number]),
                countries,
            );
        }
        assert_eq!(clients.list(), "us=16,??=8,de=8");
        assert_eq!(Clients::new(&mut ChaCha8Rng::seed_from_u64(1)).list(), "");
    }
}
