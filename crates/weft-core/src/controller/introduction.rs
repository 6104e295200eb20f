//! Where clients are introduced to onion services (rend-spec-v3 3.1, 3.2): whose circuit has which key.
//!
//! Signatures of ESTABLISH_INTRO are verified here, on the main thread. Cells never wait for it:
//! threads hand it over like other requests of circuits (`manager/path/requests.rs`), only while the
//! main thread has little to do, in turns of the previous hops, and bounded. Each signature belongs
//! to one circuit, whose onionskin has already cost a worker more: three multiplications.

use std::collections::BTreeMap;
use std::time::Instant;

use tor_llcrypto::pk::ed25519;
use weft_cell::hs_msg::{
    ESTABLISH_INTRO_PREFIX, IntroDefense, IntroduceStatus, introduce1_auth_key,
};
use weft_cell::identity::IntroAuthKey;
use weft_cell::reason::DestroyReason;
use weft_share::{PreviousHop, Shares, Ticket};

use super::RelayController;
use crate::address::{ConnectionId, HalfAddr};
use crate::limits::bucket::TokenBucket;
use crate::limits::dos::IntroDosParams;
use crate::message::{EstablishRequest, IntroNews, IntroOrder};

/// Introduction circuits at most, shared by the hops that they come by.
const MAX_INTRODUCTIONS: usize = 65536;

/// The longest INTRODUCE1 that can be passed on: what a message has room for under Counter Galois Onion.
const MAX_INTRODUCE: usize = 490;

/// Introduction circuits, by key.
#[derive(Debug, Default)]
pub(super) struct Introductions {
    by_key: BTreeMap<IntroAuthKey, (Ticket, Limit)>,
    by_half: BTreeMap<HalfAddr, Ticket>,
    held: Shares<PreviousHop, (), (IntroAuthKey, HalfAddr)>,
}

/// Rate limit for the introductions of a service.
#[derive(Debug)]
struct Limit {
    /// The service has set it.
    explicit: bool,
    enabled: bool,
    bucket: TokenBucket,
}

impl Limit {
    fn new(defense: IntroDefense, params: &IntroDosParams, now: Instant) -> Self {
        let by_consensus = (u64::from(params.rate), u64::from(params.burst));
        let (enabled, (rate, burst)) = match defense {
            IntroDefense::ByConsensus => (params.enabled, by_consensus),
            IntroDefense::Off => (false, by_consensus),
            IntroDefense::Limit { rate, burst } => (true, (rate.into(), burst.into())),
        };
        Limit {
            explicit: defense != IntroDefense::ByConsensus,
            enabled,
            bucket: TokenBucket::new(rate, burst, now),
        }
    }

    /// True if another introduction may be passed on: a token remains after one was taken, as in C
    /// tor (`hs_dos_can_send_intro2`).
    fn allows(&mut self, now: Instant) -> bool {
        if !self.enabled {
            return true;
        }
        self.bucket.take(1, now);
        self.bucket.level(now) > 0
    }
}

/// Result of registering a service's circuit.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kept {
    /// The half that had the same key.
    replaced: Option<HalfAddr>,
    /// The half that gives way: another, or the service's own.
    displaced: Option<HalfAddr>,
}

impl Introductions {
    /// Keeps a service's key.
    fn keep(
        &mut self,
        hop: PreviousHop,
        half: HalfAddr,
        key: IntroAuthKey,
        limit: Limit,
        most: usize,
    ) -> Kept {
        let replaced = self.by_key.get(&key).map(|(ticket, _)| *ticket);
        let replaced = replaced.and_then(|ticket| self.remove(ticket));
        let displaced = match self.held.admit(hop, (), most, (key, half)) {
            Err(_) => Some(half),
            Ok(admitted) => {
                self.by_key.insert(key, (admitted.ticket, limit));
                self.by_half.insert(half, admitted.ticket);
                admitted.displaced.map(|(_, (key, half))| {
                    self.by_key.remove(&key);
                    self.by_half.remove(&half);
                    half
                })
            }
        };
        Kept {
            replaced,
            displaced,
        }
    }

    /// The service with this key, and how many introductions it gets.
    fn find(&mut self, key: &IntroAuthKey) -> Option<(HalfAddr, &mut Limit)> {
        let (ticket, limit) = self.by_key.get_mut(key)?;
        let (_, half) = self.held.get(*ticket)?;
        Some((*half, limit))
    }

