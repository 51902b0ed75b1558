//! The credentials of triggers: where a TriggerAuthentication finds them, and how a request shows them.
//!
//! No value of a Secret goes into an error, an event, a status or a log.

use std::collections::{BTreeMap, BTreeSet};

use api_client::informer::ObjectKey;
use api_model::message::Message;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;

use super::http::{ClientTls, Request};
use super::kinds::{ClusterTriggerAuthentication, TriggerAuthentication};
use super::params::Params;
use super::spec::AuthenticationRef;
use crate::writes;

/// The namespace of the Secrets of ClusterTriggerAuthentications: upstream's is that of its operator.
pub const CLUSTER_NAMESPACE: &str = "keda";
/// Entries of one source. The definition of TriggerAuthentication has the same limit; one of upstream's has none.
const ENTRIES_MAX: usize = 50;
/// Sources of credentials that this version does not read.
const UNREAD: [&str; 8] =
    ["env", "filePath", "hashiCorpVault", "azureKeyVault", "gcpSecretManager", "awsSecretManager", "boundServiceAccountToken", "oauth2"];
const MODES: [&str; 6] = ["apiKey", "basic", "tls", "bearer", "custom", "oauth"];
/// Modes that exclude each other.
const EXCLUSIVE: [&str; 3] = ["bearer", "basic", "oauth"];

/// Credentials by the name of the parameter.
pub type Credentials = BTreeMap<String, String>;

/// Reads the credentials that a trigger refers to.
pub async fn credentials(client: &kube::Client, namespace: &str, reference: &AuthenticationRef) -> Result<Credentials, Message> {
    if reference.name.is_empty() {
        return Ok(Credentials::new());
    }
    let (spec, namespace) = spec(client, namespace, reference).await?;
    let name = &reference.name;
    let is_set = |value: &&Value| !value.is_null() && !value.as_array().is_some_and(Vec::is_empty) && value.as_str() != Some("");
    if let Some(source) = UNREAD.into_iter().find(|source| spec.get(source).as_ref().is_some_and(is_set)) {
        return Err(format!("error getting triggerAuth {name}: {source} is not supported").into());
    }
    if let Some(provider) = spec.pointer("/podIdentity/provider").and_then(Value::as_str).filter(|provider| *provider != "none") {
        return Err(format!("error getting triggerAuth {name}: pod identity provider {provider} is not supported").into());
    }
    let mut credentials = Credentials::new();
    for source in ["configMapTargetRef", "secretTargetRef"] {
        let entries = entries(&spec, source).map_err(|why| format!("error getting triggerAuth {name}: {why}"))?;
        let mut read = BTreeMap::new();
        for object in entries.iter().map(|entry| entry.object).collect::<BTreeSet<_>>() {
            let key = ObjectKey::new(namespace, object);
            read.insert(object, if source == "secretTargetRef" { secret(client, key).await? } else { config(client, key).await? });
        }
        for Entry { parameter, object, key } in entries {
            if let Some(data) = read.get(object) {
                credentials.insert(parameter.to_owned(), data.value(key)?);
            }
        }
    }
    Ok(credentials)
}

/// One parameter, and where its value is.
struct Entry<'a> {
    parameter: &'a str,
    object: &'a str,
    key: &'a str,
}

fn entries<'a>(spec: &'a Value, source: &str) -> Result<Vec<Entry<'a>>, Message> {
    let list = spec.get(source).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if list.len() > ENTRIES_MAX {
        return Err(format!("{} entries of {source} are more than {ENTRIES_MAX}", list.len()).into());
    }
    let text = |entry: &'a Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    let entry = |entry| Entry { parameter: text(entry, "parameter"), object: text(entry, "name"), key: text(entry, "key") };
    Ok(list.iter().map(entry).collect())
}

async fn spec<'a>(client: &kube::Client, namespace: &'a str, reference: &AuthenticationRef) -> Result<(Value, &'a str), Message> {
    let name = &reference.name;
    let failed = |why: String| Message::from(format!("error getting triggerAuth {name}: {why}"));
    if reference.is_cluster() {
        let read = writes::get::<ClusterTriggerAuthentication>(client, &ObjectKey::new("", name)).await;
        let read = read.map_err(|failure| failed(failure.message()))?;
        let object = read.ok_or_else(|| failed(format!("clustertriggerauthentications.keda.sh {name:?} not found")))?;
        return Ok((object.spec, CLUSTER_NAMESPACE));
    }
    let read = writes::get::<TriggerAuthentication>(client, &ObjectKey::new(namespace, name)).await;
    let read = read.map_err(|failure| failed(failure.message()))?;
    let object = read.ok_or_else(|| failed(format!("triggerauthentications.keda.sh {name:?} not found")))?;
    Ok((object.spec, namespace))
}

/// The content of a Secret or a ConfigMap. Has no `Debug`: it would print the values.
struct Data {
    what: &'static str,
    object: ObjectKey,
    values: BTreeMap<String, Vec<u8>>,
}

