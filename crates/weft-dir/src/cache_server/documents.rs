//! What our directory has to serve.

use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use digest::Digest;
use tor_llcrypto::d::Sha1;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::AuthCertKeyIds;

use crate::consensus::{Certs, Consensus};
use crate::descriptor::SignedDescriptor;
use crate::microdesc::MicrodescStore;

/// Where a document's signed digest ends in a router descriptor or an extra-info document.
const SIGNATURE: &str = "\nrouter-signature\n";

/// A document with its compressed forms, each made once.
#[derive(Debug)]
pub(super) struct Prepared {
    /// As it is.
    pub(super) plain: Arc<[u8]>,
    /// zlib.
    deflate: OnceLock<Arc<[u8]>>,
    gzip: OnceLock<Arc<[u8]>>,
}

impl Prepared {
    /// A document that has not been compressed yet.
    fn new(text: &str) -> Self {
        Self {
            plain: Arc::from(text.as_bytes()),
            deflate: OnceLock::new(),
            gzip: OnceLock::new(),
        }
    }

    /// Its zlib form.
    pub(super) fn deflate(&self) -> Arc<[u8]> {
        let make = || deflate(&self.plain, flate2::Compression::best()).into();
        self.deflate.get_or_init(make).clone()
    }

    /// Its gzip form.
    pub(super) fn gzip(&self) -> Arc<[u8]> {
        let make = || gzip(&self.plain, flate2::Compression::best()).into();
        self.gzip.get_or_init(make).clone()
    }
}

/// zlib of `bytes`.
pub(super) fn deflate(bytes: &[u8], level: flate2::Compression) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
    // Writing to memory cannot fail; should it, half a document is refused by its reader.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

pub(super) fn gzip(bytes: &[u8], level: flate2::Compression) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    // As above.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// A consensus to serve.
#[derive(Debug)]
pub(super) struct ServedConsensus {
    pub(super) document: Arc<Prepared>,
    /// Its times.
    pub(super) valid_after: SystemTime,
    pub(super) fresh_until: SystemTime,
    pub(super) valid_until: SystemTime,
    /// The authorities that signed it.
    pub(super) signers: Vec<RsaIdentity>,
}

/// A certificate to serve.
#[derive(Debug)]
pub(super) struct ServedCert {
    pub(super) ids: AuthCertKeyIds,
    /// When it was published.
    pub(super) published: SystemTime,
    pub(super) text: Arc<str>,
}

/// One of our own two documents.
#[derive(Debug)]
pub(super) struct Own {
    /// Its SHA-1 digest, as `d/` requests name it.
    pub(super) digest: [u8; 20],
    pub(super) text: Arc<str>,
}

impl Own {
    /// With its digest, which ends with the line `router-signature`.
    fn new(text: &str) -> Self {
        let end = text
            .find(SIGNATURE)
            .map_or(text.len(), |at| at + SIGNATURE.len());
        let signed = text.get(..end).unwrap_or(text);
        Self {
            digest: Sha1::digest(signed).into(),
            text: Arc::from(text),
        }
    }
}

/// Everything.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The microdesc consensus.
    pub(super) consensus: Option<ServedConsensus>,
    /// The certificates.
    pub(super) certs: Vec<ServedCert>,
    /// The microdescriptors.
    pub(super) microdescs: MicrodescStore,
    /// Our identity, descriptor and extra-info document.
    pub(super) own: Option<(RsaIdentity, Own, Own)>,
}

/// What our directory has to serve; shared between the task that fetches it and the streams
/// that ask for it.
#[derive(Debug, Default)]
pub struct CachedDocuments {
    /// Everything; held for moments only.
    held: Mutex<Held>,
}

impl CachedDocuments {
    /// Everything.
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing in it can be half done.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The microdescriptors, to be read or changed.
    pub fn with_microdescs<T>(&self, f: impl FnOnce(&mut MicrodescStore) -> T) -> T {
        f(&mut self.held().microdescs)
    }

    /// Serves this microdesc consensus, signed by `signers`, from now on.
    pub(crate) fn set_consensus(
        &self,
        consensus: &Consensus,
        signers: Vec<RsaIdentity>,
        text: &str,
    ) {
        let served = ServedConsensus {
            document: Arc::new(Prepared::new(text)),
            valid_after: consensus.valid_after,
            fresh_until: consensus.fresh_until,
            valid_until: consensus.valid_until,
            signers,
        };
        self.held().consensus = Some(served);
    }

    /// Serves these certificates from now on.
    pub(crate) fn set_certs(&self, certs: &Certs) {
        let served = certs
            .iter()
            .map(|(cert, text)| ServedCert {
                ids: cert.key_ids(),
                published: cert.published(),
                text: Arc::from(text),
            })
            .collect();
        self.held().certs = served;
    }

    /// Serves our own documents from now on.
    pub(crate) fn set_own(&self, identity: RsaIdentity, signed: &SignedDescriptor) {
        let own = (
            identity,
            Own::new(&signed.router),
            Own::new(&signed.extra_info),
        );
        self.held().own = Some(own);
    }
}
