//! The text of Pods, claims and logs.

use jiff::Timestamp;
use node_volumes::ClaimVolume;
use runtimes_contract::ContainerId;
use runtimes_contract::Sandbox;
use serde_json::{Value, json};

use super::*;
use crate::eviction::usage::{ContainerUsage, PodUsage};
use crate::node::Instance;
use crate::resize::Allocation;
use runtimes_host::disk::Disk;

fn entry(name: &str, is_static: bool, running: bool, status: &Value) -> Arc<Entry> {
    let pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")}, "status": status});
    let taken = Entry::taken(&Arc::new(serde_json::from_value(pod).expect("a pod")), &Allocation::default(), is_static);
    let running = running.then(|| (ContainerId(format!("id-{name}")), "runc".to_owned()));
    let sandbox = running.is_some().then(|| Sandbox { network: None, ipc: None, uts: None, user: None, hostname: name.to_owned() });
    Arc::new(Entry { sandbox, containers: [("c".to_owned(), Instance { running, attempt: 0 })].into(), ..taken })
}

fn ended() -> Value {
    let state = json!({"terminated": {"exitCode": 0}});
    json!({"phase": "Succeeded", "containerStatuses": [
        {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]})
}

#[test]
fn pods_and_containers_are_counted_by_origin_and_state() {
    let pending =
        |reason: &str| json!({"phase": "Running", "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]});
    let resizing = json!({"phase": "Running", "conditions": [{"type": "PodResizeInProgress", "status": "True"}]});
    let entries = [
        entry("web", false, true, &pending("Deferred")),
        entry("large", false, true, &pending("Infeasible")),
        entry("grows", false, true, &resizing),
        entry("job", false, false, &ended()),
        entry("registry", true, true, &json!({"phase": "Running"})),
    ];
    let mut families = Families::default();
    add_node(&mut families, "n1");
    add_pods(&mut families, &entries);
    let text = families.text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        lines,
        [
            "kubelet_node_name{node=\"n1\"} 1",
            "kubelet_running_pods 4",
            "kubelet_running_containers{container_state=\"created\"} 0",
            "kubelet_running_containers{container_state=\"exited\"} 1",
            "kubelet_running_containers{container_state=\"running\"} 4",
            "kubelet_desired_pods{static=\"\"} 4",
            "kubelet_desired_pods{static=\"true\"} 1",
            "kubelet_active_pods{static=\"\"} 3",
            "kubelet_active_pods{static=\"true\"} 1",
            "kubelet_mirror_pods 1",
            "kubelet_managed_ephemeral_containers 0",
            "kubelet_pod_pending_resizes{reason=\"deferred\"} 1",
            "kubelet_pod_pending_resizes{reason=\"infeasible\"} 1",
            "kubelet_pod_in_progress_resizes 1",
        ]
    );
}

#[test]
fn a_claim_has_one_series_and_a_pod_that_is_gone_none() {
    let fs = FileSystem { bytes: 1_000, free_bytes: 300, all_free_bytes: 400, inodes: 50, free_inodes: 20 };
    let disk = |claim: &str, logs: u64| {
        let container = ContainerUsage { name: "c".to_owned(), logs: Disk { bytes: logs, inodes: 1 }, ..ContainerUsage::default() };
        let usage = PodUsage { containers: vec![container], ..PodUsage::default() };
        let claim = ClaimVolume { volume: "v".to_owned(), claim: claim.to_owned(), path: "/v".into() };
        Arc::new(PodDisk { at: Timestamp::UNIX_EPOCH, usage, claims: vec![(claim, fs)] })
    };
    let disks: HashMap<String, Arc<PodDisk>> = [("uid-a", disk("data", 5)), ("uid-b", disk("data", 7)), ("uid-gone", disk("old", 9))]
        .map(|(uid, disk)| (uid.to_owned(), disk))
        .into();
    let running = json!({"phase": "Running"});
    let entries = [entry("b", false, true, &running), entry("a", false, true, &running), entry("new", false, true, &running)];
    let mut families = Families::default();
    add_disks(&mut families, &entries, &disks);
    let text = families.text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let claim = "{namespace=\"ns\",persistentvolumeclaim=\"data\"}";
    assert_eq!(
        lines,
        [
            format!("kubelet_volume_stats_capacity_bytes{claim} 1000"),
            format!("kubelet_volume_stats_available_bytes{claim} 300"),
            format!("kubelet_volume_stats_used_bytes{claim} 600"),
            format!("kubelet_volume_stats_inodes{claim} 50"),
            format!("kubelet_volume_stats_inodes_free{claim} 20"),
            format!("kubelet_volume_stats_inodes_used{claim} 30"),
            "kubelet_container_log_filesystem_used_bytes{container=\"c\",namespace=\"ns\",pod=\"a\",uid=\"uid-a\"} 5".to_owned(),
            "kubelet_container_log_filesystem_used_bytes{container=\"c\",namespace=\"ns\",pod=\"b\",uid=\"uid-b\"} 7".to_owned(),
        ]
    );
}
