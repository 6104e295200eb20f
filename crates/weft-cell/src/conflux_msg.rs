//! The messages by which circuits become the legs of a conflux set: CONFLUX_LINK, _LINKED, _LINKED_ACK and
//! _SWITCH (proposal 329, "Conflux handshake" and "Switching legs"). All are the data of relay messages.
//!
//! They are read as C tor reads them (`src/trunnel/conflux.trunnel`, `src/core/or/conflux_cell.c`; the same
//! from 0.4.8.1-alpha on):
//!
//! - LINK and LINKED: a version other than 1, and a desired user experience without a meaning, are
//!   refused, and the caller closes the circuit. Data after the fields is ignored.
//! - LINKED_ACK: any data is one. None is sent.
//! - SWITCH: data after the number is ignored; C tor pads it with zeros to a whole cell. A number
//!   of 0 is accepted, since C tor's senders can send it.
//!
//! One difference: C tor takes a SWITCH of less than four bytes for the number 0 and logs a bug; here it is
//! refused.

use crate::fields::{CutShort, Fields};

/// Bytes of the nonce that names a set.
pub const NONCE_LEN: usize = 32;
/// Bytes of LINK and LINKED.
pub const LINK_LEN: usize = 1 + NONCE_LEN + 8 + 8 + 1;

/// The version of LINK and LINKED that is known.
const VERSION: u8 = 1;

/// Data that is not a conflux message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfluxMsgError {
    /// It ended too early.
    #[error(transparent)]
    CutShort(#[from] CutShort),
    /// LINK or LINKED of another version.
    #[error("CONFLUX_LINK or CONFLUX_LINKED has version {0} (known: 1)")]
    Version(u8),
    /// LINK or LINKED with a desired user experience that has no meaning.
    #[error("CONFLUX_LINK or CONFLUX_LINKED desires user experience {0} (known: 0 to 4)")]
    DesiredUx(u8),
}

/// Aim of the sender of LINK or LINKED for the other end's choice of legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DesiredUx {
    /// Whatever the other end thinks best.
    NoOpinion,
    /// The leg with the least round trip, and no other.
    MinLatency,
    /// The leg with the least round trip, with little memory for cells that arrive early.
    LowMemLatency,
    /// The windows of all legs, whatever memory the cells take that arrive early.
    HighThroughput,
    /// The windows of all legs, with few cells that arrive early.
    LowMemThroughput,
}

impl DesiredUx {
    /// All of them, in the order of their numbers.
    pub const ALL: [DesiredUx; 5] = [
        DesiredUx::NoOpinion,
        DesiredUx::MinLatency,
        DesiredUx::LowMemLatency,
        DesiredUx::HighThroughput,
        DesiredUx::LowMemThroughput,
    ];

    /// Its number on the wire.
    pub const fn wire(self) -> u8 {
        match self {
            DesiredUx::NoOpinion => 0,
            DesiredUx::MinLatency => 1,
            DesiredUx::LowMemLatency => 2,
            DesiredUx::HighThroughput => 3,
            DesiredUx::LowMemThroughput => 4,
        }
    }

    /// The one with this number.
    pub fn of(wire: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|ux| ux.wire() == wire)
    }
}

/// CONFLUX_LINK, which asks an exit to make a circuit a leg of a set, and CONFLUX_LINKED, its answer: the two
/// have the same data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The set.
    pub nonce: [u8; NONCE_LEN],
    /// The last sequence number that the sender has sent on the set; 0 for a new set.
    pub last_seqno_sent: u64,
    /// The last sequence number that the sender has received on the set; 0 for a new set.
    pub last_seqno_recv: u64,
    /// Aim for the other end's choice of legs.
    pub desired_ux: DesiredUx,
}

impl Link {
    /// Reads the data of LINK or LINKED. Data after the fields is ignored.
    ///
    /// # Errors
    ///
    /// The message is malformed: the caller must close the circuit.
    pub fn decode(data: &[u8]) -> Result<Self, ConfluxMsgError> {
        let mut fields = Fields::new("CONFLUX_LINK or CONFLUX_LINKED", data);
        let version = fields.u8("version")?;
        if version != VERSION {
            return Err(ConfluxMsgError::Version(version));
        }
        let nonce = fields.array("nonce")?;
        let last_seqno_sent = fields.u64("last sequence number sent")?;
        let last_seqno_recv = fields.u64("last sequence number received")?;
        let desired_ux = fields.u8("desired user experience")?;
        Ok(Link {
            nonce,
            last_seqno_sent,
            last_seqno_recv,
            desired_ux: DesiredUx::of(desired_ux).ok_or(ConfluxMsgError::DesiredUx(desired_ux))?,
        })
    }

    /// The data of LINK or LINKED.
    pub fn encode(&self) -> [u8; LINK_LEN] {
        let fields = [VERSION]
            .into_iter()
            .chain(self.nonce)
            .chain(self.last_seqno_sent.to_be_bytes())
            .chain(self.last_seqno_recv.to_be_bytes())
            .chain([self.desired_ux.wire()]);
        let mut data = [0; LINK_LEN];
        for (place, byte) in data.iter_mut().zip(fields) {
            *place = byte;
        }
        data
    }
}

/// CONFLUX_LINKED_ACK, by which the client confirms LINKED, and the exit learns the leg's round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkedAck;

