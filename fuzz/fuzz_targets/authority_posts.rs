//! What anyone posts to the authority of a private network, and in which order it learns of relays.
//!
//! Input: operations, each a byte and its arguments, as [`Test::operate`] reads them. Missing bytes at the end are zero.
//!
//! Whatever happens: no more relays are known than may be; each POST is answered in a line, and what is answered as
//! accepted is served; nothing evicts the authority itself; each relay's documents are found by their digests.
#![no_main]

use std::sync::LazyLock;
use std::time::SystemTime;

use libfuzzer_sys::fuzz_target;
use testing::{TestAuthority, authority_config, moment, now, relay, secs};
use tor_llcrypto::pk::rsa::KeyPair;
use weft_authority::{AuthorityConfig, AuthorityKeys, PrivateAuthority};
use weft_dir::descriptor::{Moment, OwnDescriptor, signed_digest};
use weft_dircache::answer::Found;
use weft_dircache::pieces::Part;
use weft_fuzz::Bytes;

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
    let mut config = authority_config(relay_id(1));
    config.or_port = 9001;
    config.max_relays = MAX_RELAYS;
    config
}

struct Test {
    authority: PrivateAuthority,
    now: SystemTime,
    /// Whether the authority's own descriptor was taken, less than a day ago.
    has_own: bool,
}

impl Test {
    fn new() -> Self {
        let signing = KeyPair::from(KEYS.signing.as_key().clone());
        let keys = AuthorityKeys::new(signing, KEYS.cert.clone(), now()).expect("they are good");
        Self {
            authority: PrivateAuthority::new(config(), keys),
            now: now(),
            has_own: false,
        }
    }

    fn operate(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 6 {
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
                self.post(&body);
            }
            2 => {
                let body = bytes.data();
                self.post(body);
            }
            // Time goes on, or is set back.
            3 => {
                self.now += secs(u64::from(bytes.byte()).pow(2) * 4);
                self.now -= secs(bytes.byte().into());
                self.has_own &= self.now < now() + secs(86_400);
            }
            4 => {
                let before = self.authority.relays();
                self.authority.tick(self.now).expect("the keys are good");
                assert!(self.authority.relays() <= before);
            }
            _ => {
                let mut config = config();
                config.options.needs_tap = bytes.byte().is_multiple_of(2);
                self.authority.configure(config);
            }
        }
    }

    fn post(&mut self, body: &[u8]) {
        let answer = self.authority.post(body, self.now);
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

    fn check(&mut self) {
        assert!(self.authority.relays() <= MAX_RELAYS);
        let mut found = |path: &str| match self.authority.get(path, None, self.now) {
            Found::Documents(parts, _) => parts,
            _ => Vec::new(),
        };
        if self.has_own {
            assert_eq!(found("/tor/server/authority").len(), 1);
        }
        let all = found("/tor/server/all");
        for part in &all {
            let Part::Text(text) = part else {
                panic!("{part:?}");
            };
            assert!(SIGNED.iter().any(|[router, _]| **router == **text));
            let digest = hex::encode_upper(signed_digest(text));
            assert_eq!(found(&format!("/tor/server/d/{digest}")).len(), 1);
        }
        assert_eq!(all.len(), self.authority.relays());
    }
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
