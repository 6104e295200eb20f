//! The relays that the generator plays, and from where its parts connect.
//!
//! The target distinguishes its peers by address and identity, and shares what it has between them.
//! So honest users and attackers have separate addresses, all on loopback, and relays have
//! identities.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use anyhow::{Context, Result};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_core::handshake::EphemeralKeys;
use weft_crypto::handshake::OnionKeys;
use weft_tls::{LinkKey, LinkLifetimes, LinkTls};

/// From where honest probes connect.
pub(super) const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Relays that attackers play at most.
pub(super) const ATTACKERS: usize = 4;

/// From where attacker `number` connects.
pub(super) fn attacker(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, (number % 250) as u8 + 1)
}

/// A relay that the generator plays.
pub(super) struct Identity {
    pub(super) tls: LinkTls,
    pub(super) rsa: RsaIdentity,
    pub(super) ed25519: Ed25519Identity,
    pub(super) onion: OnionKeys,
}

/// All that the generator plays. Made once, as RSA keys take a while.
pub struct Cast {
    pub(super) client: LinkTls,
    /// The previous hop of honest users of the exit.
    pub(super) honest_guard: Identity,
    /// The relay to which honest users extend.
    pub(super) honest_hop: Identity,
    /// The previous hops of attackers.
    pub(super) attackers: Vec<Identity>,
}

impl std::fmt::Debug for Cast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cast").finish_non_exhaustive()
    }
}

impl Cast {
    /// Makes everybody's keys; the same seed makes the same.
    ///
    /// # Errors
    ///
    /// A key or certificate cannot be made.
    pub fn new(seed: u64) -> Result<Cast> {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let now = SystemTime::now();
        let link_key = LinkKey::create(now, &mut rng).context("making a TLS key")?;
        let mut identity = || -> Result<Identity> {
            let keys = EphemeralKeys::generate(now, &mut rng)?;
            let tls = link_key.vouched_by(keys.keys(), LinkLifetimes::default(), now, &mut rng)?;
            let rsa = RsaIdentity::from(keys.rsa.to_public_key().to_rsa_identity());
            let ed25519 = Ed25519Identity(keys.identity.verifying_key().to_bytes());
            Ok(Identity {
                tls,
                rsa,
                ed25519,
                onion: OnionKeys::new(rsa, ed25519, &[9; 32], None),
            })
        };
        Ok(Cast {
            client: LinkTls::client().context("setting up TLS")?,
            honest_guard: identity()?,
            honest_hop: identity()?,
            attackers: (0..ATTACKERS).map(|_| identity()).collect::<Result<_>>()?,
        })
    }
}
