//! A client's request to the server.

use std::time::Duration;

/// Time without progress after which a transfer is given up: longer than SocksTimeout, within which
/// a client finds another circuit or reports that it does not.
pub(super) const STALL: Duration = Duration::from_secs(180);

/// Direction of the bytes, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the server.
    Down,
    /// To the server.
    Up,
}

impl Direction {
    pub(super) fn code(self) -> u8 {
        match self {
            Direction::Down => b'D',
            Direction::Up => b'U',
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Direction> {
        [Direction::Down, Direction::Up]
            .into_iter()
            .find(|direction| direction.code() == code)
    }
}

/// A client's request to the server: 17 bytes, a code and two big-endian numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Direction of the bytes.
    pub direction: Direction,
    /// Number of bytes, at most [`Request::MOST`].
    pub bytes: u64,
    /// Seed of the payload.
    pub seed: u64,
}

impl Request {
    /// The largest payload: 1 TB.
    pub const MOST: u64 = 1_000_000_000_000;
    pub(super) const LENGTH: usize = 17;

    pub(super) fn encode(self) -> [u8; Request::LENGTH] {
        let mut frame = [0; Request::LENGTH];
        frame[0] = self.direction.code();
        frame[1..9].copy_from_slice(&self.bytes.to_be_bytes());
        frame[9..].copy_from_slice(&self.seed.to_be_bytes());
        frame
    }

    pub(super) fn decode(frame: [u8; Request::LENGTH]) -> Option<Request> {
        let [code, numbers @ ..] = frame;
        let (bytes, seed) = numbers.split_first_chunk()?;
        let bytes = u64::from_be_bytes(*bytes);
        let seed = u64::from_be_bytes(*seed.first_chunk()?);
        let direction = Direction::from_code(code)?;
        (bytes <= Request::MOST).then_some(Request {
            direction,
            bytes,
            seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_its_encoding() {
        for direction in [Direction::Down, Direction::Up] {
            let request = Request {
                direction,
                bytes: 123_456_789_012,
                seed: u64::MAX,
            };
            assert_eq!(Request::decode(request.encode()), Some(request));
        }
    }

    #[test]
    fn a_request_of_another_kind_or_beyond_the_bound_is_none() {
        let request = Request {
            direction: Direction::Down,
            bytes: 1,
            seed: 2,
        };
        let mut frame = request.encode();
        frame[0] = b'X';
        assert_eq!(Request::decode(frame), None);
        let request = Request {
            bytes: Request::MOST + 1,
            ..request
        };
        assert_eq!(Request::decode(request.encode()), None);
    }
}
