//! Tables of claims and volumes, and what the binder does with them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::super::available::Available;
use super::super::testing::object;
use super::super::{class, matching};
use super::{claims, volumes};
use crate::meta;
use api_client::informer::Change;

#[derive(Default)]
struct Cluster {
    volumes: Vec<Arc<PersistentVolume>>,
    classes: Vec<Arc<StorageClass>>,
    pods: Vec<String>,
}

impl claims::View for Cluster {
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.iter().find(|volume| meta::name(&volume.metadata) == name).cloned()
    }

    fn reserved(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        self.volumes.iter().find(|volume| matching::fits_reserved(volume, claim)).cloned()
    }

    fn best(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let available = Available::default();
        for volume in &self.volumes {
            available.observe(&Change { old: None, new: Some(Arc::clone(volume)) });
        }
        available.best(claim, |name| self.volume(name))
    }

    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.classes.iter().find(|class| meta::name(&class.metadata) == name).cloned()
    }

    fn default_class(&self) -> Option<Arc<StorageClass>> {
        class::default(self.classes.clone())
    }

    fn unscheduled_pods(&self, _claim: &PersistentVolumeClaim) -> Vec<String> {
        self.pods.clone()
    }
}

fn claim(more: Value) -> PersistentVolumeClaim {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeMode": "Filesystem", "resources": {"requests": {"storage": "5Gi"}}});
    object(json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": spec, "status": {"phase": "Pending"}}), &more)
}

fn volume(name: &str, size: &str, more: Value) -> Arc<PersistentVolume> {
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "volumeMode": "Filesystem", "hostPath": {"path": "/data"}});
    Arc::new(object(json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}), &more))
}

fn storage_class(name: &str, more: Value) -> Arc<StorageClass> {
    Arc::new(object(json!({"metadata": {"name": name}, "provisioner": "example.com/p", "volumeBindingMode": "Immediate"}), &more))
}

/// The action in one line.
fn said(action: &claims::Action) -> String {
    let note = |note: &crate::note::Note| format!("{}{}: {}", if note.is_warning { "!" } else { "" }, note.reason, note.message);
    match action {
        claims::Action::Bind(volume) => format!("bind {}", meta::name(&volume.metadata)),
        claims::Action::Wait(why) => format!("wait {}", why.as_ref().map(note).unwrap_or_default()),
        claims::Action::Lose(why) => format!("lose {}", note(why)),
        claims::Action::AssignClass(name) => format!("class {name}"),
        claims::Action::Provision(name) => format!("provision {name}"),
    }
}

#[test]
fn a_claim_takes_the_smallest_volume_that_satisfies_it() {
    let two = json!({"spec": {"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}});
    let cluster = Cluster {
        volumes: vec![
            volume("small", "1Gi", json!({})),
            volume("large", "20Gi", json!({})),
            volume("right", "10Gi", json!({})),
            volume("two", "6Gi", two.clone()),
            volume("classed", "6Gi", json!({"spec": {"storageClassName": "fast"}})),
            volume("device", "6Gi", json!({"spec": {"volumeMode": "Block"}})),
            volume("going", "6Gi", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            volume("taken", "6Gi", json!({"spec": {"claimRef": {"namespace": "ns", "name": "other", "uid": "x"}}})),
            volume("labelled", "50Gi", json!({"metadata": {"labels": {"disk": "ssd"}}})),
            volume("exact", "5120Mi", json!({"spec": {"storageClassName": "exact"}})),
        ],
        classes: vec![storage_class("fast", json!({})), storage_class("exact", json!({}))],
        ..Cluster::default()
    };
    let plan = |more: Value| said(&claims::plan(&claim(more), &cluster));
    for (more, wanted) in [
        (json!({}), "bind right"),
        (json!({"spec": {"resources": {"requests": {"storage": "11Gi"}}}}), "bind large"),
        (json!({"spec": {"accessModes": ["ReadOnlyMany"]}}), "bind two"),
        (json!({"spec": {"storageClassName": "fast"}}), "bind classed"),
        (json!({"spec": {"storageClassName": "exact"}}), "bind exact"),
        (json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "fast"}}}), "bind classed"),
        (json!({"spec": {"volumeMode": "Block"}}), "bind device"),
        (json!({"spec": {"selector": {"matchLabels": {"disk": "ssd"}}}}), "bind labelled"),
        (
            json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
            "wait FailedBinding: no persistent volumes available for this claim and no storage class is set",
        ),
        (
            json!({"spec": {"resources": {"requests": {"storage": "1Ti"}}}}),
            "wait FailedBinding: no persistent volumes available for this claim and no storage class is set",
        ),
    ] {
        assert_eq!(plan(more.clone()), wanted, "{more}");
    }
}

