//! What a node answers on `/metrics/resource`, read piece by piece as it arrives.
//!
//! Nothing of the text is kept but the line under way, and no point of a Pod that is not bound to the node. So the memory of a
//! reading is bounded before its first byte comes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Point;
use crate::error::{ANSWER_BYTES_MAX, AnswerError, LINE_BYTES_MAX};
use crate::line::{Metric, Series};

/// Containers of one Pod.
const CONTAINERS_MAX: usize = 256;
/// Bytes of the name of a container.
const CONTAINER_NAME_BYTES_MAX: usize = 63;
const NANOSECONDS: f64 = 1e9;
const MILLISECONDS: f64 = 1e3;

/// The points of a Pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodReading {
    /// Namespace of the Pod.
    pub namespace: Arc<str>,
    /// Name of the Pod.
    pub name: Arc<str>,
    /// Its running containers by name, each once.
    pub containers: Vec<(Arc<str>, Point)>,
}

/// The points of a node and of its Pods.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReading {
    /// Name of the node.
    pub node: Arc<str>,
    /// `None`: the answer does not have both the CPU and the memory of the node.
    pub own: Option<Point>,
    /// The Pods whose every container has CPU and memory.
    pub pods: Vec<PodReading>,
}

/// The points of the containers of a Pod, by name.
type Containers = Vec<(Arc<str>, Point)>;

/// The answer of a node while it arrives.
#[derive(Debug)]
pub struct Answer {
    node: Arc<str>,
    /// When the request was sent: the time of values without one.
    sent_ms: i64,
    own: Point,
    /// Pods that are bound to the node, by namespace and name.
    pods: HashMap<Arc<str>, HashMap<Arc<str>, Containers>>,
    bytes: usize,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
}

impl Answer {
    /// An answer of which nothing has arrived. `bound` are namespace and name of the Pods that are bound to the node.
    pub fn new(node: Arc<str>, bound: impl IntoIterator<Item = (Arc<str>, Arc<str>)>, sent_ms: i64) -> Self {
        let mut pods: HashMap<_, HashMap<_, _>> = HashMap::new();
        for (namespace, name) in bound {
            pods.entry(namespace).or_default().insert(name, Vec::new());
        }
        Self { node, sent_ms, own: Point::default(), pods, bytes: 0, line: Vec::new() }
    }

    /// Reads the next piece of the text.
    ///
    /// # Errors
    /// The answer is to be dropped.
    pub fn read(&mut self, piece: &[u8]) -> Result<(), AnswerError> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > ANSWER_BYTES_MAX {
            return Err(AnswerError::TooLarge);
        }
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            match self.line.is_empty() {
                true => self.take(line)?,
                false => {
                    let mut whole = std::mem::take(&mut self.line);
                    whole.extend_from_slice(line);
                    self.take(&whole)?;
                }
            }
        }
        if self.line.len() + rest.len() > LINE_BYTES_MAX {
            return Err(AnswerError::LineTooLong);
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    /// The whole answer.
    ///
    /// # Errors
    /// Its last line, which has no end, is faulty.
    pub fn end(mut self) -> Result<NodeReading, AnswerError> {
        let last = std::mem::take(&mut self.line);
        self.take(&last)?;
        let own = is_complete(&self.own).then_some(self.own);
        let pods = self.pods.into_iter().flat_map(|(namespace, pods)| {
            pods.into_iter().map(move |(name, containers)| PodReading { namespace: Arc::clone(&namespace), name, containers })
        });
        // A Pod counts only as a whole, as in a metrics server: without one of its containers it would seem to use less.
        let is_whole = |pod: &PodReading| !pod.containers.is_empty() && pod.containers.iter().all(|(_, point)| is_complete(point));
        Ok(NodeReading { node: self.node, own, pods: pods.filter(is_whole).collect() })
    }

    fn take(&mut self, line: &[u8]) -> Result<(), AnswerError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(AnswerError::LineTooLong);
        }
        let line = std::str::from_utf8(line).map_err(|_| AnswerError::NotText)?;
        let Some(series) = Series::parse(line.trim_end_matches('\r'))? else { return Ok(()) };
        let read_ms = series.at_ms.unwrap_or(self.sent_ms);
        let point = match series.metric {
            Metric::NodeCpu | Metric::NodeMemory => Some(&mut self.own),
            _ => self.container(&series),
        };
        let Some(point) = point else { return Ok(()) };
        match series.metric {
            Metric::NodeCpu | Metric::ContainerCpu => (point.cpu_ns, point.read_ms) = (whole(series.value * NANOSECONDS), read_ms),
            Metric::NodeMemory | Metric::ContainerMemory => (point.memory_bytes, point.read_ms) = (whole(series.value), read_ms),
            // A start in the future, as after a change of the clock, is one that the node does not know.
            Metric::ContainerStart => point.started_ms = i64::try_from(whole(series.value * MILLISECONDS)).unwrap_or(i64::MAX),
        }
        Ok(())
    }

    /// The point of the container that a series is about; `None` if the node may not speak of it.
    fn container(&mut self, series: &Series<'_>) -> Option<&mut Point> {
        let containers = self.pods.get_mut(series.label("namespace")?)?.get_mut(series.label("pod")?)?;
        let name = series.label("container").filter(|name| !name.is_empty() && name.len() <= CONTAINER_NAME_BYTES_MAX)?;
        let at = match containers.iter().position(|(container, _)| **container == *name) {
            Some(at) => at,
            None if containers.len() >= CONTAINERS_MAX => return None,
            None => {
                containers.push((Arc::from(name), Point::default()));
                containers.len() - 1
            }
        };
        containers.get_mut(at).map(|(_, point)| point)
    }
}

/// A counter of zero is one that was not read: whatever runs has used some CPU and some memory.
fn is_complete(point: &Point) -> bool {
    point.cpu_ns > 0 && point.memory_bytes > 0
}

/// The whole part of a number that is not negative, within the numbers of a quantity.
fn whole(value: f64) -> u64 {
    (value as u64).min(i64::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests;
