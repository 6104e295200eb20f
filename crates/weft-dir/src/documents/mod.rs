//! Documents that a directory cache serves: consensuses in several compressions and diffs to them,
//! certificates, microdescriptors, descriptors. The task that fetches them and the streams that
//! serve them share it.

mod body;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::AuthCertKeyIds;
use tor_netdoc::doc::netstatus::ConsensusFlavor;

use crate::certs::Certs;
use crate::consdiff::ConsensusDigest;
use crate::descriptor::{SignedDescriptor, signed_digest};
use crate::descriptors::{DescriptorDigest, DescriptorStore, DocumentKind};
use crate::http::Compression;
use crate::microdesc::MicrodescStore;

pub use body::{Body, Forms};

/// The times and signatures of a consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its flavour: it lists microdescriptors or descriptors.
    pub flavour: ConsensusFlavor,
    /// `valid-after`.
    pub valid_after: SystemTime,
    /// `fresh-until`.
    pub fresh_until: SystemTime,
    /// `valid-until`.
    pub valid_until: SystemTime,
    /// The authorities that have signed it.
    pub signers: Vec<RsaIdentity>,
}

/// A consensus that has been verified.
#[derive(Debug)]
pub struct NewConsensus {
    /// Its times and signatures.
    pub status: Status,
    /// Its digest, as signed.
    pub digest: ConsensusDigest,
    /// The document.
    pub text: String,
}

/// A consensus to serve, and the diffs that lead to it.
#[derive(Debug)]
pub struct ServedConsensus {
    /// Its times and signatures.
    pub status: Status,
    /// Its digest, as signed.
    pub digest: ConsensusDigest,
    /// The document.
    pub forms: Forms,
    /// By the consensus that they begin at.
    pub diffs: BTreeMap<ConsensusDigest, Forms>,
}

/// A certificate to serve.
#[derive(Debug)]
pub struct ServedCert {
    /// Its keys.
    pub ids: AuthCertKeyIds,
    /// When it was published.
    pub published: SystemTime,
    /// The document.
    pub text: Arc<str>,
}

/// One of our own two documents.
#[derive(Debug)]
pub struct Own {
    /// Its SHA-1 digest, as `d/` requests name it.
    pub digest: [u8; 20],
    /// The document.
    pub text: Arc<str>,
}

impl Own {
    /// The document with its digest.
    fn new(text: &str) -> Self {
        Self {
            digest: signed_digest(text),
            text: Arc::from(text),
        }
    }
}

/// Everything.
#[derive(Debug)]
pub struct Held {
    /// The newest consensus of each flavour.
    pub consensuses: BTreeMap<ConsensusFlavor, ServedConsensus>,
    /// The certificates.
    pub certs: Vec<ServedCert>,
    /// The microdescriptors.
    pub microdescs: MicrodescStore,
    /// Our identity, descriptor and extra-info document; a bridge serves no such document.
    pub own: Option<(RsaIdentity, Own, Option<Own>)>,
    /// Descriptors of others.
    pub descriptors: DescriptorStore,
    /// Extra-info documents of others.
    pub extra_infos: DescriptorStore,
    /// The descriptor that the consensus lists of each relay.
    pub current: BTreeMap<RsaIdentity, DescriptorDigest>,
    /// DirPortFrontPage.
    front_page: Option<Arc<[u8]>>,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            consensuses: BTreeMap::new(),
            certs: Vec::new(),
            microdescs: MicrodescStore::default(),
            own: None,
            descriptors: DescriptorStore::new(DocumentKind::Descriptor),
            extra_infos: DescriptorStore::new(DocumentKind::ExtraInfo),
            current: BTreeMap::new(),
            front_page: None,
        }
    }
}

/// Documents to serve, shared by the task that fetches them and the streams that serve them.
#[derive(Debug, Default)]
pub struct CachedDocuments {
    /// Everything; held for moments only.
    held: Mutex<Held>,
    /// Bytes that making compressions and diffs takes now.
    work: AtomicUsize,
}

