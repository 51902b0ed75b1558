//! The environment of a container, with upstream's order and rules: `envFrom`; then `env`, where `$(NAME)` is replaced by an
//! earlier variable; then Service links for names that are still free. The image's own variables have the lowest precedence.
//! Decisions are pure; objects come from a [`node_volumes::Source`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource, FileKeySelector, Pod, Service};
use node_volumes::{Allocatable, Source, SourceError, Volumes, metadata_field, resource_field};

use super::{ConfigError, env_file, service_env};

/// What the environment is made from, beside the Pod.
pub(crate) struct Sources<'a> {
    /// ConfigMaps and Secrets.
    pub(crate) objects: &'a dyn Source,
    /// Services for links: those of the Pod's namespace and the master's.
    pub(crate) services: &'a [std::sync::Arc<Service>],
    /// The Pod's addresses.
    pub(crate) pod_ips: &'a [IpAddr],
    /// The node's addresses.
    pub(crate) host_ips: &'a [IpAddr],
    /// The node's values.
    pub(crate) allocatable: Allocatable,
    /// The Pod's volumes, which are set up.
    pub(crate) volumes: &'a Volumes,
}

/// The longest environment: the kernel passes no more to a program.
pub(crate) const LEN_MAX: usize = 6 << 20;
/// The most bytes of files that are looked through for the variables of one container.
const FILES_LEN_MAX: usize = 64 << 20;

/// Bytes that a Pod makes the node use, up to a bound.
struct Room {
    what: &'static str,
    max: usize,
    len: usize,
}

impl Room {
    fn take(&mut self, len: usize) -> Result<(), ConfigError> {
        self.len = self.len.saturating_add(len);
        if self.len > self.max { Err(ConfigError(format!("{} is longer than {} bytes", self.what, self.max))) } else { Ok(()) }
    }
}

/// The files that give variables, read once where variables of one file follow each other.
struct EnvFiles {
    /// Volume and path of the last one, and its text.
    last: Option<((String, String), String)>,
    room: Room,
}

impl EnvFiles {
    async fn value(&mut self, pod: &Pod, wanted: &FileKeySelector, volumes: &Volumes) -> Result<Option<String>, ConfigError> {
        let id = (wanted.volume_name.clone(), wanted.path.clone());
        let text = match self.last.take().filter(|(last, _)| *last == id) {
            Some((_, text)) => text,
            None => {
                let dir = volumes.empty_dir(pod, &wanted.volume_name);
                let dir =
                    dir.ok_or_else(|| ConfigError(format!("cannot find the volume {:?} referenced by FileKeyRef", wanted.volume_name)))?;
                let path = wanted.path.clone();
                let read = api_tasks::blocking("node-agent/env-file", move || env_file::read(&dir, &path)).await;
                read.unwrap_or_else(|_| Err(ConfigError("couldn't parse env file: interrupted".to_owned())))?
            }
        };
        self.room.take(text.len())?;
        let value = env_file::selected(&text, wanted);
        self.last = Some((id, text));
        value
    }
}

/// The variables that the Pod and its Services give a container, by name.
pub(crate) async fn variables(pod: &Pod, container: &Container, from: &Sources<'_>) -> Result<BTreeMap<String, String>, ConfigError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let services = service_env::variables(from.services, namespace, links);
    let (mut vars, mut room) = (BTreeMap::new(), Room { what: "the environment", max: LEN_MAX, len: 0 });
    let mut files = EnvFiles { last: None, room: Room { what: "what variables take from files", max: FILES_LEN_MAX, len: 0 } };
    for source in container.env_from.iter().flatten() {
        for (name, value) in from_object(source, namespace, from).await? {
            room.take(name.len() + value.len())?;
            vars.insert(name, value);
        }
    }
    for var in container.env.iter().flatten() {
        let value = match (&var.value, &var.value_from) {
            (Some(value), _) if !value.is_empty() => expand(value, &|name| vars.get(name).or_else(|| services.get(name)).cloned()),
            (_, Some(source)) => match from_source((pod, container), source, namespace, from, &mut files).await? {
                Some(value) => value,
                None => continue,
            },
            _ => String::new(),
        };
        room.take(var.name.len() + value.len())?;
        vars.insert(var.name.clone(), value);
    }
    for (name, value) in services {
        vars.entry(name).or_insert(value);
    }
    Ok(vars)
}

/// The whole environment: the image's variables under the container's, `HOSTNAME` as every CRI
/// runtime sets it.
pub(crate) fn whole(image: &[(String, String)], hostname: &str, vars: BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = image.to_vec();
    if !vars.contains_key("HOSTNAME") {
        set(&mut all, "HOSTNAME".to_owned(), hostname.to_owned());
    }
    for (name, value) in vars {
        set(&mut all, name, value);
    }
    all
}

