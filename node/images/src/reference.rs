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

pub(crate) fn parse(given: &str) -> Result<Name, ImageError> {
    let invalid = |reason: String| ImageError::InvalidName { image: given.to_owned(), reason };
    if given.contains("://") {
        return Err(invalid("invalid reference format: a scheme is not part of an image name".to_owned()));
    }
    let reference: Reference = given.parse().map_err(|error| invalid(format!("{error}")))?;
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
    fn nonsense_is_refused_with_the_name_in_the_message() {
        for given in ["", "UPPER", "a b", "http://x/y", "x:", "-x"] {
            let error = parse(given).expect_err(given).to_string();
            assert!(error.contains(&format!("\"{given}\"")), "{error}");
        }
    }
}
