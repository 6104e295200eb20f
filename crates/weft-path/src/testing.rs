//! Networks made up for this crate's tests, as documents that tor-netdoc reads.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use base64ct::{Base64Unpadded, Encoding as _};
use tor_checkable::{ExternallySigned as _, TimeBound as _};
use tor_netdir::{MdReceiver as _, NetDir, PartialNetDir};
use tor_netdoc::doc::microdesc::MicrodescAndHash;
use tor_netdoc::doc::netstatus::MdConsensus;
use tor_netdoc::types::Iso8601TimeSp;

use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_path::Relays;

/// 2026-11-21 01:00:00, when these tests take place.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800)
}

/// Seconds, shorter.
pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The RSA identity of relay number `id`.
pub(crate) fn rsa(id: u16) -> RsaIdentity {
    let mut rsa = [0x11; 20];
    rsa[..2].copy_from_slice(&id.to_be_bytes());
    rsa.into()
}

/// Its ed25519 identity.
pub(crate) fn ed25519(id: u16) -> Ed25519Identity {
    let mut ed25519 = [0x22; 32];
    ed25519[..2].copy_from_slice(&id.to_be_bytes());
    ed25519.into()
}

/// The number of the relay with this RSA identity.
pub(crate) fn id_of(rsa: &RsaIdentity) -> u16 {
    u16::from_be_bytes([rsa.0[0], rsa.0[1]])
}

/// A relay of a network.
#[derive(Clone, Debug)]
pub(crate) struct TestRelay {
    pub(crate) id: u16,
    pub(crate) nickname: String,
    /// Without Running and Valid, which all have.
    pub(crate) flags: BTreeSet<&'static str>,
    pub(crate) bandwidth: u32,
    pub(crate) addr: String,
    pub(crate) addr_v6: Option<String>,
    /// Policy summaries; empty: everything is rejected.
    pub(crate) policy: &'static str,
    pub(crate) policy_v6: &'static str,
    /// Numbers of those that it calls its family.
    pub(crate) family: Vec<u16>,
    /// Keys of families that it is in.
    pub(crate) family_keys: Vec<u16>,
    pub(crate) protocols: &'static str,
}

impl TestRelay {
    /// A relay with these flags, in a separate subnet.
    pub(crate) fn new(id: u16, flags: &[&'static str], bandwidth: u32) -> Self {
        let exit = flags.contains(&"Exit");
        Self {
            id,
            nickname: format!("relay{id}"),
            flags: flags.iter().copied().collect(),
            bandwidth,
            addr: format!("{}.{}.1.1:9001", 11 + id / 200, 1 + id % 200),
            addr_v6: None,
            policy: if exit { "accept 80,443" } else { "" },
            policy_v6: "",
            family: Vec::new(),
            family_keys: Vec::new(),
            protocols: "DirCache=2 FlowCtrl=1-2 Link=4-5 Relay=1-4",
        }
    }

    fn microdesc(&self) -> MicrodescAndHash {
        let mut text = format!(
            "onion-key\nntor-onion-key {}\n",
            Base64Unpadded::encode_string(&[u8::try_from(self.id % 251).unwrap(); 32])
        );
        if !self.family.is_empty() {
            let ids = self.family.iter().map(|&id| rsa(id).to_string());
            let ids: Vec<String> = ids.map(|id| format!("${id}")).collect();
            text += &format!("family {}\n", ids.join(" "));
        }
        if !self.family_keys.is_empty() {
            let keys = self.family_keys.iter().map(|&id| family_key(id));
            text += &format!("family-ids {}\n", keys.collect::<Vec<_>>().join(" "));
        }
        for (key, policy) in [("p", self.policy), ("p6", self.policy_v6)] {
            if !policy.is_empty() {
                text += &format!("{key} {policy}\n");
            }
        }
        text += &format!(
            "id ed25519 {}\n",
            Base64Unpadded::encode_string(ed25519(self.id).as_ref())
        );
        MicrodescAndHash::parse(&text).unwrap()
    }
}

/// A family's key, as microdescriptors write it.
pub(crate) fn family_key(id: u16) -> String {
    let key = Base64Unpadded::encode_string(ed25519(id).as_ref());
    format!("ed25519:{key}")
}

/// A network.
#[derive(Clone, Debug)]
pub(crate) struct TestNet {
    pub(crate) relays: Vec<TestRelay>,
    pub(crate) params: String,
    /// Of `bandwidth-weights`.
    pub(crate) weights: String,
    pub(crate) valid_after: SystemTime,
}

/// Weights of a network in which exits are scarce and guards less so; those of directories are 1.
pub(crate) const WEIGHTS: &str = "Wbd=0 Wbe=0 Wbg=4000 Wbm=10000 Wdb=10000 Web=10000 Wed=10000 \
    Wee=10000 Weg=7000 Wem=10000 Wgb=10000 Wgd=2000 Wgg=6000 Wgm=6000 Wmb=10000 Wmd=2000 Wme=1000 \
    Wmg=4000 Wmm=10000";

impl TestNet {
    pub(crate) fn new(relays: Vec<TestRelay>) -> Self {
        Self {
            relays,
            params: String::new(),
            weights: WEIGHTS.to_owned(),
            valid_after: now() - secs(60),
        }
    }

