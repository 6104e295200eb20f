//! The load that a relay of the public network carries, as far as it is published: `--load live-…`.
//!
//! The sources of each number, and what is concluded from them here:
//!
//! | number | source |
//! |---|---|
//! | cells of a circuit, by decile ([`CELLS`]) | relay gabelmoo's `cell-processed-cells` of 2010-12-27 (72,330 circuits), on Tor Metrics' page about data formats |
//! | how long a circuit lives ([`LIFE_S`]) | a relay's log of 2019 (theonionbox, issue 69): 653 open circuits, 574 + 24,950 CREATEs in six hours, so by Little's law 553 s; C tor's own rule is about ten minutes (`MaxCircuitDirtiness`) |
//! | links that are opened ([`CIRCUITS_PER_CLIENT_LINK`], [`CIRCUITS_PER_RELAY_LINK`]) | the same log: in 60 hours 38,315 connections received and 202 initiated, at 4,254 CREATEs an hour. Nearly all that it received are clients' |
//! | how unevenly relays are chosen ([`GUARDS`], [`EXITS`]) | weights in the consensus of 2025-12-09 20:00: 6,162 guards, 2,896 exits, by decile |
//! | cells that follow each other ([`TRAIN`]), how few go forward ([`FORWARD`]) | `TGen`'s packet model of 2018 (Jansen, Traudt, Hopper, CCS 2018, learned from live Tor exits): packets less than 1 ms apart are 3 in the median and 12 in the mean; 5 % are the client's |
//! | the scheduler's interval ([`TORRC`]) | `KISTSchedRunInterval=3` in consensuses of 2025 and 2026 |
//!
//! Inferred: that lifetimes are exponential and do not depend on how much a circuit carries; that a packet of the
//! model is a cell; the spread within the loudest decile ([`LOUD`]); that trains come in bursts ([`BURST`]); how
//! many of a preset's links are on which side, and that a client is as likely as the next to make a circuit.
//!
//! A check that uses nothing of the above: relay zweifaltigkeit's `conn-bi-direct` of 2010-12-28 (the same page)
//! has 68 % of connections below 20 KiB in ten seconds. A test holds the middle's mix to that.
//!
//! With so many circuits and such a rate, how long a circuit lives follows (Little's law); at a preset's own rate
//! it is [`LIFE_S`]. A higher rate with as many circuits is more onionskins, too: each circuit carries what it
//! carries, and ends sooner.

pub(super) mod mix;

/// Where in circuits the relay stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Many clients before it, other relays behind.
    Guard,
    /// Guards before it, exits behind.
    Middle,
    /// Many middles before it, few exits behind. The sockets of an exit itself are not part of it.
    ExitSide,
}

/// Mean cells of a circuit, both ways, from the loudest tenth of circuits to the quietest.
pub(super) const CELLS: [f64; 10] = [4563.0, 153.0, 42.0, 15.0, 7.0, 7.0, 6.0, 5.0, 4.0, 2.0];
/// Mean lifetime of a circuit, in seconds.
pub(super) const LIFE_S: f64 = 553.0;
/// Circuits that are made for each link that a client opens.
const CIRCUITS_PER_CLIENT_LINK: f64 = 6.7;
/// Circuits that are made for each link between relays that is opened.
const CIRCUITS_PER_RELAY_LINK: f64 = 1260.0;
/// Weights of guards, from the tenth with the most to that with the least.
const GUARDS: [f64; 10] = [
    0.3666, 0.1978, 0.1377, 0.1002, 0.0695, 0.0499, 0.0337, 0.0230, 0.0153, 0.0063,
];
/// Weights of exits, from the tenth with the most to that with the least.
const EXITS: [f64; 10] = [
    0.3051, 0.1849, 0.1410, 0.1080, 0.0852, 0.0663, 0.0507, 0.0358, 0.0191, 0.0039,
];
/// Clients, and relays of which nothing else is known.
const ALIKE: [f64; 10] = [0.1; 10];
/// Cells that follow each other at once: the logarithms' mean and deviation, ln 3 and so that the mean is 12.
pub(super) const TRAIN: (f64, f64) = (1.0986, 1.68);
/// The most cells of a train: what a congestion window begins with (`cc_cwnd_min`).
pub(super) const LONGEST_TRAIN: u32 = 124;
/// Trains of a burst, on average, and the time between them, in seconds.
pub(super) const BURST: (f64, f64) = (10.0, 0.05);
/// Circuits that carry at least this number of cells in their life have bursts.
pub(super) const BUSY: f64 = 1000.0;
/// The deviation of the logarithms of what circuits of the loudest tenth carry, and the most of it in multiples of
/// the mean.
pub(super) const LOUD: (f64, f64) = (1.5, 20.0);
/// The part of trains that goes forward.
pub(super) const FORWARD: f64 = 0.05;

/// Lines of the torrc of C tor and Weft alike: a consensus parameter of the public network.
pub(super) const TORRC: &str = "KISTSchedRunInterval 3 msec\n";

/// Properties that differ between presets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Links and circuits, if no others are asked for.
    pub(super) links: usize,
    pub(super) circuits: usize,
    /// The part of the links that we open: those towards the clients.
    pub(super) before: f64,
    /// Weights by which circuits choose among the links on each side.
    pub(super) origins: [f64; 10],
    pub(super) hops: [f64; 10],
    /// Circuits made for each link that is closed and reopened, on each side.
    pub(super) circuits_per_origin_link: f64,
    pub(super) circuits_per_hop_link: f64,
}

impl Preset {
    /// Its name in reports, and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Guard => "live-guard",
            Preset::Middle => "live-middle",
            Preset::ExitSide => "live-exit-side",
        }
    }

    pub(super) fn shape(self) -> Shape {
        let between_relays = Shape {
            links: 2000,
            // As 8,000 links have 50,000.
            circuits: 12_500,
            before: 0.5,
            origins: GUARDS,
            hops: EXITS,
            circuits_per_origin_link: CIRCUITS_PER_RELAY_LINK,
            circuits_per_hop_link: CIRCUITS_PER_RELAY_LINK,
        };
        match self {
            Preset::Middle => between_relays,
            Preset::Guard => Shape {
                // The circuits of 1,600 clients that each make 6.7 while their link is open.
                circuits: 4000,
                before: 0.8,
                origins: ALIKE,
                hops: GUARDS,
                circuits_per_origin_link: CIRCUITS_PER_CLIENT_LINK,
                ..between_relays
            },
            Preset::ExitSide => Shape {
                before: 0.75,
                origins: GUARDS,
                ..between_relays
            },
        }
    }

    /// Splits this number of links between the sides.
    pub(super) fn sides(self, links: usize) -> (usize, usize) {
        let origins = (links as f64 * self.shape().before).round() as usize;
        let origins = origins.clamp(1, links.saturating_sub(1).max(1));
        (origins, links - origins)
    }

    /// Cells per second, both ways together, of this number of circuits with the public network's
    /// lifetime.
    pub(super) fn own_rate(circuits: usize) -> f64 {
        circuits as f64 * cells_of_a_circuit() / LIFE_S
    }
}

/// Cells of a circuit, both ways, on average.
pub(super) fn cells_of_a_circuit() -> f64 {
    CELLS.iter().sum::<f64>() / CELLS.len() as f64
}

/// Mean lifetime of a circuit, in seconds, if `circuits` circuits carry `cells_per_s` cells a
/// second together.
pub(super) fn life_s(circuits: usize, cells_per_s: f64) -> f64 {
    circuits as f64 * cells_of_a_circuit() / cells_per_s
}
