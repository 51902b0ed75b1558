//! The values of `spec.usages` of a CertificateSigningRequest as key usages of a certificate.

use super::PkiError;

/// Key usages as bit numbers (RFC 5280, 4.2.1.3).
const FLAGS: &[(&str, u8)] = &[
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Extended key usages as encoded object identifiers (RFC 5280, 4.2.1.12).
const EXTENDED: &[(&str, &[u8])] = &[
    ("any", &[0x55, 0x1d, 0x25, 0]),
    ("server auth", &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];

/// The key usages of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usages {
    /// Bit numbers of the key usage.
    pub flags: Vec<u8>,
    /// Encoded object identifiers of the extended key usage.
    pub extended: Vec<&'static [u8]>,
}

impl Usages {
    /// The usages of a client.
    pub fn client() -> Self {
        Self { flags: vec![0, 2], extended: vec![&[0x2b, 6, 1, 5, 5, 7, 3, 2]] }
    }

    /// The usages of a server.
    pub fn server() -> Self {
        Self { flags: vec![0, 2], extended: vec![&[0x2b, 6, 1, 5, 5, 7, 3, 1]] }
    }
}

/// Parses upstream's values. The error names all unknown ones.
pub fn parse(words: &[String]) -> Result<Usages, PkiError> {
    let mut usages = Usages::default();
    let mut unknown = Vec::new();
    for word in words {
        if let Some((_, bit)) = FLAGS.iter().find(|(name, _)| name == word) {
            if !usages.flags.contains(bit) {
                usages.flags.push(*bit);
            }
        } else if let Some((_, id)) = EXTENDED.iter().find(|(name, _)| name == word) {
            if !usages.extended.contains(id) {
                usages.extended.push(id);
            }
        } else {
            unknown.push(format!("{word:?}"));
        }
    }
    if unknown.is_empty() { Ok(usages) } else { Err(PkiError::UnknownUsage(unknown.join(", "))) }
}
