//! What extenders make of the candidates of a preemption: upstream's `callExtenders` and `ProcessPreemption`.

use std::collections::HashMap;
use std::sync::Arc;

use api_client::error::chain;
use bytes::Bytes;
use sched_framework::{NodeInfo, PodInfo, Preemption};
use serde_json::value::RawValue;

use super::client::{CallError, shortened};
use super::objects::ReadError;
use super::wire::{self, ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaPod, Victims};
use super::{Extender, Extenders, Visit};
use crate::plugins::by_importance;

/// A node from which Pods may be preempted.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pub preemption: Arc<Preemption>,
    /// The node with its Pods: an extender may choose other victims.
    pub node: Arc<NodeInfo>,
}

/// Why there are no candidates any more.
#[derive(Debug, thiserror::Error)]
enum PreemptionError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The Pod or its victims could not be read.
    #[error("the pod or victims for extenders cannot be read")]
    Read(#[from] ReadError),
}

impl Extenders {
    /// Calls the extenders about candidates, one after the other. Returns the candidates that are left, or why an extender failed that
    /// cannot be ignored. `visit` is that of the first one.
    pub async fn process_preemption(
        &self,
        pod: &PodInfo,
        candidates: Vec<Proposal>,
        visit: Option<Visit>,
    ) -> Result<Vec<Arc<Preemption>>, String> {
        let left = self.try_process(pod, candidates, visit).await.map_err(|error| chain(&error))?;
        Ok(left.into_iter().map(|proposal| proposal.preemption).collect())
    }

    async fn try_process(
        &self,
        pod: &PodInfo,
        mut candidates: Vec<Proposal>,
        mut visit: Option<Visit>,
    ) -> Result<Vec<Proposal>, PreemptionError> {
        let Some(whole) = self.objects.waiting_pod(pod).await? else { return Ok(Vec::new()) };
        for extender in self.interested(pod).filter(|extender| !extender.config.preempt_verb.is_empty()) {
            if candidates.is_empty() {
                break;
            }
            visit.replace(extender.visit());
            let mut pods = HashMap::new();
            if !extender.config.node_cache_capable {
                let victims = candidates.iter().flat_map(|candidate| candidate.preemption.victims.iter().map(AsRef::as_ref));
                pods = self.objects.pods(victims).await?;
            }
            match extender.process_preemption((pod, &whole), &candidates, &pods).await {
                Ok(left) => candidates = left,
                Err(error) if extender.config.ignorable => extender.skipped("preempt", pod, &error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(candidates)
    }
}

impl Extender {
    async fn process_preemption(
        &self,
        (pod, whole): (&PodInfo, &RawValue),
        candidates: &[Proposal],
        pods: &HashMap<String, Box<RawValue>>,
    ) -> Result<Vec<Proposal>, CallError> {
        let verb = &self.config.preempt_verb;
        let answer = self.connection.post(verb, self.preemption_args(whole, candidates, pods)).await?;
        let result = wire::decode(&answer, ExtenderPreemptionResult::new).map_err(|source| self.garbage(verb, source))?;
        chosen(&self.config.name, self.config.ignorable, pod, candidates, result)
    }

    fn preemption_args(&self, pod: &RawValue, candidates: &[Proposal], pods: &HashMap<String, Box<RawValue>>) -> Bytes {
        let candidates = candidates.iter().map(|candidate| &candidate.preemption);
        let (mut whole, mut metas) = (None, None);
        if self.config.node_cache_capable {
            let uids = |one: &'_ Preemption| one.victims.iter().map(|victim| MetaPod { uid: victim.uid.clone() }).collect();
            let victims = candidates.map(|one| (one.node.as_str(), Victims { pods: uids(one), violations: one.violations }));
            metas = Some(victims.collect());
        } else {
            let whole_pods =
                |one: &'_ Preemption| one.victims.iter().filter_map(|victim| pods.get(&victim.uid).map(AsRef::as_ref)).collect();
            let victims = candidates.map(|one| (one.node.as_str(), Victims { pods: whole_pods(one), violations: one.violations }));
            whole = Some(victims.collect());
        }
        wire::encode(&ExtenderPreemptionArgs { pod, node_name_to_victims: whole, node_name_to_meta_victims: metas })
    }
}

/// The candidates that an answer leaves, with the victims that it chooses. The extender may choose other victims on a candidate's node,
/// but only Pods of a lower priority than the Pod's.
fn chosen(
    extender: &str,
    ignorable: bool,
    pod: &PodInfo,
    candidates: &[Proposal],
    result: ExtenderPreemptionResult,
) -> Result<Vec<Proposal>, CallError> {
    let claims = |what: String| CallError::Victims { extender: extender.to_owned(), what };
    let mut left = Vec::new();
    for (name, (uids, violations)) in result.node_name_to_meta_victims {
        let Some(candidate) = candidates.iter().find(|candidate| candidate.preemption.node == name) else {
            return Err(claims(format!("pods on node {:?}, which is no candidate", shortened(&name))));
        };
        let mut victims: Vec<Arc<PodInfo>> = Vec::new();
        for uid in &uids {
            let victim_uid = shortened(uid);
            let Some(victim) = candidate.node.pods.get(uid) else {
                return Err(claims(format!("pod (UID: {victim_uid}) on node: {name}, but the pod is not found on that node")));
            };
            if victim.priority >= pod.priority {
                return Err(claims(format!("pod (UID: {victim_uid}) on node: {name}, whose priority is not lower")));
            }
            if victims.iter().all(|other| other.uid != victim.uid) {
                victims.push(Arc::clone(victim));
            }
        }
        if victims.is_empty() {
            if ignorable {
                continue;
            }
            return Err(CallError::NoVictims(name));
        }
        victims.sort_by(by_importance);
        let violations = usize::try_from(violations).unwrap_or_default();
        let preemption = Arc::new(Preemption { node: name, victims, violations });
        left.push(Proposal { preemption, node: Arc::clone(&candidate.node) });
    }
    Ok(left)
}

#[cfg(test)]
mod tests;
