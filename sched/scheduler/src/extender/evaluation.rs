//! What extenders make of the feasible nodes of a Pod: upstream's `findNodesThatPassExtenders` and the part of `prioritizeNodes` that
//! calls extenders.

use std::collections::{HashMap, HashSet};

use api_client::error::chain;
use bytes::Bytes;
use futures::future::join_all;
use sched_framework::{PodInfo, Reason, SCORE_MAX};
use serde_json::value::RawValue;

use super::client::{CallError, shortened};
use super::wire::{self, ExtenderArgs, ExtenderFilterResult, HostPriority, NodeList};
use super::{Extender, Extenders, Visit};
use crate::cycle::{Offer, Rejected};
use crate::metrics;

/// Upstream's `MaxExtenderPriority`: the highest score of an extender.
const EXTENDER_SCORE_MAX: i64 = 10;
/// The highest number of different messages of extenders in the reasons of one Pod.
const REASONS_MAX: usize = 32;
/// The reason in place of further messages.
const FURTHER_REASON: &str = "node(s) were rejected by an extender for other reasons";

/// What the extenders say.
#[derive(Debug)]
pub(crate) enum Evaluated {
    /// These nodes are allowed, each with the sum of its weighted scores.
    Allowed(Vec<(String, i64)>),
    /// No node is; those have messages.
    NoneAllowed(Vec<Rejected>),
    /// An extender failed that cannot be ignored.
    Failed(String),
    /// The Pod does not exist any more, or has a node. The informer reports that too.
    PodGone,
}

/// A Pod and the Nodes of its calls.
struct Subject<'a> {
    pod: &'a PodInfo,
    whole: Box<RawValue>,
    nodes: HashMap<String, Box<RawValue>>,
}

impl Extenders {
    /// Calls the extenders about the nodes of an offer. `visit` is that of the first one.
    pub async fn evaluate(&self, pod: &PodInfo, offer: &Offer, visit: Option<Visit>) -> Evaluated {
        match self.try_evaluate(pod, offer, visit).await {
            Ok(evaluated) => evaluated,
            Err(error) => Evaluated::Failed(chain(&error)),
        }
    }

    async fn try_evaluate(&self, pod: &PodInfo, offer: &Offer, mut visit: Option<Visit>) -> Result<Evaluated, EvaluationError> {
        let Some(whole) = self.objects.waiting_pod(pod).await? else { return Ok(Evaluated::PodGone) };
        let mut subject = Subject { pod, whole, nodes: HashMap::new() };
        let is_sent_nodes = |extender: &Extender| !extender.config.node_cache_capable;
        if self.interested(pod).any(is_sent_nodes) {
            let nominated = offer.nominated.iter().filter(|name| !offer.nodes.contains(name)).cloned();
            let names: Vec<String> = offer.nodes.iter().cloned().chain(nominated).collect();
            subject.nodes = self.objects.nodes(&names).await?;
        }
        if let Some(nominated) = &offer.nominated {
            match self.filter(&subject, vec![nominated.clone()], &mut visit).await {
                Ok((allowed, _)) if allowed.is_empty() => {}
                Ok((allowed, _)) => return Ok(Evaluated::Allowed(allowed.into_iter().map(|name| (name, 0)).collect())),
                Err(error) => {
                    tracing::warn!(pod = pod.key(), node = nominated, error = chain(&error), "nominated node not evaluated");
                }
            }
        }
        let (allowed, rejected) = self.filter(&subject, offer.nodes.clone(), &mut visit).await?;
        Ok(match allowed.len() {
            0 => Evaluated::NoneAllowed(rejected),
            1 => Evaluated::Allowed(allowed.into_iter().map(|name| (name, 0)).collect()),
            _ => {
                // A filter has room for other Pods while scores are computed elsewhere.
                drop(visit);
                Evaluated::Allowed(self.prioritize(&subject, allowed).await)
            }
        })
    }

    /// Calls the filters one after the other, each with what the one before has left. Returns what is left, and the messages.
    async fn filter(
        &self,
        subject: &Subject<'_>,
        mut nodes: Vec<String>,
        visit: &mut Option<Visit>,
    ) -> Result<(Vec<String>, Vec<Rejected>), CallError> {
        let mut rejections = Rejections::default();
        for extender in self.interested(subject.pod).filter(|extender| !extender.config.filter_verb.is_empty()) {
            if nodes.is_empty() {
                break;
            }
            *visit = Some(extender.visit());
            match extender.filter(subject, &nodes).await {
                Ok((allowed, failed)) => {
                    rejections.add(failed);
                    nodes = allowed;
                }
                Err(error) if extender.config.ignorable => extender.skipped("filter", subject.pod, &error),
                Err(error) => return Err(error),
            }
        }
        Ok((nodes, rejections.all))
    }

