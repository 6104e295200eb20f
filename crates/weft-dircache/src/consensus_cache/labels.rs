//! The files of C tor's `diff-cache`: lines of labels, a zero byte, the document (storagedir.c, consdiffmgr.c).
//!
//! The words are C tor's, so that `tor` and `weft` started in turn on one directory find each other's.

use std::time::SystemTime;

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::netstatus::ConsensusFlavor;
use weft_dir::consdiff::{ConsensusDigest, full_digest};
use weft_dir::documents::Status;
use weft_dir::http::Compression;

/// Format of times in labels.
const TIME: &[BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
/// Bytes of labels at most: a hundred authorities have signed, and there are a dozen other lines.
const MAX_LABELS: usize = 16 << 10;

/// Kind of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A consensus, with its digest as signed.
    Consensus(ConsensusDigest),
    /// A diff.
    Diff {
        /// The digest as signed of the consensus that it begins at.
        from: ConsensusDigest,
        /// When that became valid.
        from_valid_after: SystemTime,
        /// SHA3-256 of all of the consensus that it leads to, in hexadecimal.
        target: String,
    },
}

/// The labels of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels {
    pub(super) kind: Kind,
    /// Of the consensus that the document is or leads to.
    pub(super) status: Status,
    pub(super) compression: Compression,
    /// SHA3-256 of the document as it was before it was compressed, in hexadecimal.
    pub(super) uncompressed: String,
}

impl Labels {
    /// A file with these labels and this document.
    pub(super) fn write(&self, body: &[u8]) -> Vec<u8> {
        let time = |time: SystemTime| {
            let time = time::OffsetDateTime::from(time);
            time.format(TIME).unwrap_or_default()
        };
        let signers: Vec<String> = (self.status.signers.iter())
            .map(|id| hex::encode_upper(id.as_bytes()))
            .collect();
        let mut lines = vec![
            ("compression", self.compression.name().to_string()),
            ("sha3-digest", full_digest(body)),
        ];
        match &self.kind {
            Kind::Consensus(digest) => {
                lines.push(("document-type", "consensus".into()));
                lines.push(("sha3-digest-as-signed", digest.hex()));
            }
            Kind::Diff {
                from,
                from_valid_after,
                target,
            } => {
                lines.push(("document-type", "consensus-diff".into()));
                lines.push(("target-sha3-digest", target.clone()));
                lines.push(("from-sha3-digest", from.hex()));
                lines.push(("from-valid-after", time(*from_valid_after)));
            }
        }
        lines.push(("consensus-flavor", self.status.flavour.name().into()));
        lines.push(("sha3-digest-uncompressed", self.uncompressed.clone()));
        lines.push(("consensus-signatories", signers.join(",")));
        lines.push(("consensus-valid-after", time(self.status.valid_after)));
        lines.push(("consensus-fresh-until", time(self.status.fresh_until)));
        lines.push(("consensus-valid-until", time(self.status.valid_until)));
        let mut file = Vec::with_capacity(body.len() + 1024);
        for (key, value) in lines {
            file.extend_from_slice(format!("{key} {value}\n").as_bytes());
        }
        file.push(0);
        file.extend_from_slice(body);
        file
    }

