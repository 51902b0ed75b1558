use api_client::error::chain;
use api_client::lease::Election;

use super::*;

/// Parses a configuration with these lines after its kind.
fn parse(lines: &str) -> Result<KubeSchedulerConfiguration, String> {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{lines}");
    KubeSchedulerConfiguration::parse(&text).map_err(|error| chain(&error).to_string())
}

#[test]
fn errors_name_the_field_and_the_reason() {
    let cases = [
        ("profile: []", "unknown field `profile`"),
        ("profiles: [{schedulerNames: a}]", "profiles[0]: unknown field `schedulerNames`"),
        ("profiles: [{plugins: {scores: {}}}]", "profiles[0].plugins: unknown field `scores`"),
        ("profiles: [{plugins: {score: {enabled: [{name: NodeName, wait: 1}]}}}]", "unknown field `wait`"),
        ("profiles: []\nprofiles: []", "duplicate field `profiles`"),
        ("parallelism: many", "parallelism: invalid type: string \"many\""),
        ("parallelism: 0", "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        ("parallelism: 4", "parallelism: Forbidden: Skiff evaluates the nodes of a cycle in one thread"),
        ("clientConnection: {kubeconfig: /etc/x}", "clientConnection.kubeconfig: Forbidden: Skiff's scheduler runs in the process"),
        ("enableProfiling: true", "enableProfiling: Forbidden: Skiff has no profiling endpoints"),
        ("enableContentionProfiling: true", "enableContentionProfiling: Forbidden"),
        ("delayCacheUntilActive: true", "delayCacheUntilActive: Forbidden"),
        ("percentageOfNodesToScore: 101", "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"),
        ("profiles: [{percentageOfNodesToScore: -1}]", "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range"),
        ("podInitialBackoffSeconds: 0", "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"),
        (
            "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4",
            "podMaxBackoffSeconds: Invalid value: 4: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        ("profiles: [{schedulerName: ''}]", "profiles[0].schedulerName: Required value"),
        ("profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName: Required value"),
        (
            "profiles: [{schedulerName: a}, {schedulerName: b}, {schedulerName: a}]",
            "profiles[2].schedulerName: Duplicate value: \"profiles[0].schedulerName\"",
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: PrioritySort}]}}}]",
            "profiles[1].plugins.queueSort: Forbidden: must be the same for all profiles",
        ),
        (
            "leaderElection: {leaseDuration: 10s}",
            "leaderElection.leaseDuration: Invalid value: \"10s\": must be greater than `RenewDeadline`",
        ),
        ("leaderElection: {retryPeriod: 9s}", "leaderElection.renewDeadline: Invalid value: \"10s\": must be greater than retryPeriod*"),
        ("leaderElection: {retryPeriod: -9s}", "leaderElection.retryPeriod: Invalid value: \"-9s\": must be greater than zero"),
        ("leaderElection: {retryPeriod: soon}", "leaderElection.retryPeriod: Invalid value: \"soon\": time: invalid duration"),
        (
            "leaderElection: {resourceLock: endpoints}",
            "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be",
        ),
    ];
    for (lines, wanted) in cases {
        let error = parse(lines).expect_err(lines);
        assert!(error.contains(wanted), "{lines}\n{error}");
    }
    for text in
        ["", "kind: KubeSchedulerConfiguration", "{apiVersion: kubescheduler.config.k8s.io/v1beta3, kind: KubeSchedulerConfiguration}"]
    {
        let wrong = KubeSchedulerConfiguration::parse(text);
        assert!(matches!(wrong, Err(ConfigurationError::Kind { .. } | ConfigurationError::Unreadable(_))), "{text}");
    }
}

#[test]
fn several_errors_are_reported_together() {
    let error = parse("parallelism: -1\nprofiles: [{percentageOfNodesToScore: 200}]").expect_err("two errors");
    assert!(error.contains("[parallelism: ") && error.contains(", profiles[0].percentageOfNodesToScore: "), "{error}");
}

