//! Claims for devices that templates make for Pods.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::{Cluster, from, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_makes_a_claim_that_goes_with_its_pod() {
    let cluster = Cluster::start(|_| {}).await;
    let claims = [json!({"name": "gpu", "resourceClaimTemplateName": "gpu"}), json!({"name": "nic", "resourceClaimName": "nic"})];
    let spec = json!({"containers": [{"name": "c", "image": "none"}], "resourceClaims": claims});
    cluster.api::<Pod>().create(&PostParams::default(), &from(json!({"metadata": {"name": "p"}, "spec": spec}))).await.expect("a Pod");
    until("the template is missing", cluster.api::<Event>(), |all| {
        let message = r#"PodResourceClaim gpu: resource claim template "gpu": resourceclaimtemplate.resource.k8s.io "gpu" not found"#;
        all.values()
            .any(|event| event.reason.as_deref() == Some("FailedResourceClaimCreation") && event.message.as_deref() == Some(message))
    })
    .await;
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]);
    let template =
        json!({"metadata": {"name": "gpu"}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": requests}}}});
    cluster.api::<ResourceClaimTemplate>().create(&PostParams::default(), &from(template)).await.expect("a template");
    let name = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
        statuses.into_iter().flatten().find(|status| status.name == "gpu").and_then(|status| status.resource_claim_name.clone())
    };
    until("the name of the claim", cluster.api::<Pod>(), |all| all.get("p").and_then(name).is_some()).await;
    let pod = cluster.api::<Pod>().get("p").await.expect("the Pod");
    let generated = name(&pod).expect("a name");
    let claim = cluster.api::<ResourceClaim>().get(&generated).await.expect("the claim");
    assert!(generated.starts_with("p-gpu-") && claim.labels().contains_key("a"), "{generated}");
    assert_eq!(claim.owner_references()[0].uid, pod.uid().expect("a UID"));
    assert_eq!(claim.annotations()["resource.kubernetes.io/pod-claim-name"], "gpu");
    let all = cluster.api::<ResourceClaim>().list(&ListParams::default()).await.expect("claims");
    assert_eq!(all.items.len(), 1, "one claim of one template");

    // As the scheduler does before it binds the Pod.
    let shared = json!({"metadata": {"name": "nic"}, "spec": {"devices": {"requests": requests}}});
    cluster.api::<ResourceClaim>().create(&PostParams::default(), &from(shared)).await.expect("a claim");
    for name in [generated.as_str(), "nic"] {
        let finalizers = Patch::Merge(json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}));
        cluster.api::<ResourceClaim>().patch(name, &PatchParams::default(), &finalizers).await.expect("protected");
        let result = json!({"request": "r", "driver": "d.example.com", "pool": "n", "device": name});
        let reserved = json!([{"resource": "pods", "name": "p", "uid": pod.uid()}]);
        let status = Patch::Merge(json!({"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}}));
        cluster.api::<ResourceClaim>().patch_status(name, &PatchParams::default(), &status).await.expect("allocated");
    }
    let phase = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    cluster.api::<Pod>().patch_status("p", &PatchParams::default(), &phase).await.expect("the Pod has ended");
    until("the claims are released", cluster.api::<ResourceClaim>(), |all| {
        let is_free = |claim: &ResourceClaim| {
            let status = claim.status.clone().unwrap_or_default();
            status.allocation.is_none() && status.reserved_for.unwrap_or_default().is_empty() && claim.finalizers().is_empty()
        };
        all.len() == 1 && all.get("nic").is_some_and(is_free)
    })
    .await;
    cluster.api::<ResourceClaim>().delete("nic", &DeleteParams::default()).await.expect("deleted");
    cluster.stop().await;
}
