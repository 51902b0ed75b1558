use serde_json::{Value, json};

use super::*;
use crate::plugins::fixtures::{node, pod, snapshot};
use crate::plugins::volume_fixtures::{bound, claim, claiming, reasons, store, volume};

fn cluster() -> Snapshot {
    let labelled = |name: &str, labels: Value| node(name, json!({"metadata": {"labels": labels}}));
    let mut all = snapshot(vec![
        labelled("a", json!({"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"})),
        labelled("old", json!({"failure-domain.beta.kubernetes.io/zone": "a"})),
        labelled("b", json!({"topology.kubernetes.io/zone": "b"})),
        labelled("none", json!({})),
    ]);
    let volumes = [
        ("in-a", json!({"topology.kubernetes.io/zone": "a"})),
        ("in-both", json!({"topology.kubernetes.io/zone": "a__b"})),
        ("in-old-b", json!({"failure-domain.beta.kubernetes.io/zone": "b"})),
        ("in-region", json!({"topology.kubernetes.io/region": "r"})),
        ("broken", json!({"topology.kubernetes.io/zone": "a__"})),
        ("anywhere", json!({})),
    ];
    let claims = volumes.iter().map(|(name, _)| bound(name, name)).chain([
        claim("waits", json!({"spec": {"storageClassName": "late"}})),
        claim("comes", json!({"spec": {"storageClassName": "now"}})),
        claim("lost-class", json!({"spec": {"storageClassName": "gone"}})),
        claim("classless", json!({})),
        bound("lost", "gone"),
    ]);
    let claims = claims.collect();
    store(&mut all, claims, volumes.map(|(name, labels)| volume(name, json!({"metadata": {"labels": labels}}))).into());
    for (name, mode) in [("late", "WaitForFirstConsumer"), ("now", "Immediate")] {
        let class = json!({"metadata": {"name": name}, "provisioner": "p", "volumeBindingMode": mode});
        std::sync::Arc::make_mut(&mut all.volumes)
            .classes
            .insert(name.to_owned(), std::sync::Arc::new(serde_json::from_value(class).expect("a class")));
    }
    all
}

#[test]
fn a_pod_goes_to_the_zones_of_its_volumes() {
    let cases: [(&[&str], &[&str]); 14] = [
        (&[], &["", "", "", ""]),
        (&["in-a"], &["", CONFLICT, CONFLICT, ""]),
        (&["in-both"], &["", CONFLICT, "", ""]),
        (&["in-old-b"], &[CONFLICT, CONFLICT, "", ""]),
        (&["in-region"], &["", CONFLICT, CONFLICT, ""]),
        (&["in-both", "in-a"], &["", CONFLICT, CONFLICT, ""]),
        (&["broken"], &["", "", "", ""]),
        (&["anywhere", "waits"], &["", "", "", ""]),
        (&["comes"], &["PersistentVolume had no name"]),
        (&["lost-class"], &["storageclass.storage.k8s.io \"gone\" not found"]),
        (&["classless"], &["PersistentVolumeClaim had no pv name and storageClass name"]),
        (&["lost"], &["persistentvolume \"gone\" not found"]),
        (&["none"], &["persistentvolumeclaim \"none\" not found"]),
        (&["waits", "in-a"], &["", CONFLICT, CONFLICT, ""]),
    ];
    for (claims, wanted) in cases {
        assert_eq!(reasons(&VolumeZone, &claiming("p", claims), &cluster()), wanted, "{claims:?}");
    }
}

#[test]
fn a_pod_without_claims_is_skipped() {
    let mut state = CycleState::default();
    let disk = pod("p", json!({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "a"}}]}));
    assert_eq!(VolumeZone.pre_filter(&mut state, &disk, &cluster()), Status::Success);
    assert!(!VolumeZone.may_reject(&state, &disk));
}
