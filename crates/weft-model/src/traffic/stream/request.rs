//! Request of a client to the server: `WEFT` and a version, then big-endian numbers.
//!
//! Seed (8 bytes), bytes of the upload (8), kind of the download's schedule (1), and for kind 0 its bytes (8);
//! for kind 1 bytes (8), chunk (4) and microseconds between chunks (4); for kind 2 the number of bursts (4)
//! and for each its gap in microseconds (4) and its bytes (4).

use std::time::Duration;

use crate::traffic::plan::{Burst, MAX_BURSTS, Schedule};

/// The most bytes of one stream, each way: 1 TB.
pub const MAX_BYTES: u64 = 1_000_000_000_000;

const MAGIC: [u8; 5] = *b"WEFT\x01";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Seed of the payloads of both directions.
    pub(super) seed: u64,
    /// Bytes that the client sends.
    pub(super) up: u64,
    /// Schedule of the bytes that the server sends.
    pub(super) down: Schedule,
}

/// Result of parsing a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// It needs more bytes than there are.
    Incomplete,
    /// A complete request, and its length.
    Whole(Request, usize),
    /// It is not a request, or beyond the bounds.
    Wrong,
}

impl Request {
    /// As it is sent. Times are cut to microseconds and to an hour, bytes to [`MAX_BYTES`].
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.seed.to_be_bytes());
        out.extend(self.up.min(MAX_BYTES).to_be_bytes());
        match &self.down {
            Schedule::AtOnce(bytes) => {
                out.push(0);
                out.extend((*bytes).min(MAX_BYTES).to_be_bytes());
            }
            Schedule::Steady {
                bytes,
                chunk,
                every,
            } => {
                out.push(1);
                out.extend((*bytes).min(MAX_BYTES).to_be_bytes());
                out.extend(chunk.to_be_bytes());
                out.extend(micros(*every).to_be_bytes());
            }
            Schedule::Bursts(bursts) => {
                let count = bursts.len().min(MAX_BURSTS);
                out.push(2);
                out.extend(u32::try_from(count).unwrap_or(0).to_be_bytes());
                for burst in bursts.iter().take(count) {
                    out.extend(micros(burst.gap).to_be_bytes());
                    out.extend(burst.bytes.to_be_bytes());
                }
            }
        }
        out
    }

    /// Reads a request at the beginning of these bytes.
    pub(super) fn parse(bytes: &[u8]) -> Parsed {
        let mut reader = Fields(bytes);
        let Some(magic) = reader.take::<5>() else {
            return match MAGIC.starts_with(bytes) {
                true => Parsed::Incomplete,
                false => Parsed::Wrong,
            };
        };
        if magic != MAGIC {
            return Parsed::Wrong;
        }
        match Self::fields(&mut reader) {
            None => Parsed::Incomplete,
            Some(None) => Parsed::Wrong,
            Some(Some(request)) => Parsed::Whole(request, bytes.len() - reader.0.len()),
        }
    }

    /// `None` if bytes are missing, `Some(None)` if they are wrong.
    fn fields(reader: &mut Fields<'_>) -> Option<Option<Request>> {
        let (seed, up) = (reader.u64()?, reader.u64()?);
        if up > MAX_BYTES {
            return Some(None);
        }
        let [kind] = reader.take::<1>()?;
        let down = match kind {
            0 => Schedule::AtOnce(reader.u64()?),
            1 => Schedule::Steady {
                bytes: reader.u64()?,
                chunk: reader.u32()?,
                every: Duration::from_micros(reader.u32()?.into()),
            },
            2 => {
                let count = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
                if count > MAX_BURSTS {
                    return Some(None);
                }
                if reader.0.len() < count * 8 {
                    return None;
                }
                let mut bursts = Vec::with_capacity(count);
                for _ in 0..count {
                    bursts.push(Burst {
                        gap: Duration::from_micros(reader.u32()?.into()),
                        bytes: reader.u32()?,
                    });
                }
                Schedule::Bursts(bursts.into())
            }
            _ => return Some(None),
        };
        let is_bounded = down.bytes() <= MAX_BYTES;
        Some(is_bounded.then_some(Request { seed, up, down }))
    }
}

/// In microseconds, at most an hour.
fn micros(time: Duration) -> u32 {
    let most = 3_600_000_000;
    u32::try_from(time.as_micros()).map_or(most, |micros| micros.min(most))
}

/// The rest of a request.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> [Request; 3] {
        let burst = |gap, bytes| Burst {
            gap: Duration::from_micros(gap),
            bytes,
        };
        let steady = Schedule::Steady {
            bytes: 5,
            chunk: 2,
            every: Duration::from_secs(1),
        };
        let bursts = Schedule::Bursts([burst(0, 1434), burst(10_000, 2)].into());
        [Schedule::AtOnce(7), steady, bursts].map(|down| Request {
            seed: u64::MAX,
            up: 9,
            down,
        })
    }

    #[test]
    fn a_request_survives_its_encoding_and_its_pieces() {
        for request in requests() {
            let mut bytes = request.encode();
            for cut in 0..bytes.len() {
                assert_eq!(Request::parse(&bytes[..cut]), Parsed::Incomplete);
            }
            let length = bytes.len();
            bytes.push(3);
            assert_eq!(Request::parse(&bytes), Parsed::Whole(request, length));
        }
    }

    #[test]
    fn a_request_beyond_the_bounds_is_wrong() {
        let [mut request, _, _] = requests();
        request.up = MAX_BYTES + 1;
        let mut bytes = request.encode();
        bytes[13..21].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(Request::parse(&bytes), Parsed::Wrong);
        assert_eq!(Request::parse(b"GET /"), Parsed::Wrong);
        let mut bytes = requests()[2].encode();
        bytes[22] = 0xff;
        assert_eq!(Request::parse(&bytes), Parsed::Wrong);
    }
}
