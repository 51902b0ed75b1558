use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use sched_framework::DisruptionBudget;
use serde_json::{Value, json};

use super::*;
use crate::plugins::fixtures::merge;

/// A Pod on a node: name, CPU, priority, and what is merged over it.
type Running = (&'static str, &'static str, i32, Value);

/// Nodes of so many cores with Pods.
struct Cluster {
    cache: Cache,
}

impl Cluster {
    fn new(nodes: &[(&str, usize, &[Running])]) -> Self {
        let mut cluster = Self { cache: Cache::default() };
        for (name, cores, pods) in nodes {
            let status = json!({"allocatable": {"cpu": cores.to_string(), "memory": "64Gi", "pods": "10000"}});
            let metadata = json!({"name": name, "labels": {"zone": "z", "kubernetes.io/hostname": name}});
            let node: Node = serde_json::from_value(json!({"metadata": metadata, "status": status})).expect("a Node");
            cluster.cache.update_node(&node);
            for (pod, cpu, priority, more) in *pods {
                let mut object = object(pod, cpu, *priority);
                merge(&mut object, json!({"spec": {"nodeName": name}}));
                merge(&mut object, more.clone());
                cluster.cache.add_pod(info(object));
            }
        }
        cluster
    }

    /// A budget that allows no disruption of these Pods.
    fn budget(&mut self, app: &str) {
        let object = json!({"metadata": {"name": app, "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
        let budget: PodDisruptionBudget = serde_json::from_value(object).expect("a budget");
        self.cache.set_budget(format!("default/{app}"), Some(DisruptionBudget::new(&budget)));
    }

    /// The nodes of the gang's Pods and the victims, or the message.
    fn choose(&self, gang: &Gang) -> String {
        let chosen = |budgets| {
            let gang = Gang { key: Arc::clone(&gang.key), pods: gang.pods.clone(), ..*gang };
            let mut preemption = GangPreemption::begin(gang, &self.cache, budgets, |_| false)?;
            loop {
                if let Some(choice) = preemption.step(&Profile::default()) {
                    return Ok::<_, NoChoice>((choice, preemption.spares_pods()));
                }
            }
        };
        let choice = chosen(Budgets::Respected).and_then(|(choice, spares_pods)| match choice {
            Choice::Infeasible(_) if spares_pods => chosen(Budgets::Violated).map(|(choice, _)| choice),
            choice => Ok(choice),
        });
        match choice {
            Err(why) => why.to_string(),
            Ok(Choice::Infeasible(message)) => format!("infeasible: {message}"),
            Ok(Choice::Feasible { placed, mut victims }) => {
                victims.sort_by(|one, other| one.name.cmp(&other.name));
                let placed: Vec<_> = placed.iter().map(|(pod, node)| format!("{}@{node}", pod.name)).collect();
                let victims: Vec<_> = victims.iter().map(|victim| victim.name.as_str()).collect();
                format!("{}: {}", placed.join(" "), victims.join(" "))
            }
        }
    }
}

fn object(name: &str, cpu: &str, priority: i32) -> Value {
    let labels = json!({"app": name.trim_end_matches(|c: char| c.is_ascii_digit())});
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels}, "spec": {"priority": priority,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn info(object: Value) -> Arc<PodInfo> {
    Arc::new(PodInfo::new(&serde_json::from_value::<Pod>(object).expect("a Pod")))
}

/// A gang of the priority 10 with so many Pods, of which `min_count` must be placed.
fn gang(count: usize, min_count: usize, cpu: &str, more: &Value) -> Gang {
    let pod = |number: usize| {
        let mut object = object(&format!("p{number}"), cpu, 10);
        merge(&mut object, json!({"spec": {"schedulingGroup": {"podGroupName": "gang"}}}));
        merge(&mut object, more.clone());
        info(object)
    };
    Gang { key: "default/gang".into(), min_count, priority: 10, pods: (0..count).map(pod).collect() }
}

fn plain(count: usize, min_count: usize, cpu: &str) -> Gang {
    gang(count, min_count, cpu, &json!({}))
}

fn none() -> Value {
    json!({})
}

fn started(second: i64) -> Value {
    json!({"status": {"startTime": Timestamp::from_second(second).expect("in range").to_string()}})
}

fn in_group(name: &str) -> Value {
    json!({"spec": {"schedulingGroup": {"podGroupName": name}}})
}

fn both(mut one: Value, other: Value) -> Value {
    merge(&mut one, other);
    one
}

#[test]
fn victims_are_chosen_for_the_whole_gang() {
    let a: &[Running] = &[("low", "1", 1, none()), ("high", "1", 5, none())];
    let b: &[Running] = &[("other", "1", 1, none())];
    let cluster = Cluster::new(&[("a", 2, a), ("b", 2, b)]);
    assert_eq!(cluster.choose(&plain(2, 2, "1")), "p0@a p1@b: low", "one fits without a victim");
    assert_eq!(cluster.choose(&plain(3, 3, "1")), "p0@a p1@b p2@a: high low");
    assert_eq!(cluster.choose(&plain(4, 4, "1")), "p0@a p1@b p2@a p3@b: high low other");
    assert_eq!(cluster.choose(&plain(9, 2, "1")), "p0@a p1@b: low", "no room is made for those beyond the gang");
}

#[test]
fn nothing_is_preempted_for_a_gang_that_does_not_fit_then() {
    let cluster = Cluster::new(&[("a", 2, &[("low", "1", 1, none()), ("above", "1", 10, none())])]);
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: low");
    assert_eq!(cluster.choose(&plain(2, 2, "1")), "infeasible: minCount (2) cannot be satisfied: 1 scheduled, 0 remaining");
    let equal = Cluster::new(&[("a", 1, &[("equal", "1", 10, none())])]);
    assert_eq!(equal.choose(&plain(1, 1, "1")), "No preemption victims found for incoming preemptor");
    assert_eq!(cluster.choose(&plain(1, 5, "1")), "minCount (5) cannot be satisfied: 0 scheduled, 1 remaining", "Pods are missing");
}

#[test]
fn the_least_important_goes() {
    let nodes: &[Running] = &[("old", "1", 1, started(10)), ("new", "1", 1, started(20)), ("high", "1", 3, started(30))];
    let cluster = Cluster::new(&[("a", 3, nodes)]);
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: new");
    assert_eq!(cluster.choose(&plain(2, 2, "1")), "p0@a p1@a: new old");
}

#[test]
fn pods_that_end_anyway_make_room_first() {
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let cluster = Cluster::new(&[("a", 2, &[("ending", "1", 5, ending), ("low", "1", 1, none())])]);
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: ");
    assert_eq!(cluster.choose(&plain(2, 2, "1")), "p0@a p1@a: low");
}

#[test]
fn budgets_are_violated_only_when_there_is_no_other_way() {
    let nodes: &[(&str, usize, &[Running])] =
        &[("a", 1, &[("guarded1", "1", 1, none())]), ("b", 1, &[("guarded2", "1", 1, none())]), ("c", 1, &[("free", "1", 5, none())])];
    let mut cluster = Cluster::new(nodes);
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: guarded1");
    cluster.budget("guarded");
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@c: free", "though it is more important");
    assert_eq!(cluster.choose(&plain(3, 3, "1")), "p0@a p1@b p2@c: free guarded1 guarded2");
}

#[test]
fn a_group_is_preempted_as_a_whole_or_not_at_all() {
    let nodes: &[(&str, usize, &[Running])] = &[
        ("a", 2, &[("g0", "1", 1, both(in_group("g"), started(20))), ("x", "1", 1, started(10))]),
        ("b", 2, &[("g1", "1", 1, in_group("g")), ("y", "1", 2, none())]),
    ];
    let mut cluster = Cluster::new(nodes);
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: g0", "Pods of a group are Pods like others");
    cluster.cache.set_indivisible("default/g", true);
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: x", "a group is more important than a Pod");
    assert_eq!(cluster.choose(&plain(2, 2, "1")), "p0@a p1@b: g0 g1", "y is more important, and then x may stay");
    cluster.cache.set_indivisible("default/g", false);
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: g0");
}

#[test]
fn pods_of_other_nodes_have_a_say() {
    let apart = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "zone"}]}}}});
    let nodes: &[(&str, usize, &[Running])] = &[("a", 1, &[("low", "1", 1, none())]), ("b", 1, &[("noisy", "1", 2, none())])];
    let cluster = Cluster::new(nodes);
    assert_eq!(cluster.choose(&gang(1, 1, "1", &apart)), "p0@a: low noisy", "in the same zone");
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: low");
    let mut shy = apart;
    shy["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] =
        json!({"matchLabels": {"app": "p"}});
    let cluster = Cluster::new(&[("a", 1, &[("low", "1", 1, none())]), ("b", 1, &[("shy", "1", 2, shy)])]);
    assert_eq!(cluster.choose(&plain(1, 1, "1")), "p0@a: low shy", "which keeps the gang off the zone");
}

