//! Reading the fields of one message in order, with errors that name the field.

use tor_bytes::Reader;

/// A message ended before one of its fields did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ends inside its {field}")]
pub struct CutShort {
    /// The message being decoded, in the specification's words.
    pub message: &'static str,
    /// The field that was cut short, in the specification's words.
    pub field: &'static str,
}

/// A `tor_bytes::Reader` that knows which message it reads.
pub(crate) struct Fields<'a> {
    message: &'static str,
    reader: Reader<'a>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'static str, bytes: &'a [u8]) -> Self {
        Fields {
            message,
            reader: Reader::from_slice(bytes),
        }
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, CutShort> {
        let [byte] = self.array(field)?;
        Ok(byte)
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, CutShort> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, CutShort> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, CutShort> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], CutShort> {
        let mut array = [0; N];
        let message = self.message;
        self.reader
            .take_into(&mut array)
            .map_err(|_| CutShort { message, field })?;
        Ok(array)
    }

    /// The part of `bytes` that was read so far; these fields are a reader of `bytes`.
    pub(crate) fn so_far(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(..self.reader.consumed()).unwrap_or(bytes)
    }

    /// The next `len` bytes, where they lie.
    pub(crate) fn bytes(&mut self, field: &'static str, len: usize) -> Result<&'a [u8], CutShort> {
        let message = self.message;
        self.reader
            .take(len)
            .map_err(|_| CutShort { message, field })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_in_order_and_names_the_one_cut_short() {
        let mut fields = Fields::new("TEST", &[1, 0, 2, 0, 0, 0, 3, 9, 9]);
        assert_eq!(fields.u8("a"), Ok(1));
        assert_eq!(fields.u16("b"), Ok(2));
        assert_eq!(fields.u32("c"), Ok(3));
        assert_eq!(fields.bytes("d", 1), Ok(&[9][..]));
        let error = fields.u16("e").unwrap_err();
        assert_eq!(error.to_string(), "TEST ends inside its e");
    }
}
