//! Requests for a consensus (`dirreq-*`; C tor geoip_stats.c): who asks, from where, what is answered, and how
//! fast answers go.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rand::Rng;

use crate::extrainfo::clients::{ByCountry, Clients, Country};
use crate::extrainfo::file::StatsFile;
use crate::extrainfo::moment::Day;
use crate::extrainfo::obscure::round_up;

/// Answers are rounded up to a multiple of this (`RESPONSE_GRANULARITY`).
const RESPONSES: u64 = 8;
/// Downloads are rounded up to a multiple of this (`DIR_REQ_GRANULARITY`).
const DOWNLOADS: u64 = 4;
/// Fewer downloads, rounded, show no times (`MIN_DIR_REQ_RESPONSES`).
const FEWEST_TIMED: u64 = 16;
/// A download that runs for longer has failed (`DIRREQ_TIMEOUT`).
const TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Speeds that are kept in a day; a sample of them where there are more.
const MOST_SPEEDS: usize = 1 << 14;
/// Downloads that run at once and are followed; far more than streams that are served.
const MOST_RUNNING: usize = 1 << 14;

/// Answer to a request for a consensus, in the order of the line (`geoip_ns_response_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The consensus, or a diff.
    Ok,
    /// The client trusts other authorities.
    NotEnoughSigs,
    /// Not at hand now.
    Unavailable,
    /// There is none such.
    NotFound,
    /// The client has it.
    NotModified,
    /// Too much is being sent.
    Busy,
}

impl Response {
    /// The answer for an HTTP status and reason; `None`: one that C tor does not count.
    #[must_use]
    pub fn of(status: u16, reason: &str) -> Option<Self> {
        match status {
            200 => Some(Self::Ok),
            304 => Some(Self::NotModified),
            404 if reason.contains("not signed by sufficient") => Some(Self::NotEnoughSigs),
            404 if reason.contains("parse") => None,
            404 => Some(Self::NotFound),
            503 => Some(Self::Busy),
            _ => None,
        }
    }
}

/// Transport of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over the DirPort.
    Direct,
    /// Over a circuit.
    Tunneled,
}

/// A download that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download(u64);

/// A running download.
#[derive(Clone, Copy, Debug)]
struct Running {
    way: Way,
    since: Duration,
}

/// Downloads of one way that have ended.
#[derive(Clone, Debug, Default)]
struct Ended {
    complete: u64,
    failed: u64,
    /// Bytes per second of those that are complete.
    speeds: Vec<u32>,
}

impl Ended {
    fn complete(&mut self, speed: u32, rng: &mut impl Rng) {
        self.complete += 1;
        sample(&mut self.speeds, MOST_SPEEDS, self.complete, speed, rng);
    }

    /// `complete=4,timeout=0,running=0,min=…`, sorted as C tor does.
    fn list(&self, failed: u64, running: u64) -> String {
        let complete = round_up(self.complete, DOWNLOADS);
        let mut text = format!(
            "complete={complete},timeout={},running={}",
            round_up(self.failed.saturating_add(failed), DOWNLOADS),
            round_up(running, DOWNLOADS)
        );
        if complete < FEWEST_TIMED {
            return text;
        }
        let mut speeds = self.speeds.clone();
        speeds.sort_unstable();
        let share = |numerator: usize, denominator: usize| {
            let at = (numerator * speeds.len() / denominator).saturating_sub(1);
            speeds.get(at).copied().unwrap_or_default()
        };
        text.push_str(&format!(
            ",min={},d1={},d2={},q1={},d3={},d4={},md={},d6={},d7={},q3={},d8={},d9={},max={}",
            share(0, 1),
            share(1, 10),
            share(2, 10),
            share(1, 4),
            share(3, 10),
            share(4, 10),
            share(5, 10),
            share(6, 10),
            share(7, 10),
            share(3, 4),
            share(8, 10),
            share(9, 10),
            share(1, 1),
        ));
        text
    }
}

/// Keeps `value`, the `number`th, among at most `most`, so that each of all has the same chance to be kept.
pub(crate) fn sample<T>(kept: &mut Vec<T>, most: usize, number: u64, value: T, rng: &mut impl Rng) {
    use rand::RngExt as _;
    if kept.len() < most {
        return kept.push(value);
    }
    let place = usize::try_from(rng.random_range(0..number.max(1)));
    if let Some(slot) = place.ok().and_then(|place| kept.get_mut(place)) {
        *slot = value;
    }
}

/// The counts of one day.
#[derive(Clone, Debug)]
struct Counts {
    clients: Clients,
    requests: ByCountry,
    responses: [u64; 6],
    direct: Ended,
    tunneled: Ended,
}