impl LinkedAck {
    /// Reads the data of LINKED_ACK: as in C tor, any is one.
    pub fn decode(_data: &[u8]) -> Self {
        LinkedAck
    }

    /// The data of LINKED_ACK.
    pub fn encode(self) -> [u8; 0] {
        []
    }
}

/// CONFLUX_SWITCH: multiplexed messages continue on this leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// By how many multiplexed messages, sent on other legs, this leg's sequence number grows.
    pub relative: u32,
}

impl Switch {
    /// Reads the data of SWITCH. Data after the number is ignored.
    ///
    /// # Errors
    ///
    /// [`ConfluxMsgError::CutShort`]: the caller must close the circuit.
    pub fn decode(data: &[u8]) -> Result<Self, ConfluxMsgError> {
        let mut fields = Fields::new("CONFLUX_SWITCH", data);
        let relative = fields.u32("relative sequence number")?;
        Ok(Switch { relative })
    }

    /// The data of SWITCH.
    pub fn encode(self) -> [u8; 4] {
        self.relative.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn some_link() -> Link {
        Link {
            nonce: std::array::from_fn(|at| at as u8),
            last_seqno_sent: 0x0102_0304_0506_0708,
            last_seqno_recv: 0x1112_1314_1516_1718,
            desired_ux: DesiredUx::HighThroughput,
        }
    }

    fn some_ux() -> impl Strategy<Value = DesiredUx> {
        (0..DesiredUx::ALL.len()).prop_map(|at| DesiredUx::ALL[at])
    }

    #[test]
    fn link_as_proposal_329_lays_it_out() {
        let nonce: [u8; 32] = std::array::from_fn(|at| at as u8);
        let data = [
            &[1][..],
            &nonce,
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
            &[3],
        ]
        .concat();
        assert_eq!(some_link().encode()[..], data[..]);
        assert_eq!(Link::decode(&data), Ok(some_link()));
        for cut in 0..data.len() {
            let result = Link::decode(&data[..cut]);
            assert!(
                matches!(result, Err(ConfluxMsgError::CutShort(_))),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn what_follows_a_link_is_ignored_as_in_c_tor() {
        let mut data = some_link().encode().to_vec();
        data.extend([9; 400]);
        assert_eq!(Link::decode(&data), Ok(some_link()));
    }

    #[test]
    fn other_versions_and_unknown_experiences_are_refused_as_in_c_tor() {
        for version in (0..=u8::MAX).filter(|version| *version != 1) {
            let mut data = some_link().encode();
            data[0] = version;
            assert_eq!(Link::decode(&data), Err(ConfluxMsgError::Version(version)));
        }
        for ux in 0..=u8::MAX {
            let mut data = some_link().encode();
            data[LINK_LEN - 1] = ux;
            let known = Link::decode(&data).map(|link| link.desired_ux.wire());
            let expected = (ux <= 4).then_some(ux);
            assert_eq!(known, expected.ok_or(ConfluxMsgError::DesiredUx(ux)));
        }
    }

    #[test]
    fn any_linked_ack_is_one() {
        assert_eq!(LinkedAck::decode(&[]), LinkedAck);
        assert_eq!(LinkedAck::decode(&[1; 498]), LinkedAck);
        assert!(LinkedAck.encode().is_empty());
    }

    #[test]
    fn c_tors_switch_fills_its_cell() {
        let mut data = vec![0, 0, 1, 2];
        assert_eq!(Switch::decode(&data), Ok(Switch { relative: 258 }));
        assert_eq!(Switch { relative: 258 }.encode()[..], data[..]);
        data.resize(498, 0);
        assert_eq!(Switch::decode(&data), Ok(Switch { relative: 258 }));
        assert_eq!(Switch::decode(&[0; 4]), Ok(Switch { relative: 0 }));
        for cut in 0..4 {
            assert!(Switch::decode(&data[..cut]).is_err());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            nonce in any::<[u8; 32]>(),
            last_seqno_sent in any::<u64>(),
            last_seqno_recv in any::<u64>(),
            desired_ux in some_ux(),
            relative in any::<u32>(),
            following in vec(any::<u8>(), 0..440),
        ) {
            let link = Link { nonce, last_seqno_sent, last_seqno_recv, desired_ux };
            let data = [&link.encode()[..], &following].concat();
            prop_assert_eq!(Link::decode(&data), Ok(link));
            let switch = Switch { relative };
            let data = [&switch.encode()[..], &following].concat();
            prop_assert_eq!(Switch::decode(&data), Ok(switch));
        }

        #[test]
        fn any_bytes_are_refused_or_encode_as_they_were(
            data in vec(any::<u8>(), 0..80),
            known in any::<bool>(),
            ux in 0u8..6,
        ) {
            let mut data = data;
            if known {
                for (place, byte) in [(0, VERSION), (LINK_LEN - 1, ux)] {
                    if let Some(place) = data.get_mut(place) {
                        *place = byte;
                    }
                }
            }
            if let Ok(link) = Link::decode(&data) {
                prop_assert_eq!(&link.encode()[..], &data[..LINK_LEN]);
            }
            if let Ok(switch) = Switch::decode(&data) {
                prop_assert_eq!(&switch.encode()[..], &data[..4]);
            }
        }
    }
}