#[test]
fn pods_of_the_gang_on_nodes_count() {
    let cluster = Cluster::new(&[("a", 2, &[("p8", "1", 10, in_group("gang")), ("low", "1", 1, none())])]);
    assert_eq!(cluster.choose(&plain(1, 2, "1")), "p0@a: low");
}

#[test]
fn a_large_choice_has_many_steps() {
    let cores = TRIALS_PER_STEP * 3;
    let mut cluster = Cluster::new(&[("a", cores, &[])]);
    for number in 0..cores {
        let mut object = object(&format!("low{number}"), "1", 1);
        merge(&mut object, json!({"spec": {"nodeName": "a"}}));
        cluster.cache.add_pod(info(object));
    }
    let gang = plain(TRIALS_PER_STEP, TRIALS_PER_STEP, "1");
    let mut preemption = GangPreemption::begin(gang, &cluster.cache, Budgets::Respected, |_| false).expect("there are victims");
    let mut steps = 0;
    let choice = loop {
        steps += 1;
        if let Some(choice) = preemption.step(&Profile::default()) {
            break choice;
        }
    };
    let Choice::Feasible { victims, .. } = choice else { panic!("{choice:?}") };
    assert!(steps > 100, "{steps}");
    assert_eq!(victims.len(), TRIALS_PER_STEP, "as many as there are Pods, and no more");
    assert_eq!(cluster.cache.pod_count(), cores, "the cache itself is as before");
}

#[test]
fn a_gang_waits_for_its_victims_and_may_not_preempt_at_all() {
    let mut cluster = Cluster::new(&[("a", 1, &[("low", "1", 1, none())]), ("b", 1, &[("high", "1", 20, none())])]);
    let mut gang = plain(2, 2, "1");
    let everything = |_: &PodInfo| true;
    assert_eq!(ineligible(&gang, cluster.cache.snapshot(), everything), None, "it is nominated to no node");
    cluster.cache.nominate(Arc::clone(&gang.pods[1]), "b");
    assert_eq!(ineligible(&gang, cluster.cache.snapshot(), everything), None, "a more important Pod");
    cluster.cache.nominate(Arc::clone(&gang.pods[1]), "a");
    assert_eq!(ineligible(&gang, cluster.cache.snapshot(), everything), Some(Ineligible::Waits));
    assert_eq!(ineligible(&gang, cluster.cache.snapshot(), |_| false), None, "nothing is ending there");
    gang.pods[0] = Arc::new(PodInfo { may_preempt: false, ..PodInfo::clone(&gang.pods[0]) });
    assert_eq!(ineligible(&gang, cluster.cache.snapshot(), everything), Some(Ineligible::Never));
}
