//! The countries of addresses, by tables (`GeoIPFile`, `GeoIPv6File`; C tor: geoip.c).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of one table at most; the real ones have some 400,000.
const MAX_RANGES: usize = 4_000_000;

/// The country of an address that no table knows.
pub(crate) const UNKNOWN: [u8; 2] = *b"??";

/// Tables of countries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Countries {
    v4: Table<u32>,
    v6: Networks,
}

/// Ranges of IPv6 addresses. All but a fortieth of the real ones begin where a network of 64 bits does; those take
/// half the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Networks {
    /// By the first 64 bits; the others are zero.
    whole: Table<u64>,
    others: Table<u128>,
}

/// Addresses and their countries, in two columns: a relay keeps half a million of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table<T> {
    /// Where ranges and the gaps between them begin, in order.
    firsts: Box<[T]>,
    /// Their countries: two letters, in lower case.
    countries: Box<[[u8; 2]]>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            firsts: Box::default(),
            countries: Box::default(),
        }
    }
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
        let mut countries = Self::default();
        countries.set_v4(v4)?;
        countries.set_v6(v6)?;
        Ok(countries)
    }

    /// Reads the table of IPv4 alone.
    ///
    /// # Errors
    ///
    /// As of [`parse`](Self::parse).
    pub fn set_v4(&mut self, text: &str) -> Result<(), CountriesError> {
        let mut reading = TableReader::v4();
        text.lines().try_for_each(|line| reading.line(line))?;
        self.v4 = reading.finish();
        Ok(())
    }

    /// Reads the table of IPv6 alone.
    ///
    /// # Errors
    ///
    /// As of [`parse`](Self::parse).
    pub fn set_v6(&mut self, text: &str) -> Result<(), CountriesError> {
        let mut reading = TableReader::v6();
        text.lines().try_for_each(|line| reading.line(line))?;
        self.v6 = Networks::of(reading.finish());
        Ok(())
    }

    /// The countries of two tables that were read line by line.
    #[must_use]
    pub fn of_tables(v4: TableReader<u32>, v6: TableReader<u128>) -> Self {
        Self {
            v4: v4.finish(),
            v6: Networks::of(v6.finish()),
        }
    }

    /// Whether addresses of this family are known at all.
    #[must_use]
    pub fn knows(&self, v4: bool) -> bool {
        match v4 {
            true => !self.v4.firsts.is_empty(),
            false => !self.v6.whole.firsts.is_empty() || !self.v6.others.firsts.is_empty(),
        }
    }

    /// The country of an address: two letters in lower case, or `??`.
    #[must_use]
    pub fn of(&self, addr: IpAddr) -> [u8; 2] {
        match addr {
            IpAddr::V4(addr) => self.v4.find(addr.to_bits()).map(|(_, country)| country),
            IpAddr::V6(addr) => self.v6.find(addr.to_bits()),
        }
        .unwrap_or(UNKNOWN)
    }
}

/// Reads a table line by line: its text is much larger than what is kept of it.
#[derive(Clone, Debug)]
pub struct TableReader<T> {
    address: fn(&str) -> Option<T>,
    /// The address behind one.
    next: fn(T) -> Option<T>,
    table: (Vec<T>, Vec<[u8; 2]>),
    /// The range that was read last: where it ends is known, not whether another one begins there.
    last: Option<Range<T>>,
    /// Ranges that came later than others behind them. Tor's tables have none.
    late: Vec<Range<T>>,
    /// Lines read.
    lines: usize,
    ranges: usize,
}

impl TableReader<u32> {
    /// A table of IPv4 addresses, as numbers or in dots.
    #[must_use]
    pub fn v4() -> Self {
        Self::new(
            |text| {
                let dotted = || text.parse().map(Ipv4Addr::to_bits);
                text.parse().or_else(|_| dotted()).ok()
            },
            |last| last.checked_add(1),
        )
    }
}

impl TableReader<u128> {
    /// A table of IPv6 addresses, with colons.
    #[must_use]
    pub fn v6() -> Self {
        Self::new(
            |text| text.parse().map(Ipv6Addr::to_bits).ok(),
            |last| last.checked_add(1),
        )
    }
}

