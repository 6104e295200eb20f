//! Compression of directory documents, by the names that C tor gives it in HTTP (compress.c).
//!
//! What is decompressed is hostile: to a bound of bytes, in bounded memory, by decoders in safe Rust.

use std::io::{self, Read, Write as _};

use super::error::HttpError;

/// Memory of a decoder at most (C tor `MEMORY_LIMIT` of compress_lzma.c), in KiB and bytes.
const DECODER_MEMORY_KIB: u32 = 16 << 10;
const DECODER_WINDOW: u64 = 16 << 20;
/// Least size of our encoder's dictionary, in bytes. C tor takes a document for LZMA if the two low bytes of this size
/// are 0 (`detect_compression_method` of compress.c).
const LZMA_DICTIONARY_LEAST: u32 = 1 << 16;
/// C tor takes what grows by more than this for an attack (`MAX_UNCOMPRESSION_FACTOR`).
const MAX_FACTOR: usize = 25;
/// Unless it is smaller than this (`CHECK_FOR_COMPRESSION_BOMB_AFTER`).
const SMALL: usize = 64 << 10;

/// Compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    /// Not at all.
    Identity,
    /// zlib (which HTTP calls deflate).
    Deflate,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// LZMA with the header of `.lzma` files.
    Lzma,
}

impl Compression {
    /// From best to worst, for what is made once (C tor `srv_meth_pref_precompressed`).
    pub const BEST_FIRST: [Self; 5] = [
        Self::Lzma,
        Self::Zstd,
        Self::Deflate,
        Self::Gzip,
        Self::Identity,
    ];
    /// From best to worst, for one answer (C tor `srv_meth_pref_streaming_compression`).
    pub const FAST_FIRST: [Self; 4] = [Self::Zstd, Self::Deflate, Self::Gzip, Self::Identity];

    /// Its name in HTTP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Deflate => "deflate",
            Self::Gzip => "gzip",
            Self::Zstd => "x-zstd",
            Self::Lzma => "x-tor-lzma",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        match name.as_str() {
            "x-gzip" => Some(Self::Gzip),
            "x-deflate" => Some(Self::Deflate),
            _ => Self::BEST_FIRST.into_iter().find(|one| one.name() == name),
        }
    }
}

/// Memory that compressing this many bytes for all takes at most, with the result.
pub fn best_effort_memory(length: usize, compression: Compression) -> usize {
    let encoder = match compression {
        Compression::Identity => 0,
        Compression::Deflate | Compression::Gzip => 320 << 10,
        // The tables of level 9, which are as large as the input wants them.
        Compression::Zstd => (16 * length).min(14 << 20),
        // See `compress`.
        Compression::Lzma => 11 * length.next_power_of_two().min(8 << 20),
    };
    encoder + length
}

/// `bytes`, compressed as well as C tor does what is made once and sent often (`BEST_COMPRESSION`); `None` where that fails, or where C tor would take the result for an attack.
pub fn compress(bytes: &[u8], compression: Compression) -> Option<Vec<u8>> {
    let zlib_level = flate2::Compression::best();
    let compressed = match compression {
        Compression::Identity => return Some(bytes.to_vec()),
        Compression::Deflate => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), zlib_level);
            encoder.write_all(bytes).ok()?;
            encoder.finish().ok()?
        }
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), zlib_level);
            encoder.write_all(bytes).ok()?;
            encoder.finish().ok()?
        }
        Compression::Zstd => {
            // C tor `memory_level` of compress_zstd.c.
            zstd::bulk::compress(bytes, 9).ok()?
        }
        Compression::Lzma => {
            // C tor `memory_level` of compress_lzma.c.
            let mut options = lzma_rust2::LzmaOptions::with_preset(6);
            // The encoder's memory is some eleven times its dictionary, which is 8 MiB of that preset: no
            // larger than what there is to look back at.
            let whole = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let enough = whole.checked_next_power_of_two().unwrap_or(u32::MAX);
            options.dict_size = options.dict_size.min(enough.max(LZMA_DICTIONARY_LEAST));
            let mut encoder =
                lzma_rust2::LzmaWriter::new_use_header(Vec::new(), &options, None).ok()?;
            encoder.write_all(bytes).ok()?;
            encoder.finish().ok()?
        }
    };
    let factor = bytes.len().checked_div(compressed.len());
    let is_bomb = bytes.len() >= SMALL && factor.is_none_or(|factor| factor > MAX_FACTOR);
    (!is_bomb).then_some(compressed)
}

