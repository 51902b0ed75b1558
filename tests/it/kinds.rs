//! Every kind with the real kubectl: discovered, explained and listed; and the life of the kinds that no part of skiff
//! acts on. These are stored, validated and printed like all others.

use tests::net::Net;
use tests::{Cluster, Kubectl};

const OBJECTS: &str = include_str!("kinds/objects.yaml");

/// The output of `kubectl get` for the objects: the heading, and the row without the age.
const PRINTED: &[(&str, &[&str], &[&str])] = &[
    (
        "hpa/web",
        &["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"],
        &["web", "Deployment/web", "cpu:", "<unknown>/60%,", "memory:", "<unknown>/1Gi", "1", "4", "0"],
    ),
    (
        "horizontalpodautoscalers.v1.autoscaling web",
        &["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"],
        &["web", "Deployment/web", "cpu:", "<unknown>/60%,", "memory:", "<unknown>/1Gi", "1", "4", "0"],
    ),
    ("ip/10.96.0.77", &["NAME", "PARENTREF", "AGE"], &["10.96.0.77", "services/default/web"]),
    ("servicecidr/more", &["NAME", "CIDRS", "AGE"], &["more", "10.250.0.0/24"]),
    ("workload/training", &["NAME", "AGE"], &["training"]),
    ("csistoragecapacity/here", &["NAME", "STORAGECLASSNAME", "CAPACITY"], &["here", "fast", "1Gi"]),
    (
        "volumeattachment/there",
        &["NAME", "ATTACHER", "PV", "NODE", "ATTACHED", "AGE"],
        &["there", "d.example.com", "pv", "node-1", "false"],
    ),
    ("vac/gold", &["NAME", "DRIVERNAME", "AGE"], &["gold", "d.example.com"]),
    ("deviceclass/gpu", &["NAME", "AGE"], &["gpu"]),
    ("resourceclaim/one", &["NAME", "STATE", "AGE"], &["one", "pending"]),
    ("resourceclaimtemplate/each", &["NAME", "AGE"], &["each"]),
    ("resourceslice/n-gpus", &["NAME", "NODE", "DRIVER", "POOL", "AGE"], &["n-gpus", "node-1", "d.example.com", "node-1"]),
    ("devicetaintrule/broken", &["NAME", "AGE"], &["broken"]),
    ("storageversionmigration/again", &["NAME", "RESOURCE"], &["again", "deployments.apps"]),
];

#[test]
fn every_kind_is_known_to_kubectl() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    every_kind_is_explained(&kubectl);
    objects_are_checked_by_the_server(&kubectl);
    objects_are_applied_and_printed(&kubectl);
    what_never_changes_does_not(&kubectl);
    components_are_listed(&kubectl);
}

fn every_kind_is_explained(kubectl: &Kubectl<'_>) {
    let all = kubectl.ok("api-resources --no-headers");
    assert!(all.lines().count() > 65, "{all}");
    // The resource is the name of a metric, so the group has no schema to explain.
    for line in all.lines().filter(|line| !line.contains("external.metrics.k8s.io")) {
        // Short names, if any, are between the name and the rest.
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, version) = (words[0], words[words.len() - 3]);
        let text = kubectl.ok(&format!("explain {name} --api-version={version} --recursive"));
        assert!(text.contains("DESCRIPTION:") && text.contains("FIELDS:") && text.contains("metadata\t<ObjectMeta>"), "{line}\n{text}");
    }
    let versions = kubectl.ok("explain hpa --api-version=autoscaling/v1");
    assert!(versions.contains("VERSION:    v1"), "{versions}");
    assert!(kubectl.ok("explain hpa.spec.metrics.resource.target").contains("averageUtilization"));
    for name in kubectl.ok("api-resources --verbs=list -o name").lines() {
        kubectl.ok(&format!("get {name} -A"));
    }
}

fn objects_are_checked_by_the_server(kubectl: &Kubectl<'_>) {
    let dry = kubectl.with_input("create --dry-run=server --validate=strict -f -", OBJECTS).ok();
    assert_eq!(dry.lines().filter(|line| line.ends_with("created (server dry run)")).count(), OBJECTS.matches("\nkind: ").count(), "{dry}");
    let strange = OBJECTS.replace("maxReplicas: 4", "maxReplicas: 4\n  colour: red");
    let complaint = kubectl.with_input("create --dry-run=server --validate=strict -f -", &strange).fails();
    assert!(complaint.contains("strict decoding error: unknown field \"spec.colour\""), "{complaint}");
    let wrong = OBJECTS.replace("maxReplicas: 4", "maxReplicas: 0");
    let complaint = kubectl.with_input("create --dry-run=server -f -", &wrong).fails();
    assert!(complaint.contains("spec.maxReplicas: Invalid value: 0: must be greater than 0"), "{complaint}");
}

fn objects_are_applied_and_printed(kubectl: &Kubectl<'_>) {
    let applied = kubectl.apply(OBJECTS);
    let warned = "Warning: skiff: IPAddresses are stored but nothing acts on them yet";
    assert!(applied.stderr.contains(warned), "{applied}");
    let applied = applied.ok();
    assert!(applied.lines().all(|line| line.ends_with(" created")), "{applied}");
    let again = kubectl.apply(OBJECTS).ok();
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    for (object, heading, row) in PRINTED {
        let output = kubectl.ok(&format!("get {object}"));
        let mut lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(lines.next().as_deref(), Some(*heading), "{output}");
        assert!(lines.next().is_some_and(|found| found.starts_with(row)), "{row:?}\n{output}");
    }
    let patched = kubectl.ok("patch resourceclaim one --subresource=status --type=merge -p {\"metadata\":{\"labels\":{\"a\":\"b\"}}}");
    assert_eq!(patched, "resourceclaim.resource.k8s.io/one patched\n");
    assert_eq!(kubectl.ok("get resourceslices --field-selector=spec.driver=d.example.com -o name").lines().count(), 1);
    assert_eq!(kubectl.ok("get resourceslices --field-selector=spec.nodeName=other -o name"), "");
}

fn what_never_changes_does_not(kubectl: &Kubectl<'_>) {
    for (object, patch, wanted) in [
        ("resourceclaim one", r#"{"spec":{"devices":{"requests":null}}}"#, "field is immutable"),
        ("volumeattachment there", r#"{"spec":{"nodeName":"m"}}"#, "field is immutable"),
        ("servicecidr more", r#"{"spec":{"cidrs":["10.251.0.0/24"]}}"#, "field is immutable"),
        ("vac gold", r#"{"parameters":{"iops":"2"}}"#, "updates to parameters are forbidden."),
    ] {
        let complaint = kubectl.fails(&format!("patch {object} --type=merge -p {patch}"));
        assert!(complaint.contains(wanted), "{complaint}");
    }
    let deleted = kubectl.with_input("delete -f -", OBJECTS).ok();
    assert!(deleted.lines().all(|line| line.contains(" deleted")), "{deleted}");
}

fn components_are_listed(kubectl: &Kubectl<'_>) {
    let output = kubectl.run(&["get", "componentstatuses"]);
    assert!(output.stderr.contains("Warning: v1 ComponentStatus is deprecated in v1.19+"), "{output}");
    let output = output.ok();
    assert!(output.lines().any(|line| line.split_whitespace().eq(["etcd-0", "Healthy", "ok"])), "{output}");
}
