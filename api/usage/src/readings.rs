//! The last two points of every container and node, and the use between them.
//!
//! This follows the metrics server: a point is followed by a later one of the same instance; a container that started between two
//! readings counts from its start; what the last reading does not have is gone.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{NodeReading, Point};

/// The time that a container must have run to be counted from its start: below it, the CPU time of the start itself would seem to
/// be the container's usual use. A metrics server's.
const FRESH_MS_MIN: i64 = 10_000;

/// A point and the one before it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    last: Point,
    before: Option<Point>,
}

#[derive(Clone, Debug)]
struct Pod {
    /// The node that said it.
    node: Arc<str>,
    containers: Box<[(Arc<str>, Pair)]>,
}

/// Pods by name.
type Pods = HashMap<Arc<str>, Pod>;

/// All points. Its size follows the number of nodes and running containers.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    nodes: HashMap<Arc<str>, Pair>,
    /// By namespace.
    pods: HashMap<Arc<str>, Pods>,
}

/// The use of a container or a node, as an average of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// In billionths of a CPU.
    pub cpu_nano: u64,
    /// The working set, in bytes.
    pub memory_bytes: u64,
}

/// The use of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUse {
    /// Its name.
    pub name: Arc<str>,
    /// Its use.
    pub usage: Use,
}

/// What was used, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used<T> {
    /// The use.
    pub usage: T,
    /// The end of the window, in ms since the epoch.
    pub at_ms: i64,
    /// The length of the window, in ms.
    pub window_ms: i64,
}

impl Readings {
    /// These readings after one more pass over the nodes, which comes `since_ms` after the one before. A Pod that two nodes claim counts
    /// where the first one says it.
    #[must_use]
    pub fn followed_by(&self, pass: Vec<NodeReading>, since_ms: i64) -> Self {
        let mut next = Self::default();
        for reading in pass {
            if let Some(own) = reading.own {
                let before = self.nodes.get(&reading.node).and_then(|pair| before(&own, pair));
                next.nodes.insert(Arc::clone(&reading.node), Pair { last: own, before });
            }
            for pod in reading.pods {
                let earlier = self.pod(&pod.namespace, &pod.name, &reading.node);
                let containers = pod.containers.into_iter().map(|(name, last)| {
                    let before = from_start(&last, since_ms).or_else(|| {
                        let (_, pair) = earlier?.containers.iter().find(|(earlier, _)| *earlier == name)?;
                        // The earlier point is of an instance that has ended.
                        if last.started_ms >= pair.last.read_ms { None } else { before(&last, pair) }
                    });
                    (name, Pair { last, before })
                });
                let pods = next.pods.entry(pod.namespace).or_default();
                pods.entry(pod.name).or_insert(Pod { node: Arc::clone(&reading.node), containers: containers.collect() });
            }
        }
        next
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.pods.is_empty()
    }

    /// How many nodes and containers have two points.
    pub fn measured(&self) -> (usize, usize) {
        let containers = self.pods.values().flat_map(HashMap::values).flat_map(|pod| &pod.containers);
        let count = |pairs: &mut dyn Iterator<Item = &Pair>| pairs.filter(|pair| pair.before.is_some()).count();
        (count(&mut self.nodes.values()), count(&mut containers.map(|(_, pair)| pair)))
    }

    /// The use of a node; `None` while there are no two points of it.
    pub fn of_node(&self, name: &str) -> Option<Used<Use>> {
        between(self.nodes.get(name)?)
    }

    /// The use of a Pod that is bound to that node: of all its running containers. `None` while there are no two points of each.
    /// The window is that of the container that was read first.
    pub fn of_pod(&self, namespace: &str, name: &str, node: &str) -> Option<Used<Vec<ContainerUse>>> {
        let pod = self.pod(namespace, name, node)?;
        let mut all: Vec<ContainerUse> = Vec::with_capacity(pod.containers.len());
        let mut first: Option<(i64, i64)> = None;
        for (name, pair) in &pod.containers {
            pair.before?;
            // Counters that fell are those of no container: it is left out, the others are not.
            let Some(Used { usage, at_ms, window_ms }) = between(pair) else { continue };
            all.push(ContainerUse { name: Arc::clone(name), usage });
            first = first.filter(|(earliest, _)| *earliest <= at_ms).or(Some((at_ms, window_ms)));
        }
        let (at_ms, window_ms) = first?;
        Some(Used { usage: all, at_ms, window_ms })
    }

    fn pod(&self, namespace: &str, name: &str, node: &str) -> Option<&Pod> {
        self.pods.get(namespace)?.get(name).filter(|pod| *pod.node == *node)
    }
}

/// The point before the last one. A node that answers the same point twice has the earlier one still.
fn before(last: &Point, earlier: &Pair) -> Option<Point> {
    if last.read_ms > earlier.last.read_ms {
        return Some(earlier.last);
    }
    earlier.before.filter(|before| before.read_ms < last.read_ms)
}

/// The start of a container that started since the reading before: it had used nothing then.
fn from_start(last: &Point, since_ms: i64) -> Option<Point> {
    let ran_ms = last.read_ms.checked_sub(last.started_ms)?;
    (FRESH_MS_MIN..since_ms).contains(&ran_ms).then_some(Point { read_ms: last.started_ms, cpu_ns: 0, ..*last })
}

/// The use between two points of one instance.
fn between(Pair { last, before }: &Pair) -> Option<Used<Use>> {
    let before = (*before)?;
    let window_ms = last.read_ms.checked_sub(before.read_ms).filter(|window_ms| *window_ms > 0)?;
    let cpu_ns = last.cpu_ns.checked_sub(before.cpu_ns).filter(|_| last.started_ms >= before.started_ms)?;
    let rate = u128::from(cpu_ns) * MS_PER_SECOND / u128::from(window_ms.unsigned_abs());
    // The largest amount of a quantity.
    let cpu_nano = u64::try_from(rate).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs());
    Some(Used { usage: Use { cpu_nano, memory_bytes: last.memory_bytes }, at_ms: last.read_ms, window_ms })
}

const MS_PER_SECOND: u128 = 1_000;

#[cfg(test)]
mod tests;
