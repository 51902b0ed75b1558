//! Validation rules of custom resources (CEL) as a user of kubectl sees them: wrong rules and objects are rejected with
//! a message, right ones are stored, and no rule runs for ever.

use std::time::{Duration, Instant};

use tests::net::Net;
use tests::{Cluster, Kubectl};

/// Longer than any request of this story takes, and shorter than a rule that runs for ever.
const PATIENCE: Duration = Duration::from_secs(30);

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lockers.harbor.example.com}
spec:
  group: harbor.example.com
  scope: Namespaced
  names: {plural: lockers, kind: Locker}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-validations:
        - {rule: self.metadata.name.startsWith('locker-'), message: "names begin with locker-"}
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: self.min <= self.max, messageExpression: "'min ' + string(self.min) + ' is above max ' + string(self.max)"}
            - {rule: "!has(self.owner) || self.owner.matches('^[a-z]+$')", fieldPath: .owner, reason: FieldValueForbidden, message: owners are in lower case}
            properties:
              min: {type: integer}
              max: {type: integer}
              owner: {type: string, maxLength: 20}
              serial: {type: string, maxLength: 20, x-kubernetes-validations: [{rule: self == oldSelf, message: a serial number stays}]}
              until: {type: string, format: date-time, x-kubernetes-validations: [{rule: "self > timestamp('2020-01-01T00:00:00Z')"}]}
              max-load: {x-kubernetes-int-or-string: true}
              shelves:
                type: array
                maxItems: 20
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  x-kubernetes-validations: [{rule: self.width >= oldSelf.width, message: shelves do not shrink}]
                  properties: {name: {type: string, maxLength: 20}, width: {type: integer}}
              numbers:
                type: array
                maxItems: 1000
                items: {type: integer}
                x-kubernetes-validations: [{rule: "self.all(x, self.all(y, x + y >= 0))"}]
"#;

fn locker(name: &str, spec: &str) -> String {
    format!("apiVersion: harbor.example.com/v1\nkind: Locker\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

#[test]
fn rules_of_custom_resources_hold() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    rules_that_cannot_be_are_rejected(&kubectl);
    kubectl.apply(DEFINITION).ok();
    kubectl.ok("wait --for=condition=established crd/lockers.harbor.example.com --timeout=20s");
    objects_follow_the_rules(&kubectl);
    changes_follow_the_rules_about_changes(&kubectl);
    what_would_run_for_ever_ends(&kubectl);
    what_was_there_before_a_rule_may_stay(&kubectl);
}

fn rules_that_cannot_be_are_rejected(kubectl: &Kubectl<'_>) {
    let with = |rule: &str| DEFINITION.replace("self.min <= self.max,", &format!("{rule},"));
    let path = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: ";
    for (rule, wanted) in [
        ("self.minimum <= self.max", "compilation failed: ERROR: <input>:1:5: undefined field 'minimum'"),
        ("self.min <= 'a'", "found no matching overload for '_<=_' applied to '(int, string)'"),
        ("self.min + self.max", "cel expression must evaluate to a bool"),
        (
            "\"self.numbers.all(x, self.numbers.all(y, self.numbers.all(z, x + y >= z)))\"",
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
    ] {
        let complaint = kubectl.apply(&with(rule)).fails();
        assert!(complaint.contains(path) && complaint.contains(wanted), "{rule}: {complaint}");
    }
}

fn objects_follow_the_rules(kubectl: &Kubectl<'_>) {
    let good = "{min: 1, max: 3, owner: ann, serial: a, until: '2030-01-01T00:00:00Z', shelves: [{name: top, width: 3}], max-load: 5}";
    kubectl.apply(&locker("locker-1", good)).ok();
    for (name, spec, wanted) in [
        ("locker-2", "{min: 4, max: 3}", "The Locker \"locker-2\" is invalid: spec: Invalid value: min 4 is above max 3"),
        ("locker-2", "{min: 1, max: 3, owner: Ann}", "spec.owner: Forbidden: owners are in lower case"),
        (
            "locker-2",
            "{min: 1, max: 3, until: '2010-01-01T00:00:00Z'}",
            "spec.until: Invalid value: \"2010-01-01T00:00:00Z\": failed rule: self > timestamp('2020-01-01T00:00:00Z')",
        ),
        ("locker-2", "{min: 1}", "spec: Invalid value: \"object\": no such key: max evaluating rule: self.min <= self.max"),
        ("box", "{min: 1, max: 3}", "<nil>: Invalid value: names begin with locker-"),
    ] {
        let complaint = kubectl.apply(&locker(name, spec)).fails();
        assert!(complaint.contains(wanted), "{spec}: {complaint}");
    }
}

fn changes_follow_the_rules_about_changes(kubectl: &Kubectl<'_>) {
    let patch = |spec: &str| format!("patch locker locker-1 --type=merge -p {{\"spec\":{spec}}}");
    kubectl.ok(&patch("{\"max\":9,\"shelves\":[{\"name\":\"low\",\"width\":1},{\"name\":\"top\",\"width\":4}]}"));
    let complaint = kubectl.fails(&patch("{\"serial\":\"b\"}"));
    assert!(complaint.contains("spec.serial: Invalid value: \"b\": a serial number stays"), "{complaint}");
    // The list's map key finds the shelf, wherever it is in the list.
    let complaint = kubectl.fails(&patch("{\"shelves\":[{\"name\":\"top\",\"width\":2},{\"name\":\"low\",\"width\":1}]}"));
    assert!(complaint.contains("spec.shelves[0]: Invalid value: shelves do not shrink"), "{complaint}");
    kubectl.ok(&patch("{\"serial\":null}"));
    kubectl.ok(&patch("{\"serial\":\"b\"}"));
}

fn what_would_run_for_ever_ends(kubectl: &Kubectl<'_>) {
    let numbers: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let started = Instant::now();
    let complaint = kubectl.apply(&locker("locker-3", &format!("{{min: 1, max: 2, numbers: [{}]}}", numbers.join(", ")))).fails();
    let wanted = "spec.numbers: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.all(x, self.all(y, x + y >= 0))";
    assert!(complaint.contains(wanted), "{complaint}");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    kubectl.apply(&locker("locker-3", "{min: 1, max: 2, numbers: [1, 2, 3]}")).ok();
}

/// A definition becomes stricter while objects exist: a violation that an update does not change causes only a warning.
fn what_was_there_before_a_rule_may_stay(kubectl: &Kubectl<'_>) {
    let stricter = DEFINITION
        .replace("max: {type: integer}", "max: {type: integer, x-kubernetes-validations: [{rule: self < 9, message: nine is too many}]}");
    kubectl.apply(&stricter).ok();
    tests::eventually("the new rule to be in force", || {
        let refused = kubectl.run(&["patch", "locker", "locker-3", "--type=merge", "--dry-run=server", "-p", "{\"spec\":{\"max\":10}}"]);
        if refused.stderr.contains("spec.max: Invalid value: 10: nine is too many") { Ok(()) } else { Err(refused.stderr) }
    });
    let labelled = kubectl.run(&["label", "locker", "locker-1", "still=good"]);
    assert_eq!((labelled.code, labelled.stderr.as_str()), (0, "Warning: spec.max: Invalid value: 9: nine is too many\n"));
    assert_eq!(kubectl.field("locker/locker-1", "/spec/max"), 9);
}
