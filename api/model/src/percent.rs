//! Percent escapes (RFC 3986): strict decoding, and the sets of bytes to escape for each use. The crate
//! `percent-encoding` does the work. It would leave a malformed escape unchanged; [`decode`] rejects it, as Go does.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All characters but letters, digits and the unreserved characters: for the value of a query parameter.
pub const QUERY_VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters that Go's `URL.EscapedPath` escapes in a path.
pub const PATH: &AsciiSet = &QUERY_VALUE
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@')
    .remove(b'!')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*');

/// All characters that the name of a header cannot contain (RFC 9110's `token`), and the percent sign.
pub const HEADER_NAME: &AsciiSet = &QUERY_VALUE
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'^')
    .remove(b'`')
    .remove(b'|');

/// Escapes the bytes of the set, and every byte beyond ASCII.
pub fn encode(text: &str, set: &'static AsciiSet) -> String {
    utf8_percent_encode(text, set).to_string()
}

/// Decodes all escapes; `None` if one is malformed.
pub fn decode(text: &str) -> Option<Cow<'_, [u8]>> {
    is_valid(text).then(|| percent_decode_str(text).into())
}

/// Whether two hexadecimal digits follow each percent sign.
pub fn is_valid(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_escapes_are_rejected() {
        for (text, wanted) in
            [("a%2Fb", Some("a/b")), ("plain", Some("plain")), ("%c3%bc", Some("ü")), ("%2", None), ("%zz", None), ("%", None)]
        {
            assert_eq!(decode(text).as_deref(), wanted.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn each_part_escapes_its_own_bytes() {
        let ascii: String = (' '..='~').collect();
        let plain = |set| (' '..='~').filter(|c| !c.is_ascii_alphanumeric() && encode(&c.to_string(), set).len() == 1).collect::<String>();
        assert_eq!(plain(QUERY_VALUE), "-._~");
        assert_eq!(plain(PATH), "!$&'()*+,-./:;=@_~");
        assert_eq!(plain(HEADER_NAME), "!#$&'*+-.^_`|~");
        assert_eq!(decode(&encode(&ascii, HEADER_NAME)).as_deref(), Some(ascii.as_bytes()));
        assert_eq!(encode("ü", PATH), "%C3%BC");
    }
}
