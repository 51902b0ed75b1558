//! What `/version` says. Clients parse it as a semantic version and compare it with their own.

use serde_json::{Value, json};

/// The Kubernetes version whose API is served: that of k8s-openapi's `latest`.
const MAJOR: &str = "1";
const MINOR: &str = "37";

/// The body of `/version`.
pub(crate) fn version() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": git_version(),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// `v1.37.0+skiff`
pub(crate) fn git_version() -> String {
    format!("v{MAJOR}.{MINOR}.0+skiff")
}

/// Go's name of the architecture, which clients expect.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
