//! The links of a topology, and the ways of packets over them.

use crate::links::{Fate, HostId, Link, Moment, Routes, Topology};
use rand::Rng;

/// A host or a switch, as the topology numbers them: hosts come first.
pub(crate) type Node = u16;

/// The directions of all links, each with its queue, and where they lead.
#[derive(Debug)]
pub(crate) struct Ways {
    hosts: Vec<HostId>,
    /// By node, as routes know them.
    nodes: Vec<crate::links::NodeId>,
    directions: Vec<(Link, Node)>,
    routes: Routes,
}

impl Ways {
    pub(crate) fn new(topology: &Topology) -> Ways {
        let links = topology.links().iter();
        let directions = links.flat_map(|link| {
            let [first, second] = link.ends;
            [second, first]
                .into_iter()
                .zip(&link.directions)
                .map(|(end, settings)| (Link::new(settings), node(end.index())))
        });
        Ways {
            hosts: topology.hosts().collect(),
            nodes: topology.nodes().collect(),
            directions: directions.collect(),
            routes: Routes::of(topology),
        }
    }

    /// Offers a packet at a node to the next link on its way to a host. Returns when it arrives at
    /// the other end, and that node. `None`: there is no route, or the link drops it.
    pub(crate) fn forward(
        &mut self,
        now: Moment,
        from: Node,
        to: u32,
        length: u32,
        rng: &mut impl Rng,
    ) -> Option<(Moment, Node)> {
        let host = *self.hosts.get(to as usize)?;
        let here = *self.nodes.get(usize::from(from))?;
        let direction = self.routes.next(here, host)?;
        let (link, end) = self.directions.get_mut(direction.index())?;
        match link.offer(now, length, rng) {
            Fate::Arrives(at) => Some((at, *end)),
            Fate::DroppedByLoss | Fate::DroppedByQueue => None,
        }
    }
}

/// A topology has fewer than 65,536 nodes.
pub(crate) fn node(index: usize) -> Node {
    Node::try_from(index).unwrap_or(Node::MAX)
}
