//! Image names, spelled out as Docker does: `web` is `docker.io/library/web:latest`.

use oci_client::Reference;

use crate::ImageError;

/// A parsed name.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// As the user wrote it, for messages.
    pub given: String,
    pub reference: Reference,
}

impl Name {
    /// The key of the index: fully spelled, with tag or digest.
    pub fn whole(&self) -> String {
        self.reference.whole()
    }

    /// `repository@digest`, the form of a container's `imageID`.
    pub fn at(&self, digest: &str) -> String {
        format!("{}/{}@{digest}", self.reference.registry(), self.reference.repository())
    }
}

/// What the list of images has for a name or an id.
pub(crate) fn key(given: &str) -> Result<String, ImageError> {
    if given.starts_with("sha256:") { Ok(given.to_owned()) } else { Ok(parse(given)?.whole()) }
}

pub(crate) fn parse(given: &str) -> Result<Name, ImageError> {
    let invalid = |reason: String| ImageError::InvalidName { image: given.to_owned(), reason };
    if given.contains("://") {
        return Err(invalid("invalid reference format: a scheme is not part of an image name".to_owned()));
    }
    let reference: Reference = given.parse().map_err(|error| invalid(format!("{error}")))?;
    // Content is checked by this algorithm alone: a name that pins it by another would pin nothing.
    if let Some(digest) = reference.digest()
        && !digest.starts_with("sha256:")
    {
        return Err(invalid(format!("{digest}: only sha256 digests are supported")));
    }
    Ok(Name { given: given.to_owned(), reference })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_out() {
        for (given, whole) in [
            ("web", "docker.io/library/web:latest"),
            ("web:v1", "docker.io/library/web:v1"),
            ("me/web", "docker.io/me/web:latest"),
            ("localhost:5000/web", "localhost:5000/web:latest"),
            ("r.example/a/b:c", "r.example/a/b:c"),
        ] {
            assert_eq!(parse(given).map(|n| n.whole()).ok().as_deref(), Some(whole), "{given}");
        }
    }

    #[test]
    fn a_digest_that_would_not_be_checked_is_rejected() {
        let hex = |len: usize| "0123456789abcdef".repeat(len / 16);
        assert!(parse(&format!("r.example/a@sha256:{}", hex(64))).is_ok());
        for (algorithm, len) in [("sha512", 128), ("sha384", 96)] {
            let error = parse(&format!("r.example/a@{algorithm}:{}", hex(len))).expect_err(algorithm).to_string();
            assert!(error.contains("only sha256 digests"), "{error}");
        }
    }

    #[test]
    fn nonsense_is_rejected_with_the_name_in_the_message() {
        for given in ["", "UPPER", "a b", "http://x/y", "x:", "-x"] {
            let error = parse(given).expect_err(given).to_string();
            assert!(error.contains(&format!("\"{given}\"")), "{error}");
        }
    }
}