/// Decompresses a body, to `limit` bytes at most.
///
/// Also reads zlib that is not announced, which some authorities answer to `.z` paths with.
pub fn decode(body: Vec<u8>, compression: Compression, limit: usize) -> Result<Vec<u8>, HttpError> {
    let damaged = |error: &dyn std::fmt::Display| {
        HttpError::Decompression(io::Error::new(
            io::ErrorKind::InvalidData,
            error.to_string(),
        ))
    };
    let reader: Box<dyn Read + '_> = match compression {
        Compression::Identity if !looks_like_zlib(&body) => return Ok(body),
        Compression::Identity | Compression::Deflate => {
            Box::new(flate2::read::ZlibDecoder::new(&*body))
        }
        Compression::Gzip => Box::new(flate2::read::GzDecoder::new(&*body)),
        Compression::Zstd => Box::new(
            ruzstd::decoding::StreamingDecoder::new_with_max_window_size(&*body, DECODER_WINDOW)
                .map_err(|error| damaged(&error))?,
        ),
        Compression::Lzma => Box::new(
            lzma_rust2::LzmaReader::new_mem_limit(&*body, DECODER_MEMORY_KIB, None)
                .map_err(|error| damaged(&error))?,
        ),
    };
    let mut decoded = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    reader
        .take(most)
        .read_to_end(&mut decoded)
        .map_err(HttpError::Decompression)?;
    if decoded.len() > limit {
        return Err(HttpError::TooLarge {
            what: "decompressed body",
            limit,
        });
    }
    Ok(decoded)
}

/// True if these bytes begin like a zlib stream; no directory document does.
fn looks_like_zlib(bytes: &[u8]) -> bool {
    match bytes {
        [cmf, flags, ..] => cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flags)) % 31 == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that do not repeat too well.
    fn text() -> Vec<u8> {
        (0..4000_u32)
            .flat_map(|n| format!("r relay{n} {:x}\n", n.wrapping_mul(2_654_435_761)).into_bytes())
            .collect()
    }

    #[test]
    fn what_is_compressed_in_any_way_is_read_again() {
        for compression in Compression::BEST_FIRST {
            for text in [text(), b"short\n".to_vec(), Vec::new()] {
                let packed = compress(&text, compression).unwrap();
                assert!(
                    compression == Compression::Identity
                        || text.len() < 100
                        || packed.len() < text.len()
                );
                let read = decode(packed.clone(), compression, text.len()).unwrap();
                assert_eq!(read, text, "{compression:?}");
                if text.len() > 100 && compression != Compression::Identity {
                    let short = decode(packed.clone(), compression, text.len() - 1);
                    assert!(
                        matches!(short, Err(HttpError::TooLarge { .. })),
                        "{short:?}"
                    );
                    let cut = decode(packed[..packed.len() / 2].to_vec(), compression, 1 << 20);
                    assert!(
                        cut.is_err() || cut.unwrap().len() < text.len(),
                        "{compression:?}"
                    );
                }
            }
            assert_eq!(
                Compression::from_name(compression.name()),
                Some(compression)
            );
        }
        assert_eq!(Compression::from_name(" X-GZIP "), Some(Compression::Gzip));
        assert_eq!(Compression::from_name("br"), None);
    }

    #[test]
    fn what_c_tor_would_take_for_an_attack_is_not_made() {
        let zeros = vec![b'0'; SMALL];
        for compression in Compression::BEST_FIRST {
            let made = compress(&zeros, compression).is_some();
            assert_eq!(
                made,
                compression == Compression::Identity,
                "{compression:?}"
            );
        }
    }

    /// C tor takes the first three bytes of its own dictionaries for LZMA's mark (`detect_compression_method`).
    #[test]
    fn the_encoder_s_dictionary_is_no_larger_than_the_document_and_c_tor_knows_it() {
        for (length, dictionary) in [(1, 1 << 16), (5000, 1 << 16), (100_000, 1 << 17)] {
            // Xorshift: what compresses well is refused as a bomb.
            let mut state = 1_u32;
            let mut byte = || {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                state.to_le_bytes()[0]
            };
            let body: Vec<u8> = (0..length).map(|_| byte()).collect();
            let lzma = compress(&body, Compression::Lzma).unwrap();
            assert_eq!(lzma[1..5], u32::to_le_bytes(dictionary), "{length}");
            assert_eq!(lzma[..3], [0x5d, 0, 0], "{length}");
            assert_eq!(decode(lzma, Compression::Lzma, body.len()).unwrap(), body);
        }
    }

    #[test]
    fn a_window_or_dictionary_that_is_too_large_is_refused() {
        // 64 MiB of dictionary.
        let mut lzma = compress(b"x", Compression::Lzma).unwrap();
        lzma[1..5].copy_from_slice(&(64_u32 << 20).to_le_bytes());
        assert!(decode(lzma, Compression::Lzma, 100).is_err());
        // A frame without content size, whose window is 2 GiB.
        let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
        assert!(decode(zstd.to_vec(), Compression::Zstd, 100).is_err());
        for garbage in [&b""[..], b"garbage that is nothing at all"] {
            assert!(decode(garbage.to_vec(), Compression::Zstd, 100).is_err());
            assert!(decode(garbage.to_vec(), Compression::Lzma, 100).is_err());
        }
    }
}
