use serde_json::{Value, json};

use super::*;
use crate::plugins::fixtures::{node, pod};

fn with_priority(name: &str, priority: i32) -> Arc<PodInfo> {
    Arc::new(pod(name, json!({"priority": priority})))
}

/// Node `n` with the Pods `low`, `lower` and `high`, of which `low` would be preempted.
fn candidates() -> Vec<Proposal> {
    let mut on = node("n", json!({}));
    [("low", 2), ("lower", 1), ("high", 9)].into_iter().for_each(|(name, priority)| on.add_pod(with_priority(name, priority)));
    let preemption = Preemption { node: "n".to_owned(), victims: vec![with_priority("low", 2)], violations: 0 };
    vec![Proposal { preemption: Arc::new(preemption), node: Arc::new(on) }]
}

fn outcome(ignorable: bool, answer: &Value) -> Result<String, String> {
    let result = wire::decode(answer.to_string().as_bytes(), ExtenderPreemptionResult::new).map_err(|error| error.to_string())?;
    let left =
        chosen("http://x", ignorable, &pod("p", json!({"priority": 5})), &candidates(), result).map_err(|error| error.to_string())?;
    let text = |Preemption { node, victims, violations }: &Preemption| {
        format!("{node}: {} ({violations})", victims.iter().map(|victim| victim.name.as_str()).collect::<Vec<_>>().join(" "))
    };
    Ok(left.into_iter().map(|proposal| text(&proposal.preemption)).collect::<Vec<_>>().join(", "))
}

#[test]
fn an_answer_leaves_the_candidates_and_victims_that_it_names() {
    let answer = |node: &str, uids: &[&str]| {
        let pods: Vec<Value> = uids.iter().map(|uid| json!({"UID": uid})).collect();
        json!({"NodeNameToMetaVictims": {node: {"Pods": pods, "NumPDBViolations": 1}}})
    };
    for (answer, wanted) in [
        (answer("n", &["low"]), Ok("n: low (1)")),
        (answer("n", &["lower", "low", "lower"]), Ok("n: low lower (1)")),
        (json!({"nodeNameToMetaVictims": {"n": {"pods": [{"uid": "low"}]}}}), Ok("n: low (0)")),
        (json!({}), Ok("")),
        (answer("n", &["high"]), Err("extender \"http://x\" claims to preempt pod (UID: high) on node: n, whose priority is not lower")),
        (
            answer("n", &["gone"]),
            Err("extender \"http://x\" claims to preempt pod (UID: gone) on node: n, but the pod is not found on that node"),
        ),
        (answer("m", &["low"]), Err("extender \"http://x\" claims to preempt pods on node \"m\", which is no candidate")),
        (answer("n", &[]), Err("expected at least one victim pod on node \"n\"")),
        (json!({"NodeNameToMetaVictims": {"n": null}}), Err("expected at least one victim pod on node \"n\"")),
    ] {
        assert_eq!(outcome(false, &answer), wanted.map(str::to_owned).map_err(str::to_owned), "{answer}");
    }
    assert_eq!(outcome(true, &answer("n", &[])), Ok(String::new()), "an ignorable extender leaves the node out");
}

#[test]
fn bodies_are_those_of_upstream() {
    let extender = |node_cache_capable: bool| {
        let file = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "extenders": [{"urlPrefix": "http://x", "preemptVerb": "preempt", "nodeCacheCapable": node_cache_capable}]});
        let configuration = crate::config::KubeSchedulerConfiguration::parse(&file.to_string()).expect("valid");
        let config = configuration.extenders.into_iter().next().expect("an extender");
        Extender { connection: super::super::Connection::new(&config), visits: super::super::Visits::new(&Arc::default()), config }
    };
    let raw = |value: Value| serde_json::value::to_raw_value(&value).expect("JSON");
    let (pod, pods) = (raw(json!({"kind": "Pod"})), HashMap::from([("low".to_owned(), raw(json!({"spec": {}})))]));
    assert_eq!(
        extender(true).preemption_args(&pod, &candidates(), &HashMap::new()),
        r#"{"Pod":{"kind":"Pod"},"NodeNameToVictims":null,"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"low"}],"NumPDBViolations":0}}}"#
    );
    assert_eq!(
        extender(false).preemption_args(&pod, &candidates(), &pods),
        r#"{"Pod":{"kind":"Pod"},"NodeNameToVictims":{"n":{"Pods":[{"spec":{}}],"NumPDBViolations":0}},"NodeNameToMetaVictims":null}"#
    );
}
