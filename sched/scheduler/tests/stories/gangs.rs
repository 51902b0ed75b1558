//! Gangs of Pods, with a real API server.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use crate::support::{Cluster, from, in_time};

async fn gang(cluster: &Cluster, name: &str, min_count: usize) {
    let group = json!({"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}}});
    cluster.api::<PodGroup>().create(&PostParams::default(), &from(group)).await.expect("a PodGroup");
}

/// Creates a Pod of the gang that fills half a node.
async fn member(cluster: &Cluster, group: &str, name: &str) {
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "2"}}});
    cluster.pod(name, json!({"containers": [container], "schedulingGroup": {"podGroupName": group}})).await;
}

async fn until_condition(cluster: &Cluster, name: &str, wanted: [&str; 3]) {
    let is_wanted = |group: Option<&PodGroup>| {
        let conditions = group.and_then(|group| group.status.as_ref()?.conditions.as_ref());
        let scheduled = conditions.into_iter().flatten().find(|condition| condition.type_ == "PodGroupInitiallyScheduled");
        scheduled.is_some_and(|one| [one.status.as_str(), &one.reason, &one.message] == wanted)
    };
    in_time(&format!("{name} {wanted:?}"), await_condition(cluster.api(), name, is_wanted)).await.expect("a watch");
}

async fn node(cluster: &Cluster, name: &str) -> Option<String> {
    cluster.api::<Pod>().get(name).await.expect("a Pod").spec.and_then(|spec| spec.node_name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_waits_for_room_for_all_of_it_and_says_why() {
    let cluster = Cluster::start(&["n1"], json!([])).await;
    gang(&cluster, "trio", 3).await;
    for name in ["a", "b", "c"] {
        member(&cluster, "trio", name).await;
    }
    let message = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, pod group preemption: No preemption victims found for \
                   incoming preemptor";
    for name in ["a", "b"] {
        assert_eq!(cluster.until_unscheduled(name, "Unschedulable", "minCount").await, message);
    }
    let own = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(cluster.until_unscheduled("c", "Unschedulable", "Insufficient").await, own);
    until_condition(&cluster, "trio", ["False", "Unschedulable", message]).await;
    cluster.add_node("n2").await;
    for name in ["a", "b", "c"] {
        cluster.node_of(name).await;
    }
    until_condition(&cluster, "trio", ["True", "Scheduled", ""]).await;
    assert_eq!(cluster.events("c", "FailedScheduling").await, [own]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_scheduler_completes_the_gang_that_a_killed_one_began() {
    let cluster = Cluster::start(&["n1"], json!([])).await;
    gang(&cluster, "trio", 3).await;
    // As a scheduler leaves it that is killed between two bindings.
    let bound = json!({"nodeName": "n1", "schedulingGroup": {"podGroupName": "trio"}});
    for name in ["a", "b"] {
        cluster.pod(name, bound.clone()).await;
    }
    let cluster = cluster.with_another_scheduler(json!([])).await;
    member(&cluster, "trio", "c").await;
    assert_eq!(cluster.node_of("c").await, "n1");
    until_condition(&cluster, "trio", ["True", "Scheduled", ""]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_says_that_it_is_scheduled_whoever_bound_its_pods() {
    let cluster = Cluster::start(&["n1"], json!([])).await;
    let bound = |group: &str| json!({"nodeName": "n1", "schedulingGroup": {"podGroupName": group}});
    for name in ["late-a", "late-b"] {
        cluster.pod(name, bound("late")).await;
    }
    gang(&cluster, "late", 2).await;
    until_condition(&cluster, "late", ["True", "Scheduled", ""]).await;
    gang(&cluster, "smaller", 3).await;
    for name in ["smaller-a", "smaller-b"] {
        cluster.pod(name, bound("smaller")).await;
    }
    let fewer = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}});
    cluster.api::<PodGroup>().patch("smaller", &PatchParams::default(), &Patch::Merge(&fewer)).await.expect("a patch");
    until_condition(&cluster, "smaller", ["True", "Scheduled", ""]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_wait_for_a_group_that_does_not_exist_and_for_one_that_needs_fewer() {
    let cluster = Cluster::start(&["n1"], json!([])).await;
    for name in ["a", "b"] {
        member(&cluster, "late", name).await;
    }
    cluster.pod("alone", json!({})).await;
    cluster.node_of("alone").await;
    assert_eq!((node(&cluster, "a").await, node(&cluster, "b").await), (None, None));
    gang(&cluster, "late", 3).await;
    cluster.pod("other", json!({})).await;
    cluster.node_of("other").await;
    assert_eq!(node(&cluster, "a").await, None, "the gang is incomplete");
    let fewer = Patch::Merge(json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}));
    cluster.api::<PodGroup>().patch("late", &PatchParams::default(), &fewer).await.expect("a PodGroup");
    for name in ["a", "b"] {
        cluster.node_of(name).await;
    }
    let basic: Value = json!({"metadata": {"name": "basic"}, "spec": {"schedulingPolicy": {"basic": {}}}});
    cluster.api::<PodGroup>().create(&PostParams::default(), &from(basic)).await.expect("a PodGroup");
    member(&cluster, "basic", "full").await;
    cluster.until_unscheduled("full", "Unschedulable", "1 Insufficient cpu. preemption: 0/1 nodes").await;
    cluster.api::<Pod>().delete("a", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    cluster.node_of("full").await;
    until_condition(&cluster, "basic", ["True", "Scheduled", ""]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_another_priority_fails_its_gang() {
    let cluster = Cluster::start(&["n1"], json!([])).await;
    let class = json!({"metadata": {"name": "high"}, "value": 9});
    let classes = kube::Api::<k8s_openapi::api::scheduling::v1::PriorityClass>::all(cluster.client.clone());
    classes.create(&PostParams::default(), &from(class)).await.expect("a class");
    gang(&cluster, "pair", 2).await;
    member(&cluster, "pair", "a").await;
    cluster.pod("b", json!({"priorityClassName": "high", "schedulingGroup": {"podGroupName": "pair"}})).await;
    let message = "all pods in a single pod group should have the same priority as the pod group's priority, got 9 and 0";
    assert_eq!(cluster.until_unscheduled("b", "SchedulerError", "priority").await, message);
    assert_eq!(node(&cluster, "a").await, None);
    cluster.stop().await;
}
