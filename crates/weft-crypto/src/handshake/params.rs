//! Parameters that a relay grants to clients that request them.

/// Parameters that a relay grants in its replies to ntor-v3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyParams {
    /// Congestion control for clients that ask for it: the consensus's cc_sendme_inc, in cells
    /// (proposal 324). `None`, the default: off, as required of a relay without FlowCtrl=2.
    pub sendme_inc: Option<u8>,
}
