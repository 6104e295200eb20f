//! The countries of addresses, by tables (`GeoIPFile`, `GeoIPv6File`; C tor: geoip.c).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of one table at most; the real ones have some 400,000.
const MAX_RANGES: usize = 4_000_000;

/// The country of an address that no table knows.
pub(crate) const UNKNOWN: [u8; 2] = *b"??";

/// Tables of countries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Countries {
    v4: Blocks<u32>,
    v6: Networks,
}

/// Where ranges of addresses and the gaps between them begin, with their countries: two letters, in lower case.
pub trait Table: Default {
    /// An address.
    type Addr: Copy + Ord;

    /// Adds what begins behind all others.
    fn push(&mut self, first: Self::Addr, country: [u8; 2]);

    /// The last that begins at an address or before it.
    fn find(&self, addr: Self::Addr) -> Option<(Self::Addr, [u8; 2])>;

    /// All, in order.
    fn entries(&self) -> Vec<(Self::Addr, [u8; 2])>;
}

/// Entries of one block at most. A table grows by blocks: a vector that doubles leaves as much behind as it has, in the heap of a thread
/// that ends, and a relay keeps half a million ranges.
const BLOCK: usize = 4096;

/// A part of a table, in two columns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block<T> {
    firsts: Vec<T>,
    countries: Vec<[u8; 2]>,
}

/// A table by addresses of this size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks<T>(Vec<Block<T>>);

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Blocks<T> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Copy + Ord> Table for Blocks<T> {
    type Addr = T;

    fn push(&mut self, first: T, country: [u8; 2]) {
        if self.0.last().is_none_or(|last| last.firsts.len() == BLOCK) {
            self.0.push(Block {
                firsts: Vec::with_capacity(BLOCK),
                countries: Vec::with_capacity(BLOCK),
            });
        }
        if let Some(last) = self.0.last_mut() {
            last.firsts.push(first);
            last.countries.push(country);
        }
    }

    fn find(&self, addr: T) -> Option<(T, [u8; 2])> {
        let begins = |block: &Block<T>| block.firsts.first().is_some_and(|first| *first <= addr);
        let block = self.0.get(self.0.partition_point(begins).checked_sub(1)?)?;
        let after = block.firsts.partition_point(|first| *first <= addr);
        let at = after.checked_sub(1)?;
        Some((*block.firsts.get(at)?, *block.countries.get(at)?))
    }

    fn entries(&self) -> Vec<(T, [u8; 2])> {
        let blocks = self.0.iter();
        let columns = blocks.flat_map(|block| {
            block
                .firsts
                .iter()
                .copied()
                .zip(block.countries.iter().copied())
        });
        columns.collect()
    }
}

/// A table of IPv6 addresses. All but a fortieth of the real ranges begin where a network of 64 bits does; those take half
/// the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// By the first 64 bits; the others are zero.
    whole: Blocks<u64>,
    others: Blocks<u128>,
}

/// The first 64 bits.
fn network(addr: u128) -> u64 {
    u64::try_from(addr >> 64).unwrap_or(u64::MAX)
}

impl Table for Networks {
    type Addr = u128;

    fn push(&mut self, first: u128, country: [u8; 2]) {
        match first & u128::from(u64::MAX) {
            0 => self.whole.push(network(first), country),
            _ => self.others.push(first, country),
        }
    }

    fn find(&self, addr: u128) -> Option<(u128, [u8; 2])> {
        let whole = self.whole.find(network(addr));
        let whole = whole.map(|(first, country)| (u128::from(first) << 64, country));
        whole.max(self.others.find(addr))
    }

    fn entries(&self) -> Vec<(u128, [u8; 2])> {
        let whole = self.whole.entries().into_iter();
        let whole = whole.map(|(first, country)| (u128::from(first) << 64, country));
        let mut all: Vec<_> = whole.chain(self.others.entries()).collect();
        all.sort_unstable();
        all
    }
}

/// Addresses from `first` to `last` are in a country; two letters, in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range<T> {
    first: T,
    last: T,
    country: [u8; 2],
}

/// A malformed line of a table.
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
        self.v6 = reading.finish();
        Ok(())
    }

    /// The countries of two tables that were read line by line.
    #[must_use]
    pub fn of_tables(v4: TableReader<Blocks<u32>>, v6: TableReader<Networks>) -> Self {
        Self {
            v4: v4.finish(),
            v6: v6.finish(),
        }
    }

    /// Returns true if any addresses of this family are known.
    #[must_use]
    pub fn knows(&self, v4: bool) -> bool {
        match v4 {
            true => !self.v4.is_empty(),
            false => !self.v6.whole.is_empty() || !self.v6.others.is_empty(),
        }
    }

    /// The country of an address: two letters in lower case, or `??`.
    #[must_use]
    pub fn of(&self, addr: IpAddr) -> [u8; 2] {
        match addr {
            IpAddr::V4(addr) => self.v4.find(addr.to_bits()).map(|(_, country)| country),
            IpAddr::V6(addr) => self.v6.find(addr.to_bits()).map(|(_, country)| country),
        }
        .unwrap_or(UNKNOWN)
    }
}

