//! The relays that we play at the far side of the target.

use std::net::SocketAddr;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rand_chacha::ChaCha12Rng;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_core::handshake::EphemeralKeys;
use weft_tls::{LinkKey, LinkLifetimes, LinkTls};

use super::plan::Plan;
use super::primes::Primes;
use super::tokens::{FIRST_LINK, FIRST_LISTENER};

/// A relay that we play at the far side of the target.
#[derive(Debug)]
pub(super) struct NextHop {
    pub(super) listener: mio::net::TcpListener,
    pub(super) address: SocketAddr,
    pub(super) tls: LinkTls,
    pub(super) rsa: RsaIdentity,
    pub(super) ed25519: Ed25519Identity,
    /// Circuits that the target has been asked to extend to it.
    pub(super) carried: usize,
    /// The target's link to it closes when the last of them has gone.
    pub(super) closing: bool,
}

/// The relays that the target shall extend to. One TLS key serves all of them, as making one takes
/// long; their identities differ, so that the target opens a link to each.
pub(super) fn next_hops(plan: &mut Plan, rng: &mut ChaCha12Rng) -> Result<Vec<NextHop>> {
    if plan.next_hops == 0 {
        return Ok(Vec::new());
    }
    let now = SystemTime::now();
    let link_key = LinkKey::create(now, rng).context("making a TLS key for our relays")?;
    let listen = |listener: Option<std::net::TcpListener>| {
        let listener = match listener {
            Some(listener) => listener,
            None => std::net::TcpListener::bind((plan.own_ip, 0))?,
        };
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok::<_, std::io::Error>((mio::net::TcpListener::from_std(listener), address))
    };
    let mut primes = Primes::default();
    let mut hops = Vec::new();
    let mut given = plan.listener.take();
    for _ in 0..plan.next_hops {
        let keys = EphemeralKeys::with_rsa(now, rng, |rng| primes.next_key(rng))
            .context("making the keys of a next hop")?;
        let tls = link_key
            .vouched_by(keys.keys(), LinkLifetimes::default(), now, rng)
            .context("making the certificates of a next hop")?;
        let (listener, address) =
            listen(given.take()).with_context(|| format!("listening on {}", plan.own_ip))?;
        hops.push(NextHop {
            listener,
            address,
            tls,
            rsa: keys.rsa.to_public_key().to_rsa_identity().into(),
            ed25519: keys.identity.verifying_key().to_bytes().into(),
            carried: 0,
            closing: false,
        });
    }
    ensure!(
        given.is_none() && hops.len() < FIRST_LINK - FIRST_LISTENER,
        "too many next hops"
    );
    Ok(hops)
}
