//! Invalid definitions and upstream's messages about them.

use crate::testing::{create_problems, kind, new, table, update_problems};

/// A definition with one version that has this schema.
fn with_schema(schema: &str) -> String {
    definition(&format!("versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}]"))
}

fn definition(versions: &str) -> String {
    format!(
        "metadata: {{name: widgets.example.com}}\nspec: {{group: example.com, scope: Namespaced, names: {{plural: widgets, kind: Widget}}, {versions}}}"
    )
}

fn refused(name: &str, cases: &[String]) {
    let kind = kind("apiextensions.k8s.io", "customresourcedefinitions");
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    insta::assert_snapshot!(name, table(&cases, |case| create_problems(kind, case)));
}

#[test]
fn names_and_versions() {
    let version = |name: &str, storage: bool| {
        format!("{{name: {name}, served: true, storage: {storage}, schema: {{openAPIV3Schema: {{type: object}}}}}}")
    };
    refused(
        "names",
        &[
            "metadata: {name: other}\nspec: {}".to_owned(),
            "metadata: {name: a.b}\nspec: {group: b, scope: World, names: {plural: a, kind: 'A B', listKind: 'A B', shortNames: [X], categories: ['y z']}, versions: []}".to_owned(),
            definition(&format!("versions: [{}, {}]", version("v1", true), version("v1", true))),
            definition(&format!("versions: [{}]", version("V1", false))),
            definition("versions: [{name: v1, served: true, storage: true}]"),
            definition("versions: [{name: v1, served: true, storage: true, deprecationWarning: x, schema: {openAPIV3Schema: {type: object}}}]"),
            definition("preserveUnknownFields: true, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]"),
            definition("conversion: {strategy: Webhook}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]"),
            definition("conversion: {strategy: None, webhook: {conversionReviewVersions: [v1]}}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]"),
            "metadata: {name: widgets.x.k8s.io}\nspec: {group: x.k8s.io, scope: Cluster, names: {plural: widgets, kind: Widget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}".to_owned(),
        ],
    );
}

#[test]
fn conversion_webhooks() {
    let webhook = |fields: &str| {
        definition(&format!(
            "conversion: {{strategy: Webhook, webhook: {fields}}}, versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]"
        ))
    };
    refused(
        "conversion",
        &[
            webhook("{clientConfig: {url: 'https://hook.example.com/convert'}, conversionReviewVersions: [v1]}"),
            webhook("{clientConfig: {service: {name: hook, namespace: default}}, conversionReviewVersions: [v9, v1beta1]}"),
            webhook("{clientConfig: {}, conversionReviewVersions: [v9]}"),
            webhook("{clientConfig: {url: 'http://u@h?q', service: {name: hook, namespace: default}}, conversionReviewVersions: [V1, V1]}"),
            webhook("{clientConfig: {url: 'http://user@host?q#f'}, conversionReviewVersions: [v1]}"),
            webhook("{clientConfig: {service: {path: 'a//b', port: 70000}}, conversionReviewVersions: [v1]}"),
        ],
    );
}

#[test]
fn columns_subresources_and_selectable_fields() {
    let version = |fields: &str| {
        definition(&format!(
            "versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{type: object, properties: {{a: {{type: string}}, b: {{type: object}}}}}}}}}}}}, {fields}}}]"
        ))
    };
    refused(
        "columns",
        &[
            version("additionalPrinterColumns: [{name: A, type: string, jsonPath: .spec.a}]"),
            version("additionalPrinterColumns: [{type: text, jsonPath: spec.a, format: x}, {name: B}]"),
            version("subresources: {scale: {specReplicasPath: .status.x, statusReplicasPath: status.x, labelSelectorPath: .metadata.x}}"),
            version("subresources: {scale: {}}"),
            version(
                "selectableFields: [{jsonPath: .spec.a}, {jsonPath: .spec.a}, {jsonPath: .spec.b}, {jsonPath: .spec.c}, {jsonPath: .metadata.name}]",
            ),
        ],
    );
}

#[test]
fn schemas_that_are_not_structural() {
    refused(
        "structural",
        &[
            with_schema("{type: object}"),
            with_schema("{}"),
            with_schema("{type: string}"),
            with_schema("{type: object, additionalProperties: {type: string}}"),
            with_schema("{type: object, properties: {a: {}, b: {type: array}, c: {type: array, items: {}}, d: {type: thing}}}"),
            with_schema("{type: object, properties: {a: {type: string, pattern: '('}}}"),
            with_schema("{type: object, properties: {a: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}}}"),
            with_schema("{type: object, properties: {a: {type: string, anyOf: [{type: string}]}}}"),
            with_schema("{type: object, anyOf: [{properties: {a: {minimum: 1}}, required: [a]}]}"),
            with_schema("{type: object, properties: {a: {type: object, oneOf: [{required: [x]}, {properties: {y: {pattern: z}}}]}}}"),
            with_schema("{type: object, properties: {metadata: {type: object, properties: {labels: {type: object}}}}}"),
            with_schema(
                "{type: object, properties: {a: {type: object, x-kubernetes-embedded-resource: true}, b: {x-kubernetes-int-or-string: true, x-kubernetes-preserve-unknown-fields: true}}}",
            ),
        ],
    );
}

