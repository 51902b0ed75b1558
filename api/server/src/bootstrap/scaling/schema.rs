//! The schemas of the kinds of `keda.sh/v1alpha1`, with upstream's defaults, enums and limits.
//!
//! Two parts are left open where upstream repeats the schemas of other kinds: the Pod template of a ScaledJob, which the API server
//! checks when a Job is created, and stores of secrets that Skiff does not read.

use serde_json::{Map, Value, json};

const GROWTH_WINDOW_MAX: u32 = 3_600;
/// Triggers of one object, each a request in every polling interval. Upstream has no limit.
const TRIGGERS_MAX: u32 = 50;
/// Entries of one list of a TriggerAuthentication. Upstream has no limit.
const REFERENCES_MAX: u32 = 50;
const TYPE_LEN_MAX: u32 = 253;

/// A field's name and its schema.
type Field<'a> = (&'a str, Value);

pub(super) fn scaled_object() -> Value {
    let target = object(
        &["name"],
        [("name", at_least_one_letter()), ("apiVersion", string()), ("kind", string()), ("envSourceContainerName", string())],
    );
    let modifiers = object(
        &[],
        [("formula", string()), ("target", string()), ("activationTarget", string()), ("metricType", one_of(&["AverageValue", "Value"]))],
    );
    let autoscaler = object(&[], [("name", string()), ("behavior", object(&[], [("scaleUp", rules()), ("scaleDown", rules())]))]);
    let advanced = object(
        &[],
        [("horizontalPodAutoscalerConfig", autoscaler), ("restoreToOriginalReplicaCount", boolean()), ("scalingModifiers", modifiers)],
    );
    let mut behavior = one_of(&["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower", "scalingModifiers"]);
    put(&mut behavior, "default", json!("static"));
    let fallback =
        object(&["failureThreshold", "replicas"], [("failureThreshold", from(0)), ("replicas", from(0)), ("behavior", behavior)]);
    let mut spec = object(
        &["scaleTargetRef", "triggers"],
        [
            ("scaleTargetRef", target),
            ("pollingInterval", from(1)),
            ("initialCooldownPeriod", from(0)),
            ("cooldownPeriod", from(0)),
            ("idleReplicaCount", from(0)),
            ("minReplicaCount", from(0)),
            ("maxReplicaCount", from(1)),
            ("advanced", advanced),
            ("triggers", triggers(true)),
            ("fallback", fallback),
        ],
    );
    put(&mut spec, "x-kubernetes-validations", validations());
    whole("ScaledObject is a specification for a ScaledObject resource", spec, scaled_object_status(), true)
}

/// Upstream's rule of the definition, and what its admission webhook rejects by the spec alone.
fn validations() -> Value {
    let bounds = "!has(self.minReplicaCount) || self.minReplicaCount <= (has(self.maxReplicaCount) ? self.maxReplicaCount : 100)";
    // As upstream, a minimum of zero counts as one, and a missing one as zero.
    let min = "(has(self.minReplicaCount) ? (self.minReplicaCount > 0 ? self.minReplicaCount : 1) : 0)";
    let idle = format!("!has(self.idleReplicaCount) || self.idleReplicaCount < {min}");
    let idle_message =
        format!("'IdleReplicaCount=' + string(self.idleReplicaCount) + ' must be less than MinReplicaCount=' + string({min})");
    let to_zero = "(has(self.minReplicaCount) && self.minReplicaCount > 0) || self.triggers.exists(t, !(t.type in ['cpu', 'memory']))";
    let to_zero_message = "scaledobject has only cpu/memory triggers AND minReplica is 0 (scale to zero doesn't work in this case)";
    json!([
        {"rule": bounds, "message": "minReplicaCount must be less than or equal to maxReplicaCount"},
        {"rule": idle, "messageExpression": idle_message},
        {"rule": to_zero, "message": to_zero_message},
    ])
}

