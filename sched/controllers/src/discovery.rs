//! The kinds that the API server serves, from aggregated discovery: for controllers of objects of every kind, custom kinds
//! included.

use std::sync::Arc;
use std::time::Duration;

use kube::api::ApiResource;
use kube::client::{APIGroupDiscoveryList, APIVersionDiscovery};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::failure::{During, Failure};
use crate::kind::KindInfo;

/// For a resource that the last discovery did not have, the server is asked again at most once in this period.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(1);

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

/// The result of one discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Served kinds.
    pub kinds: Vec<Served>,
    /// Group versions that an aggregated server could not describe.
    pub stale: Vec<String>,
}

/// A resource in one of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural, as in paths.
    pub plural: String,
    /// Singular.
    pub singular: String,
    /// Kind.
    pub kind: String,
    /// Whether it has the subresource `scale`.
    pub has_scale: bool,
}

impl Resource {
    /// `deployments.apps`, or `pods` in the core group.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// How the client addresses its objects, which live in namespaces.
    pub fn api_resource(self) -> ApiResource {
        let Self { group, version, plural, kind, .. } = self;
        api_resource(&KindInfo { group, version, kind, plural, namespaced: true })
    }
}

/// When the resources were discovered, and the resources.
type Discovery = (Instant, Arc<Vec<Resource>>);

/// The served resources in all versions, as last discovered.
pub struct Resources {
    client: kube::Client,
    last: Mutex<Option<Discovery>>,
}

impl Resources {
    /// Nothing is discovered before the first look-up.
    pub fn new(client: kube::Client) -> Self {
        Self { client, last: Mutex::default() }
    }

    /// The first resource, in order of preference, that satisfies `is`. If there is none, the server may serve it by now.
    pub async fn find(&self, is: impl Fn(&Resource) -> bool) -> Result<Option<Resource>, Failure> {
        let find = |served: &[Resource]| served.iter().find(|one| is(one)).cloned();
        let last = self.last.lock().clone();
        if let Some((discovered_at, served)) = last {
            let found = find(&served);
            if found.is_some() || discovered_at.elapsed() < DISCOVERY_PERIOD {
                return Ok(found);
            }
        }
        let served = Arc::new(every_version(&self.client).await?);
        let found = find(&served);
        *self.last.lock() = Some((Instant::now(), served));
        Ok(found)
    }
}

/// Requests the discovery documents from the server.
pub async fn discover(client: &kube::Client) -> Result<Discovered, Failure> {
    let mut discovered = Discovered::default();
    ask(client).await?.into_iter().for_each(|list| read(list, &mut discovered));
    Ok(discovered)
}

/// Requests all resources in all versions, in order of preference. Resources that an aggregated server could not describe are
/// missing.
pub async fn every_version(client: &kube::Client) -> Result<Vec<Resource>, Failure> {
    Ok(ask(client).await?.into_iter().flat_map(versions).flat_map(|(group, version)| resources(group, version)).collect())
}

async fn ask(client: &kube::Client) -> Result<[APIGroupDiscoveryList; 2], Failure> {
    let core = client.list_core_api_versions_aggregated().await.during("discovering", "the core group")?;
    let groups = client.list_api_groups_aggregated().await.during("discovering", "the API groups")?;
    Ok([core, groups])
}

/// All versions with the names of their groups.
fn versions(list: APIGroupDiscoveryList) -> impl Iterator<Item = (String, APIVersionDiscovery)> {
    list.items.into_iter().flat_map(|group| {
        let name = group.metadata.and_then(|meta| meta.name).unwrap_or_default();
        group.versions.into_iter().map(move |version| (name.clone(), version))
    })
}

fn resources(group: String, version: APIVersionDiscovery) -> impl Iterator<Item = Resource> {
    let name = version.version.unwrap_or_default();
    version.resources.into_iter().filter_map(move |resource| {
        let kind = resource.response_kind.and_then(|kind| kind.kind).filter(|kind| !kind.is_empty())?;
        Some(Resource {
            group: group.clone(),
            version: name.clone(),
            plural: resource.resource.unwrap_or_default(),
            has_scale: resource.subresources.iter().any(|sub| sub.subresource.as_deref() == Some("scale")),
            singular: resource.singular_resource.filter(|name| !name.is_empty()).unwrap_or_else(|| kind.to_lowercase()),
            kind,
        })
    })
}

fn read(list: APIGroupDiscoveryList, into: &mut Discovered) {
    for (name, version) in versions(list) {
        let version_name = version.version.unwrap_or_default();
        if version.freshness.as_deref() == Some("Stale") {
            into.stale.push(if name.is_empty() { version_name } else { format!("{name}/{version_name}") });
            continue;
        }
        for resource in version.resources {
            let plural = resource.resource.unwrap_or_default();
            // Versions are in order of preference: the first version that serves a resource counts.
            if into.kinds.iter().any(|served| served.kind.group == name && served.kind.plural == plural) {
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

    fn list() -> APIGroupDiscoveryList {
        let resource = |plural: &str, kind: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced", "verbs": ["list"]});
        serde_json::from_value(json!({"items": [
            {"metadata": {"name": "x.io"}, "versions": [
                {"version": "v2", "resources": [resource("foos", "Foo")], "freshness": "Current"},
                {"version": "v1", "resources": [resource("foos", "Foo"), resource("bars", "Bar")], "freshness": "Current"},
            ]},
            {"metadata": {"name": "y.io"}, "versions": [{"version": "v1", "resources": [], "freshness": "Stale"}]},
        ]}))
        .expect("a list")
    }

    #[test]
    fn every_version_is_listed_on_request() {
        let all: Vec<Resource> = versions(list()).flat_map(|(group, version)| resources(group, version)).collect();
        let rows: Vec<String> = all.iter().map(|one| format!("{}/{} {} {}", one.group, one.version, one.plural, one.singular)).collect();
        assert_eq!(rows, ["x.io/v2 foos foo", "x.io/v1 foos foo", "x.io/v1 bars bar"]);
    }

    #[test]
    fn the_preferred_version_counts_and_stale_ones_are_named() {
        let mut discovered = Discovered::default();
        read(list(), &mut discovered);
        let kinds: Vec<String> = discovered.kinds.iter().map(|s| format!("{} {}", s.kind.api_version(), s.kind.kind)).collect();
        assert_eq!(kinds, ["x.io/v2 Foo", "x.io/v1 Bar"]);
        assert_eq!(discovered.stale, ["y.io/v1"]);
    }
}
