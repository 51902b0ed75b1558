use api_client::error::chain;

use crate::config::KubeSchedulerConfiguration;

/// The error of a configuration with these arguments of the plugin, without the path of the arguments; empty if there is none.
fn error(plugin: &str, args: &str) -> String {
    let text = format!(
        "{{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{{pluginConfig: [{{name: {plugin}, \
         args: {{{args}}}}}]}}]}}"
    );
    let error = KubeSchedulerConfiguration::parse(&text).err().map(|error| chain(&error).to_string()).unwrap_or_default();
    let invalid = error.strip_prefix("the scheduler's configuration is invalid: ").unwrap_or(&error);
    invalid.replace("profiles[0].pluginConfig[0].args.", "")
}

const UNKNOWN: &str = "decoding .profiles[0].pluginConfig[0]: decoding args for plugin";

#[test]
fn unknown_fields_and_other_kinds_are_errors() {
    let cases = [
        ("NodeResourcesFit", "ignored: []", format!("{UNKNOWN} NodeResourcesFit: unknown field `ignored`")),
        ("NodeResourcesFit", "scoringStrategy: {kind: x}", format!("{UNKNOWN} NodeResourcesFit: unknown field `kind`")),
        ("NodeResourcesFit", "ignoredResources: 3", format!("{UNKNOWN} NodeResourcesFit: invalid type: integer `3`")),
        ("NodeAffinity", "addedAffinity: {required: {}}", format!("{UNKNOWN} NodeAffinity: unknown field \"required\"")),
        (
            "NodeAffinity",
            "addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}, {weight: 1, preference: {expressions: []}}]}",
            format!("{UNKNOWN} NodeAffinity: unknown field \"preferredDuringSchedulingIgnoredDuringExecution[1].preference.expressions\""),
        ),
        ("PodTopologySpread", "defaultConstraints: [{skew: 1}]", format!("{UNKNOWN} PodTopologySpread: unknown field \"skew\"")),
        (
            "NodeResourcesFit",
            "kind: NodeAffinityArgs",
            "were not of kind NodeResourcesFitArgs in version kubescheduler.config.k8s.io/v1, got \"NodeAffinityArgs\"".to_owned(),
        ),
        ("NodeResourcesFit", "apiVersion: v1", "were not of kind NodeResourcesFitArgs".to_owned()),
        ("NodeName", "a: b", "profiles[0].pluginConfig[0]: Forbidden: the plugin NodeName has no arguments".to_owned()),
        (
            "NodeDeclaredFeatures",
            "a: b",
            "profiles[0].pluginConfig[0]: Forbidden: Skiff does not have the plugin NodeDeclaredFeatures".to_owned(),
        ),
        ("Nothing", "", "profiles[0].pluginConfig[0]: Invalid value: \"Nothing\": plugin \"Nothing\" does not exist".to_owned()),
    ];
    for (plugin, args, wanted) in cases {
        let error = error(plugin, args);
        assert!(error.contains(&wanted), "{plugin} {args}\n{error}");
    }
    assert_eq!(error("NodeResourcesFit", "apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeResourcesFitArgs"), "");
    let twice = error("NodeResourcesFit", "}}, {name: NodeResourcesFit, args: {");
    assert_eq!(twice, "profiles[0].pluginConfig[1]: Duplicate value: \"NodeResourcesFit\"");
}

