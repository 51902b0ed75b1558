//! Custom resources with the real kubectl: defined, used like any other kind, and removed with their definition.

use tests::net::Net;
use tests::{Cluster, Kubectl, eventually};

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.harbor.example.com}
spec:
  group: harbor.example.com
  scope: Namespaced
  names: {plural: boats, kind: Boat, shortNames: [bt], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.sails, statusReplicasPath: .status.sails}
    additionalPrinterColumns:
    - {name: Sails, type: integer, jsonPath: .spec.sails}
    - {name: Afloat, type: string, jsonPath: '.status.conditions[?(@.type==\"Afloat\")].status'}
    schema:
      openAPIV3Schema:
        type: object
        description: A Boat carries people and things.
        properties:
          spec:
            type: object
            required: [sails]
            properties:
              sails: {type: integer, minimum: 1, maximum: 5, description: How many sails it has.}
              color: {type: string, enum: [white, red], default: white}
          status:
            type: object
            properties:
              sails: {type: integer}
              conditions:
                type: array
                items: {type: object, properties: {type: {type: string}, status: {type: string}}}
";

fn boat(name: &str, spec: &str) -> String {
    format!("apiVersion: harbor.example.com/v1\nkind: Boat\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

#[test]
fn custom_resources_live_and_die_with_their_definition() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    a_definition_is_established(&kubectl);
    objects_are_used_like_any_other(&kubectl);
    what_is_wrong_is_rejected(&kubectl);
    owners_and_namespaces_take_them_along(&kubectl);
    the_definition_takes_its_objects_along(&kubectl);
}

fn a_definition_is_established(kubectl: &Kubectl<'_>) {
    assert!(kubectl.fails("get boats").contains("the server doesn't have a resource type \"boats\""));
    assert_eq!(kubectl.apply(DEFINITION).ok(), "customresourcedefinition.apiextensions.k8s.io/boats.harbor.example.com created\n");
    kubectl.ok("wait --for=condition=established crd/boats.harbor.example.com --timeout=20s");
    assert!(kubectl.ok("get crd").contains("boats.harbor.example.com"));
    let resources = kubectl.ok("api-resources --api-group=harbor.example.com");
    assert!(resources.lines().any(|line| line.starts_with("boats") && line.contains("bt") && line.contains("Boat")), "{resources}");
    assert_eq!(kubectl.apply(DEFINITION).ok(), "customresourcedefinition.apiextensions.k8s.io/boats.harbor.example.com unchanged\n");
}

fn objects_are_used_like_any_other(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.apply(&boat("ann", "{sails: 2}")).ok(), "boat.harbor.example.com/ann created\n");
    assert_eq!(kubectl.apply(&boat("ann", "{sails: 2}")).ok(), "boat.harbor.example.com/ann unchanged\n");
    let listed = kubectl.ok("get bt");
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(words, ["NAME", "SAILS", "AFLOAT", "ann", "2"], "{listed}");
    assert_eq!(kubectl.ok("get boat ann -o jsonpath={.spec.color}"), "white");
    let explained = kubectl.ok("explain boats.spec.sails");
    assert!(explained.contains("How many sails it has.") && explained.contains("<integer>"), "{explained}");
    assert!(kubectl.ok("explain boat").contains("A Boat carries people and things."));
    assert_eq!(kubectl.ok("patch boat ann --type=merge -p {\"spec\":{\"color\":\"red\"}}"), "boat.harbor.example.com/ann patched\n");
    kubectl.ok(
        "patch boat ann --subresource=status --type=merge -p {\"status\":{\"conditions\":[{\"type\":\"Afloat\",\"status\":\"True\"}]}}",
    );
    assert!(kubectl.ok("get boat ann").contains("True"));
    assert_eq!(kubectl.ok("scale boat ann --replicas=4"), "boat.harbor.example.com/ann scaled\n");
    assert_eq!(kubectl.ok("get boat ann -o jsonpath={.spec.sails}"), "4");
    assert!(kubectl.ok("get all").contains("boat.harbor.example.com/ann"));
    assert!(kubectl.ok("describe boat ann").contains("Sails:"));
    kubectl.ok("label boat ann port=home");
    assert!(kubectl.ok("get boats -l port=home -o name").contains("boat.harbor.example.com/ann"));
}

fn what_is_wrong_is_rejected(kubectl: &Kubectl<'_>) {
    for (spec, wanted) in [
        ("{sails: 9}", "The Boat \"bad\" is invalid: spec.sails: Invalid value: 9: spec.sails in body should be less than or equal to 5"),
        ("{sails: 1, color: blue}", "spec.color: Unsupported value: \"blue\": supported values: \"white\", \"red\""),
        ("{color: red}", "spec.sails: Required value"),
        ("{sails: 1, motor: true}", "strict decoding error: unknown field \"spec.motor\""),
    ] {
        let complaint = kubectl.apply(&boat("bad", spec)).fails();
        assert!(complaint.contains(wanted), "{complaint}");
    }
    let not_structural = DEFINITION
        .replace("boats", "rafts")
        .replace("Boat", "Raft")
        .replace("            type: object\n            required", "            required");
    let complaint = kubectl.apply(&not_structural.replace("shortNames: [bt], ", "")).fails();
    assert!(
        complaint.contains(
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields"
        ),
        "{complaint}"
    );
}

fn owners_and_namespaces_take_them_along(kubectl: &Kubectl<'_>) {
    let uid = kubectl.ok("get boat ann -o jsonpath={.metadata.uid}");
    let owned = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cargo\n  ownerReferences: [{{apiVersion: harbor.example.com/v1, kind: Boat, name: ann, uid: {uid}}}]\n"
    );
    kubectl.apply(&owned).ok();
    kubectl.ok("create namespace harbor");
    kubectl.with_input("apply -n harbor -f -", &boat("ben", "{sails: 1}")).ok();
    kubectl.ok("delete boat ann");
    eventually("the boat's cargo to be gone", || {
        let found = kubectl.run(&["get", "configmap", "cargo"]);
        if found.code == 0 { Err(found.stdout) } else { Ok(()) }
    });
    kubectl.ok("delete namespace harbor --timeout=60s");
    assert_eq!(kubectl.ok("get boats -A -o name"), "");
}

fn the_definition_takes_its_objects_along(kubectl: &Kubectl<'_>) {
    kubectl.apply(&boat("cleo", "{sails: 1}")).ok();
    kubectl.ok("delete crd boats.harbor.example.com --timeout=30s");
    // The message depends on the age of kubectl's copy of the discovery documents.
    let gone = kubectl.fails("get boats");
    assert!(gone.contains("could not find the requested resource") || gone.contains("doesn't have a resource type"), "{gone}");
    kubectl.apply(DEFINITION).ok();
    kubectl.ok("wait --for=condition=established crd/boats.harbor.example.com --timeout=20s");
    assert_eq!(kubectl.ok("get boats -o name"), "");
}
