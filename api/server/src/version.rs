//! The answer to `/version`. Clients parse it as a semantic version and compare it with their own.

use serde::Serialize;

/// The Kubernetes version whose API is served: that of k8s-openapi's `latest`.
const MAJOR: &str = "1";
const MINOR: &str = "37";

/// The body of `/version`, in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    major: &'static str,
    minor: &'static str,
    git_version: String,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: String,
}

/// The versions in the answer.
pub(crate) fn version() -> Version {
    Version {
        major: MAJOR,
        minor: MINOR,
        git_version: git_version(),
        git_commit: "",
        git_tree_state: "clean",
        build_date: "1970-01-01T00:00:00Z",
        go_version: "",
        compiler: "rustc",
        platform: format!("{}/{}", std::env::consts::OS, architecture()),
    }
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