impl Counts {
    fn new(rng: &mut impl Rng) -> Self {
        Self {
            clients: Clients::new(rng),
            requests: ByCountry::default(),
            responses: [0; 6],
            direct: Ended::default(),
            tunneled: Ended::default(),
        }
    }

    fn ended(&mut self, way: Way) -> &mut Ended {
        match way {
            Way::Direct => &mut self.direct,
            Way::Tunneled => &mut self.tunneled,
        }
    }
}

/// Requests for a consensus that a directory answers.
#[derive(Clone, Debug)]
pub struct DirRequests {
    day: Day<Counts>,
    /// By number: those of before this day are forgotten, as in C tor.
    running: BTreeMap<u64, Running>,
    next: u64,
}

impl DirRequests {
    /// Counting begins.
    pub fn new(now: SystemTime, rng: &mut impl Rng) -> Self {
        Self {
            day: Day::new(now, Counts::new(rng)),
            running: BTreeMap::new(),
            next: 0,
        }
    }

    /// An answer to a client at `addr` begins, at a monotonic time. The caller must follow a
    /// download of a consensus to its end.
    pub fn answered(
        &mut self,
        response: Response,
        addr: IpAddr,
        country: impl Fn(IpAddr) -> Country,
        way: Way,
        now: Duration,
    ) -> Option<Download> {
        let counts = &mut self.day.counts;
        if let Some(count) = counts.responses.get_mut(response as usize) {
            *count += 1;
        }
        if response != Response::Ok {
            return None;
        }
        counts.requests.add(country(addr));
        counts.clients.note(addr, country);
        if self.running.len() >= MOST_RUNNING {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let since = now;
        self.running.insert(number, Running { way, since });
        Some(Download(number))
    }

    /// All of it was sent: `bytes` in total.
    pub fn complete(&mut self, download: Download, bytes: u64, now: Duration, rng: &mut impl Rng) {
        let Some(running) = self.running.remove(&download.0) else {
            return;
        };
        let millis = now.saturating_sub(running.since).as_millis().max(1);
        let speed = u128::from(bytes) * 1000 / millis;
        let speed = u32::try_from(speed).unwrap_or(u32::MAX);
        let ended = self.day.counts.ended(running.way);
        ended.complete(speed, rng);
    }

    /// The client has gone, or took too long.
    pub fn failed(&mut self, download: Download) {
        if let Some(running) = self.running.remove(&download.0) {
            self.day.counts.ended(running.way).failed += 1;
        }
    }

    /// The lines of a day that is over, and counting begins again. `monotonic` is the time of downloads.
    pub fn end_day(
        &mut self,
        now: SystemTime,
        monotonic: Duration,
        rng: &mut impl Rng,
    ) -> Option<(StatsFile, String)> {
        let (counts, end) = self.day.end(now, Counts::new(rng))?;
        let list = |way, ended: &Ended| {
            let of_way = || self.running.values().filter(|running| running.way == way);
            let late = |running: &&Running| monotonic.saturating_sub(running.since) > TIMEOUT;
            let failed = of_way().filter(late).count() as u64;
            ended.list(failed, of_way().count() as u64 - failed)
        };
        let (direct, tunneled) = (
            list(Way::Direct, &counts.direct),
            list(Way::Tunneled, &counts.tunneled),
        );
        self.running.clear();
        let [ok, sigs, unavailable, not_found, not_modified, busy] =
            counts.responses.map(|count| round_up(count, RESPONSES));
        let text = format!(
            "dirreq-stats-end {end}\n\
             dirreq-v3-ips {}\n\
             dirreq-v3-reqs {}\n\
             dirreq-v3-resp ok={ok},not-enough-sigs={sigs},unavailable={unavailable},\
             not-found={not_found},not-modified={not_modified},busy={busy}\n\
             dirreq-v3-direct-dl {direct}\n\
             dirreq-v3-tunneled-dl {tunneled}\n",
            counts.clients.list(),
            counts.requests.list(),
        );
        Some((StatsFile::DirRequests, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extrainfo::moment::PERIOD;
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    fn country(_: IpAddr) -> Country {
        *b"de"
    }

    fn addr(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn answers_have_the_kinds_of_c_tor() {
        use Response::*;
        for (status, reason, kind) in [
            (200, "OK", Some(Ok)),
            (304, "Not modified", Some(NotModified)),
            (
                404,
                "Consensus not signed by sufficient number of requested authorities",
                Some(NotEnoughSigs),
            ),
            (404, "Consensus is too old", Some(NotFound)),
            (404, "Couldn't parse request", None),
            (503, "Directory busy, try again later", Some(Busy)),
            (400, "Bad request", None),
        ] {
            assert_eq!(Response::of(status, reason), kind, "{status} {reason}");
        }
    }

    #[test]
    fn a_day_of_requests_is_published_as_c_tor_does() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut requests = DirRequests::new(start(), &mut rng);
        // As many downloads as show times: of 1,000 to 20,000 bytes a second.
        for number in 1..=20_u8 {
            let bytes = u64::from(number) * 1000;
            let download = requests
                .answered(
                    Response::Ok,
                    addr(number % 3),
                    country,
                    Way::Tunneled,
                    Duration::ZERO,
                )
                .unwrap();
            requests.complete(download, bytes, Duration::from_secs(1), &mut rng);
        }
        let other = Way::Direct;
        let at = Duration::from_secs(100);
        let lost = requests.answered(Response::Ok, addr(9), country, other, at);
        requests.failed(lost.unwrap());
        requests.answered(Response::Ok, addr(9), country, other, at);
        let none = requests.answered(Response::NotModified, addr(9), country, other, at);
        assert_eq!(none, None);
        let now = start() + PERIOD;
        let (file, text) = requests.end_day(now, at, &mut rng).unwrap();
        assert_eq!(file, StatsFile::DirRequests);
        assert_eq!(
            text,
            "dirreq-stats-end 2023-11-15 22:13:20 (86400 s)\n\
             dirreq-v3-ips de=8\n\
             dirreq-v3-reqs de=24\n\
             dirreq-v3-resp ok=24,not-enough-sigs=0,unavailable=0,not-found=0,not-modified=8,busy=0\n\
             dirreq-v3-direct-dl complete=0,timeout=4,running=4\n\
             dirreq-v3-tunneled-dl complete=20,timeout=0,running=0,min=1000,d1=2000,d2=4000,q1=5000,\
             d3=6000,d4=8000,md=10000,d6=12000,d7=14000,q3=15000,d8=16000,d9=18000,max=20000\n"
        );
        assert_eq!(file.recent(&text, now), Ok(true));
        // Nothing of it is left.
        let (_, text) = requests
            .end_day(now + PERIOD, Duration::from_secs(9), &mut rng)
            .unwrap();
        assert!(text.contains("dirreq-v3-ips \ndirreq-v3-reqs \n"), "{text}");
        assert!(text.contains("direct-dl complete=0,timeout=0,running=0\n"));
    }

    #[test]
    fn a_download_that_runs_for_more_than_ten_minutes_has_failed() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut requests = DirRequests::new(start(), &mut rng);
        let way = Way::Tunneled;
        requests.answered(Response::Ok, addr(1), country, way, Duration::ZERO);
        let (_, text) = requests
            .end_day(start() + PERIOD, TIMEOUT + Duration::from_secs(1), &mut rng)
            .unwrap();
        assert!(
            text.contains("tunneled-dl complete=0,timeout=4,running=0\n"),
            "{text}"
        );
    }

    #[test]
    fn a_download_that_ends_in_the_next_day_is_not_counted_there() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut requests = DirRequests::new(start(), &mut rng);
        let way = Way::Tunneled;
        let download = requests.answered(Response::Ok, addr(1), country, way, Duration::ZERO);
        requests.end_day(start() + PERIOD, Duration::ZERO, &mut rng);
        requests.complete(download.unwrap(), 10, Duration::from_secs(5), &mut rng);
        let (_, text) = requests
            .end_day(start() + 2 * PERIOD, Duration::ZERO, &mut rng)
            .unwrap();
        assert!(
            text.contains("tunneled-dl complete=0,timeout=0,running=0\n"),
            "{text}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_sample_is_bounded_and_has_values_of_all_of_the_day(count in 0_u64..5000, most in 1_usize..50) {
            let mut rng = ChaCha8Rng::seed_from_u64(count);
            let mut kept = Vec::new();
            for number in 1..=count {
                sample(&mut kept, most, number, number, &mut rng);
            }
            prop_assert_eq!(kept.len(), most.min(usize::try_from(count).unwrap()));
            if count > 4000 && most > 20 {
                prop_assert!(kept.iter().any(|value| *value > count / 2));
            }
        }

        #[test]
        fn any_number_of_downloads_makes_a_line(count in 0_usize..60) {
            let mut ended = Ended::default();
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            for _ in 0..count {
                ended.complete(7, &mut rng);
            }
            let text = ended.list(0, 0);
            prop_assert_eq!(text.contains("min=7"), count > 12, "{}", text);
        }
    }
}