#[test]
fn schemas_with_wrong_words() {
    refused(
        "words",
        &[
            with_schema(
                "{type: object, properties: {a: {type: array, uniqueItems: true, items: {type: string}}, b: {type: object, properties: {c: {type: string}}, additionalProperties: {type: string}}}}",
            ),
            with_schema("{type: object, properties: {a: {type: 'null'}, b: {type: string, $ref: x}}}"),
            with_schema(
                "{type: object, properties: {l: {type: array, x-kubernetes-list-type: map, items: {type: object, properties: {k: {type: string}, o: {type: object}}}, x-kubernetes-list-map-keys: [k, o, k, z]}}}",
            ),
            with_schema(
                "{type: object, properties: {l: {type: array, x-kubernetes-list-type: map, items: {type: string}}, m: {type: object, x-kubernetes-list-type: bag}, n: {type: array, items: {type: object}, x-kubernetes-list-type: set}}}",
            ),
            with_schema("{type: object, nullable: true, properties: {a: {type: integer, default: x}, b: {type: object, default: {c: 1}}}}"),
            with_schema(
                "{type: object, properties: {metadata: {type: object, default: {}}, a: {type: object, x-kubernetes-preserve-unknown-fields: false}}}",
            ),
            with_schema(
                "{type: object, properties: {a: {type: string, x-kubernetes-validations: [{rule: ''}, {rule: \"true\", message: ' '}, {rule: \"true\", reason: Because}]}}}",
            ),
            definition(
                "versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, required: [spec], oneOf: [{required: [spec]}]}}}]",
            ),
        ],
    );
}

#[test]
fn rules_that_do_not_compile_or_cost_too_much() {
    let ruled = |rule: &str| {
        with_schema(&format!(
            "{{type: object, properties: {{spec: {{type: object, x-kubernetes-validations: [{{{rule}}}], properties: {{a: {{type: integer}}, l: {{type: array, items: {{type: integer}}}}}}}}}}}}"
        ))
    };
    refused(
        "rules",
        &[
            ruled("rule: 'self.a > 1'"),
            ruled("rule: 'self.b > 1'"),
            ruled("rule: 'self.a >'"),
            ruled("rule: 'self.a'"),
            ruled("rule: 'self.a > 1', messageExpression: 'self.a'"),
            ruled("rule: 'self.a > 1', optionalOldSelf: true"),
            ruled("rule: 'self.l.all(x, self.l.exists(y, x == y))'"),
            with_schema(
                "{type: object, properties: {l: {type: array, items: {type: integer, x-kubernetes-validations: [{rule: 'self == oldSelf'}]}}}}",
            ),
        ],
    );
}

#[test]
fn names_of_an_established_kind_stay() {
    let kind = kind("apiextensions.k8s.io", "customresourcedefinitions");
    let good = with_schema("{type: object}");
    let established = "status: {storedVersions: [v1], conditions: [{type: Established, status: 'True', reason: x, message: y}]}";
    let mut old = new(kind, &good);
    old["status"]["conditions"] = serde_json::json!([{"type": "Established", "status": "True"}]);
    let changed = good.replace("scope: Namespaced", "scope: Cluster").replace("kind: Widget", "kind: Gadget");
    let problems = update_problems(kind, None, &good, &format!("{changed}\n{established}"));
    insta::assert_snapshot!("established", problems);
}

#[test]
fn a_new_storage_version_is_remembered() {
    let kind = kind("apiextensions.k8s.io", "customresourcedefinitions");
    let versions = |first: bool| {
        definition(&format!(
            "versions: [{{name: v1, served: true, storage: {first}, schema: {{openAPIV3Schema: {{type: object}}}}}}, {{name: v2, served: true, storage: {}, schema: {{openAPIV3Schema: {{type: object}}}}}}]",
            !first
        ))
    };
    let old = new(kind, &versions(true));
    assert_eq!(old["status"]["storedVersions"], serde_json::json!(["v1"]));
    let mut changed = crate::testing::read(kind, &versions(false));
    crate::prepare_update(kind, None, &mut changed, &old);
    assert_eq!(changed["status"]["storedVersions"], serde_json::json!(["v1", "v2"]));
    assert_eq!(changed["metadata"]["generation"], 2);
}
