//! What anyone posts to the authority of a private network, and in which order it learns of relays.
//!
//! Input: operations, each a byte and its arguments, as [`Test::operate`] reads them. Missing bytes at the end are zero.
//!
//! Whatever happens: the tables agree (`PrivateAuthority::audit`); no more relays are known than may be; each POST is
//! answered in a line, and what is answered as accepted is served; nothing evicts the authority itself; a test that ends
//! is one that began.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::SystemTime;

use libfuzzer_sys::fuzz_target;
use testing::{TestAuthority, authority_config, moment, now, relay, secs};
use tor_llcrypto::pk::rsa::KeyPair;
use weft_authority::{
    AuthorityConfig, AuthorityKeys, NamedRelays, PrivateAuthority, ReachabilityOptions,
    ReachabilityTest,
};
use weft_dir::descriptor::{Moment, OwnDescriptor};
use weft_fuzz::Bytes;
use weft_policy::FlagThresholds;

#[path = "../../crates/weft-authority/src/testing.rs"]
#[allow(dead_code)] // it has more than this needs
mod testing;

/// Relays that are known at most.
const MAX_RELAYS: usize = 4;
/// Relays that there are; the first is the authority.
const RELAYS: u64 = 7;

static KEYS: LazyLock<TestAuthority> = LazyLock::new(|| TestAuthority::new(99));

/// What relays sign: of each some versions.
static SIGNED: LazyLock<Vec<[String; 2]>> = LazyLock::new(|| {
    let with = |seed: u64, seconds: u64, change: fn(&mut OwnDescriptor)| {
        let mut described = relay(seed);
        described
            .ipv4
            .set_port(9000 + u16::try_from(seed).expect("it is small"));
        change(&mut described);
        let moment = Moment {
            published: now() + secs(seconds),
            uptime: secs(77 + seconds),
            ..moment()
        };
        let signed = described.sign(&moment).expect("it fits");
        [signed.router, signed.extra_info]
    };
    (1..=RELAYS)
        .flat_map(|seed| {
            [
                with(seed, 0, |_| {}),
                with(seed, 60, |_| {}),
                with(seed, 120, |relay| relay.contact = Some("we".into())),
                // The port of another, and of the authority.
                with(seed, 180, |relay| relay.ipv4.set_port(9002)),
                with(seed, 240, |relay| relay.ipv4.set_port(9001)),
                with(seed, 300, |relay| relay.hibernating = true),
            ]
        })
        .collect()
});

fn config() -> AuthorityConfig {
    let base = authority_config(relay_id(1));
    AuthorityConfig {
        or_port: 9001,
        interval: secs(300),
        flags: FlagThresholds {
            guard_bandwidth_guarantee: 0,
            guard_time_known: secs(3600),
            stable_uptime: secs(3600),
            stable_mtbf: secs(3600),
            hs_dir_uptime: secs(3600),
            max_per_address: 3,
            ..base.flags
        },
        reachability: ReachabilityOptions {
            test: true,
            ..base.reachability
        },
        max_relays: MAX_RELAYS,
        ..base
    }
}

struct Test {
    authority: PrivateAuthority,
    now: SystemTime,
    running: Vec<ReachabilityTest>,
    /// Whether the authority's own descriptor was taken, less than a day ago.
    has_own: bool,
}

impl Test {
    fn new() -> Self {
        let signing = KeyPair::from(KEYS.signing.as_key().clone());
        let keys = AuthorityKeys::new(signing, KEYS.cert.clone(), now()).expect("they are good");
        Self {
            authority: PrivateAuthority::new(config(), keys, None),
            now: now(),
            running: Vec::new(),
            has_own: false,
        }
    }

