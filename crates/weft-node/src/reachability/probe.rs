//! One test of one address: a circuit of two hops that ends at this relay itself.
//!
//! The probe connects to the asked relay as a client: it does not authenticate, so that the relay does not
//! know this link as one to us and has to open another. The circuit is CREATE_FAST to that relay, then
//! EXTEND2 with our address, identities and ntor onion key (tor-spec 5.1, 5.3). Only we can answer that
//! onionskin.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::CryptoRng;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::reason::DestroyReason;
use weft_cell::{CELL_LEN, ChanCmd, RelayCmd};
use weft_proxy::Route;

use super::circuit::{Circuit, Extension, NextHop, NotExtended};
use super::error::{LinkFault, ProbeError, Step};
use super::link::{Link, NoLink};

/// The upper bound of [`Probe::timeout`].
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A request to the relay `via` to extend a circuit to this relay.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The ORPort of the relay to ask.
    pub via: SocketAddr,
    /// SHA-1 of its RSA identity key.
    pub via_rsa: RsaIdentity,
    /// Our address under test.
    pub own_addr: SocketAddr,
    /// SHA-1 of our RSA identity key.
    pub own_rsa: RsaIdentity,
    /// Our Ed25519 identity key, if EXTEND2 contains it (ExtendByEd25519ID).
    pub own_ed25519: Option<Ed25519Identity>,
    /// Our current ntor onion key.
    pub own_ntor: [u8; 32],
    /// The source address or proxy for the connection (OutboundBindAddress, Socks5Proxy).
    pub route: Route,
    /// The time limit of the whole probe; C tor gives a link a minute.
    pub timeout: Duration,
}

impl Probe {
    /// Runs the probe; blocks for at most [`timeout`](Self::timeout). Success means that the relay reached
    /// a node at `own_addr` that has our onion key.
    pub fn run(&self, rng: &mut impl CryptoRng) -> Result<(), ProbeError> {
        self.circuit(rng).map(Circuit::close)
    }

    /// Runs the probe, and sends cells without meaning (DROP) to ourselves, `pace` apart. The circuit stays open for
    /// `linger` behind them: what still waits at the relay then is lost. Returns how many bytes of cells were sent.
    pub fn send_drops(
        &self,
        drops: u32,
        (pace, linger): (Duration, Duration),
        rng: &mut impl CryptoRng,
    ) -> Result<u64, ProbeError> {
        let mut circuit = self.circuit(rng)?;
        let sent = (0..drops).try_for_each(|_| {
            circuit.send((ChanCmd::RELAY, RelayCmd::DROP), 0, &[], rng)?;
            if !pace.is_zero() {
                std::thread::sleep(pace);
            }
            Ok(())
        });
        std::thread::sleep(linger);
        circuit.close();
        sent.map_err(|source| self.via_failed(Step::Drops, source))?;
        Ok(u64::from(drops) * CELL_LEN as u64)
    }

    /// Makes the circuit.
    fn circuit(&self, rng: &mut impl CryptoRng) -> Result<Circuit, ProbeError> {
        let timeout = self.timeout.min(LONGEST_TIMEOUT);
        let deadline = Instant::now() + timeout;
        let (via, own_addr) = (self.via, self.own_addr);
        // First the checks that need no network.
        let ourselves = NextHop {
            addr: own_addr,
            rsa: self.own_rsa,
            ed25519: self.own_ed25519,
            ntor: self.own_ntor,
        };
        let extension = Extension::to(&ourselves, rng)
            .map_err(|source| ProbeError::OwnAddress { own_addr, source })?;
        let expected = (self.via_rsa, None);
        let link = Link::open(via, expected, &self.route, deadline, rng)
            .map_err(|error| no_link(via, &self.route, error))?;
        let mut circuit = Circuit::create(link, rng)
            .map_err(|source| self.via_failed(Step::CreateFast, source))?;
        let error = match circuit.extend(extension, rng) {
            Ok(()) => return Ok(circuit),
            Err(NotExtended::Refused { reason, truncated }) => self.not_extended(reason, truncated),
            Err(NotExtended::Handshake(source)) => ProbeError::NotUs {
                via,
                own_addr,
                source,
            },
            Err(NotExtended::Fault(LinkFault::TimedOut)) => ProbeError::NoAnswer {
                via,
                own_addr,
                timeout,
            },
            Err(NotExtended::Fault(source)) => self.via_failed(Step::Extend, source),
        };
        circuit.close();
        Err(error)
    }

    /// The error for a circuit that was not extended. A relay that cannot connect sends one of the first four
    /// reasons. Any other reason is the next hop's in a TRUNCATED, and the relay's own in a DESTROY.
    fn not_extended(&self, reason: DestroyReason, truncated: bool) -> ProbeError {
        let (via, own_addr) = (self.via, self.own_addr);
        match reason {
            DestroyReason::CONNECTFAILED
            | DestroyReason::OR_IDENTITY
            | DestroyReason::CHANNEL_CLOSED
            | DestroyReason::TIMEOUT => ProbeError::NotReached {
                via,
                own_addr,
                reason,
            },
            _ if truncated => ProbeError::Refused {
                via,
                own_addr,
                reason,
            },
            _ => self.via_failed(Step::Extend, LinkFault::Destroyed(reason)),
        }
    }

    fn via_failed(&self, step: Step, source: LinkFault) -> ProbeError {
        let via = self.via;
        ProbeError::Via { via, step, source }
    }
}

/// The error for a relay that could not be asked.
fn no_link(via: SocketAddr, route: &Route, error: NoLink) -> ProbeError {
    match error {
        NoLink::Setup(error) => error.into(),
        NoLink::Connect(Some(bind), source) => ProbeError::Bind {
            bind,
            via: route.first(via),
            source,
        },
        NoLink::Connect(None, source) => ProbeError::Connect { via, source },
        NoLink::Failed(step, source) => ProbeError::Via { via, step, source },
    }
}

/// Opens a link to the relay at `to`, which must prove these identities, and closes it; blocks for at most `timeout`.
/// So an authority tests whether relays run. Returns by how many seconds our clock is ahead of the relay's, if it states
/// its time.
pub fn reach(
    to: SocketAddr,
    expected: (RsaIdentity, Option<Ed25519Identity>),
    route: &Route,
    timeout: Duration,
    rng: &mut impl CryptoRng,
) -> Result<Option<i64>, ProbeError> {
    let deadline = Instant::now() + timeout;
    let link = Link::open(to, expected, route, deadline, rng);
    let link = link.map_err(|error| no_link(to, route, error))?;
    let skew = link.clock_skew();
    link.close();
    Ok(skew)
}
