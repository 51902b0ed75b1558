//! The Service that a trigger names: one of the object's own namespace, with a cluster IP.

use std::collections::BTreeSet;
use std::sync::Arc;

use api_client::informer::{Informer, ObjectKey};
use api_model::message::Message;
use k8s_openapi::api::core::v1::Service;

use crate::keda::params::Params;
use crate::keda::spec::TriggerSpec;
use crate::service;

/// The setting.
pub const SERVICE: &str = "service";

/// Reads the setting.
pub fn parse(params: &mut Params<'_>, namespace: &str) -> ObjectKey {
    let name = params.required(SERVICE);
    if name.contains('/') {
        params.fail(format!("{SERVICE} {name:?} must be the name of a Service in the same namespace"));
    }
    ObjectKey::new(namespace, name)
}

/// Finds the Service. `through`: what passes through its cluster IP.
pub fn find(services: &Informer<Service>, key: &ObjectKey, through: &str) -> Result<Arc<Service>, Message> {
    let service = services.get(key).ok_or_else(|| format!("service {key} not found"))?;
    if !has_address(&service) {
        return Err(format!("service {key} has no cluster IP, through which {through}").into());
    }
    Ok(service)
}

fn has_address(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let is_external = spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName");
    let has_ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).is_some_and(|ip| !ip.is_empty());
    has_ip && !is_external && !service::is_headless(service)
}

/// The names of the Services that triggers of these types name.
pub fn names<'a>(triggers: &'a [TriggerSpec], types: &[&str]) -> BTreeSet<&'a str> {
    let own = triggers.iter().filter(|trigger| types.contains(&trigger.type_.as_str()));
    own.filter_map(|trigger| Params::new(&trigger.metadata).get(SERVICE)).collect()
}