impl<T: Copy + Ord> TableReader<T> {
    fn new(address: fn(&str) -> Option<T>, next: fn(T) -> Option<T>) -> Self {
        Self {
            address,
            next,
            table: (Vec::new(), Vec::new()),
            last: None,
            late: Vec::new(),
            lines: 0,
            ranges: 0,
        }
    }

    /// The next line.
    ///
    /// # Errors
    ///
    /// It is no range of addresses, or there are too many of them.
    pub fn line(&mut self, line: &str) -> Result<(), CountriesError> {
        self.lines += 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let range = self.range(line);
        let range = range.ok_or(CountriesError { line: self.lines })?;
        self.ranges += 1;
        match self.last.is_some_and(|last| last.first > range.first) {
            true => self.late.push(range),
            false => self.append(range),
        }
        Ok(())
    }

    fn range(&self, line: &str) -> Option<Range<T>> {
        let mut parts = line.split(',');
        let first = (self.address)(parts.next()?)?;
        let last = (self.address)(parts.next()?)?;
        let country: [u8; 2] = parts.next()?.as_bytes().try_into().ok()?;
        let ok = first <= last && parts.next().is_none() && self.ranges < MAX_RANGES;
        ok.then_some(Range {
            first,
            last,
            country: country.map(|letter| letter.to_ascii_lowercase()),
        })
    }

    /// A range that begins where the last one does, or behind that.
    fn append(&mut self, range: Range<T>) {
        self.close(Some(range.first));
        self.begin(range.first, range.country);
        self.last = Some(range);
    }

    /// The last range ends, unless another one begins before.
    fn close(&mut self, following: Option<T>) {
        let gap = self.last.and_then(|last| (self.next)(last.last));
        // Of ranges that overlap, the one counts that begins last.
        if let Some(gap) = gap.filter(|gap| following.is_none_or(|first| first > *gap)) {
            self.begin(gap, UNKNOWN);
        }
    }

    fn begin(&mut self, first: T, country: [u8; 2]) {
        let (firsts, countries) = &mut self.table;
        if firsts.last() == Some(&first) {
            firsts.pop();
            countries.pop();
        }
        // What goes on in the same country is no other range.
        if countries.last() != Some(&country) {
            firsts.push(first);
            countries.push(country);
        }
    }

    fn finish(mut self) -> Table<T> {
        self.close(None);
        if self.late.is_empty() {
            let (firsts, countries) = self.table;
            return Table {
                firsts: firsts.into(),
                countries: countries.into(),
            };
        }
        // Where ranges begin twice, the late ones come first and give way, as in a stable order of all.
        let mut ordered = Self::new(self.address, self.next);
        let (firsts, countries) = &self.table;
        let ends = firsts
            .iter()
            .skip(1)
            .map(|first| Some(*first))
            .chain([None]);
        let known = firsts.iter().zip(countries).zip(ends);
        let known = known.filter(|((_, country), _)| **country != UNKNOWN);
        let mut ranges: Vec<(T, Option<T>, [u8; 2])> = known
            .map(|((first, country), end)| (*first, end, *country))
            .collect();
        ranges.extend(
            self.late
                .iter()
                .map(|r| (r.first, (self.next)(r.last), r.country)),
        );
        ranges.sort_by_key(|(first, ..)| *first);
        let following = ranges
            .iter()
            .skip(1)
            .map(|(first, ..)| Some(*first))
            .chain([None]);
        for ((first, end, country), following) in ranges.iter().zip(following) {
            ordered.begin(*first, *country);
            if let Some(end) = end.filter(|end| following.is_none_or(|first| first > *end)) {
                ordered.begin(end, UNKNOWN);
            }
        }
        let (firsts, countries) = ordered.table;
        Table {
            firsts: firsts.into(),
            countries: countries.into(),
        }
    }
}

impl<T: Copy + Ord> Table<T> {
    fn new(entries: impl IntoIterator<Item = (T, [u8; 2])>) -> Self {
        let (firsts, countries): (Vec<T>, Vec<[u8; 2]>) = entries.into_iter().unzip();
        Self {
            firsts: firsts.into(),
            countries: countries.into(),
        }
    }