fn scaled_object_status() -> Value {
    let resource = object(
        &["group", "kind", "resource", "version"],
        [("group", string()), ("version", string()), ("kind", string()), ("resource", string())],
    );
    let health = object(&[], [("numberOfFailures", integer()), ("status", string())]);
    object(
        &[],
        [
            ("scaleTargetKind", string()),
            ("scaleTargetGVKR", resource),
            ("originalReplicaCount", integer()),
            ("lastActiveTime", time()),
            ("externalMetricNames", list(string())),
            ("resourceMetricNames", list(string())),
            ("compositeScalerName", string()),
            ("conditions", conditions()),
            ("health", map(health)),
            ("triggersActivity", activity()),
            ("pausedReplicaCount", integer()),
            ("hpaName", string()),
            ("triggersTypes", string()),
            ("authenticationsTypes", string()),
        ],
    )
}

pub(super) fn scaled_job() -> Value {
    let strategy = object(
        &[],
        [
            ("strategy", one_of(&["default", "custom", "accurate", "eager"])),
            ("customScalingQueueLengthDeduction", integer()),
            ("customScalingRunningJobPercentage", string()),
            ("pendingPodConditions", list(string())),
            ("multipleScalersCalculation", one_of(&["min", "avg", "sum", "max"])),
        ],
    );
    let rollout =
        object(&[], [("strategy", one_of(&["gradual", "immediate"])), ("propagationPolicy", one_of(&["foreground", "background"]))]);
    let spec = object(
        &["jobTargetRef", "triggers"],
        [
            ("jobTargetRef", job()),
            ("pollingInterval", from(1)),
            ("successfulJobsHistoryLimit", from(0)),
            ("failedJobsHistoryLimit", from(0)),
            ("rolloutStrategy", one_of(&["gradual", "immediate"])),
            ("rollout", rollout),
            ("envSourceContainerName", string()),
            ("minReplicaCount", from(0)),
            ("maxReplicaCount", from(1)),
            ("scalingStrategy", strategy),
            ("triggers", triggers(false)),
        ],
    );
    let status = object(
        &[],
        [
            ("lastActiveTime", time()),
            ("conditions", conditions()),
            ("Paused", string()),
            ("triggersTypes", string()),
            ("authenticationsTypes", string()),
            ("externalMetricNames", list(string())),
            ("triggersActivity", activity()),
        ],
    );
    whole("ScaledJob is the Schema for the scaledjobs API", spec, status, false)
}

/// `batch/v1 JobSpec`.
fn job() -> Value {
    object(
        &["template"],
        [
            ("parallelism", integer()),
            ("completions", integer()),
            ("activeDeadlineSeconds", long()),
            ("podFailurePolicy", open()),
            ("successPolicy", open()),
            ("backoffLimit", integer()),
            ("backoffLimitPerIndex", integer()),
            ("maxFailedIndexes", integer()),
            ("selector", open()),
            ("manualSelector", boolean()),
            ("template", open()),
            ("ttlSecondsAfterFinished", integer()),
            ("completionMode", string()),
            ("suspend", boolean()),
            ("podReplacementPolicy", string()),
            ("managedBy", string()),
        ],
    )
}

pub(super) fn trigger_authentication() -> Value {
    let reference = || {
        let fields = [("parameter", string()), ("name", string()), ("key", string())];
        let mut list = list(object(&["key", "name", "parameter"], fields));
        put(&mut list, "maxItems", json!(REFERENCES_MAX));
        list
    };
    let env = object(&["name", "parameter"], [("parameter", string()), ("name", string()), ("containerName", string())]);
    let identity = object(
        &["provider"],
        [
            ("provider", one_of(&["azure-workload", "gcp", "aws", "aws-eks", "none"])),
            ("identityId", string()),
            ("identityTenantId", string()),
            ("identityAuthorityHost", string()),
            ("roleArn", string()),
            ("externalID", string()),
            ("identityOwner", one_of(&["keda", "workload"])),
        ],
    );
    let token = object(&["parameter", "serviceAccountName"], [("parameter", string()), ("serviceAccountName", string())]);
    let vault = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"address": string()}});
    let spec = object(
        &[],
        [
            ("podIdentity", identity),
            ("secretTargetRef", reference()),
            ("configMapTargetRef", reference()),
            ("env", list(env)),
            ("filePath", string()),
            ("hashiCorpVault", vault),
            ("azureKeyVault", open()),
            ("gcpSecretManager", open()),
            ("awsSecretManager", open()),
            ("boundServiceAccountToken", list(token)),
            ("oauth2", open()),
        ],
    );
    let status = object(&[], [("scaledobjects", string()), ("scaledjobs", string())]);
    whole("TriggerAuthentication defines how a trigger can authenticate", spec, status, true)
}

