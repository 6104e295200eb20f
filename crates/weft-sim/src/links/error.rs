//! Why circuits cannot be drawn.

use weft_stats::bounds::OutOfBounds;

use super::class::Class;

/// A setting that makes no sense, or that the network cannot fulfil.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LinksError {
    /// A number that makes no sense, or that memory does not hold.
    #[error(transparent)]
    Number(#[from] OutOfBounds),
    /// Fewer guards in the network than a client should have.
    #[error("a client should have {asked} guards, but the network has {there}")]
    TooFewGuards {
        /// By a client.
        asked: u32,
        /// In the network.
        there: u32,
    },
    /// No relay is a guard and has bandwidth and weight.
    #[error(
        "the network has no guards: no relay with the flag Guard has bandwidth and weight above 0"
    )]
    NoGuards,
    /// No relay can be a middle.
    #[error("the network has no middles: no relay has bandwidth and weight above 0")]
    NoMiddles,
    /// No relay is an exit of this class.
    #[error("the network has no exits for {0}: none has bandwidth and weight above 0")]
    NoExits(Class),
    /// The document lists no ports that exits allow.
    #[error(
        "the document has no exit policies (p lines), which exits for {0} need: give the plain consensus, not its microdesc flavour"
    )]
    NoPolicies(Class),
    /// No share of classes is above 0.
    #[error("the shares of the classes of exits must be numbers from 0 on, one of them above 0")]
    Mixture,
    /// More relays than can be numbered.
    #[error("the network has too many relays")]
    TooManyRelays,
}
