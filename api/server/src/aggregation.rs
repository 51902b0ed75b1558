//! API aggregation: group versions that another server answers for, registered by an APIService.
//!
//! A request for such a version is authenticated and authorized here, and then passed on with the user's
//! name in headers that the other server believes, because they come with the front proxy's certificate
//! (`forward.rs`), over connections that are kept (`link.rs`). One loop (`keeper.rs`) finds out whether each of
//! these servers answers (`available.rs`), keeps what it says it serves for discovery and OpenAPI
//! (`discovery.rs`, `openapi.rs`), and registers what this server answers for itself, so that `kubectl get
//! apiservices` shows everything (`local.rs`). A version that is built in is always answered here, except for the metrics of
//! resources: a metrics server that is registered takes them over.

mod ask;
mod available;
mod discovery;
mod due;
pub(crate) mod forward;
pub(crate) mod keeper;
mod link;
pub(crate) mod local;
mod openapi;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api_auth::Pki;
use api_model::kind::GroupResource;
use api_model::meta;
use api_upstream::backend::ConnectError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::Notify;

use self::link::{Link, Links};
use crate::core::Core;
use api_cache::{Cache, Filter, Resource};
use api_wire::json;

/// Group and resource of APIServices.
pub(crate) const GROUP: &str = "apiregistration.k8s.io";
pub(crate) const PLURAL: &str = "apiservices";

/// The versions that other servers answer for, and what is known of these servers.
pub(crate) struct Aggregation {
    pub(crate) core: Arc<Core>,
    pub(crate) remotes: Remotes,
    links: Links,
    /// The documents of each server, by the name of its APIService.
    documents: RwLock<HashMap<String, Arc<Documents>>>,
    /// Held while one document, which may be large, is parsed.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// How often the documents changed.
    changes: AtomicU64,
    /// The APIServices, by name, whose servers did not answer. The keeper looks at them again.
    doubts: Mutex<BTreeSet<String>>,
    /// Wakes the keeper when `doubts` grows.
    doubt: Notify,
    /// The keys after their last renewal; none before the first.
    renewed: RwLock<Option<Arc<Pki>>>,
}

/// The versions that others answer for, found anew when an APIService changes.
pub(crate) struct Remotes {
    resource: Arc<Resource>,
    /// With the revision of the APIServices that they were made of.
    present: RwLock<(u64, Arc<[Arc<Remote>]>)>,
}

/// The documents that a server serves about itself.
#[derive(Clone, Debug, Default, PartialEq)]
struct Documents {
    /// Uid of the APIService.
    uid: String,
    /// `APIResourceList`
    resources: Arc<Value>,
    /// Path of its OpenAPI v3 document; empty: it has none.
    openapi: String,
    /// None: the server has none, or none that could be used.
    openapi_v2: Option<openapi::Part>,
}

/// A group version behind a Service.
pub(crate) struct Remote {
    /// Uid of the APIService: one that is made again under the same name is another.
    uid: String,
    /// The whole `spec` of the APIService.
    spec: Arc<Value>,
    /// `version.group`
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    /// Namespace of the Service.
    namespace: String,
    service: String,
    port: u16,
    /// PEM; none: the authorities of the machine.
    ca_bundle: Option<Vec<u8>>,
    insecure: bool,
    pub(crate) is_available: bool,
    group_priority: i64,
    version_priority: i64,
}

impl Remote {
    /// From an APIService; none: this server answers for the version itself.
    fn of(object: &Value) -> Option<Self> {
        let spec = object.get("spec")?;
        let service = spec.get("service").filter(|service| service.is_object())?;
        let (group, version) = (json::text(spec, &["group"]), json::text(spec, &["version"]));
        let bundle = json::text(spec, &["caBundle"]);
        let number = |field: &str| spec.get(field).and_then(Value::as_i64).unwrap_or_default();
        Some(Self {
            uid: meta::uid(object).to_owned(),
            spec: Arc::new(spec.clone()),
            name: meta::name(object).to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: json::text(service, &["namespace"]).to_owned(),
            service: json::text(service, &["name"]).to_owned(),
            port: service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            // Validation rejected a bundle that is no base64. A bundle that is no certificate fails when it is used.
            ca_bundle: (!bundle.is_empty()).then(|| STANDARD.decode(bundle).unwrap_or_default()),
            insecure: spec.get("insecureSkipTLSVerify") == Some(&Value::Bool(true)),
            is_available: available::is_available(object),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
        })
    }

    fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The name in the server's certificate.
    fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

/// Whether this server always answers for the version itself.
fn is_fixed(group: &str, version: &str) -> bool {
    api_model::kind::builtin().iter().any(|kind| kind.group == group && kind.version == version && !kind.is_delegable())
}

impl Remotes {
    fn new(cache: &Cache) -> Self {
        Self { resource: cache.resource(&GroupResource::new(GROUP, PLURAL)), present: RwLock::new((0, Arc::new([]))) }
    }