#[test]
fn values_are_checked_as_upstream_does() {
    let cases = [
        (
            "DefaultPreemption",
            "minCandidateNodesPercentage: 101",
            "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
        ),
        ("DefaultPreemption", "minCandidateNodesAbsolute: -1", "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)"),
        (
            "DefaultPreemption",
            "minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0",
            "[minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute, \
             minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage]",
        ),
        ("DefaultPreemption", "minCandidateNodesPercentage: 0", ""),
        ("InterPodAffinity", "hardPodAffinityWeight: 101", "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
        ("InterPodAffinity", "hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true", ""),
        ("VolumeBinding", "bindTimeoutSeconds: 3", ""),
        (
            "VolumeBinding",
            "bindTimeoutSeconds: -1",
            "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
        ),
        (
            "VolumeBinding",
            "shape: []",
            "shape: Invalid value: \"\": unexpected field `shape`, feature StorageCapacityScoring is not enabled",
        ),
        ("DynamicResources", "bindingTimeout: 1m30s", ""),
        ("DynamicResources", "bindingTimeout: 999ms", "bindingTimeout: Invalid value: \"999ms\": must be at least 1 second"),
        ("DynamicResources", "bindingTimeout: -1s", "bindingTimeout: Invalid value: \"-1s\": must be at least 1 second"),
        ("DynamicResources", "bindingTimeout: soon", "bindingTimeout: Invalid value: \"soon\": time: invalid duration \"soon\""),
        (
            "DynamicResources",
            "filterTimeout: 10s",
            "filterTimeout: Forbidden: a search for devices ends after a number of steps, not after a time",
        ),
        ("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 2}]", "resources[0].weight: Invalid value: 2: must be 1"),
        ("NodeResourcesBalancedAllocation", "resources: [{name: a}, {name: a}]", "resources[1].name: Duplicate value: \"a\""),
    ];
    for (plugin, args, wanted) in cases {
        assert_eq!(error(plugin, args), wanted, "{plugin} {args}");
    }
}

#[test]
fn a_scoring_strategy_is_checked_as_upstream_does() {
    let ratio =
        |shape: &str| format!("scoringStrategy: {{type: RequestedToCapacityRatio, requestedToCapacityRatio: {{shape: [{shape}]}}}}");
    let cases = [
        ("NodeResourcesFit", "scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 100}]}", ""),
        (
            "NodeResourcesFit",
            "scoringStrategy: {type: Best}",
            "scoringStrategy.type: Unsupported value: \"Best\": supported values: \"LeastAllocated\", \"MostAllocated\", \
             \"RequestedToCapacityRatio\"",
        ),
        (
            "NodeResourcesFit",
            "scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 101}]}",
            "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
        ),
        (
            "NodeResourcesFit",
            "scoringStrategy: {type: RequestedToCapacityRatio}",
            "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio",
        ),
        (
            "NodeResourcesFit",
            "scoringStrategy: {type: MostAllocated, requestedToCapacityRatio: {}}",
            "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio",
        ),
        (
            "NodeResourcesFit",
            &ratio(""),
            "scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified",
        ),
        ("NodeResourcesFit", &ratio("{utilization: 0, score: 0}, {utilization: 100, score: 10}"), ""),
        (
            "NodeResourcesFit",
            &ratio("{utilization: 5, score: 11}, {utilization: 5}"),
            "[scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 5: values must be sorted in increasing order, \
             scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range [0, 10]]",
        ),
        (
            "NodeResourcesFit",
            "ignoredResourceGroups: [a/b]",
            "ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
        ),
        ("NodeResourcesFit", "ignoredResourceGroups: [example.com], ignoredResources: [example.com/gpu]", ""),
    ];
    for (plugin, args, wanted) in cases {
        assert_eq!(error(plugin, args), wanted, "{plugin} {args}");
    }
}

#[test]
fn default_constraints_are_checked_as_upstream_does() {
    let cases = [
        (
            "PodTopologySpread",
            "defaultingType: None",
            "defaultingType: Unsupported value: \"None\": supported values: \"System\", \"List\"",
        ),
        (
            "PodTopologySpread",
            "defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]",
            "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
        ),
        (
            "PodTopologySpread",
            "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]",
            "",
        ),
        (
            "PodTopologySpread",
            "defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: '', whenUnsatisfiable: Maybe, labelSelector: {}}]",
            "[defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf), defaultConstraints[0].topologyKey: Required \
             value: can not be empty, defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Maybe\": supported values: \
             \"DoNotSchedule\", \"ScheduleAnyway\", defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, \
             as they deduced for each pod]",
        ),
        (
            "PodTopologySpread",
            "defaultingType: List, defaultConstraints: [&a {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}, *a]",
            "defaultConstraints[1]: Duplicate value: \"{zone, ScheduleAnyway}\"",
        ),
    ];
    for (plugin, args, wanted) in cases {
        assert_eq!(error(plugin, args), wanted, "{plugin} {args}");
    }
}

#[test]
fn an_added_affinity_must_be_one_that_can_match() {
    const REQUIRED: &str = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";
    let cases = [
        ("matchExpressions: [{key: a, operator: In, values: [b]}]", String::new()),
        ("matchFields: [{key: metadata.name, operator: In, values: [b]}]", String::new()),
        (
            "matchExpressions: [{key: a, operator: In}]",
            format!("{REQUIRED}.matchExpressions[0].values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        ),
        (
            "matchExpressions: [{key: a, operator: Exists, values: [b]}]",
            format!(
                "{REQUIRED}.matchExpressions[0].values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist"
            ),
        ),
        (
            "matchExpressions: [{key: a, operator: Gt, values: [b]}]",
            format!(
                "{REQUIRED}.matchExpressions[0].values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
        (
            "matchExpressions: [{key: a, operator: Like}]",
            format!(
                "{REQUIRED}.matchExpressions[0].operator: Unsupported value: \"Like\": supported values: \"In\", \"NotIn\", \"Exists\", \
                 \"DoesNotExist\", \"Gt\", \"Lt\""
            ),
        ),
        (
            "matchFields: [{key: metadata.name, operator: In, values: [a, b]}]",
            format!("{REQUIRED}.matchFields[0].values: Invalid value: [\"a\",\"b\"]: must have one element"),
        ),
    ];
    for (term, wanted) in cases {
        let args = format!("addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{{term}}}]}}}}");
        assert_eq!(error("NodeAffinity", &args), wanted, "{term}");
    }
}
