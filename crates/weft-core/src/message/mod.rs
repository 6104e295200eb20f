//! Messages between threads (Engler and Goldberg 2021, Figure 4b).
//!
//! Three kinds, each with its own pair of rings: connection thread to connection thread
//! ([`Control`] on the control lane, [`LaneMsg`] on the cell lane), connection thread to relay
//! controller ([`ToController`]), and back ([`FromController`]). Every message is owned: sending it
//! gives it away.
//!
//! - `lanes`: those of both lanes, made of what is in `edges`, `tunnels` and `transfer` (a link that moves);
//! - `controller`: those to and from the controller, made of `requests`, `introduction`, `tunnels` and `report`.

mod activity;
mod controller;
mod edges;
mod introduction;
mod lanes;
mod report;
mod requests;
mod transfer;
mod tunnels;

pub use activity::{Activity, CommandUse, ConnectionBytes, QueueKind, QueueUse};
pub use controller::{AbraReport, FromController, ToController};
pub use edges::{EdgeCell, EdgeControl};
pub use introduction::{EstablishRequest, IntroNews, IntroOrder};
pub use lanes::{Control, HalfCell, HalfControl, LaneMsg};
pub use report::{
    CircpadTotals, HEAVIEST, HeavyLink, IntroTotals, LinkCells, RendezvousTotals, Report,
    RingDepths, StreamTotals, Totals, TunnelTotals,
};
pub(crate) use requests::Asker;
pub use requests::{ExtendRequest, Requester, StreamAsk, StreamRequest};
pub(crate) use transfer::MovedHalf;
pub use transfer::{Parcel, TransferCell, TransferControl};
pub use tunnels::{LegCell, LegControl, LegRequest, TunnelAsk, TunnelNews, TunnelOrder};
