//! Publication of a bridge's descriptor: to authorities of bridges alone, over a circuit of three hops, so that neither they
//! nor an observer of them or of us learns from the upload's connection where a bridge is (C tor: `DIRIND_ANONYMOUS`).
//!
//! The path is chosen here, where the documents are; the node makes the circuit.

use std::net::SocketAddr;

use base64ct::{Base64, Base64Unpadded, Encoding as _};
use rand::seq::IndexedRandom as _;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::types::relay_flags::RelayFlag;

use super::DirectoryTask;
use crate::command::{Event, Hop, Upload, UploadOutcome};
use crate::consensus::KnownRelay;
use crate::http::{Request, parse_head};

impl DirectoryTask {
    /// Hands an upload to the node.
    pub(super) fn upload_by_circuit(&mut self, authority: &RsaIdentity, request: &Request) {
        let generation = self.generation;
        let known = self.options.authorities.iter();
        let Some(nickname) = known
            .filter(|known| known.identity == *authority)
            .map(|known| known.nickname.clone())
            .next()
        else {
            return;
        };
        match self.path_to(authority) {
            Some(path) => (self.events)(Event::Upload(Box::new(Upload {
                generation,
                authority: *authority,
                nickname,
                request: request.encode(None, None),
                path,
            }))),
            None => {
                let why = "no circuit can be built to it with what is known of the network";
                let outcome = UploadOutcome::Failed(why.to_owned());
                self.uploaded(generation, *authority, nickname, outcome);
            }
        }
    }

    /// The answer that an upload got.
    pub(super) fn upload_answered(
        &mut self,
        upload: (u64, RsaIdentity),
        answer: Result<Vec<u8>, String>,
    ) {
        let (generation, authority) = upload;
        let known = self.options.authorities.iter();
        let Some(nickname) = known
            .filter(|known| known.identity == authority)
            .map(|known| known.nickname.clone())
            .next()
        else {
            return;
        };
        let outcome = match answer {
            Ok(bytes) => outcome(&bytes),
            Err(why) => UploadOutcome::Failed(why),
        };
        self.uploaded(generation, authority, nickname, outcome);
    }

    /// Two relays, and the authority. The first stays the same as long as it is listed, as a guard does.
    fn path_to(&mut self, authority: &RsaIdentity) -> Option<Vec<Hop>> {
        let consensus = self.fetcher.consensus()?.clone();
        let own = self.descriptor.as_ref()?.rsa_id();
        let last = consensus.relay(authority)?;
        let last = self.hop(authority, last)?;
        let usable = |id: &RsaIdentity, relay: &KnownRelay| {
            *id != own && *id != *authority && relay.has(RelayFlag::Fast)
        };
        let pick = |task: &mut Self, flag: Option<RelayFlag>, not: Option<&RsaIdentity>| {
            let relays: Vec<(&RsaIdentity, &KnownRelay)> = consensus
                .relays()
                .filter(|(id, relay)| usable(id, relay) && Some(*id) != not)
                .filter(|(_, relay)| flag.is_none_or(|flag| relay.has(flag)))
                .collect();
            for _ in 0..16 {
                let (id, relay) = relays.choose(&mut task.rng)?;
                if let Some(hop) = task.hop(id, relay) {
                    return Some((**id, hop));
                }
            }
            None
        };
        let kept = self.upload_guard.and_then(|id| {
            let relay = consensus.relay(&id).filter(|relay| usable(&id, relay))?;
            Some((id, self.hop(&id, relay)?))
        });
        let (first_id, first) = match kept {
            Some(kept) => kept,
            None => pick(self, Some(RelayFlag::Guard), None).or_else(|| pick(self, None, None))?,
        };
        self.upload_guard = Some(first_id);
        let (_, middle) = pick(self, None, Some(&first_id))?;
        Some(vec![first, middle, last])
    }

