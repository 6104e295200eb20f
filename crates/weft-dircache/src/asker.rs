//! Who asks a directory, and the bandwidth that the answer takes.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_share::PreviousHop;

/// The bandwidth limit of a relay, as far as what is written at a DirPort is part of it.
pub trait Bandwidth: Debug + Send + Sync {
    /// Bytes that may be written without delaying circuits.
    fn room(&self) -> usize;

    /// Takes up to `wanted` bytes, one at least, to be written now.
    ///
    /// # Errors
    /// How long to wait for some.
    fn take(&self, wanted: usize) -> Result<usize, Duration>;

    /// Counts bytes that were read and written.
    fn note(&self, read: usize, written: usize);
}

/// Who asks, and by which way.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The address that the stream comes from.
    pub peer: IpAddr,
    /// The hop that it comes by.
    pub hop: PreviousHop,
    /// The circuit that it comes by, by a number that no other has; 0 at the DirPort.
    pub circuit: u128,
    /// Another relay extended the circuit to this one, so the client that asks is not the previous hop.
    pub by_relay: bool,
    /// The bandwidth that is shared with circuits; `None`: it is free, or circuits have it.
    pub bandwidth: Option<Arc<dyn Bandwidth>>,
}

impl Asker {
    /// Who asks at a DirPort.
    pub fn direct(peer: IpAddr, bandwidth: Option<Arc<dyn Bandwidth>>) -> Self {
        Self {
            peer,
            hop: PreviousHop::at(peer),
            circuit: 0,
            by_relay: false,
            bandwidth,
        }
    }
}
