//! Where rendezvous meet (rend-spec-v3 4.1).

use std::collections::BTreeMap;

use weft_cell::identity::RendezvousCookie;
use weft_cell::reason::DestroyReason;
use weft_share::{PreviousHop, Shares, Ticket};

use super::RelayController;
use crate::address::{ConnectionId, HalfAddr};
use crate::message::FromController;

/// Rendezvous cookies kept at most, shared by the hops that the circuits come by.
const MAX_COOKIES: usize = 65536;

/// Circuits that wait for a rendezvous.
#[derive(Debug, Default)]
pub(super) struct Rendezvous {
    by_cookie: BTreeMap<RendezvousCookie, Ticket>,
    by_half: BTreeMap<HalfAddr, Ticket>,
    waiting: Shares<PreviousHop, (), (RendezvousCookie, HalfAddr)>,
}

impl Rendezvous {
    fn is_taken(&self, cookie: &RendezvousCookie) -> bool {
        self.by_cookie.contains_key(cookie)
    }

    /// Keeps a cookie. The half that gives way.
    fn keep(
        &mut self,
        hop: PreviousHop,
        half: HalfAddr,
        cookie: RendezvousCookie,
        most: usize,
    ) -> Option<HalfAddr> {
        match self.waiting.admit(hop, (), most, (cookie, half)) {
            Err(_) => Some(half),
            Ok(admitted) => {
                self.by_cookie.insert(cookie, admitted.ticket);
                self.by_half.insert(half, admitted.ticket);
                let (_, (cookie, half)) = admitted.displaced?;
                self.by_cookie.remove(&cookie);
                self.by_half.remove(&half);
                Some(half)
            }
        }
    }

    /// The half that waits with a cookie meets another one.
    fn meet(&mut self, cookie: &RendezvousCookie) -> Option<HalfAddr> {
        let ticket = *self.by_cookie.get(cookie)?;
        self.remove(ticket)
    }

    /// A half has closed.
    fn forget(&mut self, half: HalfAddr) {
        if let Some(ticket) = self.by_half.get(&half) {
            self.remove(*ticket);
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<HalfAddr> {
        let (cookie, half) = self.waiting.release(ticket)?;
        self.by_cookie.remove(&cookie);
        self.by_half.remove(&half);
        Some(half)
    }
}

impl RelayController {
    pub(super) fn on_establish_rendezvous(
        &mut self,
        half: HalfAddr,
        connection: ConnectionId,
        cookie: RendezvousCookie,
    ) {
        if self.is_client(connection) && !self.dos.single_hop_rendezvous().is_allowed() {
            // No answer, as in C tor: such a client must wait until it gives up.
            return;
        }
        if self.rendezvous.is_taken(&cookie) {
            self.counts.cookies_taken += 1;
            return self.close_half(half, DestroyReason::PROTOCOL);
        }
        let hop = self.previous_hop(connection);
        let displaced = self.rendezvous.keep(hop, half, cookie, MAX_COOKIES);
        if displaced != Some(half) {
            self.send(half.thread, FromController::RendezvousEstablished { half });
        }
        if let Some(displaced) = displaced {
            self.counts.cookies_displaced += 1;
            self.close_half(displaced, DestroyReason::RESOURCELIMIT);
        }
    }

    pub(super) fn on_rendezvous(
        &mut self,
        half: HalfAddr,
        cookie: RendezvousCookie,
        handshake: Vec<u8>,
    ) {
        match self.rendezvous.meet(&cookie) {
            Some(with) => self.send(
                half.thread,
                FromController::Splice {
                    half,
                    with,
                    handshake,
                },
            ),
            None => {
                self.counts.cookies_unknown += 1;
                self.close_half(half, DestroyReason::PROTOCOL);
            }
        }
    }

    pub(super) fn on_rendezvous_gone(&mut self, half: HalfAddr) {
        self.rendezvous.forget(half);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ThreadId;
    use crate::slots::HalfKey;

    fn half(slot: u32) -> HalfAddr {
        HalfAddr {
            thread: ThreadId(0),
            slot: HalfKey(slot),
            generation: 0,
        }
    }

    fn cookie(n: u32) -> RendezvousCookie {
        let mut cookie = [0; 20];
        cookie[..4].copy_from_slice(&n.to_be_bytes());
        RendezvousCookie(cookie)
    }

    #[test]
    fn cookies_without_end_take_the_place_of_their_own_only() {
        let hop = |n| PreviousHop::Relay([n; 20].into());
        let mut waiting = Rendezvous::default();
        assert_eq!(waiting.keep(hop(2), half(0), cookie(0), 10), None);
        for n in 1..100 {
            let displaced = waiting.keep(hop(1), half(n), cookie(n), 10);
            assert_eq!(displaced, n.checked_sub(9).filter(|n| *n > 0).map(half));
        }
        // Another one finds a place, and those that met or closed make room.
        assert_eq!(
            waiting.keep(hop(3), half(200), cookie(200), 10),
            Some(half(91))
        );
        assert_eq!(waiting.meet(&cookie(0)), Some(half(0)));
        waiting.forget(half(95));
        waiting.forget(half(95));
        assert_eq!(waiting.meet(&cookie(95)), None);
        assert_eq!((waiting.waiting.len(), waiting.by_cookie.len()), (8, 8));
        assert_eq!(waiting.by_half.len(), 8);
    }
}
