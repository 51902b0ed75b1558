//! The objects that users create, and how they change them.

use api_clock::rand::Rng as _;
use api_clock::rand::rngs::StdRng;
use api_clock::rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use super::gangs;
use crate::node::pod::FAILS;

fn one_of(rng: &mut StdRng, choices: &[Value]) -> Value {
    choices.choose(rng).cloned().unwrap_or_default()
}

/// A Pod template of that version.
pub fn template(app: &str, version: u32, rng: &mut StdRng) -> Value {
    // Some Pods leave a lost node soon, others stay for the default five minutes.
    let leaves = |taint: &str| json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    let tolerations = if rng.random_bool(0.5) { json!([leaves("unreachable"), leaves("not-ready")]) } else { json!([]) };
    json!({
        "metadata": {"labels": {"app": app}, "annotations": {"sim/version": version.to_string()}},
        "spec": {
            // Zero would be deletion by force, which waits for no node.
            "terminationGracePeriodSeconds": rng.random_range(1..20),
            "tolerations": tolerations,
            "containers": [{"name": "c", "image": format!("v{version}"),
                "resources": {"requests": {"cpu": format!("{}m", rng.random_range(1..=10) * 50)}}}],
        },
    })
}

fn job_template(app: &str, rng: &mut StdRng) -> Value {
    let mut template = template(app, 1, rng);
    template["metadata"]["annotations"][FAILS] = one_of(rng, &[json!("0"), json!("20"), json!("60")]);
    template["spec"]["restartPolicy"] = one_of(rng, &[json!("Never"), json!("OnFailure")]);
    template
}

fn job(app: &str, rng: &mut StdRng) -> Value {
    let completions = rng.random_range(1..=6);
    let mut spec = json!({"completions": completions, "parallelism": rng.random_range(1..=4), "backoffLimit": rng.random_range(0..=3),
        "template": job_template(app, rng)});
    if rng.random_bool(0.5) {
        spec["completionMode"] = json!("Indexed");
        if rng.random_bool(0.5) && spec["template"]["spec"]["restartPolicy"] == "Never" {
            spec["backoffLimitPerIndex"] = json!(1);
        }
    }
    if rng.random_bool(0.3) {
        spec["ttlSecondsAfterFinished"] = json!(rng.random_range(0..60));
    }
    spec
}

/// The strategy of a Deployment.
fn strategy(rng: &mut StdRng) -> Value {
    if rng.random_bool(0.2) {
        return json!({"type": "Recreate", "rollingUpdate": null});
    }
    rolling_update(rng)
}

fn rolling_update(rng: &mut StdRng) -> Value {
    loop {
        let (surge, unavailable) = (rng.random_range(0..=3), rng.random_range(0..=2));
        if surge + unavailable > 0 {
            return json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        }
    }
}

fn daemon_update(rng: &mut StdRng) -> Value {
    let (surge, unavailable) = if rng.random_bool(0.5) { (rng.random_range(1..=2), 0) } else { (0, rng.random_range(1..=2)) };
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

/// An object that has Pods.
pub fn app(resource: &str, name: &str, rng: &mut StdRng) -> Value {
    let selector = json!({"matchLabels": {"app": name}});
    let spec = match resource {
        "deployments" => {
            json!({"replicas": rng.random_range(0..=6), "selector": selector, "template": template(name, 1, rng), "strategy": strategy(rng),
                "minReadySeconds": if rng.random_bool(0.3) { 5 } else { 0 }, "revisionHistoryLimit": rng.random_range(0..=3),
                "progressDeadlineSeconds": 60})
        }
        "statefulsets" => json!({"replicas": rng.random_range(0..=4), "serviceName": name, "selector": selector,
            "podManagementPolicy": one_of(rng, &[json!("OrderedReady"), json!("Parallel")]), "template": template(name, 1, rng)}),
        "daemonsets" => {
            let mut template = template(name, 1, rng);
            template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("50m");
            json!({"selector": selector, "template": template, "updateStrategy": daemon_update(rng)})
        }
        "jobs" => job(name, rng),
        _ => json!({"schedule": "* * * * *", "concurrencyPolicy": one_of(rng, &[json!("Allow"), json!("Forbid"), json!("Replace")]),
            "successfulJobsHistoryLimit": rng.random_range(0..=2), "failedJobsHistoryLimit": rng.random_range(0..=1),
            "jobTemplate": {"spec": job(name, rng)}}),
    };
    json!({"metadata": {"name": name}, "spec": spec})
}

/// The two ways in which a Deployment gets its new Pods.
pub fn strategies(rng: &mut StdRng) -> [Value; 2] {
    [rolling_update(rng), json!({"type": "Recreate"})]
}

/// A Deployment of small Pods with that strategy, for a rollout that nothing hinders.
pub fn deployment(name: &str, strategy: Value, rng: &mut StdRng) -> Value {
    let mut deployment = app("deployments", name, rng);
    let spec = &mut deployment["spec"];
    spec["strategy"] = strategy;
    spec["replicas"] = json!(rng.random_range(3..=6));
    spec["minReadySeconds"] = json!(0);
    spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("50m");
    deployment
}

/// A budget for the Pods of an app.
pub fn budget(app: &str, rng: &mut StdRng) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": app}}});
    let (key, value) = match rng.random_range(0..3) {
        0 => ("minAvailable", json!(rng.random_range(1..=3))),
        1 => ("maxUnavailable", json!(rng.random_range(1..=2))),
        _ => ("minAvailable", json!("50%")),
    };
    spec[key] = value;
    json!({"metadata": {"name": app}, "spec": spec})
}

/// A change of an app.
pub fn change(resource: &str, present: &Value, rng: &mut StdRng) -> Value {
    match resource {
        "deployments" => match rng.random_range(0..10) {
            0..4 => new_version(present, rng),
            4..8 => json!({"spec": {"replicas": rng.random_range(0..=6)}}),
            8 => json!({"spec": {"paused": present["spec"]["paused"] != true}}),
            _ => json!({"spec": {"strategy": strategy(rng)}}),
        },
        "statefulsets" => match rng.random_range(0..10) {
            0..4 => new_version(present, rng),
            4..8 => json!({"spec": {"replicas": rng.random_range(0..=4)}}),
            _ => json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": rng.random_range(0..=3)}}}}),
        },
        "daemonsets" => new_version(present, rng),
        "podgroups" => gangs::change(present, rng.random_range(1..=3)),
        "jobs" if rng.random_bool(0.5) => json!({"spec": {"suspend": present["spec"]["suspend"] != true}}),
        "jobs" => json!({"spec": {"parallelism": rng.random_range(0..=4)}}),
        _ => match rng.random_range(0..3) {
            0 => json!({"spec": {"suspend": present["spec"]["suspend"] != true}}),
            _ => json!({"spec": {"concurrencyPolicy": one_of(rng, &[json!("Allow"), json!("Forbid"), json!("Replace")])}}),
        },
    }
}

/// A new template, or an old one again.
fn new_version(present: &Value, rng: &mut StdRng) -> Value {
    let version = rng.random_range(1..=4);
    let cpu = present["spec"]["template"]["spec"]["containers"][0]["resources"].clone();
    let container = json!({"name": "c", "image": format!("v{version}"), "resources": cpu});
    json!({"spec": {"template": {"metadata": {"annotations": {"sim/version": version.to_string()}}, "spec": {"containers": [container]}}}})
}
