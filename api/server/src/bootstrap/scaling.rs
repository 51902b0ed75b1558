//! The kinds of `keda.sh/v1alpha1`, as CustomResourceDefinitions in upstream's shape: names, columns, defaults and limits. The
//! server creates those that are missing. It replaces a definition of an older version of its own, and leaves a definition alone
//! that somebody else manages, for example Helm with upstream's chart.

mod schema;

use api_model::kind::find_by_kind;
use api_model::meta;
use api_model::view::View;
use serde_json::{Value, json};

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const MANAGER: &str = "skiff";
const VERSION: &str = "app.kubernetes.io/version";
/// The version of these definitions: a new one replaces what an older server has created.
const REVISION: &str = "2";

/// A printer column: name, type, JSON path, priority.
type Column = (&'static str, &'static str, &'static str, u32);

const READY: Column = ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0);
const ACTIVE: Column = ("Active", "string", ".status.conditions[?(@.type==\"Active\")].status", 0);
const FALLBACK: Column = ("Fallback", "string", ".status.conditions[?(@.type==\"Fallback\")].status", 0);
const PAUSED: Column = ("Paused", "string", ".status.conditions[?(@.type==\"Paused\")].status", 0);
const MIN: Column = ("Min", "integer", ".spec.minReplicaCount", 0);
const MAX: Column = ("Max", "integer", ".spec.maxReplicaCount", 0);
const TRIGGERS: Column = ("Triggers", "string", ".status.triggersTypes", 0);
const AUTHENTICATIONS: Column = ("Authentications", "string", ".status.authenticationsTypes", 0);
const AGE: Column = ("Age", "date", ".metadata.creationTimestamp", 0);
const POD_IDENTITY: Column = ("PodIdentity", "string", ".spec.podIdentity.provider", 0);
const SECRET: Column = ("Secret", "string", ".spec.secretTargetRef[*].name", 0);
const ENV: Column = ("Env", "string", ".spec.env[*].name", 0);
const FILE_PATH: Column = ("FilePath", "string", ".spec.filePath", 0);
const VAULT: Column = ("VaultAddress", "string", ".spec.hashiCorpVault.address", 0);
const SCALED_OBJECTS: Column = ("ScaledObjects", "string", ".status.scaledobjects", 1);
const SCALED_JOBS: Column = ("ScaledJobs", "string", ".status.scaledjobs", 1);

/// What differs among the definitions.
struct Definition {
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    scope: &'static str,
    columns: Vec<Column>,
    schema: Value,
}

/// The definitions to create, or to replace where they have a resource version.
pub(super) fn changes(view: &dyn View) -> Vec<Value> {
    definitions().into_iter().filter_map(|wanted| change(stored(view, &wanted).as_ref(), wanted)).collect()
}

fn stored(view: &dyn View, wanted: &Value) -> Option<Value> {
    let kind = find_by_kind(API_VERSION, KIND)?;
    view.get(&kind.group_resource(), None, meta::name(wanted)).map(|stored| Value::clone(&stored))
}

fn change(stored: Option<&Value>, mut wanted: Value) -> Option<Value> {
    let Some(stored) = stored else { return Some(wanted) };
    let label = |name: &str| stored.pointer("/metadata/labels").and_then(|labels| labels.get(name)).and_then(Value::as_str);
    if label(MANAGED_BY) != Some(MANAGER) || label(VERSION) == Some(REVISION) {
        return None;
    }
    api_wire::json::set(&mut wanted, &["metadata", "resourceVersion"], meta::resource_version(stored));
    Some(wanted)
}

fn definitions() -> Vec<Value> {
    let authentication =
        |kind, plural, short, scope, columns| Definition { kind, plural, short, scope, columns, schema: schema::trigger_authentication() };
    let definitions = [
        Definition {
            kind: "ScaledObject",
            plural: "scaledobjects",
            short: &["so"],
            scope: "Namespaced",
            columns: vec![
                ("ScaleTargetKind", "string", ".status.scaleTargetKind", 0),
                ("ScaleTargetName", "string", ".spec.scaleTargetRef.name", 0),
                MIN,
                MAX,
                READY,
                ACTIVE,
                FALLBACK,
                PAUSED,
                TRIGGERS,
                AUTHENTICATIONS,
                AGE,
            ],
            schema: schema::scaled_object(),
        },
        Definition {
            kind: "ScaledJob",
            plural: "scaledjobs",
            short: &["sj"],
            scope: "Namespaced",
            columns: vec![MIN, MAX, READY, ACTIVE, PAUSED, TRIGGERS, AUTHENTICATIONS, AGE],
            schema: schema::scaled_job(),
        },
        authentication(
            "TriggerAuthentication",
            "triggerauthentications",
            &["ta", "triggerauth"],
            "Namespaced",
            vec![POD_IDENTITY, SECRET, ENV, VAULT, SCALED_OBJECTS, SCALED_JOBS],
        ),
        authentication(
            "ClusterTriggerAuthentication",
            "clustertriggerauthentications",
            &["cta", "clustertriggerauth"],
            "Cluster",
            vec![POD_IDENTITY, SECRET, ENV, FILE_PATH, VAULT, SCALED_OBJECTS, SCALED_JOBS],
        ),
    ];
    definitions.into_iter().map(Definition::object).collect()
}

impl Definition {
    fn object(self) -> Value {
        let Self { kind, plural, short, scope, columns, schema } = self;
        let columns: Vec<Value> = columns.into_iter().map(column).collect();
        json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": format!("{plural}.keda.sh"),
                "labels": {MANAGED_BY: MANAGER, VERSION: REVISION, "app.kubernetes.io/part-of": "keda-operator"}},
            "spec": {
                "group": "keda.sh", "scope": scope,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
                    "shortNames": short},
                "versions": [{
                    "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                    "additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    }
}

fn column((name, kind, path, priority): Column) -> Value {
    let mut column = json!({"name": name, "type": kind, "jsonPath": path});
    if priority != 0 {
        api_wire::json::set(&mut column, &["priority"], priority);
    }
    column
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_of_somebody_else_stays() {
        let wanted = || definitions().remove(0);
        let labelled = |manager: &str, version: &str| json!({"metadata": {"name": "scaledobjects.keda.sh", "resourceVersion": "7", "labels": {MANAGED_BY: manager, VERSION: version}}});
        assert_eq!(change(None, wanted()), Some(wanted()), "missing");
        assert_eq!(change(Some(&labelled("Helm", "2.20.0")), wanted()), None);
        assert_eq!(change(Some(&json!({"metadata": {}})), wanted()), None, "without labels");
        assert_eq!(change(Some(&labelled(MANAGER, REVISION)), wanted()), None, "up to date");
        let replaced = change(Some(&labelled(MANAGER, "0")), wanted()).expect("a change");
        assert_eq!((meta::resource_version(&replaced), &replaced["spec"]), ("7", &wanted()["spec"]));
    }

    #[test]
    fn the_names_are_upstreams() {
        let names: Vec<String> =
            definitions().iter().map(|one| format!("{} {}", meta::name(one), one["spec"]["names"]["shortNames"])).collect();
        assert_eq!(
            names,
            [
                "scaledobjects.keda.sh [\"so\"]",
                "scaledjobs.keda.sh [\"sj\"]",
                "triggerauthentications.keda.sh [\"ta\",\"triggerauth\"]",
                "clustertriggerauthentications.keda.sh [\"cta\",\"clustertriggerauth\"]",
            ]
        );
    }
}