fn set(all: &mut Vec<(String, String)>, name: String, value: String) {
    match all.iter_mut().find(|(present, _)| *present == name) {
        Some(entry) => entry.1 = value,
        None => all.push((name, value)),
    }
}

/// Replaces `$(NAME)` where `lookup` has the name and `$$` by `$`, and copies the rest. Beyond the longest environment nothing is
/// replaced any more: a few references to long values could fill the memory.
pub(crate) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            let value = if out.len() > LEN_MAX { None } else { lookup(name) };
            out.push_str(&value.unwrap_or_else(|| format!("$({name})")));
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

async fn from_object(source: &EnvFromSource, namespace: &str, from: &Sources<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let pairs: Vec<(String, String)> = if let Some(wanted) = &source.config_map_ref {
        let data = found(from.objects.config_map(namespace, &wanted.name).await, wanted.optional)?;
        data.and_then(|map| map.data).unwrap_or_default().into_iter().collect()
    } else if let Some(wanted) = &source.secret_ref {
        let data = found(from.objects.secret(namespace, &wanted.name).await, wanted.optional)?;
        let data = data.and_then(|secret| secret.data).unwrap_or_default();
        data.into_iter().map(|(name, bytes)| (name, String::from_utf8_lossy(&bytes.0).into_owned())).collect()
    } else {
        Vec::new()
    };
    Ok(pairs.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)).filter(|(name, _)| is_name(name)).collect())
}

/// Upstream's relaxed rule since 1.34: printable ASCII without `=`.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'=')
}

async fn from_source(
    (pod, container): (&Pod, &Container),
    source: &EnvVarSource,
    namespace: &str,
    from: &Sources<'_>,
    files: &mut EnvFiles,
) -> Result<Option<String>, ConfigError> {
    if let Some(field) = &source.field_ref {
        let text = field_text(pod, &field.field_path, from);
        return text.map(Some).ok_or_else(|| ConfigError(format!("unsupported fieldPath: {}", field.field_path)));
    }
    if let Some(resource) = &source.resource_field_ref {
        let named = resource.container_name.as_deref().unwrap_or_default();
        let of = if named.is_empty() { Some(container) } else { super::find(pod, named).map(|(_, container)| container) };
        let of = of.ok_or_else(|| ConfigError(format!("container {named:?} not found")))?;
        return resource_field(pod, of, resource, from.allocatable).map(Some).map_err(|error| ConfigError(error.to_string()));
    }
    if let Some(wanted) = &source.config_map_key_ref {
        let map = found(from.objects.config_map(namespace, &wanted.name).await, wanted.optional)?;
        let value = map.and_then(|map| map.data).and_then(|mut data| data.remove(&wanted.key));
        return present(value, wanted.optional, &wanted.key, "ConfigMap", namespace, &wanted.name);
    }
    if let Some(wanted) = &source.secret_key_ref {
        let secret = found(from.objects.secret(namespace, &wanted.name).await, wanted.optional)?;
        let value = secret.and_then(|secret| secret.data).and_then(|mut data| data.remove(&wanted.key));
        let value = value.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
        return present(value, wanted.optional, &wanted.key, "Secret", namespace, &wanted.name);
    }
    if let Some(wanted) = &source.file_key_ref {
        return files.value(pod, wanted, from.volumes).await;
    }
    Err(ConfigError("the variable's valueFrom names no source that this node knows".to_owned()))
}

fn found<T>(object: Result<T, SourceError>, optional: Option<bool>) -> Result<Option<T>, ConfigError> {
    match object {
        Err(SourceError::NotFound { .. }) if optional == Some(true) => Ok(None),
        other => other.map(Some).map_err(|error| ConfigError(error.to_string())),
    }
}

fn present(
    value: Option<String>,
    optional: Option<bool>,
    key: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, ConfigError> {
    match value {
        None if optional != Some(true) => Err(ConfigError(format!("couldn't find key {key} in {kind} {namespace}/{name}"))),
        value => Ok(value),
    }
}

fn field_text(pod: &Pod, path: &str, from: &Sources<'_>) -> Option<String> {
    let spec = pod.spec.as_ref();
    let list = |ips: &[IpAddr]| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
    let first = |ips: &[IpAddr]| ips.first().map(IpAddr::to_string).unwrap_or_default();
    match path {
        "spec.nodeName" => Some(spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default()),
        "spec.serviceAccountName" => Some(spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()),
        "status.hostIP" => Some(first(from.host_ips)),
        "status.hostIPs" => Some(list(from.host_ips)),
        "status.podIP" => Some(first(from.pod_ips)),
        "status.podIPs" => Some(list(from.pod_ips)),
        other => metadata_field(pod, other),
    }
}

#[cfg(test)]
mod tests;