fn whole(description: &str, spec: Value, status: Value, needs_spec: bool) -> Value {
    let required: &[&str] = if needs_spec { &["spec"] } else { &[] };
    let fields =
        [("apiVersion", string()), ("kind", string()), ("metadata", json!({"type": "object"})), ("spec", spec), ("status", status)];
    let mut schema = object(required, fields);
    put(&mut schema, "description", json!(description));
    schema
}

fn triggers(has_metric_type: bool) -> Value {
    let kind = one_of(&["TriggerAuthentication", "ClusterTriggerAuthentication"]);
    let authentication = object(&["name"], [("name", string()), ("kind", kind)]);
    let mut fields = vec![
        // Upstream has no maximum; with it, the cost of a rule over the types is bounded.
        ("type", json!({"type": "string", "minLength": 1, "maxLength": TYPE_LEN_MAX})),
        ("name", string()),
        ("useCachedMetrics", boolean()),
        ("metadata", map(string())),
        ("authenticationRef", authentication),
    ];
    if has_metric_type {
        fields.push(("metricType", string()));
    }
    let mut triggers = list(object(&["metadata", "type"], fields));
    put(&mut triggers, "minItems", json!(1));
    put(&mut triggers, "maxItems", json!(TRIGGERS_MAX));
    triggers
}

/// `autoscaling/v2 HPAScalingRules`.
fn rules() -> Value {
    let policy = object(&["periodSeconds", "type", "value"], [("type", string()), ("value", integer()), ("periodSeconds", integer())]);
    let mut window = from(0);
    put(&mut window, "maximum", json!(GROWTH_WINDOW_MAX));
    let mut policies = list(policy);
    put(&mut policies, "x-kubernetes-list-type", json!("atomic"));
    let tolerance = json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true});
    object(&[], [("selectPolicy", string()), ("stabilizationWindowSeconds", window), ("tolerance", tolerance), ("policies", policies)])
}

fn conditions() -> Value {
    list(object(&["status", "type"], [("type", string()), ("status", string()), ("reason", string()), ("message", string())]))
}

fn activity() -> Value {
    map(object(&[], [("isActive", boolean())]))
}

fn string() -> Value {
    json!({"type": "string"})
}

fn at_least_one_letter() -> Value {
    json!({"type": "string", "minLength": 1})
}

fn one_of(values: &[&str]) -> Value {
    json!({"type": "string", "enum": values})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn integer() -> Value {
    json!({"type": "integer", "format": "int32"})
}

fn long() -> Value {
    json!({"type": "integer", "format": "int64"})
}

/// An integer that is at least `minimum`.
fn from(minimum: u32) -> Value {
    json!({"type": "integer", "format": "int32", "minimum": minimum})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn map(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

/// An object of any content.
fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn object<'a>(required: &[&str], fields: impl IntoIterator<Item = Field<'a>>) -> Value {
    let properties: Map<String, Value> = fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        put(&mut object, "required", json!(required));
    }
    object
}

fn put(schema: &mut Value, keyword: &str, value: Value) {
    if let Value::Object(schema) = schema {
        schema.insert(keyword.to_owned(), value);
    }
}
