//! The wire format on its way in: tags, varints, lengths.

use super::ProtobufError;

/// The value after a tag.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Number(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

impl Wire<'_> {
    /// What the wire calls it.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Number(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        }
    }
}

/// Reads fields one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field; `None` at the end. Groups, which have been out of use for decades, are malformed.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let (tag, wire) = (key >> 3, key & 7);
        if tag == 0 || tag > u64::from(u32::MAX >> 3) {
            return Err(ProtobufError::IllegalTag(tag, wire));
        }
        let wire = match wire {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                Wire::Bytes(self.take(len)?)
            }
            5 => {
                let _: [u8; 4] = self.array()?;
                Wire::Fixed32
            }
            other => return Err(ProtobufError::IllegalWireType(other)),
        };
        Ok(Some((tag, wire)))
    }

    /// The next number of a packed list.
    pub(super) fn packed(&mut self) -> Result<Option<u64>, ProtobufError> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtobufError::Truncated)?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Overflow)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        self.take(N)?.try_into().map_err(|_| ProtobufError::Truncated)
    }
}

/// The last bytes of a message's field with that number; empty if there are none.
pub(super) fn last_bytes(message: &[u8], tag: u64) -> Result<&[u8], ProtobufError> {
    let mut found: &[u8] = &[];
    let mut reader = Reader::new(message);
    while let Some((at, wire)) = reader.next()? {
        if let (true, Wire::Bytes(bytes)) = (at == tag, wire) {
            found = bytes;
        }
    }
    Ok(found)
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Utf8)
}