    fn entries(&self) -> impl Iterator<Item = (T, [u8; 2])> + '_ {
        let firsts = self.firsts.iter().copied();
        firsts.zip(self.countries.iter().copied())
    }

    /// The last range that begins at an address or before it: where, and its country.
    fn find(&self, addr: T) -> Option<(T, [u8; 2])> {
        let after = self.firsts.partition_point(|first| *first <= addr);
        let at = after.checked_sub(1)?;
        Some((*self.firsts.get(at)?, *self.countries.get(at)?))
    }
}

impl Networks {
    fn of(table: Table<u128>) -> Self {
        let network = |first: u128| u64::try_from(first >> 64).unwrap_or(u64::MAX);
        let is_whole = |first: u128| first & u128::from(u64::MAX) == 0;
        let whole = table.entries().filter(|(first, _)| is_whole(*first));
        Self {
            whole: Table::new(whole.map(|(first, country)| (network(first), country))),
            others: Table::new(table.entries().filter(|(first, _)| !is_whole(*first))),
        }
    }

    fn find(&self, addr: u128) -> Option<[u8; 2]> {
        let network = u64::try_from(addr >> 64).unwrap_or(u64::MAX);
        let whole = self.whole.find(network);
        let whole = whole.map(|(first, country)| (u128::from(first) << 64, country));
        let last = whole.max(self.others.find(addr));
        last.map(|(_, country)| country)
    }
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
    fn ranges_may_begin_and_end_within_a_network_of_64_bits() {
        let v6 = "2001:db8::,2001:db8::ff,FR\n2001:db8::100,2001:db8:0:1::,DE\n2001:db8:0:2::,2001:db8:0:2::,IT\n\
                  ffff::1,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,ES\n";
        let countries = Countries::parse("", v6).unwrap();
        let seen = [
            "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db8::",
            "2001:db8::ff",
            "2001:db8::100",
            "2001:db8:0:1::",
            "2001:db8:0:1::1",
            "2001:db8:0:2::",
            "2001:db8:0:2::1",
            "ffff::",
            "ffff::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ];
        let seen = seen.map(|addr| countries.of(addr.parse().unwrap()));
        let expected = [
            b"??", b"fr", b"fr", b"de", b"de", b"??", b"it", b"??", b"??", b"es", b"es",
        ];
        assert_eq!(seen, expected.map(|country| *country));
        let only = Countries::parse("", "2001:db8::1,2001:db8::2,FR\n").unwrap();
        assert!(only.knows(false) && !only.knows(true));
    }

    #[test]
    fn any_ranges_have_the_countries_of_those_that_begin_last() {
        let mut seed = 7u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        for _ in 0..300 {
            let ranges: Vec<(u32, u32, [u8; 2])> = (0..random(12))
                .map(|_| {
                    let first = random(40);
                    let country = [b'a', b'a' + random(3) as u8];
                    (first, first + random(8), country)
                })
                .collect();
            let mut ranges = ranges;
            ranges.sort_by_key(|range| range.0);
            ranges.dedup_by_key(|range| range.0);
            let line = |(first, last, country): &(u32, u32, [u8; 2])| {
                format!("{first},{last},{}\n", str::from_utf8(country).unwrap())
            };
            let text: String = ranges.iter().map(line).collect();
            let countries = Countries::parse(&text, "").unwrap();
            for addr in 0..60u32 {
                let range = ranges.iter().rev().find(|range| range.0 <= addr);
                let expected = range
                    .filter(|range| addr <= range.1)
                    .map_or(UNKNOWN, |range| range.2);
                assert_eq!(
                    countries.of(Ipv4Addr::from_bits(addr).into()),
                    expected,
                    "{addr}: {text}"
                );
            }
        }
        let late = Countries::parse("30,40,DE\n10,20,FR\n35,36,IT\n21,22,ES\n", "").unwrap();
        let of = |addr: u32| late.of(Ipv4Addr::from_bits(addr).into());
        let seen: Vec<[u8; 2]> = [9, 10, 20, 21, 22, 23, 30, 34, 35, 36, 41].map(of).to_vec();
        let expected = [
            b"??", b"fr", b"fr", b"es", b"es", b"??", b"de", b"de", b"it", b"it", b"??",
        ];
        assert_eq!(seen, expected.map(|country| *country));
        let all = Countries::parse("0,4294967295,DE", "").unwrap();
        assert_eq!(all.of(Ipv4Addr::BROADCAST.into()), *b"de");
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
