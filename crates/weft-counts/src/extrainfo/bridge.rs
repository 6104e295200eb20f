//! Users of a bridge: different addresses of a day, by country, version of IP and transport (C tor
//! `geoip_format_bridge_stats`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use rand::Rng;

use crate::extrainfo::clients::{ByCountry, Country, GRANULARITY};
use crate::extrainfo::distinct::Distinct;
use crate::extrainfo::moment;
use crate::extrainfo::obscure::round_up;

/// Transport name of users that came without a transport.
const NO_TRANSPORT: &str = "<OR>";
/// Different transports that are counted: their names are a program's.
const MOST_TRANSPORTS: usize = 32;

/// Different users of a day.
#[derive(Clone, Debug)]
pub(crate) struct BridgeUsers {
    seen: Distinct,
    countries: ByCountry,
    v4: u64,
    v6: u64,
    transports: BTreeMap<String, u64>,
    /// Since the last heartbeat.
    beat: Distinct,
}

impl BridgeUsers {
    /// A day that begins.
    pub(crate) fn new(rng: &mut impl Rng) -> Self {
        Self {
            seen: Distinct::new(rng),
            countries: ByCountry::default(),
            v4: 0,
            v6: 0,
            transports: BTreeMap::new(),
            beat: Distinct::new(rng),
        }
    }

    /// Notes a user at an address. An address with another transport is another user, as in C tor.
    /// `country` is asked once for each, where countries are known.
    pub(crate) fn note(
        &mut self,
        addr: IpAddr,
        transport: Option<&str>,
        country: impl FnOnce(IpAddr) -> Country,
    ) {
        let addr = addr.to_canonical();
        let transport = transport.unwrap_or(NO_TRANSPORT);
        self.beat.note((addr, transport));
        if !self.seen.note((addr, transport)) {
            return;
        }
        self.countries.add(country(addr));
        match addr {
            IpAddr::V4(_) => self.v4 += 1,
            IpAddr::V6(_) => self.v6 += 1,
        }
        if let Some(count) = self.transports.get_mut(transport) {
            *count += 1;
        } else if self.transports.len() < MOST_TRANSPORTS {
            self.transports.insert(transport.to_owned(), 1);
        }
    }

    /// Users since the last call.
    pub(crate) fn beat(&mut self, rng: &mut impl Rng) -> u64 {
        std::mem::replace(&mut self.beat, Distinct::new(rng)).count()
    }

    /// The lines of a day that ended at `end`.
    pub(crate) fn lines(&self, end: &str, countries_known: bool) -> String {
        let transports = self.transports.iter();
        let transports = transports.map(|(name, count)| format!("{name}={}", rounded(*count)));
        let transports = transports.collect::<Vec<_>>().join(",");
        let (countries, versions) = self.by_country_and_version(countries_known);
        format!(
            "bridge-stats-end {end}\nbridge-ips {countries}\nbridge-ip-versions {versions}\n\
             bridge-ip-transports {transports}\n"
        )
    }

    /// Values for controllers: CLIENTS_SEEN, and `status/clients-seen`.
    pub(crate) fn for_controllers(&self, since: &str, countries_known: bool) -> String {
        let (countries, versions) = self.by_country_and_version(countries_known);
        controller_line(since, &countries, &versions)
    }

    /// Both lists; without a table of countries C tor has neither.
    fn by_country_and_version(&self, countries_known: bool) -> (String, String) {
        match countries_known {
            true => (
                self.countries.list(),
                format!("v4={},v6={}", rounded(self.v4), rounded(self.v6)),
            ),
            false => (String::new(), String::new()),
        }
    }
}

/// Values for controllers of a node that is not a bridge: nobody since 1970, as C tor sends them. C
/// tor omits the versions of IP, too, where it has no table of countries.
#[must_use]
pub fn nobody_seen(countries_known: bool) -> String {
    let versions = if countries_known { "v4=0,v6=0" } else { "" };
    controller_line(&moment::iso(SystemTime::UNIX_EPOCH), "", versions)
}

fn controller_line(since: &str, countries: &str, versions: &str) -> String {
    format!("TimeStarted=\"{since}\" CountrySummary={countries} IPVersions={versions}")
}

fn rounded(count: u64) -> u64 {
    round_up(count, GRANULARITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn users_count_once_by_country_version_and_transport() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut users = BridgeUsers::new(&mut rng);
        for _ in 0..2 {
            for number in 0..9 {
                users.note([192, 0, 2, number].into(), Some("obfs4"), |_| *b"de");
            }
            users.note([192, 0, 2, 1].into(), None, |_| *b"de");
            users.note("2001:db8::1".parse().unwrap(), Some("<??>"), |_| *b"??");
        }
        assert_eq!(
            users.lines("2026-01-02 10:00:00 (86400 s)", true),
            "bridge-stats-end 2026-01-02 10:00:00 (86400 s)\nbridge-ips de=16,??=8\n\
             bridge-ip-versions v4=16,v6=8\nbridge-ip-transports <??>=8,<OR>=8,obfs4=16\n"
        );
        assert_eq!(
            users.for_controllers("2026-01-01 10:00:00", true),
            "TimeStarted=\"2026-01-01 10:00:00\" CountrySummary=de=16,??=8 IPVersions=v4=16,v6=8"
        );
        assert_eq!(users.beat(&mut rng), 11);
        users.note([192, 0, 2, 1].into(), None, |_| *b"de");
        assert_eq!(users.beat(&mut rng), 1);
    }

    #[test]
    fn without_countries_only_transports_are_counted() {
        let mut users = BridgeUsers::new(&mut ChaCha8Rng::seed_from_u64(1));
        users.note([192, 0, 2, 1].into(), None, |_| *b"??");
        assert_eq!(
            users.lines("E", false),
            "bridge-stats-end E\nbridge-ips \nbridge-ip-versions \nbridge-ip-transports <OR>=8\n"
        );
        assert_eq!(
            users.for_controllers("T", false),
            "TimeStarted=\"T\" CountrySummary= IPVersions="
        );
        let nobody = "TimeStarted=\"1970-01-01 00:00:00\" CountrySummary= IPVersions=";
        assert_eq!(nobody_seen(false), nobody);
        assert_eq!(nobody_seen(true), format!("{nobody}v4=0,v6=0"));
    }

    #[test]
    fn invented_transports_are_bounded() {
        let mut users = BridgeUsers::new(&mut ChaCha8Rng::seed_from_u64(1));
        for number in 0..1000 {
            users.note([192, 0, 2, 1].into(), Some(&format!("t{number}")), |_| {
                *b"de"
            });
        }
        assert_eq!(users.transports.len(), MOST_TRANSPORTS);
    }
}
