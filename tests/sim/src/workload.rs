//! What users do to the cluster: they create workloads of every kind, change them, evict and delete Pods, and delete owners.

mod gangs;
mod objects;
mod rollouts;

use std::collections::BTreeMap;
use std::time::Duration;

use api_clock::rand::Rng as _;
use api_clock::rand::rngs::StdRng;
use api_clock::rand::seq::{IndexedRandom as _, IteratorRandom as _};
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::control::Cluster;
use crate::entropy;
use crate::history::View;
use crate::object::{is_active, is_deleting, is_selected, text};

/// The namespaces of users. The first has a quota.
pub const NAMESPACES: [&str; 2] = ["limited", "free"];
/// Pods that the quota allows.
const QUOTA: i64 = 12;

/// The users of a run.
pub struct Workload {
    admin: Admin,
    cluster: Cluster,
    rng: StdRng,
    gang_rng: StdRng,
    /// The apps that exist, by name: resource and namespace.
    apps: BTreeMap<String, (&'static str, &'static str)>,
    names: u32,
    /// How many of them there are at one time.
    apps_max: usize,
}

impl Workload {
    pub fn new(cluster: &Cluster) -> Self {
        let admin = Admin::new(cluster.admin());
        let mut rng = entropy::stream("workload");
        let apps_max = rng.random_range(1..=5);
        let gang_rng = entropy::stream("gangs");
        Self { admin, cluster: cluster.clone(), rng, gang_rng, apps: BTreeMap::new(), names: 0, apps_max }
    }

    /// Makes the namespaces, the quota and a priority class.
    pub async fn prepare(&mut self) {
        for namespace in NAMESPACES {
            self.admin.create("namespaces", "", &json!({"metadata": {"name": namespace}})).await.expect("a namespace");
        }
        let quota = json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": QUOTA.to_string()}}});
        self.admin.create("resourcequotas", NAMESPACES[0], &quota).await.expect("a quota");
        let class = json!({"metadata": {"name": gangs::LOW}, "value": -10});
        self.admin.create("priorityclasses", "", &class).await.expect("a class");
    }