/// Memory that making something of a consensus takes, until this is dropped.
#[derive(Debug)]
pub struct Work<'a> {
    documents: &'a CachedDocuments,
    bytes: usize,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.documents.work.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl CachedDocuments {
    /// Everything, to be read. Nobody else may be asked for it meanwhile.
    pub fn read<T>(&self, f: impl FnOnce(&Held) -> T) -> T {
        f(&self.held())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing in it can be half done.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts memory that making something of a consensus takes.
    pub fn begin_work(&self, bytes: usize) -> Work<'_> {
        self.work.fetch_add(bytes, Ordering::Relaxed);
        Work {
            documents: self,
            bytes,
        }
    }

    /// Bytes of memory that making compressions and diffs of a new consensus takes now.
    pub fn work(&self) -> usize {
        self.work.load(Ordering::Relaxed)
    }

    /// Bytes of memory that documents take.
    pub fn memory(&self) -> usize {
        let held = self.held();
        let consensuses = held.consensuses.values().flat_map(|served| {
            let diffs = served.diffs.values().flat_map(Forms::values);
            served.forms.values().chain(diffs)
        });
        let consensuses: usize = consensuses.map(Body::memory).sum();
        let stores = held.descriptors.memory() + held.extra_infos.memory();
        consensuses + held.microdescs.memory() + stores
    }

    /// The microdescriptors, to be read or changed.
    pub fn with_microdescs<T>(&self, f: impl FnOnce(&mut MicrodescStore) -> T) -> T {
        f(&mut self.held().microdescs)
    }

    /// The documents of others of one kind, to be read or changed.
    pub fn with_store<T>(
        &self,
        kind: DocumentKind,
        f: impl FnOnce(&mut DescriptorStore) -> T,
    ) -> T {
        let mut held = self.held();
        f(match kind {
            DocumentKind::Descriptor => &mut held.descriptors,
            DocumentKind::ExtraInfo => &mut held.extra_infos,
        })
    }

    /// The consensus lists these descriptors.
    pub fn set_current(&self, listed: BTreeMap<RsaIdentity, DescriptorDigest>) {
        self.held().current = listed;
    }

    /// The descriptors that the consensus lists.
    pub fn current(&self) -> Vec<DescriptorDigest> {
        self.held().current.values().copied().collect()
    }

    /// The relay of which the consensus lists this descriptor.
    pub fn relay_of(&self, digest: &DescriptorDigest) -> Option<RsaIdentity> {
        let held = self.held();
        let mut listed = held.current.iter();
        listed.find(|(_, of)| *of == digest).map(|(id, _)| *id)
    }

    /// The extra-info documents that belong to the descriptors that the consensus lists, as far as these are there.
    pub fn current_extra_infos(&self) -> Vec<DescriptorDigest> {
        let held = self.held();
        let descriptors = held
            .current
            .values()
            .filter_map(|digest| held.descriptors.get(digest));
        descriptors.filter_map(|stored| stored.extra_info).collect()
    }

    /// Serves this consensus from now on, as it is until it has been compressed.
    pub fn set_consensus(&self, new: &NewConsensus) {
        let plain = Body::Memory(new.text.as_bytes().into());
        let served = ServedConsensus {
            status: new.status.clone(),
            digest: new.digest,
            forms: Forms::from([(Compression::Identity, plain)]),
            diffs: BTreeMap::new(),
        };
        self.held().consensuses.insert(new.status.flavour, served);
    }

    /// Serves it in this compression, too, if it still is the newest.
    pub fn set_form(&self, new: &NewConsensus, compression: Compression, body: Body) {
        self.with_newest(new, |served| {
            served.forms.insert(compression, body);
        });
    }

    /// Serves a diff to it from another, if it still is the newest.
    pub fn set_diff(&self, new: &NewConsensus, from: ConsensusDigest, forms: Forms) {
        self.with_newest(new, |served| {
            served.diffs.insert(from, forms);
        });
    }

    /// Changes the served forms of a consensus, if it is still the newest.
    fn with_newest(&self, new: &NewConsensus, change: impl FnOnce(&mut ServedConsensus)) {
        let mut held = self.held();
        let served = held.consensuses.get_mut(&new.status.flavour);
        if let Some(served) = served.filter(|served| served.digest == new.digest) {
            change(served);
        }
    }

    /// Consensuses that diffs begin at, of this flavour.
    pub fn diffs(&self, flavour: ConsensusFlavor) -> Vec<ConsensusDigest> {
        let held = self.held();
        let served = held.consensuses.get(&flavour);
        served.map_or(Vec::new(), |served| served.diffs.keys().copied().collect())
    }

    /// Serves these certificates from now on.
    pub fn set_certs(&self, certs: &Certs) {
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

    /// Shows this page to people from now on.
    pub fn set_front_page(&self, page: Option<Arc<[u8]>>) {
        self.held().front_page = page;
    }

    /// The page for people.
    pub fn front_page(&self) -> Option<Arc<[u8]>> {
        self.held().front_page.clone()
    }

    /// Serves our own documents from now on.
    pub fn set_own(&self, identity: RsaIdentity, signed: &SignedDescriptor, bridge: bool) {
        let own = (
            identity,
            Own::new(&signed.router),
            (!bridge).then(|| Own::new(&signed.extra_info)),
        );
        self.held().own = Some(own);
    }
}
