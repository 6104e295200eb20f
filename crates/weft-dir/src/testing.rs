//! Authorities, consensuses and relays made up for tests of this crate and of those above it that include this file.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Base64Unpadded, Encoding};
use digest::Digest;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert, EncodedCert};
use tor_llcrypto::d::Sha256;
use tor_llcrypto::pk::curve25519;
use tor_llcrypto::pk::ed25519::{Ed25519Identity, Ed25519PublicKey, ExpandedKeypair, Keypair};
use tor_llcrypto::pk::rsa::{KeyPair, RsaIdentity};
use tor_netdoc::doc::authcert::AuthCert;
use tor_netdoc::types::Iso8601TimeSp;

use weft_dir::authority::Authority;
use weft_dir::descriptor::{DescriptorKeys, Moment, OwnDescriptor};

/// 2026-11-21 01:00:00, when these tests take place.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800)
}

/// Seconds, shorter.
pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A directory authority's keys.
pub(crate) struct TestAuthority {
    pub(crate) identity: KeyPair,
    pub(crate) signing: KeyPair,
    pub(crate) cert: String,
}

impl TestAuthority {
    pub(crate) fn new(seed: u64) -> Self {
        Self::new_at(seed, now())
    }

    /// With a certificate that is a day old at `now`.
    pub(crate) fn new_at(seed: u64, now: SystemTime) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let identity = KeyPair::generate(&mut rng).unwrap();
        let signing = KeyPair::generate(&mut rng).unwrap();
        let base = AuthCert::new_base(
            &identity,
            &signing,
            now - secs(86_400),
            now + secs(30 * 86_400),
        )
        .unwrap();
        let cert = base.encode_sign(&identity).unwrap().as_ref().to_string();
        Self {
            identity,
            signing,
            cert,
        }
    }

    pub(crate) fn id(&self) -> RsaIdentity {
        self.identity.to_public_key().to_rsa_identity()
    }

    pub(crate) fn configured(&self, dir_addr: std::net::SocketAddr) -> Authority {
        Authority {
            nickname: "auth".into(),
            dir_addr,
            identity: self.id(),
            v3_ident: Some(self.id()),
            bridge: false,
        }
    }
}

/// The microdescriptor of a relay: its keys are made of its identity.
pub(crate) fn microdesc(id: &RsaIdentity) -> String {
    let mut key = [0; 32];
    key[..20].copy_from_slice(id.as_bytes());
    let key = Base64Unpadded::encode_string(&key);
    format!("onion-key\nntor-onion-key {key}\np accept 80,443\nid ed25519 {key}\n")
}