    /// Does one thing after the other: many or few things, fast or slowly.
    pub async fn run(&mut self) {
        let steps = self.rng.random_range(4..=24);
        let pause_max = *[1_000, 5_000, 20_000].choose(&mut self.rng).expect("a pace");
        for _ in 0..steps {
            self.step().await;
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(50..pause_max))).await;
        }
    }

    /// Leaves what can become quiet: nothing is paused or suspended, the quota has room, and CronJobs start nothing more.
    pub async fn settle(&mut self) {
        let quota = json!({"spec": {"hard": {"pods": "200"}}});
        self.admin.patch("resourcequotas", NAMESPACES[0], "pods", &quota).await.expect("a quota");
        for (name, (resource, namespace)) in self.apps.clone() {
            let patch = match resource {
                "deployments" => json!({"spec": {"paused": false}}),
                "jobs" => json!({"spec": {"suspend": false, "parallelism": 2}}),
                "cronjobs" => json!({"spec": {"suspend": true}}),
                "statefulsets" => json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}),
                "podgroups" => {
                    self.settle_gang(namespace, &name).await;
                    continue;
                }
                _ => continue,
            };
            self.change(resource, namespace, &name, patch).await;
        }
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..30 => self.create_app().await,
            30..65 => self.change_app().await,
            65..80 => self.evict().await,
            80..87 => self.delete_pod().await,
            87..91 => self.create_pod().await,
            91..94 => self.change_quota().await,
            _ => self.delete_app().await,
        }
    }

    fn note(&self, what: &str, answer: &kube::Result<Value>) {
        let result = match answer {
            Ok(_) => "ok".to_owned(),
            Err(kube::Error::Api(status)) => format!("{} {}", status.code, status.message),
            Err(error) => error.to_string(),
        };
        self.cluster.history.note(&format!("> {what}: {result}"));
    }

    async fn create(&self, resource: &str, namespace: &str, object: &Value) {
        let answer = self.admin.create(resource, namespace, object).await;
        self.note(&format!("create {resource} {namespace}/{} {}", text(object, "/metadata/name"), object["spec"]), &answer);
    }

    async fn change(&self, resource: &str, namespace: &str, name: &str, patch: Value) {
        let answer = self.admin.patch(resource, namespace, name, &patch).await;
        self.note(&format!("patch {resource} {namespace}/{name} {patch}"), &answer);
    }

    async fn create_app(&mut self) {
        if self.apps.len() >= self.apps_max {
            return self.change_app().await;
        }
        self.names += 1;
        let name = format!("app{}", self.names);
        let namespace = NAMESPACES[self.rng.random_range(0..2)];
        let kinds = ["deployments", "deployments", "statefulsets", "daemonsets", "jobs", "cronjobs", "podgroups"];
        let resource = *kinds.choose(&mut self.rng).expect("a kind");
        if resource == "podgroups" {
            self.create_gang(namespace, &name).await;
        } else {
            let object = objects::app(resource, &name, &mut self.rng);
            self.create(resource, namespace, &object).await;
        }
        if matches!(resource, "deployments" | "statefulsets") && self.rng.random_bool(0.6) {
            let budget = objects::budget(&name, &mut self.rng);
            self.create("poddisruptionbudgets", namespace, &budget).await;
        }
        self.apps.insert(name, (resource, namespace));
    }

    async fn change_app(&mut self) {
        let Some((name, (resource, namespace))) = self.apps.clone().into_iter().choose(&mut self.rng) else { return };
        let Ok(present) = self.admin.get(resource, namespace, &name).await else { return };
        let patch = objects::change(resource, &present, &mut self.rng);
        self.change(resource, namespace, &name, patch).await;
    }

    async fn delete_app(&mut self) {
        if let Some(name) = self.apps.keys().cloned().choose(&mut self.rng) {
            self.delete(&name).await;
        }
    }

    async fn delete(&mut self, name: &str) {
        let Some((resource, namespace)) = self.apps.remove(name) else { return };
        let propagation = *["Background", "Background", "Foreground"].choose(&mut self.rng).expect("a policy");
        let answer = self.admin.delete(resource, namespace, name, propagation).await;
        self.note(&format!("delete {resource} {namespace}/{name} {propagation}"), &answer);
        let _ = self.admin.delete("poddisruptionbudgets", namespace, name, "Background").await;
    }

    fn some_pod(&mut self, fits: impl Fn(&View, &Value) -> bool) -> Option<(String, String)> {
        let rng = &mut self.rng;
        self.cluster.history.read(|view| {
            let all = NAMESPACES.iter().flat_map(|namespace| view.within("pods", namespace)).filter(|pod| fits(view, pod)).choose(rng)?;
            Some((text(all, "/metadata/namespace").to_owned(), text(all, "/metadata/name").to_owned()))
        })
    }

    async fn evict(&mut self) {
        for _ in 0..self.rng.random_range(1..4) {
            let has_budget = |view: &View, pod: &Value| {
                let mut budgets = view.within("poddisruptionbudgets", text(pod, "/metadata/namespace"));
                is_active(pod) && budgets.any(|budget| is_selected(pod, &budget["spec"]["selector"]))
            };
            let Some((namespace, name)) = self.some_pod(has_budget) else { return };
            self.will_delete(&namespace, &name);
            let answer = self.admin.evict(&namespace, &name).await;
            self.note(&format!("evict {namespace}/{name}"), &answer);
        }
    }

    fn will_delete(&self, namespace: &str, name: &str) {
        let what = format!("> a Pod of {namespace} goes: {name}");
        self.cluster.history.incident(&what, |incidents, now| incidents.deleted(namespace, name, now));
    }

    async fn delete_pod(&mut self) {
        let Some((namespace, name)) = self.some_pod(|_, pod| !is_deleting(pod)) else { return };
        self.will_delete(&namespace, &name);
        let answer = self.admin.delete("pods", &namespace, &name, "Background").await;
        self.note(&format!("delete pods {namespace}/{name}"), &answer);
    }

    /// A Pod of nobody, or one that has the labels of an app and is adopted.
    async fn create_pod(&mut self) {
        let namespace = NAMESPACES[self.rng.random_range(0..2)];
        let deployments = self.cluster.history.read(|view| view.within("replicasets", namespace).cloned().collect::<Vec<_>>());
        let labels = match deployments.choose(&mut self.rng) {
            Some(set) if self.rng.random_bool(0.5) => set["spec"]["template"]["metadata"]["labels"].clone(),
            _ => json!({"app": "nobody"}),
        };
        self.names += 1;
        let mut pod = objects::template("nobody", 1, &mut self.rng);
        pod["metadata"] = json!({"name": format!("pod{}", self.names), "labels": labels});
        self.create("pods", namespace, &pod).await;
    }

    async fn change_quota(&mut self) {
        let pods = self.rng.random_range(4..=2 * QUOTA);
        self.change("resourcequotas", NAMESPACES[0], "pods", json!({"spec": {"hard": {"pods": pods.to_string()}}})).await;
    }
}
