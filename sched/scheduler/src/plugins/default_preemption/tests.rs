use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::*;
use crate::cache::Cache;
use crate::cycle::{Nomination, Progress, schedule_pod};
use crate::plugins::Profile;
use crate::plugins::fixtures::{labelled, node, snapshot};

/// A Pod on a node: name, CPU, priority, the second at which it started.
type Running = (&'static str, &'static str, i32, i64);

fn running((name, cpu, priority, started): Running) -> PodInfo {
    let spec = json!({"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
    let started = Timestamp::from_second(started).ok();
    PodInfo { started, ..labelled(name, json!({"app": name.trim_end_matches(|c: char| c.is_ascii_digit())}), spec) }
}

/// Nodes of 4 cores with these Pods.
fn cluster(nodes: &[(&str, &[Running])]) -> Snapshot {
    let with_pods = nodes.iter().map(|(name, pods)| {
        let mut node = node(name, json!({"metadata": {"labels": {"zone": "z"}}}));
        pods.iter().for_each(|pod| node.add_pod(Arc::new(running(*pod))));
        node
    });
    snapshot(with_pods.collect())
}

fn preemptor(cpu: &'static str, priority: i32) -> PodInfo {
    PodInfo { started: None, ..running(("p", cpu, priority, 0)) }
}

fn disruption_budget(selector: &Value, allowed: i32, disrupted: &Value) -> DisruptionBudget {
    let object = json!({
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "disruptedPods": disrupted},
    });
    DisruptionBudget::new(&serde_json::from_value::<PodDisruptionBudget>(object).expect("a budget"))
}

fn budget(all: &mut Snapshot, app: &str, allowed: i32, disrupted: Value) {
    let budget = disruption_budget(&json!({"matchLabels": {"app": app}}), allowed, &disrupted);
    Arc::make_mut(&mut all.budgets).insert(format!("default/{app}"), budget);
}

/// The node with the names of its victims, or the message.
fn result(pod: &PodInfo, all: &Snapshot) -> String {
    let failure =
        schedule_pod(&Profile::default(), &Arc::new(pod.clone()), all, &mut Progress::default()).expect_err("no node is feasible");
    match failure.nomination {
        Nomination::Preempts { best, .. } => {
            format!("{}: {}", best.node, best.victims.iter().map(|victim| victim.name.as_str()).collect::<Vec<_>>().join(" "))
        }
        Nomination::Stays => format!("stays: {}", failure.error),
        Nomination::Ends => format!("ends: {}", failure.error),
    }
}

#[test]
fn the_node_with_the_cheapest_victims_is_chosen() {
    type Case = (&'static str, &'static [(&'static str, &'static [Running])], &'static str);
    let cases: &[Case] = &[
        ("the lowest priority goes", &[("a", &[("x", "4", 5, 0)]), ("b", &[("y", "4", 1, 0)])], "b: y"),
        ("of several highest priorities the lowest", &[("a", &[("x", "1", 5, 0), ("y", "3", 1, 0)]), ("b", &[("z", "4", 4, 0)])], "b: z"),
        ("then the lowest sum", &[("a", &[("x", "2", 5, 0), ("y", "2", 4, 0)]), ("b", &[("z", "2", 5, 0), ("w", "2", 3, 0)])], "b: z w"),
        ("then the fewest", &[("a", &[("x", "2", 5, 0), ("y", "2", 5, 0)]), ("b", &[("z", "4", 5, 0)])], "b: z"),
        ("then the latest start", &[("a", &[("x", "4", 5, 10)]), ("b", &[("y", "4", 5, 20)])], "b: y"),
        ("then the first", &[("a", &[("x", "4", 5, 10)]), ("b", &[("y", "4", 5, 10)])], "a: x"),
    ];
    for (case, nodes, wanted) in cases {
        assert_eq!(result(&preemptor("4", 10), &cluster(nodes)), *wanted, "{case}");
    }
}

#[test]
fn no_more_pods_go_than_must() {
    let nodes: &[(&str, &[Running])] = &[("a", &[("old1", "1", 1, 10), ("old2", "1", 1, 20), ("high", "1", 3, 30), ("above", "1", 20, 0)])];
    let all = cluster(nodes);
    assert_eq!(result(&preemptor("1", 10), &all), "a: old2", "the youngest of the least important");
    assert_eq!(result(&preemptor("2", 10), &all), "a: old1 old2");
    assert_eq!(result(&preemptor("3", 10), &all), "a: high old1 old2", "the most important first");
    assert_eq!(
        result(&preemptor("4", 10), &all),
        "ends: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu."
    );
}

#[test]
fn the_message_says_why_nothing_is_preempted() {
    let mut all = cluster(&[("a", &[("x", "4", 10, 0)]), ("b", &[("y", "4", 10, 0)])]);
    let small = node("small", json!({"status": {"allocatable": {"cpu": "500m"}}}));
    all.node_index.insert("small".to_owned(), 2);
    all.nodes.push(Arc::new(small));
    assert_eq!(
        result(&preemptor("1", 10), &all),
        "ends: 0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 1 Preemption is not helpful for \
         scheduling, 2 No preemption victims found for incoming pod."
    );
    let never = PodInfo { may_preempt: false, ..preemptor("1", 20) };
    assert_eq!(
        result(&never, &all),
        "stays: 0/3 nodes are available: 3 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    );
}

#[test]
fn budgets_are_violated_only_when_there_is_no_other_way() {
    let nodes: &[(&str, &[Running])] = &[("a", &[("x", "4", 1, 0)]), ("b", &[("y", "4", 5, 0)])];
    let mut all = cluster(nodes);
    budget(&mut all, "x", 0, json!({}));
    assert_eq!(result(&preemptor("4", 10), &all), "b: y", "another node, though its Pod is more important");
    budget(&mut all, "y", 0, json!({}));
    assert_eq!(result(&preemptor("4", 10), &all), "a: x", "both are violated");
    budget(&mut all, "y", 0, json!({"y": "2026-01-01T00:00:00Z"}));
    assert_eq!(result(&preemptor("4", 10), &all), "b: y", "the disruption of this Pod is counted already");
    let mut all = cluster(&[("a", &[("x1", "2", 1, 0), ("x2", "2", 1, 5), ("y", "0", 1, 0)])]);
    budget(&mut all, "x", 1, json!({}));
    assert_eq!(result(&preemptor("2", 10), &all), "a: x1", "the second one of the budget is reprieved first");
}

#[test]
fn a_pod_uses_up_every_budget_that_counts_it() {
    let exhausted = disruption_budget(&json!({"matchLabels": {"app": "x"}}), 0, &json!({}));
    let of_both = disruption_budget(&json!({}), 1, &json!({}));
    for budgets in [[&exhausted, &of_both], [&of_both, &exhausted]] {
        let pods = vec![running(("x", "1", 1, 0)), running(("y", "1", 1, 0))];
        let (violating, others) = split_by_budget(pods, |pod| vec![pod], budgets.into_iter());
        assert_eq!((violating.len(), others.len()), (2, 0), "the first Pod leaves nothing of the budget of both");
    }
}

#[test]
fn a_nominated_pod_keeps_its_room() {
    let mut all = cluster(&[("a", &[])]);
    let nominated = PodInfo { name: "n".to_owned(), uid: "n".to_owned(), ..preemptor("3", 10) };
    all.nominated.nominate(Arc::new(nominated.clone()), "a");
    assert!(result(&preemptor("2", 10), &all).starts_with("ends: 0/1 nodes are available: 1 Insufficient cpu. "), "as important");
    schedule_pod(&Profile::default(), &Arc::new(preemptor("2", 11)), &all, &mut Progress::default()).expect("more important");
    schedule_pod(&Profile::default(), &Arc::new(nominated), &all, &mut Progress::default()).expect("a Pod does not count against itself");
}

#[test]
fn a_pod_whose_victims_are_leaving_preempts_no_others() {
    let mut all = cluster(&[("a", &[("x", "4", 1, 0)]), ("b", &[("y", "4", 1, 0)])]);
    let leaving = PodInfo { deleting: true, preempted: true, ..running(("x", "4", 1, 0)) };
    Arc::make_mut(&mut all.nodes[0]).add_pod(Arc::new(leaving));
    let pod = preemptor("4", 10);
    all.nominated.nominate(Arc::new(pod.clone()), "a");
    assert_eq!(
        result(&pod, &all),
        "stays: 0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node."
    );
    all.nominated.nominate(Arc::new(pod.clone()), "b");
    assert_eq!(result(&pod, &all), "a: x", "nobody leaves the nominated node: another Pod took the room");
}

#[test]
fn the_pods_of_an_indivisible_group_go_together_or_not_at_all() {
    let grouped = |pod: Running| Arc::new(PodInfo { pod_group: Some("default/g".into()), ..running(pod) });
    let mut all = cluster(&[("a", &[("y", "2", 1, 0)]), ("b", &[]), ("c", &[("x", "4", 2, 0)])]);
    let add = |all: &mut Snapshot, node: usize, pod: Running| Arc::make_mut(&mut all.nodes[node]).add_pod(grouped(pod));
    add(&mut all, 0, ("g1", "2", 1, 0));
    add(&mut all, 1, ("g2", "4", 1, 0));
    assert_eq!(result(&preemptor("4", 10), &all), "b: g2", "Pods of a group are Pods like others");
    all.indivisible_groups = Arc::new(["default/g".into()].into());
    assert_eq!(result(&preemptor("4", 10), &all), "b: g1 g2", "also the one on another node");
    assert_eq!(result(&preemptor("2", 10), &all), "a: y", "a group is more important than a Pod");
    add(&mut all, 1, ("g2", "4", 20, 0));
    assert_eq!(result(&preemptor("4", 10), &all), "c: x", "one of them is too important");
}

#[test]
fn affinity_and_spread_count_without_the_victims() {
    let term = json!({"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}}}]);
    let all = cluster(&[("a", &[("x1", "1", 1, 0), ("x2", "1", 1, 5), ("y", "1", 1, 0)]), ("b", &[("x3", "4", 20, 0)])]);
    let pod = |app: &str, more: Value| PodInfo { priority: 10, may_preempt: true, ..labelled("p", json!({"app": app}), more) };
    let repelled = pod("p", json!({"affinity": apart}));
    let message = "ends: 0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. preemption: 0/2 nodes are available: 1 No \
                   preemption victims found for incoming pod, 1 node(s) didn't match pod anti-affinity rules.";
    assert_eq!(result(&repelled, &all), message, "a Pod that may not go is in the same zone");
    let alone = cluster(&[("a", &[("x1", "1", 1, 0), ("x2", "1", 1, 5), ("y", "1", 1, 0)])]);
    assert_eq!(result(&repelled, &alone), "a: x1 x2", "all that repel it, and no other");
    let two = cluster(&[("a", &[("x1", "1", 1, 0), ("x2", "1", 1, 5), ("y", "1", 1, 0)]), ("b", &[("z", "4", 20, 0)])]);
    let wide =
        pod("x", json!({"topologySpreadConstraints": spread, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}));
    assert_eq!(result(&wide, &two), "a: x1 x2", "the skew is that without the victims");
}

#[test]
fn a_trial_leaves_no_trace() {
    let term = json!({"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"});
    let affinity = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    let pod = PodInfo { priority: 10, may_preempt: true, ..labelled("p", json!({}), affinity) };
    let all = cluster(&[("a", &[("x1", "1", 1, 0), ("x2", "1", 1, 5)])]);
    let (profile, mut state) = (Profile::default(), CycleState::default());
    assert!(profile.filters.pre_filter(&mut state, &pod, &all).is_ok());
    for _ in 0..2 {
        let candidate = {
            let groups = IndivisibleGroups::new(&all, |_| true);
            select_victims(&profile.filters, &mut state, &pod, &all, (&all.nodes[0], &groups)).expect("a candidate")
        };
        assert_eq!(candidate.victims.len(), 2);
        assert!(profile.filters.filter(&state, &pod, &all.nodes[0]).is_err(), "the victims are still there");
    }
}

#[test]
fn the_number_of_candidates_is_configured() {
    let candidates =
        |args: Value, nodes: usize| crate::plugins::fixtures::arguments("DefaultPreemption", &args).default_preemption.candidates(nodes);
    assert_eq!((candidates(json!({}), 500), candidates(json!({}), 5_000)), (100, 500));
    let half = json!({"minCandidateNodesPercentage": 50, "minCandidateNodesAbsolute": 1});
    assert_eq!((candidates(half.clone(), 1), candidates(half, 500)), (1, 250));
    // Of two nodes the second one is better, and is not tried.
    let all = cluster(&[("a", &[("x", "4", 5, 0)]), ("b", &[("y", "4", 1, 0)])]);
    let arguments = crate::plugins::fixtures::arguments(
        "DefaultPreemption",
        &json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}),
    );
    let profile = Profile::of_cycle(&crate::config::KubeSchedulerProfile { arguments, ..Default::default() }, Vec::new());
    let failure = schedule_pod(&profile, &Arc::new(preemptor("2", 11)), &all, &mut Progress::default()).expect_err("no node is feasible");
    let Nomination::Preempts { best: preemption, .. } = failure.nomination else { panic!("{:?}", failure.nomination) };
    assert_eq!(preemption.node, "a");
}

/// The nomination with all candidates.
fn nomination(pod: &Arc<PodInfo>, all: &Snapshot, progress: &mut Progress) -> String {
    match schedule_pod(&Profile::default(), pod, all, progress) {
        // Of several best nodes, any may be chosen.
        Ok(_) => "fits".to_owned(),
        Err(failure) => format!("{:?} {}", failure.nomination, failure.error),
    }
}

/// Pods of several priorities, one that repels the preemptor, and the preemptor itself.
fn nominated(number: usize) -> PodInfo {
    let repels = json!({"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "kubernetes.io/hostname"});
    let affinity = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [repels]}}});
    match number {
        0 => preemptor("2", 10),
        1 => PodInfo { uid: "lower".to_owned(), ..preemptor("2", 5) },
        2 => PodInfo { uid: "repels".to_owned(), priority: 20, ..labelled("q", json!({"app": "q"}), affinity) },
        other => PodInfo { uid: format!("nominated{other}"), ..preemptor("1", 20) },
    }
}

#[test]
fn what_is_left_of_earlier_cycles_changes_no_result() {
    let mut random = 7_usize;
    let mut below = |end: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };
    let mut cache = Cache::default();
    for n in 0..6 {
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let name = format!("n{n}");
        let object =
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": {"allocatable": allocatable}});
        cache.update_node(&serde_json::from_value(object).expect("a node"));
    }
    let (mut progress, mut anew, mut preemptions) = (Progress::default(), Progress::default(), 0);
    for step in 0..1_200 {
        let (app, node) = (["x", "y", "z"][below(3)], format!("n{}", below(6)));
        let name = format!("{app}{}", below(24));
        let at = i64::try_from(below(50)).expect("small");
        let state = PodInfo { name: name.clone(), uid: name.clone(), ..running((app, ["1", "2"][below(2)], 1 + at as i32 % 3, at)) };
        match below(6) {
            0 => drop(cache.remove_pod(&name)),
            1 => cache.nominate(Arc::new(nominated(below(5))), &node),
            2 => drop(cache.end_nomination(&nominated(below(5)).uid)),
            3 => {
                let budget = disruption_budget(&json!({"matchLabels": {"app": app}}), below(2) as i32, &json!({}));
                cache.set_budget(format!("default/{app}"), Some(budget));
            }
            _ => {
                let on = cache.snapshot().nodes.iter().find(|node| node.pods.get(&name).is_some()).map(|node| node.name.clone());
                cache.add_pod(Arc::new(PodInfo { node_name: on.unwrap_or(node), ..state }));
            }
        }
        let pod = Arc::new(preemptor(["2", "3", "4"][below(3)], 10));
        anew.reset();
        let wanted = nomination(&pod, cache.snapshot(), &mut anew);
        assert_eq!(nomination(&pod, cache.snapshot(), &mut progress), wanted, "step {step}");
        preemptions += usize::from(wanted.starts_with("Preempts"));
    }
    assert!(preemptions > 100, "{preemptions} preemptions");
}