    /// `count` relays of many bandwidths, two thirds of them guards, a third of them exits.
    pub(crate) fn mixed(count: u16) -> Self {
        let relay = |id: u16| {
            let mut flags = vec!["Fast", "Stable", "V2Dir"];
            if !id.is_multiple_of(3) {
                flags.push("Guard");
            }
            if id % 3 == 2 || id.is_multiple_of(6) {
                flags.push("Exit");
            }
            TestRelay::new(id, &flags, 100 + u32::from(id) * 37 % 900)
        };
        Self::new((0..count).map(relay).collect())
    }

    /// `count` relays of one bandwidth, all guards and exits.
    pub(crate) fn alike(count: u16) -> Self {
        let flags = ["Exit", "Fast", "Guard", "Stable", "V2Dir"];
        Self::new(
            (0..count)
                .map(|id| TestRelay::new(id, &flags, 1000))
                .collect(),
        )
    }

    fn consensus(&self) -> String {
        let time = |seconds| Iso8601TimeSp::from(self.valid_after + secs(seconds));
        let zeros = "0".repeat(40);
        let mut text = format!(
            "network-status-version 3 microdesc\nvote-status consensus\nconsensus-method 33\n\
             valid-after {}\nfresh-until {}\nvalid-until {}\nvoting-delay 300 300\n\
             client-versions\nserver-versions\n\
             known-flags Authority BadExit Exit Fast Guard HSDir MiddleOnly Running Stable V2Dir \
             Valid\nrecommended-client-protocols Link=4\nrecommended-relay-protocols Link=4\n\
             required-client-protocols Link=4\nrequired-relay-protocols Link=4\n",
            time(0),
            time(3600),
            time(3 * 3600),
        );
        if !self.params.is_empty() {
            text += &format!("params {}\n", self.params);
        }
        text += &format!(
            "dir-source auth {zeros} 127.0.0.1 127.0.0.1 7000 7001\ncontact nobody\n\
             vote-digest {zeros}\n"
        );
        let mut in_order: Vec<&TestRelay> = self.relays.iter().collect();
        in_order.sort_by_key(|relay| relay.id);
        for relay in in_order {
            let addr: std::net::SocketAddr = relay.addr.parse().unwrap();
            text += &format!(
                "r {} {} 2038-01-01 00:00:00 {} {} 0\n",
                relay.nickname,
                Base64Unpadded::encode_string(rsa(relay.id).as_ref()),
                addr.ip(),
                addr.port(),
            );
            if let Some(addr) = &relay.addr_v6 {
                text += &format!("a {addr}\n");
            }
            let mut flags = relay.flags.clone();
            flags.extend(["Running", "Valid"]);
            text += &format!(
                "m {}\ns {}\nv Tor 0.4.9.1\npr {}\nw Bandwidth={}\n",
                Base64Unpadded::encode_string(relay.microdesc().digest()),
                flags.into_iter().collect::<Vec<_>>().join(" "),
                relay.protocols,
                relay.bandwidth,
            );
        }
        text += "directory-footer\n";
        if !self.weights.is_empty() {
            text += &format!("bandwidth-weights {}\n", self.weights);
        }
        text + &format!(
            "directory-signature sha256 {zeros} {zeros}\n-----BEGIN SIGNATURE-----\nAAAA\n\
             -----END SIGNATURE-----\n"
        )
    }

    pub(crate) fn netdir(&self) -> NetDir {
        let microdescs = self.relays.iter().map(TestRelay::microdesc);
        netdir(&self.consensus(), microdescs)
    }

    pub(crate) fn relays(&self) -> Relays {
        Relays::new(&self.netdir())
    }
}

/// A directory of these documents; signatures are not checked.
pub(crate) fn netdir(
    consensus: &str,
    microdescs: impl Iterator<Item = MicrodescAndHash>,
) -> NetDir {
    let (_, _, unchecked) = MdConsensus::parse(consensus).unwrap();
    let consensus = unchecked
        .dangerously_assume_timely()
        .dangerously_assume_wellsigned();
    let mut partial = PartialNetDir::new(consensus, None);
    for microdesc in microdescs {
        partial.add_microdesc(microdesc);
    }
    partial
        .unwrap_if_sufficient()
        .unwrap_or_else(|_| panic!("too few microdescriptors for paths"))
}

/// Asserts that counts are in proportion to weights (Pearson's test). A correct network fails this
/// for about one seed in ten thousand, and the seed is the test's.
pub(crate) fn assert_in_proportion(counts: &[u32], weights: &[f64]) {
    let total: f64 = weights.iter().sum();
    let drawn: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let mut chi_square = 0.0;
    let mut degrees = -1.0;
    for (&count, &weight) in counts.iter().zip(weights) {
        let expected = drawn * weight / total;
        if weight == 0.0 {
            assert_eq!(count, 0, "drawn in spite of weight 0");
            continue;
        }
        assert!(expected >= 5.0, "too few draws to judge");
        chi_square += (f64::from(count) - expected).powi(2) / expected;
        degrees += 1.0;
    }
    // The quantile of 1 - 10^-4, by Wilson and Hilferty.
    let spread = 2.0 / (9.0 * degrees);
    let limit = degrees * (1.0 - spread + 3.719 * f64::sqrt(spread)).powi(3);
    assert!(
        chi_square < limit,
        "{chi_square} of {limit}: {counts:?} {weights:?}"
    );
}
