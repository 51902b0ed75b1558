use super::*;

/// The plugins of a profile with these `plugins`, or the errors.
fn merged(plugins: &str) -> Result<EnabledPlugins, Vec<String>> {
    let plugins: Plugins = serde_yaml::from_str(plugins).expect("valid YAML");
    let mut errors = Vec::new();
    let enabled = enabled_plugins(&plugins, &Declared::default(), "s", &Path::new("plugins"), &mut errors);
    if errors.is_empty() { Ok(enabled) } else { Err(errors.iter().map(ToString::to_string).collect()) }
}

const FILTERS: &str = "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources";
const SCORES: &str = "TaintToleration=3 NodeAffinity=2 NodeResourcesFit=1 PodTopologySpread=2 InterPodAffinity=2 \
                      DynamicResources=1 NodeResourcesBalancedAllocation=1 ImageLocality=1";

/// A name, the `plugins` of a profile, and what it has then: its filters, its scores with their weights, and its post-filters.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static str);

fn check((name, plugins, filters, scores, post_filters): &Case) {
    let merged = merged(plugins).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
    let merged_scores: Vec<String> = merged.score.iter().map(|(name, weight)| format!("{name}={weight}")).collect();
    let enabled = [merged.filter.join(" "), merged_scores.join(" "), merged.post_filter.join(" ")];
    assert_eq!(enabled, [*filters, *scores, *post_filters], "{name}");
    let waits = [merged.has_scheduling_gates, merged.has_gang_scheduling];
    assert_eq!(waits, [*name != "a list of its own"; 2], "{name}");
}

#[test]
fn multi_point_changes_the_default_plugins_as_in_upstream() {
    let cases: &[Case] = &[
        ("the default", "{}", FILTERS, SCORES, "DynamicResources DefaultPreemption"),
        (
            "a plugin less",
            "multiPoint: {disabled: [{name: TaintToleration}]}",
            "NodeUnschedulable NodeName NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources",
            "NodeAffinity=2 NodeResourcesFit=1 PodTopologySpread=2 InterPodAffinity=2 DynamicResources=1 NodeResourcesBalancedAllocation=1 ImageLocality=1",
            "DynamicResources DefaultPreemption",
        ),
        (
            "a weight in multiPoint stays at the plugin's default position",
            "multiPoint: {enabled: [{name: NodeResourcesFit, weight: 7}, {name: NodeAffinity}]}",
            FILTERS,
            "TaintToleration=3 NodeAffinity=1 NodeResourcesFit=7 PodTopologySpread=2 InterPodAffinity=2 DynamicResources=1 NodeResourcesBalancedAllocation=1 ImageLocality=1",
            "DynamicResources DefaultPreemption",
        ),
        (
            "disabled and enabled again is last",
            "multiPoint: {disabled: [{name: NodeName}], enabled: [{name: NodeName}]}",
            "NodeUnschedulable TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources NodeName",
            SCORES,
            "DynamicResources DefaultPreemption",
        ),
        (
            "a list of its own",
            "multiPoint: {disabled: [{name: '*'}], enabled: [{name: DefaultBinder}, {name: PrioritySort}, {name: NodeResourcesFit}]}",
            "NodeResourcesFit",
            "NodeResourcesFit=1",
            "",
        ),
    ];
    cases.iter().for_each(check);
}

#[test]
fn an_extension_point_goes_before_multi_point_as_in_upstream() {
    let cases: &[Case] = &[
        (
            "disabled plugins may have any name",
            "score: {disabled: [{name: VolumeBinding}, {name: Nothing}]}",
            FILTERS,
            SCORES,
            "DynamicResources DefaultPreemption",
        ),
        (
            "no scores",
            "{preScore: {disabled: [{name: '*'}]}, score: {disabled: [{name: '*'}]}}",
            FILTERS,
            "",
            "DynamicResources DefaultPreemption",
        ),
        ("no score is enough", "score: {disabled: [{name: '*'}]}", FILTERS, "", "DynamicResources DefaultPreemption"),
        (
            "one score alone",
            "score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 5}]}",
            FILTERS,
            "NodeResourcesFit=5",
            "DynamicResources DefaultPreemption",
        ),
        (
            "a weight at the extension point goes first, and is 1 if it is not given",
            "score: {enabled: [{name: InterPodAffinity, weight: 9}, {name: TaintToleration}]}",
            FILTERS,
            "InterPodAffinity=9 TaintToleration=1 NodeAffinity=2 NodeResourcesFit=1 PodTopologySpread=2 DynamicResources=1 NodeResourcesBalancedAllocation=1 ImageLocality=1",
            "DynamicResources DefaultPreemption",
        ),
        (
            "a plugin that multiPoint lacks follows",
            "{multiPoint: {disabled: [{name: NodeAffinity}]}, preScore: {enabled: [{name: NodeAffinity}]}, score: {enabled: [{name: NodeAffinity, weight: 4}]}}",
            "NodeUnschedulable NodeName TaintToleration NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources",
            "TaintToleration=3 NodeResourcesFit=1 PodTopologySpread=2 InterPodAffinity=2 DynamicResources=1 NodeResourcesBalancedAllocation=1 ImageLocality=1 NodeAffinity=4",
            "DynamicResources DefaultPreemption",
        ),
        ("no preemption", "postFilter: {disabled: [{name: DefaultPreemption}]}", FILTERS, SCORES, "DynamicResources"),
        (
            "no filter of one plugin",
            "filter: {disabled: [{name: NodePorts}]}",
            "NodeUnschedulable NodeName TaintToleration NodeAffinity NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources",
            SCORES,
            "DynamicResources DefaultPreemption",
        ),
    ];
    cases.iter().for_each(check);
}

