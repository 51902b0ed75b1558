//! Groups of Pods.

use super::{changes, refused};

/// A Workload with two templates.
pub(super) const WORKLOAD: &str = "spec: {controllerRef: {apiGroup: batch, kind: Job, name: j}, podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {minCount: 2}}}, {name: leader, schedulingPolicy: {basic: {}}, resourceClaims: [{name: c, resourceClaimName: c}]}]}";

#[test]
fn pod_groups_and_workloads() {
    let group = |rest: &str| format!("spec: {{schedulingPolicy: {{gang: {{minCount: 3}}}}, {rest}}}");
    let cases = [
        "spec: {}".to_owned(),
        "spec: {schedulingPolicy: {}}".to_owned(),
        "spec: {schedulingPolicy: {basic: {}, gang: {minCount: 1}}}".to_owned(),
        "spec: {schedulingPolicy: {gang: {}}}".to_owned(),
        "spec: {schedulingPolicy: {gang: {minCount: -1}}}".to_owned(),
        group("disruptionMode: {}"),
        group("disruptionMode: {single: {}, all: {}}"),
        group("schedulingConstraints: {topology: [{key: rack}]}, preemptionPolicy: Never, parentCompositePodGroupName: p"),
        group("workloadRef: {templateName: a.b}, priorityClassName: A, priority: 1000000001"),
        group("resourceClaims: [{name: a}, {name: a, resourceClaimName: A, resourceClaimTemplateName: b}, {resourceClaimName: c}]"),
        group("resourceClaims: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]"),
    ];
    refused("scheduling.k8s.io", "podgroups", &cases.each_ref().map(String::as_str));
    let workload = "workloadRef: {workloadName: w, templateName: t}";
    changes(
        "scheduling.k8s.io",
        "podgroups",
        None,
        &[
            &format!("spec: {{schedulingPolicy: {{gang: {{minCount: 5}}}}, {workload}}}"),
            &format!("spec: {{schedulingPolicy: {{basic: {{}}}}, {workload}}}"),
            &format!("spec: {{schedulingPolicy: {{gang: {{minCount: 3}}}}, {workload}, disruptionMode: {{all: {{}}}}, priority: 5}}"),
            &group("priorityClassName: other"),
        ],
    );
    let claims = "status: {resourceClaimStatuses: [{name: a, resourceClaimName: A}]}";
    changes("scheduling.k8s.io", "podgroups", Some("status"), &[&format!("{}\n{claims}", group(workload))]);
    refused(
        "scheduling.k8s.io",
        "workloads",
        &[
            "spec: {}",
            "spec: {podGroupTemplates: [{name: A, schedulingPolicy: {}}, {name: b, schedulingPolicy: {basic: {}}}, {name: b, schedulingPolicy: {basic: {}}}]}",
            "spec: {controllerRef: {apiGroup: A, kind: a/b}, compositePodGroupTemplates: [{name: a, schedulingPolicy: {basic: {}}}]}",
            "spec: {podGroupTemplates: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}, {name: i}]}",
        ],
    );
    let templates = |first: &str| format!("spec: {{controllerRef: {{apiGroup: batch, kind: Job, name: j}}, podGroupTemplates: [{first}]}}");
    let leader = "{name: leader, schedulingPolicy: {basic: {}}, resourceClaims: [{name: c, resourceClaimName: c}]}";
    changes(
        "scheduling.k8s.io",
        "workloads",
        None,
        &[
            &templates(&format!("{{name: workers, schedulingPolicy: {{gang: {{minCount: 9}}}}}}, {leader}")),
            &templates(&format!("{{name: others, schedulingPolicy: {{gang: {{minCount: 2}}}}}}, {leader}")),
            &templates(&format!("{{name: workers, schedulingPolicy: {{basic: {{}}}}}}, {leader}")),
            "spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {minCount: 2}}}]}",
        ],
    );
}