/// Reads a table line by line: its text is much larger than the data that is kept.
#[derive(Clone, Debug)]
pub struct TableReader<S: Table> {
    address: fn(&str) -> Option<S::Addr>,
    /// The address behind one.
    next: fn(S::Addr) -> Option<S::Addr>,
    building: Building<S>,
    /// The range that was read last: where it ends is known, not whether another one begins there.
    last: Option<Range<S::Addr>>,
    /// Ranges that came after ranges with higher addresses. Tor's tables have none.
    late: Vec<Range<S::Addr>>,
    /// Lines read.
    lines: usize,
    ranges: usize,
}

/// A table to which entries come in order.
#[derive(Clone, Debug)]
struct Building<S: Table> {
    table: S,
    /// The country of the table's last entry.
    country: Option<[u8; 2]>,
    /// The entry behind it, which another one that begins there replaces.
    newest: Option<(S::Addr, [u8; 2])>,
}

impl<S: Table> Building<S> {
    fn new() -> Self {
        Self {
            table: S::default(),
            country: None,
            newest: None,
        }
    }

    fn begin(&mut self, first: S::Addr, country: [u8; 2]) {
        if self.newest.is_some_and(|(at, _)| at == first) {
            self.newest = None;
        }
        self.keep();
        // An adjacent range of the same country continues it.
        if self.country != Some(country) {
            self.newest = Some((first, country));
        }
    }

    fn keep(&mut self) {
        if let Some((first, country)) = self.newest.take() {
            self.table.push(first, country);
            self.country = Some(country);
        }
    }

    fn finish(mut self) -> S {
        self.keep();
        self.table
    }
}

impl TableReader<Blocks<u32>> {
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

impl TableReader<Networks> {
    /// A table of IPv6 addresses, with colons.
    #[must_use]
    pub fn v6() -> Self {
        Self::new(
            |text| text.parse().map(Ipv6Addr::to_bits).ok(),
            |last| last.checked_add(1),
        )
    }
}

impl<S: Table> TableReader<S> {
    fn new(address: fn(&str) -> Option<S::Addr>, next: fn(S::Addr) -> Option<S::Addr>) -> Self {
        Self {
            address,
            next,
            building: Building::new(),
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
    /// It is not a range of addresses, or there are too many.
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

    fn range(&self, line: &str) -> Option<Range<S::Addr>> {
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
    fn append(&mut self, range: Range<S::Addr>) {
        self.close(Some(range.first));
        self.building.begin(range.first, range.country);
        self.last = Some(range);
    }

    /// The last range ends, unless another one begins before.
    fn close(&mut self, following: Option<S::Addr>) {
        let gap = self.last.and_then(|last| (self.next)(last.last));
        // Of ranges that overlap, the one counts that begins last.
        if let Some(gap) = gap.filter(|gap| following.is_none_or(|first| first > *gap)) {
            self.building.begin(gap, UNKNOWN);
        }
    }

    fn finish(mut self) -> S {
        self.close(None);
        let table = self.building.finish();
        if self.late.is_empty() {
            return table;
        }
        // Where ranges begin twice, the late ones come first and give way, as in a stable order of all.
        let known = table.entries();
        let ends = known.iter().skip(1).map(|(first, _)| Some(*first));
        let known = known.iter().zip(ends.chain([None]));
        let known = known.filter(|((_, country), _)| *country != UNKNOWN);
        let mut ranges: Vec<_> = known
            .map(|((first, country), end)| (*first, end, *country))
            .collect();
        let late = self.late.iter();
        ranges.extend(late.map(|r| (r.first, (self.next)(r.last), r.country)));
        ranges.sort_by_key(|(first, ..)| *first);
        let following = ranges.iter().skip(1).map(|(first, ..)| Some(*first));
        let mut ordered = Building::<S>::new();
        for ((first, end, country), following) in ranges.iter().zip(following.chain([None])) {
            ordered.begin(*first, *country);
            if let Some(end) = end.filter(|end| following.is_none_or(|first| first > *end)) {
                ordered.begin(end, UNKNOWN);
            }
        }
        ordered.finish()
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
    fn a_table_of_many_blocks_is_searched_as_one() {
        let line = |number: u32| format!("{},{},A{}\n", 10 * number, 10 * number + 4, number % 10);
        let count = 3 * u32::try_from(BLOCK).unwrap();
        let text: String = (1..=count).map(line).collect();
        let countries = Countries::parse(&text, "").unwrap();
        assert!(countries.v4.0.len() > 5, "two entries for each range");
        for number in 1..=count {
            let of = |addr: u32| countries.of(Ipv4Addr::from_bits(addr).into());
            let country = [b'a', b'0' + u8::try_from(number % 10).unwrap()];
            assert_eq!(of(10 * number - 1), UNKNOWN);
            assert_eq!((of(10 * number), of(10 * number + 4)), (country, country));
        }
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
