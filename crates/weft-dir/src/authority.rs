//! The directory authorities that a node is configured to trust.

use std::net::SocketAddr;

use tor_llcrypto::pk::rsa::RsaIdentity;

/// One `DirAuthority` line of the torrc, or one of the built-in authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Nickname, used in log lines only.
    pub nickname: String,
    /// Where it answers directory requests over plain HTTP.
    pub dir_addr: SocketAddr,
    /// Digest of its RSA relay identity.
    pub identity: RsaIdentity,
    /// `v3ident=`: digest of the key that certifies its consensus-signing keys. One without (the
    /// authority of bridges) has nothing to do with ordinary relays: it is neither asked for
    /// consensuses nor sent descriptors.
    pub v3_ident: Option<RsaIdentity>,
    /// True if it is an authority of bridges.
    pub bridge: bool,
}

/// The identities that sign consensuses, of all `authorities`.
pub fn signers(authorities: &[Authority]) -> Vec<RsaIdentity> {
    let mut signers: Vec<RsaIdentity> = authorities
        .iter()
        .filter_map(|authority| authority.v3_ident)
        .collect();
    signers.sort();
    signers.dedup();
    signers
}
