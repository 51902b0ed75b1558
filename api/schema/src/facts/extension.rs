//! Facts about extensions: admission registration, custom resources, aggregated APIs.

use super::{Table, field, map, set, table};

pub(super) const TABLES: &[Table] = &[
    table(
        "io.k8s.api.admissionregistration.v1.MatchResources",
        &["excludeResourceRules", "resourceRules"],
        &[field("").map_atomic(), field("matchPolicy").one_of(&["Equivalent", "Exact"])],
    ),
    table(
        "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicySpec",
        &["mutations", "variables"],
        &[
            field("failurePolicy").one_of(&["Fail", "Ignore"]),
            map("matchConditions", &["name"]).merge_by("name"),
            field("reinvocationPolicy").one_of(&["IfNeeded", "Never"]),
        ],
    ),
    table(
        "io.k8s.api.admissionregistration.v1.MutatingWebhook",
        &["admissionReviewVersions", "rules"],
        &[
            field("failurePolicy").one_of(&["Fail", "Ignore"]),
            map("matchConditions", &["name"]).merge_by("name"),
            field("matchPolicy").one_of(&["Equivalent", "Exact"]),
            field("reinvocationPolicy").one_of(&["IfNeeded", "Never"]),
            field("sideEffects").one_of(&["None", "NoneOnDryRun", "Some", "Unknown"]),
        ],
    ),
    table("io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration", &[], &[map("webhooks", &["name"]).merge_by("name")]),
    table("io.k8s.api.admissionregistration.v1.Mutation", &[], &[field("patchType").one_of(&["ApplyConfiguration", "JSONPatch"])]),
    table(
        "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
        &["apiGroups", "apiVersions", "operations", "resourceNames", "resources"],
        &[
            field("").map_atomic(),
            field("operations[]").one_of(&["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]),
            field("scope").one_of(&["*", "Cluster", "Namespaced"]),
        ],
    ),
    table("io.k8s.api.admissionregistration.v1.ParamKind", &[], &[field("").map_atomic()]),
    table("io.k8s.api.admissionregistration.v1.ParamRef", &[], &[field("").map_atomic()]),
    table(
        "io.k8s.api.admissionregistration.v1.RuleWithOperations",
        &["apiGroups", "apiVersions", "operations", "resources"],
        &[
            field("operations[]").one_of(&["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]),
            field("scope").one_of(&["*", "Cluster", "Namespaced"]),
        ],
    ),
    table("io.k8s.api.admissionregistration.v1.TypeChecking", &["expressionWarnings"], &[]),
    table(
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec",
        &[],
        &[set("validationActions"), field("validationActions[]").one_of(&["Audit", "Deny", "Warn"])],
    ),
    table(
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        &["auditAnnotations", "validations"],
        &[
            field("failurePolicy").one_of(&["Fail", "Ignore"]),
            map("matchConditions", &["name"]).merge_by("name"),
            map("variables", &["name"]).merge_by("name"),
        ],
    ),
    table("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyStatus", &[], &[map("conditions", &["type"])]),
    table(
        "io.k8s.api.admissionregistration.v1.ValidatingWebhook",
        &["admissionReviewVersions", "rules"],
        &[
            field("failurePolicy").one_of(&["Fail", "Ignore"]),
            map("matchConditions", &["name"]).merge_by("name"),
            field("matchPolicy").one_of(&["Equivalent", "Exact"]),
            field("sideEffects").one_of(&["None", "NoneOnDryRun", "Some", "Unknown"]),
        ],
    ),
    table("io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration", &[], &[map("webhooks", &["name"]).merge_by("name")]),
    table("io.k8s.api.admissionregistration.v1.Variable", &[], &[field("").map_atomic()]),
    table("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionNames", &["categories", "shortNames"], &[]),
    table("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec", &["versions"], &[]),
    table(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        &["storedVersions"],
        &[map("conditions", &["type"])],
    ),
    table(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion",
        &["additionalPrinterColumns", "selectableFields"],
        &[],
    ),
    table(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        &["allOf", "anyOf", "enum", "oneOf", "required", "x-kubernetes-list-map-keys"],
        &[map("x-kubernetes-validations", &["rule"]).merge_by("rule")],
    ),
    table("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookConversion", &["conversionReviewVersions"], &[]),
    table("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIServiceStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
];