    /// A relay as the consensus and its microdescriptor have it.
    fn hop(&self, id: &RsaIdentity, relay: &KnownRelay) -> Option<Hop> {
        let addr = *relay.or_ports.iter().find(|port| port.is_ipv4())?;
        let text = self
            .documents
            .with_microdescs(|store| store.get(&relay.microdesc).cloned())?;
        Hop::of_microdesc(addr, *id, &text)
    }
}

impl Hop {
    /// What a microdescriptor has of a relay's keys.
    fn of_microdesc(addr: SocketAddr, rsa: RsaIdentity, text: &str) -> Option<Self> {
        let value = |keyword: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '))
        };
        let key = |text: &str| -> Option<[u8; 32]> {
            let text = text.split(' ').next()?;
            let bytes = match text.ends_with('=') {
                true => Base64::decode_vec(text),
                false => Base64Unpadded::decode_vec(text),
            };
            bytes.ok()?.try_into().ok()
        };
        Some(Hop {
            addr,
            rsa,
            ed25519: value("id ed25519").and_then(key),
            ntor: value("ntor-onion-key").and_then(key)?,
        })
    }
}

/// What the answer to an upload means.
fn outcome(bytes: &[u8]) -> UploadOutcome {
    match parse_head(bytes) {
        Ok(Some(head)) => super::requests::outcome_of(head.status, head.not_new, head.reason),
        Ok(None) => UploadOutcome::Failed("the answer was cut off".to_owned()),
        Err(error) => UploadOutcome::Failed(error.to_string()),
    }
}

/// Whether a descriptor goes to this authority, by whether it is a bridge's.
pub(super) fn takes(authority: &crate::authority::Authority, bridge: bool) -> bool {
    match bridge {
        true => authority.bridge,
        false => authority.v3_ident.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_microdescriptor() {
        let key = Base64Unpadded::encode_string(&[7; 32]);
        let id = Base64Unpadded::encode_string(&[8; 32]);
        let text = format!("onion-key\nntor-onion-key {key}\nid ed25519 {id}\n");
        let addr = "192.0.2.1:9001".parse().unwrap();
        let of = |text: &str| Hop::of_microdesc(addr, [1; 20].into(), text);
        let hop = of(&text).unwrap();
        assert_eq!((hop.ntor, hop.ed25519), ([7; 32], Some([8; 32])));
        let padded = format!("onion-key\nntor-onion-key {key}=\n");
        assert_eq!(of(&padded).unwrap().ntor, [7; 32]);
        assert!(of("onion-key\n").is_none());
        assert!(of("onion-key\nntor-onion-key AAAA\n").is_none());
    }

    #[test]
    fn the_answer_is_what_its_first_line_says() {
        let of = |text: &str| outcome(text.as_bytes());
        assert_eq!(of("HTTP/1.0 200 OK\r\n\r\n"), UploadOutcome::Accepted);
        assert_eq!(
            of("HTTP/1.0 400 Bad key\r\n\r\n"),
            UploadOutcome::Refused("Bad key".to_owned())
        );
        for bad in [
            "",
            "HTTP/1.0 200",
            "nonsense\r\n\r\n",
            "HTTP/1.0 503 Busy\r\n\r\n",
        ] {
            assert!(matches!(of(bad), UploadOutcome::Failed(_)), "{bad:?}");
        }
    }

    #[test]
    fn a_bridge_s_descriptor_goes_to_authorities_of_bridges_alone() {
        let authority = |bridge, v3: bool| crate::authority::Authority {
            nickname: "a".to_owned(),
            dir_addr: "192.0.2.1:80".parse().unwrap(),
            identity: [1; 20].into(),
            v3_ident: v3.then(|| [2; 20].into()),
            bridge,
        };
        let (v3, of_bridges) = (authority(false, true), authority(true, false));
        assert!(takes(&of_bridges, true) && !takes(&v3, true));
        assert!(takes(&v3, false) && !takes(&of_bridges, false));
    }
}
