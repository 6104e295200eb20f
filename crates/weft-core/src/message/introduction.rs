//! Messages about introduction circuits (rend-spec-v3 3.1, 3.2).

use weft_cell::hs_msg::{IntroDefense, IntroduceStatus};
use weft_cell::identity::IntroAuthKey;

use crate::address::{ConnectionId, HalfAddr};

/// An ESTABLISH_INTRO that the circuit's origin has sent, as its MAC shows. Its signature is to be verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstablishRequest {
    /// Key by which clients name the service.
    pub auth_key: IntroAuthKey,
    /// Defence that the service requests.
    pub defense: IntroDefense,
    /// The bytes under the signature, without its prefix.
    pub signed: Vec<u8>,
    /// The signature.
    pub signature: [u8; 64],
}

/// From a connection thread to the relay controller.
#[derive(Debug)]
pub enum IntroNews {
    /// Asks that the half's circuit become an introduction circuit.
    Establish {
        /// The half.
        half: HalfAddr,
        /// The link it came on.
        connection: ConnectionId,
        /// The service's request.
        request: Box<EstablishRequest>,
    },
    /// Such a half has closed.
    Gone {
        /// The half.
        half: HalfAddr,
    },
    /// A client's half brings an INTRODUCE1.
    Introduce {
        /// The half.
        half: HalfAddr,
        /// The link it came on.
        connection: ConnectionId,
        /// Its data.
        message: Vec<u8>,
    },
}

/// From the relay controller to a connection thread.
#[derive(Debug)]
pub enum IntroOrder {
    /// The half's circuit is an introduction circuit.
    Established {
        /// The half.
        half: HalfAddr,
    },
    /// A client's INTRODUCE1 is for this service: it gets an INTRODUCE2, and the client's half an answer.
    Introduce {
        /// The service's half.
        half: HalfAddr,
        /// The client's half.
        client: HalfAddr,
        /// The data.
        message: Vec<u8>,
    },
    /// A client's INTRODUCE1 is not passed on.
    Refused {
        /// The client's half.
        half: HalfAddr,
        /// Why.
        status: IntroduceStatus,
    },
}

impl IntroOrder {
    /// The half that it is for.
    pub(crate) fn half(&self) -> HalfAddr {
        match self {
            IntroOrder::Established { half }
            | IntroOrder::Introduce { half, .. }
            | IntroOrder::Refused { half, .. } => *half,
        }
    }
}