#[test]
fn plugins_that_cannot_be_called_are_named() {
    let cases: [(&str, &[&str]); 9] = [
        (
            "score: {enabled: [{name: Nothing}]}",
            &["plugins.score.enabled[0]: Invalid value: \"Nothing\": ScorePlugin \"Nothing\" does not exist"],
        ),
        (
            "multiPoint: {enabled: [{name: Nothing}]}",
            &["plugins.multiPoint.enabled[0]: Invalid value: \"Nothing\": PreFilterPlugin \"Nothing\" does not exist"],
        ),
        (
            "multiPoint: {enabled: [{name: NodeName}, {name: NodeDeclaredFeatures}]}",
            &["plugins.multiPoint.enabled[1]: Forbidden: Skiff does not have the plugin NodeDeclaredFeatures"],
        ),
        (
            "filter: {enabled: [{name: EBSLimits}]}",
            &[
                "plugins.filter.enabled[0]: Invalid value: \"EBSLimits\": was invalid in version \"v1\" (KubeSchedulerConfiguration is version \
               \"kubescheduler.config.k8s.io/v1\")",
            ],
        ),
        (
            "score: {enabled: [{name: NodeName}]}",
            &["plugins.score.enabled[0]: Invalid value: \"NodeName\": plugin \"NodeName\" does not extend ScorePlugin plugin"],
        ),
        (
            "filter: {enabled: [{name: NodeName}, {name: NodeName}]}",
            &["plugins.filter.enabled[1]: Invalid value: \"NodeName\": plugin \"NodeName\" already registered as \"FilterPlugin\""],
        ),
        (
            "multiPoint: {disabled: [{name: '*'}]}",
            &[
                "plugins.queueSort: Required value: only one queue sort plugin required for profile with scheduler name \"s\", but got 0",
                "plugins.bind: Required value: at least one bind plugin is needed for profile with scheduler name \"s\"",
            ],
        ),
        (
            "preFilter: {disabled: [{name: NodePorts}]}",
            &["plugins.preFilter: Forbidden: Skiff cannot call NodePorts for filter without preFilter"],
        ),
        (
            "reserve: {disabled: [{name: VolumeBinding}]}",
            &["plugins.reserve: Forbidden: Skiff cannot call VolumeBinding for preBind without reserve"],
        ),
    ];
    for (plugins, wanted) in cases {
        assert_eq!(merged(plugins).expect_err(plugins), wanted, "{plugins}");
    }
    let twice = merged("multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}").expect_err("twice");
    assert_eq!(twice, ["plugins.filter: Invalid value: \"NodeName\": plugin \"NodeName\" already registered as \"FilterPlugin\""]);
}

#[test]
fn a_plugin_at_an_extension_point_without_plugins_gets_upstreams_message() {
    for (plugins, wanted) in [
        (
            "reserve: {enabled: [{name: NodeResourcesFit}]}",
            "plugins.reserve.enabled[0]: Invalid value: \"NodeResourcesFit\": plugin \"NodeResourcesFit\" does not extend ReservePlugin plugin",
        ),
        (
            "preBind: {enabled: [{name: DefaultBinder}]}",
            "plugins.preBind.enabled[0]: Invalid value: \"DefaultBinder\": plugin \"DefaultBinder\" does not extend PreBindPlugin plugin",
        ),
        (
            "postBind: {enabled: [{name: DefaultBinder}]}",
            "plugins.postBind.enabled[0]: Invalid value: \"DefaultBinder\": plugin \"DefaultBinder\" does not extend PostBindPlugin plugin",
        ),
        (
            "postBind: {enabled: [{name: Nothing}]}",
            "plugins.postBind.enabled[0]: Invalid value: \"Nothing\": PostBindPlugin \"Nothing\" does not exist",
        ),
        (
            "reserve: {enabled: [{name: NodeDeclaredFeatures}]}",
            "plugins.reserve.enabled[0]: Forbidden: Skiff does not have the plugin NodeDeclaredFeatures",
        ),
        (
            "preBind: {enabled: [{name: NodeDeclaredFeatures}]}",
            "plugins.preBind.enabled[0]: Forbidden: Skiff does not have the plugin NodeDeclaredFeatures",
        ),
    ] {
        assert_eq!(merged(plugins).expect_err(plugins), [wanted], "{plugins}");
    }
    let disabled = "{reserve: {disabled: [{name: '*'}]}, preBind: {disabled: [{name: '*'}]}, postBind: {disabled: [{name: '*'}]}}";
    let (without, default) = (merged(disabled).expect("valid"), merged("{}").expect("valid"));
    let both = vec!["VolumeBinding", "DynamicResources"];
    assert_eq!((default.reserve, default.pre_bind, default.post_bind), (both.clone(), both, vec![]));
    assert_eq!((without.reserve, without.pre_bind, without.filter), (vec![], vec![], default.filter));
}