    /// Calls all extenders with scores at the same time. One that fails gives no scores.
    async fn prioritize(&self, subject: &Subject<'_>, nodes: Vec<String>) -> Vec<(String, i64)> {
        let scoring = self.interested(subject.pod).filter(|extender| !extender.config.prioritize_verb.is_empty());
        let calls = scoring.map(|extender| async {
            let _counted = (metrics::prioritizing(), extender.visit());
            match extender.prioritize(subject, &nodes).await {
                Ok(scores) => scores,
                Err(error) => {
                    extender.skipped("prioritize", subject.pod, &error);
                    Vec::new()
                }
            }
        });
        let mut totals: HashMap<String, i64> = HashMap::new();
        for (host, score) in join_all(calls).await.into_iter().flatten() {
            let total = totals.entry(host).or_default();
            *total = total.saturating_add(score);
        }
        let total = |name: &String| totals.get(name).copied().unwrap_or_default();
        let scores: Vec<i64> = nodes.iter().map(total).collect();
        nodes.into_iter().zip(scores).collect()
    }
}

impl Extender {
    /// The nodes that the extender allows, and the others that it has a message for.
    async fn filter(&self, subject: &Subject<'_>, nodes: &[String]) -> Result<(Vec<String>, Vec<Rejected>), CallError> {
        let verb = &self.config.filter_verb;
        let answer = self.connection.post(verb, self.args(subject, nodes)).await?;
        let result = wire::decode(&answer, ExtenderFilterResult::new).map_err(|source| self.garbage(verb, source))?;
        filtered(&self.config.name, self.config.node_cache_capable, nodes, result)
    }

    /// The weighted scores.
    async fn prioritize(&self, subject: &Subject<'_>, nodes: &[String]) -> Result<Vec<(String, i64)>, CallError> {
        let verb = &self.config.prioritize_verb;
        let answer = self.connection.post(verb, self.args(subject, nodes)).await?;
        let scores = wire::host_priorities(&answer).map_err(|source| self.garbage(verb, source))?;
        let factor = self.config.weight.saturating_mul(SCORE_MAX / EXTENDER_SCORE_MAX);
        Ok(scores.into_iter().map(|HostPriority { host, score }| (host, score.saturating_mul(factor))).collect())
    }

    fn args(&self, subject: &Subject<'_>, nodes: &[String]) -> Bytes {
        let (mut list, mut names) = (None, None);
        if self.config.node_cache_capable {
            names = Some(nodes.iter().map(String::as_str).collect());
        } else {
            let items = nodes.iter().filter_map(|name| subject.nodes.get(name).map(AsRef::as_ref)).collect();
            list = Some(NodeList::new(items));
        }
        wire::encode(&ExtenderArgs { pod: &subject.whole, nodes: list, node_names: names })
    }
}

/// What an answer leaves of the nodes that were sent.
fn filtered(
    extender: &str,
    node_cache_capable: bool,
    sent: &[String],
    result: ExtenderFilterResult,
) -> Result<(Vec<String>, Vec<Rejected>), CallError> {
    if !result.error.is_empty() {
        return Err(CallError::refused(&result.error));
    }
    let answered = match result.node_names {
        Some(names) if node_cache_capable => names,
        _ => result.nodes.unwrap_or_default(),
    };
    let sent_names: HashSet<&str> = sent.iter().map(String::as_str).collect();
    if let Some(unknown) = answered.iter().find(|name| !sent_names.contains(name.as_str())) {
        return Err(CallError::UnknownNode { extender: extender.to_owned(), node: shortened(unknown) });
    }
    let mut failed = result.failed_nodes;
    failed.extend(result.failed_and_unresolvable_nodes);
    let answered: HashSet<String> = answered.into_iter().collect();
    let (allowed, others): (Vec<&String>, Vec<&String>) = sent.iter().partition(|name| answered.contains(*name));
    let rejected = |node: &String| Some(Rejected { node: node.clone(), reason: Reason::from(shortened(failed.get(node)?)) });
    Ok((allowed.into_iter().cloned().collect(), others.into_iter().filter_map(rejected).collect()))
}

/// The nodes that extenders rejected. The number of different messages is bounded, because users see all of them.
#[derive(Default)]
struct Rejections {
    all: Vec<Rejected>,
    reasons: HashSet<Reason>,
}

impl Rejections {
    fn add(&mut self, rejected: Vec<Rejected>) {
        for Rejected { node, reason } in rejected {
            let is_further = !self.reasons.contains(&reason) && self.reasons.len() == REASONS_MAX;
            let reason = if is_further { Reason::from(FURTHER_REASON) } else { reason };
            if !is_further {
                self.reasons.insert(reason.clone());
            }
            self.all.push(Rejected { node, reason });
        }
    }
}

/// Why the nodes were not evaluated.
#[derive(Debug, thiserror::Error)]
enum EvaluationError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The Pod or its Nodes could not be read.
    #[error("the pod or nodes for extenders cannot be read")]
    Read(#[from] super::objects::ReadError),
}

#[cfg(test)]
mod tests;
