//! The kinds of `keda.sh/v1alpha1` as the server delivers them. Spec and status stay JSON until they are used: an object that this
//! version cannot read must not end the watch of all others.

use std::borrow::Cow;
use std::sync::Arc;

use api_client::informer::{Cached, Change, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const GROUP: &str = "keda.sh";
const VERSION: &str = "v1alpha1";
const API_VERSION: &str = "keda.sh/v1alpha1";

macro_rules! kind {
    ($kind:ident, $plural:literal, $scope:ty, $about:literal) => {
        #[doc = $about]
        #[derive(Clone, Debug, Deserialize, Serialize)]
        pub struct $kind {
            /// Metadata.
            pub metadata: ObjectMeta,
            /// Spec.
            #[serde(default)]
            pub spec: Value,
            /// Status.
            #[serde(default)]
            pub status: Value,
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group(_: &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version(_: &()) -> Cow<'_, str> {
                VERSION.into()
            }

            fn api_version(_: &()) -> Cow<'_, str> {
                API_VERSION.into()
            }

            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Cached for $kind {}
    };
}

kind!(ScaledObject, "scaledobjects", NamespaceResourceScope, "A workload and the triggers that scale it.");
kind!(ScaledJob, "scaledjobs", NamespaceResourceScope, "A template of Jobs and the triggers that create them.");
kind!(TriggerAuthentication, "triggerauthentications", NamespaceResourceScope, "Where triggers of a namespace find their credentials.");
kind!(
    ClusterTriggerAuthentication,
    "clustertriggerauthentications",
    ClusterResourceScope,
    "Where triggers of all namespaces find their credentials."
);

/// The key of an object whose change is worth a pass: its spec or metadata changed, or it is new or gone. A status is the
/// controllers' own.
pub fn changed<K: kube::Resource<DynamicType = ()>>(change: &Change<K>) -> Vec<ObjectKey> {
    let is_worth_a_pass = match (&change.old, &change.new) {
        (Some(old), Some(new)) => significant(old.meta()) != significant(new.meta()),
        _ => true,
    };
    change.latest().filter(|_| is_worth_a_pass).map(|object: &Arc<K>| ObjectKey::from(object.meta())).into_iter().collect()
}

fn significant(meta: &ObjectMeta) -> impl PartialEq + '_ {
    (meta.generation, &meta.uid, &meta.annotations, &meta.labels, &meta.deletion_timestamp, &meta.finalizers)
}
