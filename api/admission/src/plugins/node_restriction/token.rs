//! Tokens of ServiceAccounts that a node requests. The token must be bound to a Pod of the node. A volume of the Pod
//! must need the audience, or an administrator must allow it to the node (upstream's
//! ServiceAccountNodeAudienceRestriction).

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::request::Attributes;
use api_model::view::View;
use serde_json::Value;

use super::{Problem, bound_to, refuse, stored_pod};
use crate::json;
use crate::plugin::Allows;
use crate::pods;
use crate::request::{Operation, Request};

/// The verb that a node needs. The resource of the check is the audience, its name is the ServiceAccount's name.
const AUDIENCE_VERB: &str = "request-serviceaccounts-token-audience";

/// A node may request tokens only for its own Pods.
pub(super) fn token(node: &str, request: &Request<'_>, view: &dyn View, allows: &Allows) -> Result<(), Problem> {
    if request.operation != Operation::Create || request.subresource != "token" {
        return Ok(());
    }
    let reference = request.object().and_then(|o| o.pointer("/spec/boundObjectRef")).unwrap_or(&Value::Null);
    let (name, uid) = (json::text(reference, "name"), json::text(reference, "uid"));
    if json::text(reference, "apiVersion") != "v1" || json::text(reference, "kind") != "Pod" || name.is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let pod = stored_pod(request.namespace, name, view)?;
    if uid != meta::uid(&pod) {
        return refuse(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if !bound_to(&pod, node) {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audiences = request.object().and_then(|o| o.pointer("/spec/audiences")).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let audience = match audiences {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if mounts_token_for(&pod, audience, view) || may_ask_for(audience, request, view, allows) {
        return Ok(());
    }
    let user = &request.user.username;
    refuse(format!("audience {audience:?} not found in pod spec volume, {user} is not authorized to request tokens for this audience"))
}

fn may_ask_for(audience: &str, request: &Request<'_>, view: &dyn View, allows: &Allows) -> bool {
    let attributes = Attributes {
        verb: AUDIENCE_VERB.to_owned(),
        version: "v1".to_owned(),
        resource: audience.to_owned(),
        namespace: request.namespace.to_owned(),
        name: request.name.to_owned(),
        ..Attributes::default()
    };
    allows(request.user, &attributes, view)
}

/// Whether a volume of the Pod needs a token for the audience: a projected volume, or the driver of a CSI volume.
fn mounts_token_for(pod: &Value, audience: &str, view: &dyn View) -> bool {
    let namespace = meta::namespace(pod);
    json::list(pods::spec(pod), "volumes").iter().any(|volume| {
        let sources = volume.pointer("/projected/sources").and_then(Value::as_array).into_iter().flatten();
        let mut tokens = sources.filter_map(|source| source.get("serviceAccountToken")).filter(|token| token.is_object());
        let claim = match json::text_at(volume, "/persistentVolumeClaim/claimName") {
            "" if json::has(volume, "ephemeral") => format!("{}-{}", meta::name(pod), json::text(volume, "name")),
            name => name.to_owned(),
        };
        let drivers = [json::text_at(volume, "/csi/driver").to_owned(), driver_of(namespace, &claim, view)];
        tokens.any(|token| json::text(token, "audience") == audience) || drivers.iter().any(|driver| asks_for(driver, audience, view))
    })
}

/// The CSI driver of the volume that a claim is bound to; empty if there is none.
fn driver_of(namespace: &str, claim: &str, view: &dyn View) -> String {
    let find = |resource: &str, namespace: Option<&str>, name: &str| {
        (!name.is_empty()).then(|| view.get(&GroupResource::new("", resource), namespace, name))?
    };
    let volume = find("persistentvolumeclaims", Some(namespace), claim)
        .and_then(|claim| find("persistentvolumes", None, json::text_at(&claim, "/spec/volumeName")));
    volume.map(|volume| json::text_at(&volume, "/spec/csi/driver").to_owned()).unwrap_or_default()
}

/// Whether a driver requests tokens for the audience.
fn asks_for(driver: &str, audience: &str, view: &dyn View) -> bool {
    let driver = view.get(&GroupResource::new("storage.k8s.io", "csidrivers"), None, driver).filter(|_| !driver.is_empty());
    let requests = driver.as_ref().and_then(|driver| driver.pointer("/spec/tokenRequests")).and_then(Value::as_array);
    requests.into_iter().flatten().any(|token| json::text(token, "audience") == audience)
}
