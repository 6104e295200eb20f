//! Whole paths between hosts, for testbeds that model paths and not links.

use std::time::Duration;

use crate::links::routes::Routes;
use crate::links::topology::{HostId, LinkSettings, Topology};

/// Effect of all links of a path together on packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Path {
    /// One way: the sum over its links.
    pub delay: Duration,
    /// Variation of the delay: the sum over its links.
    pub jitter: Duration,
    /// The part of the packets that is lost on any of its links.
    pub loss: f64,
}

/// The paths of a topology.
#[derive(Debug)]
pub struct Paths<'t> {
    topology: &'t Topology,
    routes: Routes,
}

impl Paths<'_> {
    /// Of this topology.
    #[must_use]
    pub fn of(topology: &Topology) -> Paths<'_> {
        Paths {
            topology,
            routes: Routes::of(topology),
        }
    }

    /// The path from one host to another; `None` if there is none. The path from a host to itself
    /// has no delay and no loss.
    #[must_use]
    pub fn between(&self, from: HostId, to: HostId) -> Option<Path> {
        let mut path = Path::default();
        let mut kept = 1.0;
        let mut node = from.node();
        // A route visits no node twice.
        for _ in 0..self.topology.node_count() {
            if node == to.node() {
                break;
            }
            let direction = self.routes.next(node, to)?;
            let link = self.topology.links().get(direction.0 / 2)?;
            let ([forth, back], [first, second]) = (&link.directions, link.ends);
            let settings: &LinkSettings;
            (settings, node) = match direction.0 % 2 {
                0 => (forth, second),
                _ => (back, first),
            };
            path.delay += settings.delay;
            path.jitter += settings.jitter;
            kept *= 1.0 - settings.loss.fraction();
        }
        path.loss = 1.0 - kept;
        (node == to.node()).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_add_up_and_losses_multiply() {
        let text = "name = \"x\"\nhosts = [\"a\", \"b\", \"c\", \"d\"]\nswitches = [\"s\"]\n\
                    [[link]]\nends = [\"a\", \"s\"]\ndelay = \"10 ms\"\nloss = \"50 %\"\n\
                    [[link]]\nends = [\"s\", \"b\"]\ndelay = \"5 ms\"\njitter = \"1 ms\"\nloss = \"50 %\"\n\
                    [[link]]\nends = [\"b\", \"c\"]\ndelay = \"1 ms\"\n";
        let topology = Topology::parse("x.toml", text).expect("well-formed");
        let paths = Paths::of(&topology);
        let host = |name: &str| topology.host(name).expect("a host");
        let [a, c, d] = ["a", "c", "d"].map(host);
        let path = paths.between(a, c).expect("a path");
        assert_eq!(path.delay, Duration::from_millis(16));
        assert_eq!(path.jitter, Duration::from_millis(1));
        assert!((path.loss - 0.75).abs() < 1e-12, "{path:?}");
        assert_eq!(paths.between(a, a), Some(Path::default()));
        assert_eq!(paths.between(a, d), None);
    }
}