    /// The labels of a file, and where its document begins; `None`: it is damaged, or of another kind.
    pub(super) fn read(file: &[u8]) -> Option<(Self, usize)> {
        let end = file.iter().take(MAX_LABELS).position(|byte| *byte == 0)?;
        let labels = std::str::from_utf8(file.get(..end)?).ok()?;
        let body = file.get(end + 1..)?;
        let value = |key: &str| {
            let mut lines = labels.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        let time = |key: &str| -> Option<SystemTime> {
            let time = time::PrimitiveDateTime::parse(value(key)?, TIME).ok()?;
            Some(time.assume_utc().into())
        };
        if !value("sha3-digest")?.eq_ignore_ascii_case(&full_digest(body)) {
            return None;
        }
        let kind = match value("document-type")? {
            "consensus" => {
                Kind::Consensus(ConsensusDigest::from_hex(value("sha3-digest-as-signed")?)?)
            }
            "consensus-diff" => Kind::Diff {
                from: ConsensusDigest::from_hex(value("from-sha3-digest")?)?,
                from_valid_after: time("from-valid-after")?,
                target: value("target-sha3-digest")?.to_ascii_uppercase(),
            },
            _ => return None,
        };
        let signers = value("consensus-signatories").unwrap_or_default();
        let labels = Self {
            kind,
            status: Status {
                flavour: ConsensusFlavor::from_opt_name(value("consensus-flavor")).ok()?,
                valid_after: time("consensus-valid-after")?,
                fresh_until: time("consensus-fresh-until")?,
                valid_until: time("consensus-valid-until")?,
                signers: signers
                    .split(',')
                    .filter_map(RsaIdentity::from_hex)
                    .collect(),
            },
            // C tor does not label a diff that is not compressed.
            compression: match value("compression") {
                None => Compression::Identity,
                Some(name) => Compression::from_name(name)?,
            },
            uncompressed: value("sha3-digest-uncompressed")?.to_ascii_uppercase(),
        };
        Some((labels, end + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{now, secs};

    fn labels(kind: Kind) -> Labels {
        Labels {
            kind,
            status: Status {
                flavour: ConsensusFlavor::Plain,
                valid_after: now(),
                fresh_until: now() + secs(3600),
                valid_until: now() + secs(3 * 3600),
                signers: vec![[1; 20].into(), [2; 20].into()],
            },
            compression: Compression::Lzma,
            uncompressed: "AB".repeat(32),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let diff = Kind::Diff {
            from: ConsensusDigest([7; 32]),
            from_valid_after: now() - secs(3600),
            target: "CD".repeat(32),
        };
        for kind in [Kind::Consensus(ConsensusDigest([9; 32])), diff] {
            let labels = labels(kind);
            let file = labels.write(b"bo\0dy");
            let (read, offset) = Labels::read(&file).unwrap();
            assert_eq!((read, &file[offset..]), (labels, &b"bo\0dy"[..]));
        }
    }

    #[test]
    fn a_file_that_c_tor_wrote_is_read() {
        // consdiffmgr.c: `consensus_diff_worker_threadfn` for a diff without compression.
        let body = b"network-status-diff-version 1\n";
        let file = format!(
            "sha3-digest {}\ndocument-type consensus-diff\ntarget-sha3-digest {a}\nfrom-sha3-digest {a}\n\
             consensus-flavor microdesc\nconsensus-valid-after 2026-11-21T01:00:00\nfrom-valid-after 2026-11-21T00:00:00\n\
             sha3-digest-uncompressed {a}\nconsensus-signatories {s}\nconsensus-fresh-until 2026-11-21T02:00:00\n\
             consensus-valid-until 2026-11-21T04:00:00\n\0",
            full_digest(body).to_lowercase(),
            a = "ab".repeat(32),
            s = "01".repeat(20),
        );
        let file = [file.as_bytes(), body].concat();
        let (labels, offset) = Labels::read(&file).unwrap();
        assert_eq!(&file[offset..], body);
        assert_eq!(labels.compression, Compression::Identity);
        assert_eq!(labels.status.flavour, ConsensusFlavor::Microdesc);
        assert_eq!(labels.status.valid_after, now());
        assert!(
            matches!(labels.kind, Kind::Diff { from, .. } if from == ConsensusDigest([0xab; 32]))
        );
    }

    #[test]
    fn a_damaged_file_is_none() {
        let good = labels(Kind::Consensus(ConsensusDigest([9; 32]))).write(b"body");
        for cut in 0..good.len() {
            assert_eq!(Labels::read(&good[..cut]), None, "{cut}");
        }
        let mut changed = good.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(Labels::read(&changed), None);
        let text = String::from_utf8(good.clone()).unwrap();
        for (from, to) in [
            ("consensus\n", "vote\n"),
            ("-after 2", "-after x"),
            ("x-tor-lzma", "rar"),
            ("flavor ns", "flavor x"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            assert_eq!(Labels::read(changed.as_bytes()), None, "{to}");
        }
        let endless = [vec![b'x'; MAX_LABELS], good].concat();
        assert_eq!(Labels::read(&endless), None);
    }
}
