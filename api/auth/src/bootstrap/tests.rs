use std::collections::BTreeSet;

use super::*;

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    objects.iter().find(|o| o["kind"] == kind && meta::name(o) == name).expect(name)
}

#[test]
fn every_object_is_named_once_and_marked() {
    let objects = objects();
    let mut seen = BTreeSet::new();
    for object in &objects {
        assert!(seen.insert((object["kind"].to_string(), meta::namespace(object).to_owned(), meta::name(object).to_owned())), "{object}");
        assert_eq!(object["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
        assert_eq!(object["metadata"]["annotations"][AUTOUPDATE], "true");
    }
}

#[test]
fn every_binding_refers_to_a_role_that_exists() {
    let objects = objects();
    for binding in objects.iter().filter(|o| o.get("roleRef").is_some()) {
        let role = &binding["roleRef"];
        find(&objects, role["kind"].as_str().expect("kind"), role["name"].as_str().expect("name"));
    }
}

#[test]
fn admin_edits_and_edit_views() {
    let objects = objects();
    let rules = |name: &str| Rule::of_role(find(&objects, "ClusterRole", name)).into_iter().collect::<BTreeSet<_>>();
    assert!(rules("admin").is_superset(&rules("edit")));
    assert!(rules("edit").is_superset(&rules("view")));
    assert!(rules("admin").len() > rules("edit").len());
    assert!(!rules("view").is_empty());
    assert!(!rules("view").iter().any(|r| r.resources.contains(&"secrets".to_owned())), "view shows no secrets");
}

#[test]
fn the_policy_reads_as_meant() {
    let lines: Vec<String> = objects()
        .iter()
        .map(|o| {
            let name = [meta::namespace(o), meta::name(o)].iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join("/");
            let head = format!("{} {name}", o["kind"].as_str().unwrap_or_default());
            match o.get("roleRef") {
                Some(role) => {
                    let who: Vec<&str> = list(o, "subjects").iter().filter_map(|s| s["name"].as_str()).collect();
                    format!("{head}: {} to {}", role["name"].as_str().unwrap_or_default(), who.join(", "))
                }
                None => format!("{head}: {} rules", list(o, "rules").len()),
            }
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
