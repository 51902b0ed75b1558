//! Parsed webhook configurations.

use std::sync::Arc;
use std::time::Duration;

use api_model::meta;
use api_model::selector::Selector;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::json;
use crate::matching::{Rule, selector};
use crate::policy::Conditions;

/// The default of `timeoutSeconds`.
const TIMEOUT_SECONDS: u64 = 10;

/// The address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A URL.
    Url(String),
    /// A port of a Service.
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
        /// The Service's port.
        port: u16,
        /// Path with a leading slash; may be empty.
        path: String,
    },
}

impl Endpoint {
    /// Reads a `clientConfig`. Configurations are validated before they are stored, so missing fields count as empty.
    pub fn from(config: &Value) -> Self {
        let Some(service) = config.get("service").filter(|service| !service.is_null()) else {
            return Self::Url(json::text(config, "url").to_owned());
        };
        let path = json::text(service, "path");
        let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
        Self::Service {
            namespace: json::text(service, "namespace").to_owned(),
            name: json::text(service, "name").to_owned(),
            port: service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            path: format!("{slash}{path}"),
        }
    }

    /// The URL of the requests. For a Service the host is its DNS name, which the webhook's certificate contains.
    pub fn url(&self) -> String {
        match self {
            Self::Url(url) => url.clone(),
            Self::Service { namespace, name, port, path } => format!("https://{name}.{namespace}.svc:{port}{path}"),
        }
    }
}

/// PEM of the CA certificates in a `clientConfig`; `None` means those of the machine. The server rejects a bundle that
/// is not base64 when the object is written. An unusable bundle fails at the first connection.
pub fn ca_bundle(config: &Value) -> Option<Vec<u8>> {
    let bundle = json::text(config, "caBundle");
    (!bundle.is_empty()).then(|| STANDARD.decode(bundle).unwrap_or_default())
}

/// One webhook.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// The name in messages.
    pub name: String,
    /// The name of the configuration and the index in it; unique.
    pub id: String,
    /// The address.
    pub endpoint: Endpoint,
    /// PEM of the CA certificates that verify the webhook's certificate; `None` means those of the machine.
    pub ca_bundle: Option<Vec<u8>>,
    /// The time limit of the response.
    pub timeout: Duration,
    /// Whether the request passes if the call of the webhook fails (failure policy `Ignore`).
    pub fails_open: bool,
    /// Whether a call has side effects even for a dry run.
    pub has_side_effects: bool,
    /// Whether the webhook is called again if others change the object after it.
    pub is_reinvoked: bool,
    /// Whether the webhook accepts `admission.k8s.io/v1`.
    pub knows_v1: bool,
    pub(super) equivalent: bool,
    pub(super) rules: Vec<Rule>,
    pub(super) namespaces: Selector,
    pub(super) objects: Selector,
    pub(super) conditions: Arc<Conditions>,
}

impl Webhook {
    /// The webhooks of a configuration of either kind.
    pub fn all_of(configuration: &Value) -> impl Iterator<Item = Self> + '_ {
        let owner = meta::name(configuration);
        json::list(configuration, "webhooks").iter().enumerate().map(move |(index, webhook)| Self::from(owner, index, webhook))
    }

    fn from(owner: &str, index: usize, webhook: &Value) -> Self {
        let text = |field: &str| json::text(webhook, field);
        let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
        Self {
            name: text("name").to_owned(),
            id: format!("{owner}/{}/{index}", text("name")),
            endpoint: Endpoint::from(config),
            ca_bundle: ca_bundle(config),
            timeout: Duration::from_secs(webhook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(TIMEOUT_SECONDS)),
            fails_open: text("failurePolicy") == "Ignore",
            has_side_effects: !matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            knows_v1: json::list(webhook, "admissionReviewVersions").iter().any(|version| version == "v1"),
            equivalent: text("matchPolicy") != "Exact",
            rules: json::list(webhook, "rules").iter().map(Rule::from).collect(),
            namespaces: selector(webhook.get("namespaceSelector")),
            objects: selector(webhook.get("objectSelector")),
            conditions: Arc::new(Conditions::new(webhook, false)),
        }
    }
}