#[test]
fn a_reserved_volume_comes_first_unless_it_is_too_small() {
    let reserved = |uid: &str| json!({"spec": {"claimRef": {"namespace": "ns", "name": "c", "uid": uid}}});
    let free = volume("free", "6Gi", json!({}));
    for (volumes, wanted) in [
        (vec![Arc::clone(&free), volume("mine", "20Gi", reserved(""))], "bind mine"),
        // Also the state after a kill between the first two writes of a binding.
        (vec![Arc::clone(&free), volume("mine", "20Gi", reserved("u"))], "bind mine"),
        // Of an earlier claim of that name.
        (vec![Arc::clone(&free), volume("old", "20Gi", reserved("before"))], "bind free"),
        (vec![Arc::clone(&free), volume("mine", "1Gi", reserved("u"))], "bind free"),
    ] {
        assert_eq!(said(&claims::plan(&claim(json!({})), &Cluster { volumes, ..Cluster::default() })), wanted);
    }
}

#[test]
fn a_claim_that_names_its_volume_gets_that_one_or_waits() {
    let named = json!({"spec": {"volumeName": "v"}});
    let mismatch = "wait !VolumeMismatch: Cannot bind to requested volume \"v\": ";
    let other = json!({"spec": {"claimRef": {"namespace": "ns", "name": "other", "uid": "x"}}});
    for (volumes, wanted) in [
        (vec![], "wait ".to_owned()),
        (vec![volume("v", "5Gi", json!({}))], "bind v".to_owned()),
        (vec![volume("v", "1Gi", json!({}))], format!("{mismatch}requested PV is too small")),
        (vec![volume("v", "5Gi", json!({"spec": {"storageClassName": "x"}}))], format!("{mismatch}storageClassName does not match")),
        (vec![volume("v", "5Gi", json!({"spec": {"volumeMode": "Block"}}))], format!("{mismatch}incompatible volumeMode")),
        (vec![volume("v", "5Gi", json!({"spec": {"accessModes": ["ReadOnlyMany"]}}))], format!("{mismatch}incompatible accessMode")),
        (
            vec![volume("v", "5Gi", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))],
            format!("{mismatch}the volume is marked for deletion \"v\""),
        ),
        (vec![volume("v", "5Gi", other)], "wait !FailedBinding: volume \"v\" already bound to a different claim.".to_owned()),
        (vec![volume("v", "5Gi", json!({"spec": {"claimRef": {"namespace": "ns", "name": "c"}}}))], "bind v".to_owned()),
    ] {
        assert_eq!(said(&claims::plan(&claim(named.clone()), &Cluster { volumes, ..Cluster::default() })), wanted);
    }
}

#[test]
fn a_bound_claim_stays_bound_or_is_lost() {
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"}});
    let unnamed = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}});
    let of = |uid: &str| vec![volume("v", "5Gi", json!({"spec": {"claimRef": {"namespace": "ns", "name": "c", "uid": uid}}}))];
    let lost = "lose !ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    for (more, volumes, wanted) in [
        (&bound, of("u"), "bind v"),
        (&bound, vec![volume("v", "5Gi", json!({}))], "bind v"),
        (&bound, of("x"), "lose !ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly"),
        (&bound, vec![], lost),
        (&unnamed, of("u"), "lose !ClaimLost: Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"),
    ] {
        assert_eq!(said(&claims::plan(&claim(more.clone()), &Cluster { volumes, ..Cluster::default() })), wanted);
    }
}

#[test]
fn the_class_decides_who_makes_a_volume_and_when() {
    let delayed = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    let default = |created: &str| json!({"metadata": {"creationTimestamp": created, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    let mut cluster = Cluster {
        volumes: vec![volume("free", "6Gi", json!({"spec": {"storageClassName": "later"}}))],
        classes: vec![
            storage_class("now", json!({})),
            storage_class("later", delayed),
            storage_class("manual", json!({"provisioner": "kubernetes.io/no-provisioner"})),
        ],
        ..Cluster::default()
    };
    let of = |class: &str| json!({"spec": {"storageClassName": class}});
    let no_class = json!({"spec": {"storageClassName": null}});
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}, "spec": {"storageClassName": "later"}});
    let nothing = "wait FailedBinding: no persistent volumes available for this claim and no storage class is set";
    let plan = |cluster: &Cluster, more: &Value| said(&claims::plan(&claim(more.clone()), cluster));
    assert_eq!(plan(&cluster, &of("now")), "provision example.com/p");
    assert_eq!(plan(&cluster, &of("absent")), "wait !ProvisioningFailed: storageclass.storage.k8s.io \"absent\" not found");
    assert_eq!(plan(&cluster, &of("manual")), "wait !ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner");
    // The scheduler binds free volumes of such a class.
    assert_eq!(plan(&cluster, &of("later")), "wait WaitForFirstConsumer: waiting for first consumer to be created before binding");
    assert_eq!(plan(&cluster, &selected), "provision example.com/p");
    cluster.pods = vec!["a".to_owned()];
    assert_eq!(plan(&cluster, &of("later")), "wait WaitForPodScheduled: waiting for pod a to be scheduled");
    cluster.pods.push("b".to_owned());
    assert_eq!(plan(&cluster, &of("later")), "wait WaitForPodScheduled: waiting for pods a,b to be scheduled");
    assert_eq!(plan(&cluster, &no_class), nothing);
    cluster.classes.push(storage_class("older", default("2026-01-01T00:00:00Z")));
    cluster.classes.push(storage_class("newer", default("2026-02-01T00:00:00Z")));
    assert_eq!(plan(&cluster, &no_class), "class newer");
    assert_eq!(plan(&cluster, &of("")), nothing);
}

