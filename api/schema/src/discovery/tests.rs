use api_model::kind;
use serde_json::json;

use super::*;

/// A few kinds that cover every form of the documents.
fn kinds() -> Vec<Arc<Kind>> {
    let wanted = [("", "namespaces"), ("", "nodes"), ("", "serviceaccounts"), ("apps", "deployments"), ("policy", "poddisruptionbudgets")];
    let mut kinds: Vec<Arc<Kind>> = wanted.iter().filter_map(|(group, plural)| kind::find(group, plural)).cloned().collect();
    assert_eq!(kinds.len(), wanted.len());
    let mut beta = Kind::clone(kinds.last().expect("not empty"));
    beta.version = "v1beta1".to_owned();
    kinds.push(Arc::new(beta));
    kinds
}

#[test]
fn core_is_listed_apart_from_the_groups() {
    let versions = api_versions("192.0.2.1:6443");
    assert_eq!(versions["serverAddressByClientCIDRs"], json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": "192.0.2.1:6443"}]));
    insta::assert_json_snapshot!(api_group_list(&kinds()));
}

#[test]
fn a_group_prefers_its_first_version() {
    let group = api_group("policy", &kinds()).expect("served");
    assert_eq!(group["preferredVersion"]["groupVersion"], "policy/v1");
    assert_eq!((&group["kind"], &group["apiVersion"]), (&json!("APIGroup"), &json!("v1")));
    assert!(api_group("example.com", &kinds()).is_none());
}

#[test]
fn resource_lists_have_upstreams_rows() {
    insta::assert_json_snapshot!(api_resource_list("", "v1", &kinds()));
    insta::assert_json_snapshot!(api_resource_list("apps", "v1", &kinds()));
    assert!(api_resource_list("apps", "v2", &kinds()).is_none());
}

/// The hashes come from real clusters.
#[test]
fn storage_versions_have_upstreams_hashes() {
    let hash = |group: &str, plural: &str| storage_version_hash(kind::find(group, plural).expect("served"));
    assert_eq!(hash("", "pods").as_deref(), Some("xPOwRZ+Yhw8="));
    assert_eq!(hash("apps", "deployments").as_deref(), Some("8aSe+NMegvE="));
    assert_eq!(hash("events.k8s.io", "events").as_deref(), Some("r2yiGXH7wu8="));
    assert_eq!(hash("", "events"), hash("events.k8s.io", "events"));
    assert_eq!((hash("", "bindings"), hash("", "componentstatuses")), (None, None), "nothing is stored");
    let mut custom = Kind::clone(kind::find("apps", "deployments").expect("served"));
    custom.version = "v2".to_owned();
    custom.custom = Some(Arc::new(kind::Custom { storage_version: Some("v1".to_owned()), ..kind::Custom::default() }));
    assert_eq!(storage_version_hash(&custom).as_deref(), Some("8aSe+NMegvE="));
    custom.custom = Some(Arc::default());
    assert_eq!(storage_version_hash(&custom), None, "the stored version is not served");
}

#[test]
fn aggregated_documents_hold_the_same_in_one() {
    insta::assert_json_snapshot!(aggregated(&kinds(), true, false));
    insta::assert_json_snapshot!(aggregated(&kinds(), false, false));
    let beta = aggregated(&kinds(), false, true);
    assert_eq!(beta["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    assert_eq!(beta["items"], aggregated(&kinds(), false, false)["items"]);
}
