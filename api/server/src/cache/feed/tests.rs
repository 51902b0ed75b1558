//! What several objects of one revision become.

use super::*;

#[test]
fn what_one_revision_does_to_a_resource_stays_together() {
    let changed = |revision, key: &str| Change { revision, key: key.into(), value: None, previous: Some(1) };
    let ordered =
        |events: Vec<Change>| together(events).into_iter().map(|event| format!("{} {}", event.revision, event.key)).collect::<Vec<_>>();
    let transaction =
        vec![changed(5, "core/pods/a/x"), changed(6, "core/pods/a/y"), changed(6, "apps/deployments/a/d"), changed(6, "core/pods/a/x")];
    assert_eq!(ordered(transaction), ["5 core/pods/a/x", "6 apps/deployments/a/d", "6 core/pods/a/x", "6 core/pods/a/y"]);
    let ours = vec![changed(5, "core/pods/a/x"), changed(6, "apps/deployments/a/d"), changed(7, "core/pods/a/a")];
    assert_eq!(ordered(ours), ["5 core/pods/a/x", "6 apps/deployments/a/d", "7 core/pods/a/a"]);
}
