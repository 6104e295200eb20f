//! Work and memory of a node, in counts that are the same on every machine.

use super::state::World;

/// Work of a node since the beginning, and memory that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Turns of its threads and cells in them, where each costs a nanosecond ([`Costs`](crate::setup::Costs)).
    pub steps: u64,
    /// Messages between its threads and its controller.
    pub messages: u64,
    /// Onionskins that it answered.
    pub onionskins: u64,
    /// Bytes that it wrote to links and destinations.
    pub written: u64,
    /// Bytes in its ledgers now that belong to an owner.
    pub held: u64,
    /// All bytes in its ledgers now: tables, and what is free for others, besides.
    pub kept: u64,
}

impl World {
    /// Work and memory of a node; zeros if no node has this number.
    pub(crate) fn bill(&self, number: usize) -> Bill {
        let Some(node) = self.nodes.get(number) else {
            return Bill::default();
        };
        let now = self.ground.now();
        let mut bill = Bill {
            messages: node.messages,
            onionskins: node.relay.as_ref().map_or(0, |relay| relay.circuits),
            ..Bill::default()
        };
        for thread in &node.threads {
            let ledger = thread.manager.ledger(now);
            bill.steps += thread.worked;
            bill.written += thread.written;
            bill.held += ledger.owned();
            bill.kept += ledger.total();
        }
        bill
    }
}
