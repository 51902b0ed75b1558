//! `downwardAPI` volumes: fields of the Pod as files. The agent's environment variables use the same text of those fields.

use api_model::quantity;
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, Pod, ResourceFieldSelector, Volume};
use thiserror::Error;

use crate::kind::{Context, VolumeKind};
use crate::payload::{self, File, Medium, Payload};
use crate::{Allocatable, VolumeError};

/// The kind.
pub(crate) struct DownwardVolume;

#[async_trait]
impl VolumeKind for DownwardVolume {
    fn name(&self) -> &'static str {
        "downward-api"
    }

    async fn set_up(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        let Some(wanted) = &volume.downward_api else { return Ok(None) };
        let mut payload = Payload::default();
        add_files(context, wanted.items.as_deref().unwrap_or_default(), payload::mode(wanted.default_mode), &mut payload)?;
        payload::write(context, self.path(&context.pod_dir, volume), Medium::Memory, payload).await?;
        Ok(None)
    }

    fn read_only(&self, _volume: &Volume) -> bool {
        true
    }
}

/// Adds the files of a `downwardAPI` item list.
pub(crate) fn add_files(
    context: &Context<'_>,
    items: &[DownwardAPIVolumeFile],
    mode: u32,
    payload: &mut Payload,
) -> Result<(), VolumeError> {
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            metadata_field(context.pod, &field.field_path)
                .ok_or_else(|| VolumeError::BadField(format!("unsupported fieldPath: {}", field.field_path)))?
        } else if let Some(resource) = &item.resource_field_ref {
            let name = resource.container_name.as_deref().unwrap_or_default();
            let container = container(context.pod, name).ok_or_else(|| VolumeError::BadField(format!("container {name:?} not found")))?;
            resource_field(context.pod, container, resource, context.allocatable)
                .map_err(|error| VolumeError::BadField(error.to_string()))?
        } else {
            continue;
        };
        payload.add(
            &item.path,
            File { bytes: text.into_bytes(), mode: item.mode.map_or(mode, |mode| payload::mode(Some(mode))), owner: None },
        )?;
    }
    Ok(())
}

/// The text of a `metadata.…` field path: name, namespace, uid, labels and annotations whole (lines of
/// `key="value"`) or by key. `None` for any other path.
pub fn metadata_field(pod: &Pod, path: &str) -> Option<String> {
    let metadata = &pod.metadata;
    if let Some((map, key)) = path.strip_suffix(']').and_then(|path| path.split_once('[')) {
        let key = key.trim_matches(['\'', '"']);
        let map = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return None,
        };
        return Some(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let lines = |map: &Option<std::collections::BTreeMap<String, String>>| {
        let lines: Vec<String> = map.iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
        lines.join("\n")
    };
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.labels" => Some(lines(&metadata.labels)),
        "metadata.annotations" => Some(lines(&metadata.annotations)),
        _ => None,
    }
}

/// Go's `%q`, near enough: JSON's escapes are a subset of it for all text that labels can hold.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Why a `resourceFieldRef` has no value.
#[derive(Debug, Error)]
pub enum FieldError {
    /// Neither `limits.…` nor `requests.…`; the words are upstream's.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// A quantity is malformed.
    #[error(transparent)]
    Quantity(#[from] quantity::QuantityError),
}

/// The text of a `resourceFieldRef`: requests or limits divided by the divisor, rounded up. A missing limit is that of the whole Pod,
/// else the node's amount, a missing request is 0, as upstream.
pub fn resource_field(pod: &Pod, container: &Container, wanted: &ResourceFieldSelector, node: Allocatable) -> Result<String, FieldError> {
    let (list, resource) = wanted.resource.split_once('.').ok_or_else(|| FieldError::Resource(wanted.resource.clone()))?;
    let resources = container.resources.as_ref();
    let quantities = match list {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(FieldError::Resource(wanted.resource.clone())),
    };
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()).and_then(|resources| resources.limits.as_ref());
    let of_pod = of_pod.and_then(|limits| limits.get(resource)).map(|limit| quantity::milli(&limit.0)).transpose()?.filter(|n| *n > 0);
    let fallback = match (list, resource) {
        ("limits", "cpu") => of_pod.unwrap_or(i128::from(node.cpu_milli)),
        ("limits", "memory") => of_pod.unwrap_or(i128::from(node.memory_bytes) * 1_000),
        ("limits", "ephemeral-storage") => i128::from(node.ephemeral_storage_bytes) * 1_000,
        _ => 0,
    };
    let declared = quantities.and_then(|quantities| quantities.get(resource));
    let declared = declared.map(|quantity| quantity::milli(&quantity.0)).transpose()?;
    // As upstream, a limit of 0 is none.
    let milli = declared.filter(|milli| *milli > 0).unwrap_or(fallback);
    let divisor = wanted.divisor.as_ref().map(|divisor| quantity::milli(&divisor.0)).transpose()?;
    let divisor = divisor.filter(|divisor| *divisor > 0).unwrap_or(1_000);
    Ok((milli.div_euclid(divisor) + i128::from(milli.rem_euclid(divisor) != 0)).to_string())
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|container| container.name == name)
}
