//! A request to an authority: its purpose, and how it ended.

use std::time::SystemTime;

use tor_llcrypto::pk::rsa::RsaIdentity;

use crate::answers::Answer;
use crate::descriptors::{DescriptorDigest, DocumentKind};
use crate::http::{HttpError, Response};
use crate::microdesc::Batch;

/// The purpose of a spawned request.
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
    /// Asks for the descriptor that the authority holds in place of the descriptor of this
    /// generation.
    Held(u64),
}

impl Purpose {
    /// The kinds of answers to it.
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

    /// True if it concerns our descriptor, so that only an authority can answer it. Any directory
    /// can answer the others.
    pub(super) fn is_of_authority(&self) -> bool {
        let [answer] = self.answers() else {
            return false;
        };
        matches!(answer, Answer::Uploaded | Answer::OwnDescriptor)
    }
}

/// The circuit of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The first relay.
    pub(super) guard: RsaIdentity,
    /// Its previous failures in a row.
    pub(super) failures: u8,
}

/// A request that ended.
#[derive(Debug)]
pub(super) struct Finished {
    /// Its purpose.
    pub(super) purpose: Purpose,
    pub(super) authority: RsaIdentity,
    pub(super) nickname: String,
    /// Its circuit; `None` if an authority was asked without one.
    pub(super) circuit: Option<Asked>,
    /// Wall clock when it was sent.
    pub(super) sent: SystemTime,
    /// Its result.
    pub(super) result: Result<Response, HttpError>,
}
