//! What kinds the API server serves, asked by aggregated discovery: for those who work on objects
//! of every kind, custom ones included.

use kube::api::ApiResource;
use kube::client::APIGroupDiscoveryList;

use crate::failure::{During, Failure};
use crate::work::KindInfo;

/// A served kind in its group's preferred version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The kind.
    pub kind: KindInfo,
    /// Verbs of the main resource.
    pub verbs: Vec<String>,
}

impl Served {
    /// Whether the verb is served.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// The answer of one asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Served kinds.
    pub kinds: Vec<Served>,
    /// Group versions that a server behind this one could not tell about.
    pub stale: Vec<String>,
}

/// Asks the server.
pub async fn discover(client: &kube::Client) -> Result<Discovered, Failure> {
    let core = client.list_core_api_versions_aggregated().await.during("discovering", "the core group")?;
    let groups = client.list_api_groups_aggregated().await.during("discovering", "the API groups")?;
    let mut discovered = Discovered::default();
    read(core, &mut discovered);
    read(groups, &mut discovered);
    Ok(discovered)
}

fn read(list: APIGroupDiscoveryList, into: &mut Discovered) {
    for group in list.items {
        let name = group.metadata.and_then(|meta| meta.name).unwrap_or_default();
        for version in group.versions {
            let version_name = version.version.unwrap_or_default();
            if version.freshness.as_deref() == Some("Stale") {
                into.stale.push(if name.is_empty() { version_name } else { format!("{name}/{version_name}") });
                continue;
            }
            for resource in version.resources {
                let plural = resource.resource.unwrap_or_default();
                // Versions come in order of preference: the first that serves a resource counts.
                if into.kinds.iter().any(|known| known.kind.group == name && known.kind.plural == plural) {
                    continue;
                }
                let kind = resource.response_kind.and_then(|kind| kind.kind).unwrap_or_default();
                into.kinds.push(Served {
                    kind: KindInfo {
                        group: name.clone(),
                        version: version_name.clone(),
                        kind,
                        plural,
                        namespaced: resource.scope.as_deref() == Some("Namespaced"),
                    },
                    verbs: resource.verbs,
                });
            }
        }
    }
}

/// How the client addresses a kind.
pub fn api_resource(kind: &KindInfo) -> ApiResource {
    ApiResource {
        group: kind.group.clone(),
        version: kind.version.clone(),
        api_version: kind.api_version(),
        kind: kind.kind.clone(),
        plural: kind.plural.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_preferred_version_counts_and_stale_ones_are_named() {
        let resource = |plural: &str, kind: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced", "verbs": ["list"]});
        let list = serde_json::from_value(json!({"items": [
            {"metadata": {"name": "x.io"}, "versions": [
                {"version": "v2", "resources": [resource("foos", "Foo")], "freshness": "Current"},
                {"version": "v1", "resources": [resource("foos", "Foo"), resource("bars", "Bar")], "freshness": "Current"},
            ]},
            {"metadata": {"name": "y.io"}, "versions": [{"version": "v1", "resources": [], "freshness": "Stale"}]},
        ]}))
        .expect("a list");
        let mut discovered = Discovered::default();
        read(list, &mut discovered);
        let kinds: Vec<String> = discovered.kinds.iter().map(|s| format!("{} {}", s.kind.api_version(), s.kind.kind)).collect();
        assert_eq!(kinds, ["x.io/v2 Foo", "x.io/v1 Bar"]);
        assert_eq!(discovered.stale, ["y.io/v1"]);
    }
}
