//! Invariants of a tunnel and its legs: each knows what the other has sent, lent and been
//! acknowledged.

use std::collections::BTreeMap;

use super::{Inspection, manager_of};
use crate::address::ThreadId;
use crate::circuit::half::Role;
use crate::manager::LocalConnectionManager;

impl Inspection<'_> {
    /// Compares the tunnels of this thread with their legs on the threads of these managers.
    pub(super) fn audit_legs(
        self,
        all: &BTreeMap<ThreadId, &LocalConnectionManager>,
    ) -> Result<(), String> {
        for (slot, half) in self.manager.path.halves.iter() {
            let (Role::Tunnel(tunnel), Some(addr)) =
                (&half.role, self.manager.path.halves.addr(slot))
            else {
                continue;
            };
            for leg in tunnel.legs.iter() {
                let manager = manager_of(self.manager, all, leg.half);
                let Some(half) = manager.and_then(|manager| manager.path.halves.peek(leg.half))
                else {
                    continue;
                };
                let side = half.leg.as_ref().filter(|side| side.tunnel == Some(addr));
                let Some(side) = side else {
                    continue;
                };
                let ends = half.streams().map(|streams| &streams.ends);
                let flow = ends.and_then(|ends| ends.get(side.hop.index())?.flow.as_ref());
                let in_flight = flow.map_or(0, |flow| flow.in_flight());
                leg.audit(side, in_flight, tunnel.policy)
                    .map_err(|what| format!("{addr}, leg {}: {what}", leg.half))?;
            }
        }
        Ok(())
    }
}
