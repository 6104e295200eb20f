//! A request to an authority: its purpose, and how it ended.

use std::time::SystemTime;

use tor_llcrypto::pk::rsa::RsaIdentity;

use crate::answers::Answer;
use crate::descriptors::{DescriptorDigest, DocumentKind};
use crate::http::{HttpError, Response};
use crate::microdesc::Batch;

/// What a spawned request was for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Consensus or certificates.
    Fetch,
    /// The consensus of the flavour `ns`, to be served to others.
    FetchNs,
    /// A descriptor of this generation.
    Upload(u64),
    /// These microdescriptors, to be served to clients.
    Microdescs(Batch),
    /// These descriptors or extra-info documents of others.
    Descriptors(DocumentKind, Vec<DescriptorDigest>),
    /// What the authority holds in place of the descriptor of this generation.
    Held(u64),
}

impl Purpose {
    /// What is answered.
    fn answers(&self) -> &'static [Answer] {
        match self {
            Self::Fetch => &[Answer::Consensus, Answer::Certificates],
            Self::FetchNs => &[Answer::Consensus],
            Self::Upload(_) => &[Answer::Uploaded],
            Self::Microdescs(_) => &[Answer::Microdescriptors],
            Self::Descriptors(DocumentKind::Descriptor, _) => &[Answer::Descriptors],
            Self::Descriptors(DocumentKind::ExtraInfo, _) => &[Answer::ExtraInfo],
            Self::Held(_) => &[Answer::OwnDescriptor],
        }
    }

    /// Whether this is about our descriptor, which an authority has to be asked; everything else directories have, too.
    pub(super) fn is_of_authority(&self) -> bool {
        let [answer] = self.answers() else {
            return false;
        };
        matches!(answer, Answer::Uploaded | Answer::OwnDescriptor)
    }
}

/// How a request was made over a circuit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The first relay.
    pub(super) guard: RsaIdentity,
    /// How often it had failed before.
    pub(super) failures: u8,
}

/// A request that ended.
#[derive(Debug)]
pub(super) struct Finished {
    /// What it was for.
    pub(super) purpose: Purpose,
    pub(super) authority: RsaIdentity,
    pub(super) nickname: String,
    /// How it was asked, if not of the authority and without a circuit.
    pub(super) circuit: Option<Asked>,
    /// Wall clock when it was sent.
    pub(super) sent: SystemTime,
    /// How it ended.
    pub(super) result: Result<Response, HttpError>,
}