impl Data {
    fn value(&self, key: &str) -> Result<String, Message> {
        let Self { what, object, values } = self;
        let value = values.get(key).ok_or_else(|| format!("error trying to get {what} {object}: no key {key:?}"))?;
        String::from_utf8(value.clone())
            .map_err(|_| format!("error trying to get {what} {object}: the value of key {key:?} is no text").into())
    }
}

async fn secret(client: &kube::Client, object: ObjectKey) -> Result<Data, Message> {
    let secret: Secret = get(client, "secret", &object).await?;
    let values = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    Ok(Data { what: "secret", object, values })
}

async fn config(client: &kube::Client, object: ObjectKey) -> Result<Data, Message> {
    let config: ConfigMap = get(client, "config map", &object).await?;
    let values = config.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes())).collect();
    Ok(Data { what: "config map", object, values })
}

async fn get<K: writes::Object>(client: &kube::Client, what: &str, object: &ObjectKey) -> Result<K, Message> {
    let read =
        writes::get(client, object).await.map_err(|failure| format!("error trying to get {what} {object}: {}", failure.message()))?;
    read.ok_or_else(|| format!("error trying to get {what} {object}: not found").into())
}

/// How a request shows the credentials. Has no `Debug`: it would print them.
#[derive(Default)]
pub struct Auth {
    bearer: Option<String>,
    basic: Option<(String, String)>,
    custom: Option<(String, String)>,
    api_key: Option<ApiKey>,
    client: Option<(String, String)>,
    authority: Option<String>,
}

struct ApiKey {
    name: Option<String>,
    key: String,
    is_in_query: bool,
}

impl Auth {
    /// Reads the modes from the metadata or the credentials. Problems go to `params`.
    pub fn parse(params: &mut Params<'_>, credentials: &Credentials) -> Self {
        let credential = |name: &str| credentials.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
        let either = |params: &Params<'_>, name: &str| params.get(name).or_else(|| credential(name)).map(str::to_owned);
        let modes = either(params, "authModes").or_else(|| either(params, "authMode")).unwrap_or_default();
        let modes: Vec<&str> = modes.split(',').map(str::trim).filter(|mode| !mode.is_empty()).collect();
        if modes.iter().any(|mode| !MODES.contains(mode)) {
            params.fail(format!("parameter \"authModes,authMode\" must be one of [{}]", MODES.join(" ")));
        }
        if modes.iter().filter(|mode| EXCLUSIVE.contains(mode)).count() > 1 {
            params.fail(format!("parameter \"authModes,authMode\" must contain only one of [{}]", EXCLUSIVE.join(" ")));
        }
        let mut auth = Self::default();
        for mode in modes {
            match mode {
                "bearer" => match credential("bearerToken").or_else(|| credential("token")) {
                    Some(token) => auth.bearer = Some(token.to_owned()),
                    None => params.fail("bearer token=<empty> is required when bearer auth is enabled"),
                },
                "basic" => match credential("username") {
                    Some(name) => auth.basic = Some((name.to_owned(), credential("password").unwrap_or_default().to_owned())),
                    None => params.fail("username=<empty> is required when basic auth is enabled"),
                },
                "tls" => match (credential("cert"), credential("key")) {
                    (Some(certificate), Some(key)) => auth.client = Some((certificate.to_owned(), key.to_owned())),
                    (certificate, key) => params.fail(format!(
                        "cert={} and key={} are required when tls auth is enabled",
                        presence(certificate),
                        presence(key)
                    )),
                },
                "custom" => match (credential("customAuthHeader"), credential("customAuthValue")) {
                    (Some(name), Some(value)) => auth.custom = Some((name.to_owned(), value.to_owned())),
                    (name, value) => params.fail(format!(
                        "customAuthHeader={} and customAuthValue={} are required when custom auth is enabled",
                        presence(name),
                        presence(value)
                    )),
                },
                "apiKey" => {
                    let is_in_query = either(params, "method").as_deref() == Some("query");
                    match either(params, "apiKey") {
                        Some(key) => auth.api_key = Some(ApiKey { name: either(params, "keyParamName"), key, is_in_query }),
                        None => params.fail("apiKey is required when apiKey auth is enabled"),
                    }
                }
                "oauth" => params.fail("authMode oauth is not supported"),
                _ => {}
            }
        }
        auth.authority = credential("ca").map(str::to_owned);
        auth
    }

    /// Shows the credentials in a request.
    pub fn apply(&self, request: &mut Request) {
        if let Some(token) = &self.bearer {
            request.header("Authorization", format!("Bearer {token}"));
        }
        if let Some((name, password)) = &self.basic {
            request.basic_auth(name, password);
        }
        if let Some((name, value)) = &self.custom {
            request.header(name, value.clone());
        }
        match &self.api_key {
            Some(ApiKey { name, key, is_in_query: true }) => request.query(name.as_deref().unwrap_or("api_key"), key),
            Some(ApiKey { name, key, is_in_query: false }) => request.header(name.as_deref().unwrap_or("X-API-KEY"), key.clone()),
            None => {}
        }
        request.tls = ClientTls { client: self.client.clone(), authority: self.authority.clone() };
    }
}

fn presence(value: Option<&str>) -> &'static str {
    if value.is_some() { "<present>" } else { "<empty>" }
}