    /// Every version that others answer for.
    pub(crate) fn all(&self) -> Arc<[Arc<Remote>]> {
        let revision = self.resource.revision();
        {
            let present = self.present.read();
            if present.0 == revision {
                return Arc::clone(&present.1);
            }
        }
        // The list is at least as new as the revision. If it is newer, the next call lists once more.
        let services = self.resource.list(&Filter::default(), revision);
        let remotes = services.items.iter().filter_map(|object| Remote::of(&object.value()));
        let remotes: Arc<[Arc<Remote>]> = remotes.filter(|remote| !is_fixed(&remote.group, &remote.version)).map(Arc::new).collect();
        *self.present.write() = (revision, Arc::clone(&remotes));
        remotes
    }

    /// The server that answers for a version.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<Arc<Remote>> {
        self.all().iter().find(|remote| remote.group == group && remote.version == version).cloned()
    }

    /// The server that answers for a path that is no resource: the discovery of a version, or its OpenAPI document.
    pub(crate) fn at(&self, path: &str) -> Option<Arc<Remote>> {
        let rest = path.strip_prefix("/openapi/v3").unwrap_or(path).strip_prefix("/apis/")?;
        let (group, version) = rest.strip_suffix('/').unwrap_or(rest).split_once('/')?;
        self.find(group, version)
    }
}

impl Aggregation {
    pub(crate) fn new(core: &Arc<Core>) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(core),
            remotes: Remotes::new(&core.cache),
            links: Links::default(),
            documents: RwLock::default(),
            reading: Arc::default(),
            changes: AtomicU64::new(0),
            doubts: Mutex::default(),
            doubt: Notify::new(),
            renewed: RwLock::default(),
        })
    }

    /// Uses the front proxy's certificate of these keys from now on.
    pub(crate) fn renew(&self, pki: Arc<Pki>) {
        *self.renewed.write() = Some(pki);
    }

    /// The present link to a server.
    fn link(&self, remote: &Remote) -> Result<Arc<Link>, ConnectError> {
        let pki = self.renewed.read().as_ref().map_or_else(|| Arc::clone(&self.core.config.pki), Arc::clone);
        Ok(self.links.to(remote, &pki, &self.core.cache)?)
    }

    /// A number that grows whenever discovery of other servers' versions changes.
    pub(crate) fn number(&self) -> u64 {
        self.remotes.resource.revision().saturating_add(self.changes.load(Ordering::Acquire))
    }

    /// Makes the keeper look at a server again, since it did not answer.
    fn did_not_answer(&self, remote: &Remote) {
        self.doubts.lock().insert(remote.name.clone());
        self.doubt.notify_one();
    }

    fn documents_of(&self, remote: &Remote) -> Option<Arc<Documents>> {
        self.documents.read().get(&remote.name).filter(|documents| documents.uid == remote.uid).cloned()
    }

    /// Stores the documents of a server. Only the keeper calls this. Documents may be large, so they are compared and freed
    /// outside of the lock.
    fn keep(&self, remote: &Remote, documents: Documents) {
        if self.documents_of(remote).is_some_and(|known| *known == documents) {
            return;
        }
        let _old = self.documents.write().insert(remote.name.clone(), Arc::new(documents));
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Drops the documents of, and the connections to, servers that are not among these any more.
    fn forget_others(&self, remotes: &[Arc<Remote>]) {
        self.links.retain(remotes);
        let is_there = |name: &String| remotes.iter().any(|remote| remote.name == *name);
        let _gone: Vec<_> = self.documents.write().extract_if(|name, _| !is_there(name)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AtRest;
    use serde_json::json;

    #[test]
    fn paths_of_a_version_lead_to_who_answers_for_it() {
        let cache = Cache::new(0, AtRest::default());
        let remotes = Remotes::new(&cache);
        let service = |name: &str, group: &str, version: &str| {
            let value = json!({"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": {"name": name},
                "spec": {"group": group, "version": version, "service": {"name": "s", "namespace": "n", "port": 8443}}});
            let object = cache.object(("".into(), name.into()), 1, api_cache::encode(&value)).expect("JSON");
            remotes.resource.load(Arc::new(object));
        };
        service("v1.example.com", "example.com", "v1");
        service("v1.apps", "apps", "v1");
        for (path, found) in [
            ("/apis/example.com/v1", true),
            ("/apis/example.com/v1/", true),
            ("/openapi/v3/apis/example.com/v1", true),
            ("/apis/example.com", false),
            ("/apis/example.com/v2", false),
            ("/api/v1", false),
            ("/openapi/v3", false),
        ] {
            assert_eq!(remotes.at(path).is_some(), found, "{path}");
        }
        assert!(remotes.find("apps", "v1").is_none(), "what is built in stays here");
        let remote = remotes.find("example.com", "v1").expect("registered");
        assert_eq!((remote.host().as_str(), remote.port, remote.is_available), ("s.n.svc", 8443, false));
    }
}