#[test]
fn a_volume_follows_its_claim() {
    use volumes::Action;
    let reference = json!({"namespace": "ns", "name": "c", "uid": "u"});
    let bound = |more: Value| {
        let mut all = json!({"spec": {"claimRef": reference.clone()}, "status": {"phase": "Bound"}});
        meta::overlay(&mut all, &more);
        volume("v", "5Gi", all)
    };
    let fail = |reason: &'static str, message: &str| Action::Fail(crate::note::warning(reason, message));
    let policy = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    let made = |policy: &str| json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "example.com/p"}}, "spec": {"persistentVolumeReclaimPolicy": policy}});
    let mine = claim(json!({"spec": {"volumeName": "v"}}));
    let elsewhere = claim(json!({"spec": {"volumeName": "w"}}));
    let unnamed = claim(json!({}));
    let gone = |more: Value| volumes::plan(&bound(more), None);

    assert_eq!(volumes::plan(&volume("v", "5Gi", json!({})), None), Action::Phase("Available"));
    let reserved = volume("v", "5Gi", json!({"spec": {"claimRef": {"namespace": "ns", "name": "c"}}}));
    assert_eq!(volumes::plan(&reserved, None), Action::Phase("Available"));
    assert_eq!(volumes::plan(&bound(json!({})), Some(&mine)), Action::Phase("Bound"));
    assert_eq!(volumes::plan(&bound(json!({})), Some(&unnamed)), Action::LookAtClaim);
    assert_eq!(volumes::plan(&bound(json!({})), Some(&elsewhere)), Action::Unbind);
    assert_eq!(volumes::plan(&bound(made("Delete")), Some(&elsewhere)), Action::Phase("Released"));
    assert_eq!(volumes::plan(&bound(made("Retain")), Some(&elsewhere)), Action::Unbind);
    assert!(matches!(volumes::plan(&bound(json!({"spec": {"volumeMode": "Block"}})), Some(&unnamed)), Action::Mismatch { .. }));

    assert_eq!(gone(policy("Retain")), Action::Phase("Released"));
    assert_eq!(gone(made("Delete")), Action::Phase("Released"));
    assert_eq!(gone(json!({"status": {"phase": "Released"}})), Action::Nothing);
    // Whoever looks at it sees what went wrong.
    assert_eq!(gone(json!({"status": {"phase": "Failed"}})), Action::Nothing);
    assert_eq!(gone(policy("Recycle")), fail("VolumeFailedRecycle", "No recycler plugin found for the volume!"));
    assert_eq!(gone(policy("Delete")), fail("VolumeFailedDelete", "host_path deleter only supports /tmp/.+ but received provided /data"));
    let local = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete", "hostPath": null, "local": {"path": "/data"}}});
    let why = "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
    assert_eq!(gone(local), fail("VolumeFailedDelete", why));
}

#[test]
fn ten_thousand_claims_find_their_volumes() {
    let available = Available::default();
    let volumes: std::collections::HashMap<String, Arc<PersistentVolume>> =
        (0..10_000).map(|number| (format!("v{number}"), volume(&format!("v{number}"), &format!("{}Mi", number + 1), json!({})))).collect();
    for volume in volumes.values() {
        available.observe(&Change { old: None, new: Some(Arc::clone(volume)) });
    }
    let looked_at = std::cell::Cell::new(0);
    for number in 0..10_000 {
        let wanted = claim(json!({"spec": {"resources": {"requests": {"storage": format!("{}Mi", number + 1)}}}}));
        let get = |name: &str| {
            looked_at.set(looked_at.get() + 1);
            volumes.get(name).cloned()
        };
        let best = available.best(&wanted, get).expect("one of that size");
        assert_eq!(meta::name(&best.metadata), format!("v{number}"));
        let mut bound = best.as_ref().clone();
        bound.spec.get_or_insert_default().claim_ref = Some(k8s_openapi::api::core::v1::ObjectReference::default());
        available.observe(&Change { old: Some(best), new: Some(Arc::new(bound)) });
    }
    assert_eq!(looked_at.get(), 10_000, "each claim looks at one volume");
}
