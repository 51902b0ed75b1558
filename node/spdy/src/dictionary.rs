//! The text that both sides' header compression begins with (SPDY/3, section 2.6.10.1): words with
//! their length in front, then words without. A byte off, and nothing can be read.

use std::sync::LazyLock;

/// The dictionary.
pub(crate) static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let counted = COUNTED.iter().flat_map(|word| {
        let len = u32::try_from(word.len()).unwrap_or_default();
        len.to_be_bytes().into_iter().chain(word.bytes())
    });
    counted.chain(PLAIN.iter().flat_map(|word| word.bytes())).collect()
});

/// The dictionary's Adler-32 checksum, with which a zlib header names it.
pub(crate) const DICTIONARY_ID: u32 = 0xe3c6_a7c2;

const COUNTED: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

const PLAIN: [&str; 44] = [
    "100",
    "101",
    "201",
    "202",
    "205",
    "206",
    "300",
    "302",
    "303",
    "304",
    "305",
    "306",
    "307",
    "402",
    "405",
    "406",
    "407",
    "408",
    "409",
    "410",
    "411",
    "412",
    "413",
    "414",
    "415",
    "416",
    "417",
    "502",
    "504",
    "505",
    "203 Non-Authoritative Information",
    "204 No Content",
    "301 Moved Permanently",
    "400 Bad Request",
    "401 Unauthorized",
    "403 Forbidden",
    "404 Not Found",
    "500 Internal Server Error",
    "501 Not Implemented",
    "503 Service Unavailable",
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec ",
    "00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT",
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,",
    "text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_checksum_by_which_peers_know_it() {
        assert_eq!(DICTIONARY.len(), 1423);
        assert_eq!(adler32(&DICTIONARY), DICTIONARY_ID);
    }

    fn adler32(bytes: &[u8]) -> u32 {
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in bytes {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        high << 16 | low
    }
}
