//! Rollouts in a cluster without faults. The checks of rollouts look away around faults, and while a cache may lack what was written
//! just now; so here all Pods are ready, and older than that, before their template changes.

use std::time::Duration;

use serde_json::json;

use super::{NAMESPACES, Workload, objects};
use crate::checks::LAG_MAX;
use crate::entropy;
use crate::settled;

/// The longest time of a rollout without faults.
const ROLLOUT_MAX: Duration = Duration::from_secs(600);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Workload {
    /// Rolls out a new version of a Deployment of each strategy.
    pub async fn roll_out(&mut self) {
        for strategy in objects::strategies(&mut self.rng) {
            self.names += 1;
            let name = format!("app{}", self.names);
            let deployment = objects::deployment(&name, strategy, &mut self.rng);
            self.create("deployments", NAMESPACES[1], &deployment).await;
            self.until_rolled_out(&name).await;
            tokio::time::sleep(2 * LAG_MAX).await;
            let template = json!({"metadata": {"annotations": {"sim/version": "2"}}});
            self.change("deployments", NAMESPACES[1], &name, json!({"spec": {"template": template}})).await;
            self.until_rolled_out(&name).await;
            self.apps.insert(name, ("deployments", NAMESPACES[1]));
        }
    }

    async fn until_rolled_out(&self, name: &str) {
        let end = entropy::elapsed() + ROLLOUT_MAX;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let missing = self.cluster.history.read(|view| match view.get("deployments", NAMESPACES[1], name) {
                Some(deployment) => settled::deployment(view, deployment),
                None => Some("it does not exist".to_owned()),
            });
            match missing {
                None => return,
                Some(why) if entropy::elapsed() >= end => {
                    return self.cluster.history.violate(format!("deployments {name} is not rolled out after {ROLLOUT_MAX:?}: {why}"));
                }
                Some(_) => {}
            }
        }
    }
}
