//! The object that an autoscaler scales, by its `scale` subresource: of any kind that has one.

use std::sync::Arc;

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use thiserror::Error;

use super::proposal::Replicas;
use crate::discovery::Resources;
use crate::failure::{During, Failure};

/// The attempts at one change of the scale while others change the object; upstream's `retry.DefaultRetry`.
const TRIES_MAX: usize = 5;

/// Why the scale could not be read. The texts are upstream's.
#[derive(Debug, Error)]
pub enum NoScale {
    /// The reference has an invalid version.
    #[error("unexpected GroupVersion string: {0}")]
    Version(String),
    /// The kind is not served.
    #[error("no matches for kind {kind:?} in group {group:?}")]
    NoKind {
        /// The kind.
        kind: String,
        /// The group.
        group: String,
    },
    /// The request failed.
    #[error("{}", .0.message())]
    Request(#[from] Failure),
}

/// The target with its scale as it was read.
pub struct Target {
    api: Api<DynamicObject>,
    name: String,
    scale: Scale,
}

impl Target {
    /// Reads the scale of the referenced object, in the version that the server prefers.
    pub async fn get(
        client: &kube::Client,
        resources: &Arc<Resources>,
        namespace: &str,
        reference: &CrossVersionObjectReference,
    ) -> Result<Self, NoScale> {
        let CrossVersionObjectReference { api_version, kind, name } = reference;
        let api_version = api_version.as_deref().unwrap_or_default();
        let group = match api_version.split('/').collect::<Vec<_>>().as_slice() {
            [_] => "",
            [group, _] => group,
            _ => return Err(NoScale::Version(api_version.to_owned())),
        };
        let resource = resources.find(|one| one.group == group && one.kind == *kind).await?;
        let resource = resource.ok_or_else(|| NoScale::NoKind { kind: kind.clone(), group: group.to_owned() })?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource.api_resource());
        let scale = api.get_scale(name).await.during("reading the scale of", format!("{kind} {name}"))?;
        Ok(Self { api, name: name.clone(), scale })
    }

    /// The numbers of replicas.
    pub fn replicas(&self) -> Replicas {
        let spec = self.scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        Replicas { spec, status: self.scale.status.as_ref().map_or(0, |status| status.replicas) }
    }

    /// The selector of the target's Pods; empty without one.
    pub fn selector(&self) -> &str {
        self.scale.status.as_ref().and_then(|status| status.selector.as_deref()).unwrap_or_default()
    }

    /// Sets the number of replicas. If the object has changed since it was read, reads it again.
    pub async fn rescale(&mut self, replicas: i32) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.scale.spec.get_or_insert_default().replicas = Some(replicas);
            let written = self.api.replace_scale(&self.name, &PostParams::default(), &self.scale).await;
            match written.during("writing the scale of", &self.name) {
                Err(failure) if failure.is_conflict() && tries < TRIES_MAX => {
                    self.scale = self.api.get_scale(&self.name).await.during("reading the scale of", &self.name)?;
                }
                written => return written.map(|_| ()),
            }
        }
    }
}
