//! The wire format: tags, varints, lengths.

use super::ProtobufError;

/// What stands behind a tag.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Number(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// Reads fields one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field; none at the end. Groups, which nobody has used for decades, are malformed.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, ProtobufError> {
        loop {
            if self.rest.is_empty() {
                return Ok(None);
            }
            let key = self.varint()?;
            let wire = match key & 7 {
                0 => Wire::Number(self.varint()?),
                1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Malformed)?;
                    Wire::Bytes(self.take(length)?)
                }
                5 => {
                    // No field of ours is of this kind: skipped.
                    let _: [u8; 4] = self.array()?;
                    continue;
                }
                _ => return Err(ProtobufError::Malformed),
            };
            return Ok(Some((key >> 3, wire)));
        }
    }

    /// The next number of a packed list.
    pub(super) fn packed(&mut self) -> Result<Option<u64>, ProtobufError> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtobufError::Malformed)?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        self.take(N)?.try_into().map_err(|_| ProtobufError::Malformed)
    }
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Utf8)
}
