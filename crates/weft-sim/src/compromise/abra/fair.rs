//! Max-min fair shares of relays' capacities.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Shares capacities among flows, each through three relays. Kept, so that nothing is allocated twice.
#[derive(Debug, Default)]
pub(super) struct Shares {
    left: Vec<f64>,
    flows_at: Vec<Vec<u32>>,
    unsettled: Vec<u32>,
    heap: BinaryHeap<Offer>,
    /// The rates of the last [`Shares::find`], in the order of its flows.
    pub(super) rates: Vec<f64>,
}

/// Bandwidth that a relay can still give each of its unsettled flows.
#[derive(Debug, PartialEq)]
struct Offer {
    share: f64,
    relay: u32,
}

impl Eq for Offer {}

impl PartialOrd for Offer {
    fn partial_cmp(&self, other: &Offer) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Offer {
    /// The least share first.
    fn cmp(&self, other: &Offer) -> Ordering {
        let by_share = other.share.total_cmp(&self.share);
        by_share.then(other.relay.cmp(&self.relay))
    }
}

impl Shares {
    /// Finds the rates: no flow can have more unless one that has no more would have less, and none
    /// has more than `most`.
    pub(super) fn find(&mut self, capacities: &[f64], flows: &[[u32; 3]], most: f64) {
        self.left.clear();
        self.left.extend_from_slice(capacities);
        self.flows_at.resize_with(capacities.len(), Vec::new);
        self.flows_at.iter_mut().for_each(Vec::clear);
        self.rates.clear();
        self.rates.resize(flows.len(), f64::NAN);
        for (flow, relays) in (0..).zip(flows) {
            for relay in relays {
                if let Some(list) = self.flows_at.get_mut(*relay as usize) {
                    list.push(flow);
                }
            }
        }
        self.unsettled.clear();
        let counts = self.flows_at.iter().map(|list| list.len() as u32);
        self.unsettled.extend(counts);
        self.heap.clear();
        for relay in 0..capacities.len() as u32 {
            self.offer(relay);
        }
        while let Some(Offer { share, relay }) = self.heap.pop() {
            if share >= most {
                break;
            }
            // Shares only grow while others settle for less; one that has grown waits again.
            let now = self.share(relay);
            match now {
                Some(now) if now > share => {
                    self.heap.push(Offer { share: now, relay });
                    continue;
                }
                None => continue,
                _ => self.settle(relay, share, flows),
            }
        }
        for rate in &mut self.rates {
            if rate.is_nan() {
                *rate = most;
            }
        }
    }

    fn share(&self, relay: u32) -> Option<f64> {
        let count = self.unsettled.get(relay as usize).copied()?;
        let left = self.left.get(relay as usize)?;
        (count > 0).then(|| (left / f64::from(count)).max(0.0))
    }

    fn offer(&mut self, relay: u32) {
        if let Some(share) = self.share(relay) {
            self.heap.push(Offer { share, relay });
        }
    }

    /// All flows of this relay have this rate.
    fn settle(&mut self, relay: u32, share: f64, flows: &[[u32; 3]]) {
        let list = self.flows_at.get_mut(relay as usize).map(std::mem::take);
        for flow in list.unwrap_or_default() {
            let Some(rate) = self.rates.get_mut(flow as usize) else {
                continue;
            };
            if !rate.is_nan() {
                continue;
            }
            *rate = share;
            for relay in flows.get(flow as usize).into_iter().flatten() {
                let relay = *relay as usize;
                if let (Some(left), Some(count)) =
                    (self.left.get_mut(relay), self.unsettled.get_mut(relay))
                {
                    *left -= share;
                    *count -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;
    use crate::random::generator;

    #[test]
    fn a_bottleneck_is_shared_and_the_rest_goes_to_others() {
        let mut shares = Shares::default();
        // Two flows share relay 0; one of them has less bandwidth at relay 3.
        shares.find(
            &[30.0, 100.0, 100.0, 5.0, 100.0],
            &[[0, 1, 2], [0, 3, 4], [1, 2, 4]],
            60.0,
        );
        assert_eq!(shares.rates, [25.0, 5.0, 60.0]);
        shares.find(&[], &[], 1.0);
        assert!(shares.rates.is_empty());
    }

    #[test]
    fn every_flow_has_a_bottleneck_where_nobody_has_more() {
        let (mut rng, mut shares) = (generator(3, 0, 0), Shares::default());
        for _ in 0..200 {
            let capacities: Vec<f64> = (0..12).map(|_| rng.random_range(1.0..100.0)).collect();
            let flows: Vec<[u32; 3]> = (0..rng.random_range(1..40))
                .map(|_| {
                    let start = rng.random_range(0..12);
                    let step = rng.random_range(1..4);
                    [start, (start + step) % 12, (start + 2 * step) % 12]
                })
                .collect();
            shares.find(&capacities, &flows, 40.0);
            let through = |relay: u32| {
                let all = flows.iter().zip(&shares.rates);
                all.filter(move |(flow, _)| flow.contains(&relay))
                    .map(|(_, rate)| *rate)
            };
            for (flow, rate) in flows.iter().zip(&shares.rates) {
                let is_bound = |relay: &u32| {
                    let used: f64 = through(*relay).sum();
                    let most = through(*relay).fold(0.0, f64::max);
                    used >= capacities[*relay as usize] - 1e-6 && *rate >= most - 1e-6
                };
                assert!(*rate >= 40.0 || flow.iter().any(is_bound));
            }
            for (relay, capacity) in (0..).zip(&capacities) {
                assert!(through(relay).sum::<f64>() <= capacity + 1e-6);
            }
        }
    }
}
