//! The part of ASN.1's distinguished encoding rules (ITU-T X.690) that a certificate (RFC 5280) needs.
//!
//! `rcgen`, which generates the keys and the signatures, allows one value per attribute type in a subject. A user's
//! certificate has one organization for each group of the user, so the subject, and with it the certificate, is encoded
//! here.

/// Tags.
pub const BOOLEAN: u8 = 0x01;
pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const NULL: u8 = 0x05;
pub const OBJECT_IDENTIFIER: u8 = 0x06;
pub const UTF8_STRING: u8 = 0x0c;
pub const UTC_TIME: u8 = 0x17;
pub const GENERALIZED_TIME: u8 = 0x18;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// An explicit context tag around a constructed value.
pub const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// An implicit context tag on a primitive value.
pub const fn context_primitive(number: u8) -> u8 {
    0x80 | number
}

/// One value: tag, length, content.
pub fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let significant: Vec<u8> = length.into_iter().skip_while(|b| *b == 0).collect();
    match (significant.as_slice(), u8::try_from(significant.len())) {
        ([], _) => out.push(0),
        ([one], _) if *one < 0x80 => out.push(*one),
        // A usize has at most eight bytes.
        (bytes, count) => {
            out.push(0x80 | count.unwrap_or(8));
            out.extend_from_slice(bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

/// A constructed value of several parts in order.
pub fn constructed(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    tlv(tag, &parts.concat())
}

/// A positive integer from big-endian bytes.
pub fn positive_integer(bytes: &[u8]) -> Vec<u8> {
    let mut content: Vec<u8> = bytes.iter().copied().skip_while(|b| *b == 0).collect();
    if content.first().is_none_or(|b| *b & 0x80 != 0) {
        content.insert(0, 0);
    }
    tlv(INTEGER, &content)
}

/// Whole bytes as a bit string.
pub fn bit_string(bytes: &[u8]) -> Vec<u8> {
    let mut content = vec![0];
    content.extend_from_slice(bytes);
    tlv(BIT_STRING, &content)
}

/// A bit string of named flags (bit 0 first), its trailing zeros left out as the encoding demands.
pub fn flags(set: &[u8]) -> Vec<u8> {
    let Some(&last) = set.iter().max() else {
        return tlv(BIT_STRING, &[0]);
    };
    let mut content = vec![0_u8; usize::from(last / 8) + 2];
    for bit in set {
        if let Some(byte) = content.get_mut(usize::from(bit / 8) + 1) {
            *byte |= 0x80 >> (bit % 8);
        }
    }
    if let Some(unused) = content.first_mut() {
        *unused = 7 - last % 8;
    }
    tlv(BIT_STRING, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_the_fewest_bytes() {
        assert_eq!(tlv(NULL, &[]), [5, 0]);
        assert_eq!(tlv(OCTET_STRING, &[7; 127]).get(..2), Some([4, 127].as_slice()));
        assert_eq!(tlv(OCTET_STRING, &[7; 128]).get(..3), Some([4, 0x81, 128].as_slice()));
        assert_eq!(tlv(OCTET_STRING, &[7; 256]).get(..4), Some([4, 0x82, 1, 0].as_slice()));
    }

    #[test]
    fn integers_stay_positive_and_short() {
        assert_eq!(positive_integer(&[0, 0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(positive_integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(positive_integer(&[]), [2, 1, 0]);
    }

    #[test]
    fn flags_leave_out_trailing_zeros() {
        assert_eq!(flags(&[0, 2]), [3, 2, 5, 0b1010_0000]);
        assert_eq!(flags(&[8]), [3, 3, 7, 0, 0x80]);
        assert_eq!(flags(&[]), [3, 1, 0]);
    }
}
