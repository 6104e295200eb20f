//! Onionskins as fast as the target answers them.
//!
//! What is measured is the target. So one onionskin, made once, is sent again and again: relays
//! compute a new answer each time. The first answer of every link is checked.

use anyhow::{Context, Result, bail};
use weft_cell::circ_msg::{CreateReply, CreateRequest, handshake_type};
use weft_cell::{Cell, CellView, ChanCmd};
use weft_crypto::handshake::ntor;

use super::circuit::INITIATOR;
use super::ends::Phase;
use super::state::World;
use crate::relay::aim::Peer;

impl World {
    /// Keeps `window` CREATE2 cells unanswered on every link.
    pub(super) fn request_circuits(&mut self) -> Result<()> {
        let Peer::Relay(aim) = self.plan.peer else {
            bail!("a bare pipe answers no onionskins");
        };
        let window = usize::try_from(self.plan.window).unwrap_or(usize::MAX);
        for key in self.origins.clone() {
            if self.end(key)?.unanswered >= window {
                continue;
            }
            if self.onionskin.is_none() {
                let state = ntor::ClientState::start(&aim.rsa, &aim.ntor, &mut self.rng);
                let request = CreateRequest::Create2 {
                    handshake_type: handshake_type::NTOR,
                    data: state.onionskin().to_vec(),
                };
                self.onionskin = Some((request.encode(INITIATOR)?, Some(state)));
            }
            let Some((cell, _)) = &mut self.onionskin else {
                continue;
            };
            let Some(end) = self.ends.get_mut(key) else {
                continue;
            };
            while end.unanswered < window && matches!(end.phase, Phase::Open) {
                // Ids of circuits that ended long ago are used again.
                end.next_id = INITIATOR | (end.next_id.wrapping_add(1) & !INITIATOR).max(1);
                cell.set_circ_id(end.next_id);
                end.out.extend_from_slice(cell.as_bytes());
                end.unanswered += 1;
            }
            self.mark(key);
        }
        Ok(())
    }

    /// A circuit has been made: it is destroyed at once.
    pub(super) fn on_onionskin(&mut self, key: usize, cell: CellView<'_>) -> Result<()> {
        if let Some(state) = self.onionskin.as_mut().and_then(|(_, state)| state.take()) {
            let CreateReply::Created2 { data } = CreateReply::decode(cell.command(), cell.body())?
            else {
                bail!("the target answered CREATE2 with {}", cell.command());
            };
            state.finish(&data).context(
                "the target's answer to CREATE2 does not prove that it has the ntor onion key",
            )?;
        }
        self.events += 1;
        let destroy = Cell::new(cell.circ_id(), ChanCmd::DESTROY);
        let end = self.end(key)?;
        end.unanswered = end.unanswered.saturating_sub(1);
        end.out.extend_from_slice(destroy.as_bytes());
        self.mark(key);
        Ok(())
    }
}
