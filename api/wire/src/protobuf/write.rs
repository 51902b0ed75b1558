//! The wire format on its way out: tags, varints, lengths.

/// Bytes of the longest varint.
const VARINT_LEN_MAX: usize = 10;

#[expect(clippy::cast_possible_truncation, reason = "seven bits")]
pub(super) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number of bytes of a varint.
pub(super) fn varint_len(number: u64) -> usize {
    (number | 1).ilog2() as usize / 7 + 1
}

fn key(out: &mut Vec<u8>, tag: u32, wire: u64) {
    varint(out, (u64::from(tag) << 3) | wire);
}

/// A field that is a number or a truth value.
pub(super) fn number(out: &mut Vec<u8>, tag: u32, number: u64) {
    key(out, tag, 0);
    varint(out, number);
}

pub(super) fn double(out: &mut Vec<u8>, tag: u32, number: f64) {
    key(out, tag, 1);
    out.extend_from_slice(&number.to_bits().to_le_bytes());
}

/// The start of a field of that many bytes.
pub(super) fn head(out: &mut Vec<u8>, tag: u32, len: usize) {
    key(out, tag, 2);
    varint(out, len as u64);
}

/// A field of bytes: text, or a finished message.
pub(super) fn bytes(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    head(out, tag, bytes.len());
    out.extend_from_slice(bytes);
}

/// A field that is a message, made in place: its length is known only afterwards, and is inserted before it.
pub(super) fn nested<E>(out: &mut Vec<u8>, tag: u32, make: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    key(out, tag, 2);
    let at = out.len();
    // Nearly all messages are short.
    out.push(0);
    make(out)?;
    let mut len = Vec::with_capacity(VARINT_LEN_MAX);
    varint(&mut len, (out.len() - at - 1) as u64);
    if let ([short], Some(byte)) = (len.as_slice(), out.get_mut(at)) {
        *byte = *short;
    } else {
        drop(out.splice(at..=at, len));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_message_goes_before_it_however_long_it_is() {
        for len in [0, 1, 127, 128, 16_383, 16_384] {
            let mut out = Vec::new();
            nested(&mut out, 1, |out| {
                out.resize(out.len() + len, 7);
                Ok::<_, ()>(())
            })
            .expect("made");
            let mut expected = Vec::new();
            bytes(&mut expected, 1, &vec![7; len]);
            assert_eq!(out, expected, "{len}");
            assert_eq!(out.len(), 1 + varint_len(len as u64) + len);
        }
    }
}