    /// A half has closed.
    fn forget(&mut self, half: HalfAddr) {
        if let Some(ticket) = self.by_half.get(&half) {
            self.remove(*ticket);
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<HalfAddr> {
        let (key, half) = self.held.release(ticket)?;
        self.by_key.remove(&key);
        self.by_half.remove(&half);
        Some(half)
    }

    /// The consensus has changed: services that set nothing themselves follow it.
    pub(super) fn follow(&mut self, params: &IntroDosParams) {
        for (_, limit) in self.by_key.values_mut() {
            if !limit.explicit {
                limit.enabled = params.enabled;
                let (rate, burst) = (params.rate.into(), params.burst.into());
                limit.bucket.set_limit(rate, burst);
            }
        }
    }

    /// Number of introduction circuits.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

/// True if the sender of an ESTABLISH_INTRO holds the secret part of its key.
fn is_signed(request: &EstablishRequest) -> bool {
    let key = ed25519::PublicKey::from_bytes(request.auth_key.as_bytes());
    let signature = ed25519::Signature::from_bytes(&request.signature);
    let signed = [ESTABLISH_INTRO_PREFIX, &request.signed].concat();
    key.is_ok_and(|key| key.verify(&signed, &signature).is_ok())
}

impl RelayController {
    pub(super) fn on_intro_news(&mut self, news: IntroNews, now: Instant) {
        match news {
            IntroNews::Establish {
                half,
                connection,
                request,
            } => self.on_establish_intro(half, connection, &request, now),
            IntroNews::Gone { half } => self.introductions.forget(half),
            IntroNews::Introduce {
                half,
                connection,
                message,
            } => self.on_introduce(half, connection, message, now),
        }
    }

    fn on_establish_intro(
        &mut self,
        half: HalfAddr,
        connection: ConnectionId,
        request: &EstablishRequest,
        now: Instant,
    ) {
        if !is_signed(request) {
            self.counts.intro_unsigned += 1;
            return self.close_half(half, DestroyReason::PROTOCOL);
        }
        let limit = Limit::new(request.defense, &self.params.dos.intro, now);
        let hop = self.previous_hop(connection);
        let key = request.auth_key;
        let kept = self
            .introductions
            .keep(hop, half, key, limit, MAX_INTRODUCTIONS);
        if kept.displaced != Some(half) {
            let order = IntroOrder::Established { half };
            self.send(half.thread, order.into());
        }
        if let Some(replaced) = kept.replaced {
            // The service has built another circuit, and C tor closes the one before.
            self.close_half(replaced, DestroyReason::FINISHED);
        }
        if let Some(displaced) = kept.displaced {
            self.counts.intros_displaced += 1;
            self.close_half(displaced, DestroyReason::RESOURCELIMIT);
        }
    }

    fn on_introduce(
        &mut self,
        half: HalfAddr,
        connection: ConnectionId,
        message: Vec<u8>,
        now: Instant,
    ) {
        if self.is_client(connection) {
            self.counts.introduce_single_hop += 1;
            return self.close_half(half, DestroyReason::PROTOCOL);
        }
        let key = match introduce1_auth_key(&message) {
            Ok(key) if message.len() <= MAX_INTRODUCE => key,
            _ => {
                self.counts.introduce_malformed += 1;
                return self.refuse_introduction(half, IntroduceStatus::BadFormat);
            }
        };
        let Some((service, limit)) = self.introductions.find(&key) else {
            self.counts.introduce_unknown += 1;
            return self.refuse_introduction(half, IntroduceStatus::UnknownId);
        };
        if !limit.allows(now) {
            self.counts.introduce_limited += 1;
            return self.refuse_introduction(half, IntroduceStatus::UnknownId);
        }
        let order = IntroOrder::Introduce {
            half: service,
            client: half,
            message,
        };
        self.send(service.thread, order.into());
    }

    fn refuse_introduction(&mut self, half: HalfAddr, status: IntroduceStatus) {
        let order = IntroOrder::Refused { half, status };
        self.send(half.thread, order.into());
    }

    /// Introduction circuits of onion services.
    pub fn introductions(&self) -> usize {
        self.introductions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ThreadId;
    use crate::slots::HalfKey;
    use std::time::Duration;

    fn half(slot: u32) -> HalfAddr {
        HalfAddr {
            thread: ThreadId(0),
            slot: HalfKey(slot),
            generation: 0,
        }
    }

    fn key(n: u8) -> IntroAuthKey {
        IntroAuthKey([n; 32])
    }

    fn limit(defense: IntroDefense, params: &IntroDosParams, now: Instant) -> Limit {
        Limit::new(defense, params, now)
    }

    #[test]
    fn services_without_end_take_the_place_of_their_own_only() {
        let hop = |n| PreviousHop::Relay([n; 20].into());
        let (params, now) = (IntroDosParams::default(), Instant::now());
        let new = || limit(IntroDefense::ByConsensus, &params, now);
        let mut held = Introductions::default();
        let mut keep = |hop, n: u8| held.keep(hop, half(n.into()), key(n), new(), 10).displaced;
        assert_eq!(keep(hop(2), 0), None);
        for n in 1..100 {
            let displaced = keep(hop(1), n);
            let expected = n.checked_sub(9).filter(|n| *n > 0);
            assert_eq!(displaced, expected.map(|n| half(n.into())));
        }
        assert!(held.find(&key(0)).is_some() && held.find(&key(1)).is_none());
        // One that closes makes room, once.
        held.forget(half(99));
        held.forget(half(99));
        assert!(held.find(&key(99)).is_none());
        let sizes = (held.len(), held.by_key.len(), held.by_half.len());
        assert_eq!(sizes, (9, 9, 9));
    }

    #[test]
    fn the_same_key_again_replaces_the_circuit_and_its_end_leaves_the_new_one() {
        let hop = PreviousHop::Relay([1; 20].into());
        let (params, now) = (IntroDosParams::default(), Instant::now());
        let mut held = Introductions::default();
        let mut keep = |slot| {
            let limit = limit(IntroDefense::ByConsensus, &params, now);
            held.keep(hop, half(slot), key(1), limit, 10)
        };
        assert_eq!(keep(1), Kept::default());
        let replaced = Kept {
            replaced: Some(half(1)),
            displaced: None,
        };
        assert_eq!(keep(2), replaced);
        held.forget(half(1));
        assert_eq!(held.find(&key(1)).map(|(half, _)| half), Some(half(2)));
        assert_eq!((held.len(), held.by_half.len()), (1, 1));
    }

    #[test]
    fn a_limit_is_c_tor_s_token_bucket() {
        let second = Duration::from_secs(1);
        let (off, now) = (IntroDosParams::default(), Instant::now());
        let passed = |limit: &mut Limit, now| (0..1000).filter(|_| limit.allows(now)).count();
        let mut free = limit(IntroDefense::ByConsensus, &off, now);
        assert_eq!(passed(&mut free, now), 1000);
        let mut set = limit(IntroDefense::Limit { rate: 5, burst: 20 }, &off, now);
        // The last token is never given out.
        assert_eq!(passed(&mut set, now), 19);
        assert_eq!(passed(&mut set, now + second), 4);
        assert_eq!(passed(&mut set, now + 1000 * second), 19);
        let on = IntroDosParams {
            enabled: true,
            ..off
        };
        let mut by_consensus = limit(IntroDefense::ByConsensus, &on, now);
        assert_eq!(passed(&mut by_consensus, now), 199);
        let mut refused = limit(IntroDefense::Off, &on, now);
        assert_eq!(passed(&mut refused, now), 1000);
    }

    #[test]
    fn a_new_consensus_holds_for_services_that_set_nothing() {
        let hop = PreviousHop::Relay([1; 20].into());
        let (off, now) = (IntroDosParams::default(), Instant::now());
        let mut held = Introductions::default();
        for (n, defense) in [
            (1, IntroDefense::ByConsensus),
            (2, IntroDefense::Off),
            (3, IntroDefense::Limit { rate: 9, burst: 9 }),
        ] {
            let limit = limit(defense, &off, now);
            held.keep(hop, half(n.into()), key(n), limit, 10);
        }
        held.follow(&IntroDosParams {
            enabled: true,
            rate: 1,
            burst: 3,
        });
        let passed = [1, 2, 3].map(|n| {
            let (_, limit) = held.find(&key(n)).unwrap();
            (0..100).filter(|_| limit.allows(now)).count()
        });
        assert_eq!(passed, [2, 100, 8]);
        held.follow(&off);
        let (_, limit) = held.find(&key(1)).unwrap();
        assert!(limit.allows(now));
    }
}
