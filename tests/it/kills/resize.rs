//! A running container gets other CPU and memory by the subresource `resize`. It gets them where it is, and no container is restarted. The
//! container whose policy wants it is restarted once.

use serde_json::{Value, json};
use tests::kubectl::container_id;

use super::{Life, whole};
use crate::limits::{cgroups, limits};

/// The Pod whose container is restarted.
pub(super) const RESTARTED: &str = "restarted";

/// The ids of all containers but the debugger.
pub(super) fn ids(status: &Value) -> Vec<Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.iter().flat_map(|list| status[*list].as_array().into_iter().flatten()).map(|one| one["containerID"].clone()).collect()
}

/// The resources that the container of a Pod gets, and what its cgroup has then: bytes of memory, and the quota of CPU with its period.
fn resized(pod: &str) -> (Value, (&'static str, &'static str)) {
    if pod == whole::NAME || pod == RESTARTED {
        let resources = json!({"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}});
        return (resources, ("100663296", "30000 100000"));
    }
    // How far the memory of a guest may grow is settled when it starts.
    let resources = json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "2", "memory": "64Mi"}});
    (resources, ("67108864", "200000 100000"))
}

impl Life<'_> {
    pub(super) fn resize(&mut self) {
        let (name, before) = (self.subject.name, ids(&self.status()));
        let restarts = u64::from(name == RESTARTED);
        let (wanted, in_cgroup) = resized(name);
        let patch = json!({"spec": {"containers": [{"name": "app", "resources": wanted}]}});
        self.kubectl.ok(&format!("patch pod {name} --subresource=resize --patch {patch}"));
        self.until("has its new resources", |life| {
            let status = life.status();
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let waits = conditions.filter_map(|condition| condition["type"].as_str()).any(|kind| kind.starts_with("PodResize"));
            let container = &status["containerStatuses"][0];
            let has = container["resources"] == wanted && container["allocatedResources"] == wanted["requests"];
            if has && !waits && container["ready"] == true { Ok(()) } else { Err(format!("{status:#}")) }
        });
        if restarts > 0 {
            self.until_it_runs(restarts);
        }
        let pod = self.kubectl.json(&format!("get pod {name}"));
        let container = &pod["status"]["containerStatuses"][0];
        let after = ids(&pod["status"]);
        assert_eq!(after == before, restarts == 0, "{before:?} {after:?}\n{}", self.agent.log());
        assert_eq!(container["restartCount"], restarts, "{}", self.agent.log());
        let mut limited = vec![container_id(container)];
        // A Pod of one container has its limits.
        limited.extend(pod["metadata"]["uid"].as_str().filter(|_| before.len() == 1));
        for group in limited {
            let (memory, cpu) = limits(&cgroups(group));
            assert_eq!((memory.as_str(), cpu.as_str()), in_cgroup, "{group}");
        }
        assert_eq!(self.kubectl.ok(&format!("logs {name}")), self.subject.log);
    }

    pub(super) fn status(&self) -> Value {
        self.kubectl.json(&format!("get pod {}", self.subject.name))["status"].take()
    }
}