#[test]
fn what_is_not_given_has_upstreams_default() {
    let defaults = "parallelism: 16\nclientConnection: {kubeconfig: '', qps: 0}\nenableProfiling: false\nextenders: []\nprofiles: []";
    for lines in ["", "profiles: [{}]", "profiles: [{schedulerName: default-scheduler}]", defaults] {
        let configuration = parse(lines).expect(lines);
        let [profile] = configuration.profiles.as_slice() else { panic!("one profile") };
        assert_eq!((profile.scheduler_name.as_str(), profile.percentage_of_nodes_to_score), ("default-scheduler", 0));
        assert_eq!(profile.plugins, KubeSchedulerProfile::default().plugins);
        assert_eq!((configuration.backoff.initial.as_secs(), configuration.backoff.max.as_secs()), (1, 10));
    }
}

#[test]
fn a_profile_overrides_what_is_set_for_all() {
    let profiles = "[{schedulerName: a}, {schedulerName: b, percentageOfNodesToScore: 7}, {schedulerName: c, percentageOfNodesToScore: 0}]";
    let configuration =
        parse(&format!("percentageOfNodesToScore: 50\npodInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 60\nprofiles: {profiles}"))
            .expect("valid");
    let percentages: Vec<_> = configuration.profiles.iter().map(|profile| profile.percentage_of_nodes_to_score).collect();
    assert_eq!(percentages, [50, 7, 0]);
    assert_eq!((configuration.backoff.initial.as_secs(), configuration.backoff.max.as_secs()), (2, 60));
}

#[test]
fn the_longest_back_off_can_be_computed() {
    let configuration = parse("podMaxBackoffSeconds: 9223372036854775807").expect("valid");
    assert!(std::time::Instant::now().checked_add(configuration.backoff.max).is_some());
}

#[test]
fn an_election_has_the_times_of_the_configuration() {
    let election = |lines: &str| parse(lines).expect(lines).leader_election.of(Some(Election::new("kube-scheduler", "me")));
    let times = |election: Election| {
        let seconds = [election.lease_duration, election.renew_deadline, election.retry_period].map(|time| time.as_secs());
        (election.namespace, election.name, seconds)
    };
    let own = |namespace: &str, name: &str, times: [u64; 3]| Some((namespace.to_owned(), name.to_owned(), times));
    assert_eq!(election("").map(times), own("kube-system", "kube-scheduler", [15, 10, 2]));
    assert_eq!(
        election("leaderElection: {leaderElect: true, leaseDuration: 0s}").map(times),
        own("kube-system", "kube-scheduler", [15, 10, 2])
    );
    let given = "leaderElection: {leaseDuration: 1m, renewDeadline: 40s, retryPeriod: 5s, resourceName: a, resourceNamespace: b}";
    assert_eq!(election(given).map(times), own("b", "a", [60, 40, 5]));
    assert!(election("leaderElection: {leaderElect: false}").is_none());
    assert!(parse("").expect("valid").leader_election.of(None).is_none(), "nobody else is on the store");
}

#[test]
fn the_examples_of_the_documentation_are_valid() {
    let parse = |example: &String| KubeSchedulerConfiguration::parse(example).expect(example);
    let names = |configuration: &KubeSchedulerConfiguration| {
        configuration.profiles.iter().map(|profile| profile.scheduler_name.clone()).collect::<Vec<_>>()
    };
    let parsed: Vec<_> = examples(include_str!("../../../../docs/nodes.md")).iter().map(parse).collect();
    let [profiles, extenders] = parsed.as_slice() else { panic!("two examples") };
    assert_eq!(names(profiles), ["default-scheduler", "packing"]);
    assert_eq!(
        extenders.extenders.iter().map(|extender| extender.url(&extender.filter_verb)).collect::<Vec<_>>(),
        ["http://127.0.0.1:8888/scheduler/filter"]
    );
    let parsed: Vec<_> = examples(include_str!("../../../../docs/scheduler-plugins.md")).iter().map(parse).collect();
    assert_eq!(parsed.iter().map(names).collect::<Vec<_>>(), [["default-scheduler", "gpu"]]);
}

/// The configurations in a page.
fn examples(page: &str) -> Vec<String> {
    let parts = page.split("```yaml\n").filter(|part| part.starts_with("apiVersion: kubescheduler"));
    parts.filter_map(|part| part.split("```").next()).map(str::to_owned).collect()
}
