//! Credentials for registries in the form of docker's `config.json`, as Secrets and files have them.
//!
//! Errors name fields and registries and never contain a value: a decoder that complains about a value would show a password.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::pull::{RegistryAuth, host};

/// The longest file; a Secret is no longer either.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The fields of an entry. A token instead of a password (`identitytoken`, `registrytoken`) is not supported.
const ENTRY_FIELDS: [&str; 4] = ["auth", "username", "password", "email"];

/// Why a file has no credentials.
#[derive(Debug, Error)]
pub enum DockerConfigError {
    /// The file cannot be read.
    #[error("the registry configuration {} cannot be read", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has another content.
    #[error("the registry configuration {}: {problem}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problem: DockerConfigProblem,
    },
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
pub enum DockerConfigProblem {
    /// It is too long.
    #[error("it is longer than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// It is no JSON.
    #[error("it is not JSON: {0}")]
    Json(serde_json::Error),
    /// There is no object `auths`.
    #[error("it has no object auths")]
    NoAuths,
    /// A field on which nothing acts, such as `credsStore`: credential helpers are not run.
    #[error("the field {0} is not supported, only auths is")]
    Unsupported(String),
    /// An entry has a field on which nothing acts.
    #[error("the field {field} of the registry {registry} is not supported, only auth, username, password and email are")]
    UnsupportedOfRegistry {
        /// The key of the entry.
        registry: String,
        /// The field.
        field: String,
    },
    /// An entry has no user name or no password.
    #[error("the registry {0} has neither auth (user name and password in base64) nor username and password")]
    NoPassword(String),
}

impl RegistryAuth {
    /// The credentials of an entry of `auths`; `None` when the user name or the password is missing or unreadable.
    pub fn from_docker_config(registry: &str, entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let (username, password) = match text("auth") {
            Some(auth) => {
                let decoded = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
                let (username, password) = decoded.split_once(':')?;
                (username.to_owned(), password.to_owned())
            }
            None => (text("username")?, text("password")?),
        };
        Some(Self { registry: host(registry).to_owned(), username, password })
    }

    /// The credentials of a file.
    ///
    /// # Errors
    /// When the file cannot be read, or has a field that is not understood: a configuration that relies on it would not work.
    pub fn read_docker_config(file: &Path) -> Result<Vec<Self>, DockerConfigError> {
        let mut bytes = Vec::new();
        let read = File::open(file).and_then(|open| open.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|source| DockerConfigError::Read { file: file.to_owned(), source })?;
        parse(&bytes).map_err(|problem| DockerConfigError::Invalid { file: file.to_owned(), problem })
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<RegistryAuth>, DockerConfigProblem> {
    if u64::try_from(bytes.len()).is_ok_and(|len| len > FILE_BYTES_MAX) {
        return Err(DockerConfigProblem::TooLong);
    }
    let config: Value = serde_json::from_slice(bytes).map_err(DockerConfigProblem::Json)?;
    let fields = config.as_object().ok_or(DockerConfigProblem::NoAuths)?;
    if let Some(field) = fields.keys().find(|field| *field != "auths") {
        return Err(DockerConfigProblem::Unsupported(field.clone()));
    }
    let auths = fields.get("auths").and_then(Value::as_object).ok_or(DockerConfigProblem::NoAuths)?;
    auths.iter().map(|(registry, entry)| checked(registry, entry)).collect()
}

fn checked(registry: &str, entry: &Value) -> Result<RegistryAuth, DockerConfigProblem> {
    let unsupported = entry.as_object().and_then(|fields: &Map<_, _>| fields.keys().find(|field| !ENTRY_FIELDS.contains(&field.as_str())));
    if let Some(field) = unsupported {
        return Err(DockerConfigProblem::UnsupportedOfRegistry { registry: registry.to_owned(), field: field.clone() });
    }
    RegistryAuth::from_docker_config(registry, entry).ok_or_else(|| DockerConfigProblem::NoPassword(registry.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_docker_login_has_credentials() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("config.json");
        let text = r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpwOnE="},"r:5000":{"username":"a","password":"b","email":"e"}}}"#;
        std::fs::write(&file, text).expect("written");
        let read = RegistryAuth::read_docker_config(&file).expect("valid");
        let entries: Vec<_> = read.iter().map(|auth| format!("{} {}:{}", auth.registry, auth.username, auth.password)).collect();
        assert_eq!(entries, ["index.docker.io u:p:q", "r:5000 a:b"]);
        let error = RegistryAuth::read_docker_config(&dir.path().join("none")).expect_err("no file");
        assert!(error.to_string().ends_with("none cannot be read"), "{error}");
    }

    #[test]
    fn what_is_not_understood_is_an_error_without_a_secret() {
        for (text, wanted) in [
            (r#"{"auths": hush}"#, "it is not JSON: "),
            (r#""hush""#, "it has no object auths"),
            (r#"{"auths":"hush"}"#, "it has no object auths"),
            (r#"{"auths":{},"credsStore":"hush"}"#, "the field credsStore is not supported, only auths is"),
            (r#"{"auths":{"r":{"identitytoken":"hush"}}}"#, "the field identitytoken of the registry r is not supported"),
            (r#"{"auths":{"r":{}}}"#, "the registry r has neither auth "),
            (r#"{"auths":{"r":"hush"}}"#, "the registry r has neither auth "),
            (r#"{"auths":{"r":{"auth":"hush"}}}"#, "the registry r has neither auth "),
            (r#"{"auths":{"r":{"username":"u","password":["hush"]}}}"#, "the registry r has neither auth "),
        ] {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.to_string().starts_with(wanted), "{text}: {error}");
            assert!(!format!("{error:?} {error}").contains("hush"), "{error:?}");
        }
        let long = vec![b' '; usize::try_from(FILE_BYTES_MAX).expect("small") + 1];
        assert!(matches!(parse(&long), Err(DockerConfigProblem::TooLong)));
    }
}
