//! Programs that run nodes.

use clap::ValueEnum;

/// Programs that run nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Weft.
    Weft,
    /// The C tor that is installed.
    Tor,
    /// Weft and C tor by turns, Weft first.
    Mixed,
}

impl Kind {
    /// The program of the node with this number.
    pub(crate) fn of(self, number: usize) -> Kind {
        match self {
            Kind::Mixed if number.is_multiple_of(2) => Kind::Weft,
            Kind::Mixed => Kind::Tor,
            one => one,
        }
    }

    /// True if this includes nodes that Weft runs, or with `weft` false, those that it does not.
    pub(crate) fn includes(self, weft: bool) -> bool {
        match self {
            Kind::Weft => weft,
            Kind::Tor => !weft,
            Kind::Mixed => true,
        }
    }

    pub(crate) fn needs_tor(self, count: usize) -> bool {
        (0..count).any(|number| self.of(number) == Kind::Tor)
    }
}