    fn operate(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 8 {
            // Documents of relays, of which one byte may be another.
            0 | 1 => {
                let Some(documents) = bytes.pick(&*SIGNED) else {
                    return;
                };
                let kinds = bytes.byte();
                let mut body = match kinds % 4 {
                    0 | 1 => documents.concat(),
                    2 => documents[0].clone(),
                    _ => documents[1].clone(),
                }
                .into_bytes();
                let at = usize::from(bytes.byte()) * 16 + usize::from(kinds / 16);
                if kinds & 4 != 0
                    && let Some(byte) = body.get_mut(at)
                {
                    *byte = bytes.byte();
                }
                self.post(&body, bytes.byte());
            }
            2 => {
                let body = bytes.data();
                self.post(body, 0);
            }
            // Time goes on, or is set back.
            3 => {
                self.now += secs(u64::from(bytes.byte()).pow(2) * 4);
                self.now -= secs(bytes.byte().into());
                self.has_own &= self.now < now() + secs(86_400);
            }
            4 => {
                let (tests, next) = self.authority.begin_tests(self.now);
                assert!(next.is_none_or(|next| next > self.now));
                self.running.extend(tests);
            }
            5 => {
                let which = usize::from(bytes.byte());
                if !self.running.is_empty() {
                    let test = self.running.swap_remove(which % self.running.len());
                    self.authority
                        .tested(&test, bytes.byte().is_multiple_of(2), self.now);
                }
            }
            6 => {
                let before = self.authority.relays();
                self.authority.tick(self.now).expect("the keys are good");
                assert!(self.authority.relays() <= before);
            }
            _ => {
                let (which, relay) = (bytes.byte(), bytes.byte());
                let mut config = config();
                config.reachability.test = which & 1 == 0;
                config.pin_keys = which & 2 == 0;
                // Not the first relay, which is ourselves.
                let rejected = rejection_of(2 + u64::from(relay) % (RELAYS - 1));
                if which & 4 != 0 {
                    config.lists.named = NamedRelays::parse(rejected.as_bytes()).0;
                }
                self.authority.configure(config, self.now);
            }
        }
    }

    fn post(&mut self, body: &[u8], from: u8) {
        let from = IpAddr::V4(Ipv4Addr::new(10, 0, 0, from % 4));
        let answer = self.authority.post(body, from, self.now);
        assert!([200, 400].contains(&answer.status));
        assert!(!answer.reason.contains(['\n', '\r']) && answer.reason.len() <= 1600);
        if answer.status == 200 && !answer.not_new {
            assert!(self.authority.relays() > 0);
            let own = &SIGNED[..6];
            self.has_own |= own
                .iter()
                .any(|[router, _]| body.starts_with(router.as_bytes()));
            self.has_own &= self.now < now() + secs(86_400);
        }
    }

    fn check(&self) {
        self.authority.audit().expect("the tables agree");
        assert!(self.authority.relays() <= MAX_RELAYS);
        let answer = |path: &str| self.authority.get(path, self.now);
        if self.has_own {
            assert_eq!(answer("/tor/server/authority").status, 200);
        }
        let all = answer("/tor/server/all").body;
        assert_eq!(all.len(), self.authority.relays());
        for text in all {
            assert!(SIGNED.iter().any(|[router, _]| **router == *text));
        }
    }
}

/// A line of `approved-routers` that rejects a relay.
fn rejection_of(seed: u64) -> String {
    let id = hex::encode(relay_id(seed).as_bytes());
    format!("!reject {id}\n")
}

/// Making RSA keys takes a moment.
fn relay_id(seed: u64) -> tor_llcrypto::pk::rsa::RsaIdentity {
    static IDS: LazyLock<Vec<tor_llcrypto::pk::rsa::RsaIdentity>> =
        LazyLock::new(|| (1..=RELAYS).map(|seed| relay(seed).rsa_id()).collect());
    IDS[usize::try_from(seed).expect("it is small") - 1]
}

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let mut test = Test::new();
    while !bytes.is_empty() {
        test.operate(&mut bytes);
        test.check();
    }
});