/// The contents of a consensus.
pub(crate) struct TestConsensus {
    pub(crate) valid_after: SystemTime,
    /// Seconds from valid-after to fresh-until; valid-until is three times as far.
    pub(crate) interval: u64,
    pub(crate) params: &'static str,
    /// Protocols that it requires of relays.
    pub(crate) required: &'static str,
    /// And of clients.
    pub(crate) required_of_clients: &'static str,
    pub(crate) relays: Vec<(RsaIdentity, &'static str)>,
}

impl Default for TestConsensus {
    fn default() -> Self {
        Self {
            valid_after: now() - secs(60),
            interval: 3600,
            params: "KISTSchedRunInterval=7 circwindow=500",
            required: "Link=4",
            required_of_clients: "Link=4",
            relays: vec![([9; 20].into(), "Fast Running Valid")],
        }
    }
}

impl TestConsensus {
    /// The document, signed by each of `signers`.
    pub(crate) fn signed_by(&self, signers: &[&TestAuthority]) -> String {
        let time = |seconds| Iso8601TimeSp::from(self.valid_after + secs(seconds));
        let mut text = format!(
            "network-status-version 3 microdesc\nvote-status consensus\nconsensus-method 33\n\
             valid-after {}\nfresh-until {}\nvalid-until {}\nvoting-delay 4 4\n\
             client-versions\nserver-versions\n\
             known-flags Authority Exit Fast Guard HSDir Running Stable StaleDesc V2Dir Valid\n\
             recommended-client-protocols Link=4\nrecommended-relay-protocols {required}\n\
             required-client-protocols {}\nrequired-relay-protocols {required}\nparams {}\n",
            time(0),
            time(self.interval),
            time(3 * self.interval),
            self.required_of_clients,
            self.params,
            required = self.required,
        );
        for signer in signers {
            let id = hex::encode_upper(signer.id().as_bytes());
            text += &format!(
                "dir-source auth {id} 127.0.0.1 127.0.0.1 7000 7001\ncontact nobody\nvote-digest {id}\n"
            );
        }
        for (id, flags) in &self.relays {
            text += &format!(
                "r relay {} 2038-01-01 00:00:00 127.0.0.1 9001 0\nm {}\ns {flags}\nv Tor 0.4.9.1\n\
                 pr Link=4-5\nw Bandwidth=100\n",
                Base64Unpadded::encode_string(id.as_bytes()),
                Base64Unpadded::encode_string(&Sha256::digest(microdesc(id))),
            );
        }
        text += "directory-footer\nbandwidth-weights Wbd=0\n";
        let hash = Sha256::digest(format!("{text}directory-signature "));
        for signer in signers {
            let signature = Base64::encode_string(&signer.signing.sign(&hash).unwrap());
            let lines: Vec<&str> = signature
                .as_bytes()
                .chunks(64)
                .map(|line| std::str::from_utf8(line).unwrap())
                .collect();
            text += &format!(
                "directory-signature sha256 {} {}\n-----BEGIN SIGNATURE-----\n{}\n-----END SIGNATURE-----\n",
                hex::encode_upper(signer.id().as_bytes()),
                hex::encode_upper(signer.signing.to_public_key().to_rsa_identity().as_bytes()),
                lines.join("\n"),
            );
        }
        text
    }
}

/// A relay with keys made from `seed`, at [`now`].
pub(crate) fn relay(seed: u64) -> OwnDescriptor {
    relay_at(seed, now())
}

/// A relay with keys made from `seed`, certified at `now`.
pub(crate) fn relay_at(seed: u64, now: SystemTime) -> OwnDescriptor {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let identity = Keypair::generate(&mut rng);
    let signing = ExpandedKeypair::from(&Keypair::generate(&mut rng));
    let ed_identity = Ed25519Identity::from(identity.public_key());
    let signing_cert = Ed25519Cert::builder()
        .cert_type(CertType::IDENTITY_V_SIGNING)
        .cert_key(CertifiedKey::Ed25519(signing.public_key().into()))
        .signing_key(ed_identity)
        .expiration(now + secs(30 * 86_400))
        .encode_and_sign(&identity)
        .unwrap()
        .encoded()
        .to_vec();
    OwnDescriptor {
        keys: Arc::new(DescriptorKeys {
            rsa_identity: KeyPair::generate(&mut rng).unwrap(),
            ed_identity,
            signing,
            signing_cert,
            ntor: curve25519::StaticSecret::random_from_rng(&mut rng),
            tap: KeyPair::generate(&mut rng).unwrap(),
            families: Vec::new(),
        }),
        nickname: "weft1".into(),
        ipv4: "127.0.0.1:9001".parse().unwrap(),
        ipv6: None,
        platform: OwnDescriptor::default_platform(),
        protocols: "Cons=1-2 Desc=1-2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=1-2 Relay=2-4"
            .parse()
            .unwrap(),
        bandwidth_rate: 1 << 30,
        bandwidth_burst: 1 << 30,
        max_advertised: None,
        relay_bandwidth_rate: None,
        contact: None,
        family: Vec::new(),
        exit_policy: Vec::new(),
        ipv6_policy: None,
        hidden_service_dir: false,
        tunnelled_dir_server: false,
        hibernating: false,
        extra_info_statistics: true,
        bridge_distribution: None,
        transports: Vec::new(),
        overload_statistics: true,
    }
}

/// A moment at [`now`].
pub(crate) fn moment() -> Moment {
    Moment {
        published: now(),
        uptime: secs(77),
        observed: 123_456,
        overload_general: None,
        onion_key_lifetime: secs(28 * 86_400),
        with_tap: true,
        with_family: true,
        statistics: Vec::new(),
        history: vec!["write-history 2026-11-20 01:00:00 (86400 s) 1024".into()],
    }
}

/// Every kind of statistics, of a day that ended at noon before `now`.
pub(crate) fn statistics(now: SystemTime) -> Vec<String> {
    use weft_counts::extrainfo::{
        Directions, GeoipDigests, OverloadSeen, PERIOD, PaddingTotals, PortTraffic, PortUse,
        Response, Statistics, Switches, Way,
    };
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let noon = SystemTime::UNIX_EPOCH + secs((seconds - 43_200) / 86_400 * 86_400 + 43_200);
    let start = noon - PERIOD - secs(1);
    let mut statistics = Statistics::new(start);
    let switches = Switches {
        published: true,
        dir_requests: true,
        entry: true,
        cells: true,
        exits: true,
        onions: true,
        directions: true,
        padding: true,
        overload: true,
        bridge: true,
    };
    statistics.configure(switches, start, &mut rng);
    statistics.note_client([192, 0, 2, 1].into(), |_| *b"de");
    let mut ports = PortTraffic::default();
    let used = PortUse {
        written: 5000,
        read: 70_000,
        streams: 3,
    };
    ports.add(443, used);
    statistics.note_exits(&ports);
    let mut directions = Directions::default();
    directions.add(1_000_000, 1, true);
    statistics.note_directions(directions);
    let padding = PaddingTotals {
        read_total: 1,
        write_total: 1,
        ..PaddingTotals::default()
    };
    statistics.note_padding(padding, 3);
    statistics.note_files_exhausted(now);
    let seen = OverloadSeen {
        reads_limited: 1,
        writes_limited: 0,
    };
    statistics.note_limits(seen, now);
    let mut requests = weft_counts::extrainfo::DirRequests::new(start, &mut rng);
    for _ in 0..20 {
        let country = |_| *b"us";
        let peer = [192, 0, 2, 7].into();
        let now = secs(1);
        let download = requests.answered(Response::Ok, peer, country, Way::Tunneled, now);
        requests.complete(download.unwrap(), 1000, secs(2), &mut rng);
    }
    let (kind, text) = requests.end_day(noon, secs(3), &mut rng).unwrap();
    statistics.keep(kind, text);
    statistics.end_days(noon, &mut rng);
    let digests = GeoipDigests {
        v4: Some("A".repeat(40)),
        v6: Some("B".repeat(40)),
    };
    statistics.lines(&digests, (1 << 30, 1 << 30), now)
}

/// The relay with a key of a family.
pub(crate) fn with_family(relay: OwnDescriptor, seed: u64) -> OwnDescriptor {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let keys = &relay.keys;
    let family = ExpandedKeypair::from(&Keypair::generate(&mut rng));
    OwnDescriptor {
        keys: Arc::new(DescriptorKeys {
            rsa_identity: keys.rsa_identity.as_key().clone().into(),
            ed_identity: keys.ed_identity,
            signing: ExpandedKeypair::from_secret_key_bytes(keys.signing.to_secret_key_bytes())
                .unwrap(),
            signing_cert: keys.signing_cert.clone(),
            ntor: keys.ntor.clone(),
            tap: keys.tap.as_key().clone().into(),
            families: vec![family],
        }),
        ..relay
    }
}
