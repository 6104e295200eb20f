//! Routes: the link that leads from each node to each host.

use std::collections::VecDeque;

use crate::links::topology::{HostId, NodeId, RouteRule, Topology};

/// One direction of a link: twice the link's number, and one more for the way from its second end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionId(pub(crate) usize);

impl DirectionId {
    /// Twice the place of the link in [`Topology::links`], and one more for the way from its second end.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// For each host and node, the direction that leads from the node to the host.
#[derive(Clone, Debug)]
pub struct Routes {
    nodes: usize,
    /// By host, then by node.
    next: Vec<Option<DirectionId>>,
}

/// Why there are no routes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RouteError {
    /// This link joins two nodes that others join already.
    Cycle(usize),
    /// There are two ways with the fewest links from this node to this host.
    Ambiguous { from: NodeId, to: HostId },
}

impl Routes {
    pub(crate) fn find(topology: &Topology) -> Result<Routes, RouteError> {
        if topology.rule() == RouteRule::Tree {
            check_tree(topology)?;
        }
        let nodes = topology.node_count();
        let mut neighbours: Vec<Vec<(NodeId, DirectionId)>> = vec![Vec::new(); nodes];
        for (number, link) in topology.links().iter().enumerate() {
            let [first, second] = link.ends;
            // From each end the other is seen, with the direction that comes *from* it.
            let seen = [(first, second, 1), (second, first, 0)];
            for (here, there, way) in seen {
                if let Some(list) = neighbours.get_mut(here.0) {
                    list.push((there, DirectionId(2 * number + way)));
                }
            }
        }
        let mut next = Vec::with_capacity(nodes * topology.hosts().len());
        for host in topology.hosts() {
            next.extend(towards(host, &neighbours)?);
        }
        Ok(Routes { nodes, next })
    }

    /// Routes of a topology. Reading the topology has checked that they exist.
    #[must_use]
    pub fn of(topology: &Topology) -> Routes {
        Routes::find(topology).unwrap_or_else(|_| Routes::none())
    }

    /// No way at all.
    pub(crate) fn none() -> Routes {
        Routes {
            nodes: 0,
            next: Vec::new(),
        }
    }

    /// The direction from this node to this host, if there is a way.
    #[must_use]
    pub fn next(&self, from: NodeId, to: HostId) -> Option<DirectionId> {
        *self.next.get(to.0 * self.nodes + from.0)?
    }
}

/// Breadth first from the host: for each node the direction that leads to it.
fn towards(
    host: HostId,
    neighbours: &[Vec<(NodeId, DirectionId)>],
) -> Result<Vec<Option<DirectionId>>, RouteError> {
    let mut next = vec![None; neighbours.len()];
    let mut distance: Vec<Option<u32>> = vec![None; neighbours.len()];
    let mut is_ambiguous = vec![false; neighbours.len()];
    if let Some(zero) = distance.get_mut(host.0) {
        *zero = Some(0);
    }
    let mut open = VecDeque::from([host.node()]);
    while let Some(node) = open.pop_front() {
        let here = distance.get(node.0).copied().flatten().unwrap_or(0);
        let doubtful = is_ambiguous.get(node.0).copied().unwrap_or(false);
        for &(neighbour, direction) in neighbours.get(node.0).into_iter().flatten() {
            let (Some(known), Some(route), Some(two_ways)) = (
                distance.get_mut(neighbour.0),
                next.get_mut(neighbour.0),
                is_ambiguous.get_mut(neighbour.0),
            ) else {
                continue;
            };
            match *known {
                None => {
                    *known = Some(here + 1);
                    *route = Some(direction);
                    *two_ways = doubtful;
                    open.push_back(neighbour);
                }
                Some(distance) if distance == here + 1 => *two_ways = true,
                Some(_) => {}
            }
        }
    }
    match is_ambiguous.iter().position(|two_ways| *two_ways) {
        Some(from) => Err(RouteError::Ambiguous {
            from: NodeId(from),
            to: host,
        }),
        None => Ok(next),
    }
}

/// Links without a cycle: each joins two parts that were not joined.
fn check_tree(topology: &Topology) -> Result<(), RouteError> {
    let mut parent: Vec<usize> = (0..topology.node_count()).collect();
    for (number, link) in topology.links().iter().enumerate() {
        let [first, second] = link.ends.map(|end| root(&mut parent, end.0));
        if first == second {
            return Err(RouteError::Cycle(number));
        }
        if let Some(above) = parent.get_mut(first) {
            *above = second;
        }
    }
    Ok(())
}

/// The node that stands for all that are joined with this one.
fn root(parent: &mut [usize], mut node: usize) -> usize {
    while let Some(&above) = parent.get(node)
        && above != node
    {
        // Each step shortens the way for the next one.
        let grand = parent.get(above).copied().unwrap_or(above);
        if let Some(slot) = parent.get_mut(node) {
            *slot = grand;
        }
        node = grand;
    }
    node
}
