//! Changes on their way to watchers: changes that were committed together are delivered together, and watchers with the same
//! filter get the same bytes.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

use super::event::{Change, Event};

/// The highest number of bytes of lines in one delivery, unless it has only one line.
const BYTES_MAX: usize = 256 << 10;

/// Whether a watcher got everything that it should get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStatus {
    /// Everything was sent.
    Complete,
    /// An object has no form in the watcher's media type: the last line says so, and the watch ends.
    Failed,
}

/// Some changes, in order.
#[derive(Debug)]
pub struct Delivery {
    changes: Vec<(Change, Arc<Event>)>,
    /// About the size of its lines.
    bytes: usize,
    lines: OnceLock<Bytes>,
    /// Frames in protobuf, made for the first watcher that uses it.
    frames: OnceLock<(Bytes, FrameStatus)>,
}

impl Delivery {
    /// As few deliveries as the bound allows.
    pub fn of(changes: impl IntoIterator<Item = (Change, Arc<Event>)>) -> Vec<Arc<Self>> {
        let (mut deliveries, mut gathered, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (change, event) in changes {
            let len = event.line_len(change);
            if bytes + len > BYTES_MAX && !gathered.is_empty() {
                deliveries.push(Self::new(std::mem::take(&mut gathered), bytes));
                bytes = 0;
            }
            bytes += len;
            gathered.push((change, event));
        }
        if !gathered.is_empty() {
            deliveries.push(Self::new(gathered, bytes));
        }
        deliveries
    }

    fn new(changes: Vec<(Change, Arc<Event>)>, bytes: usize) -> Arc<Self> {
        Arc::new(Self { changes, bytes, lines: OnceLock::new(), frames: OnceLock::new() })
    }

    /// About the size of its lines.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The changes.
    pub fn changes(&self) -> &[(Change, Arc<Event>)] {
        &self.changes
    }

    /// Their lines on the wire, made once for all watchers.
    pub fn lines(&self) -> Bytes {
        let make = || {
            let len = self.changes.iter().map(|(change, event)| event.line_len(*change)).sum();
            let mut lines = BytesMut::with_capacity(len);
            self.changes.iter().for_each(|(change, event)| event.write_line(*change, &mut lines));
            lines.freeze()
        };
        self.lines.get_or_init(make).clone()
    }

    /// The same in protobuf, for all watchers that use it.
    pub fn frames(&self, make: impl FnOnce() -> (Bytes, FrameStatus)) -> (Bytes, FrameStatus) {
        self.frames.get_or_init(make).clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Before;
    use crate::object::{Object, encode};

    fn created(name: &str, len: usize) -> (Change, Arc<Event>) {
        let value = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"x": "x".repeat(len)}});
        let object = Object::new(("ns".into(), name.into()), 1, encode(&value), None, &Arc::default()).expect("JSON");
        (Change::Added, Arc::new(Event::new(1, Before::Nothing, Some(Arc::new(object)))))
    }

    #[test]
    fn what_is_small_goes_together_in_order() {
        let sizes = [10, 10, BYTES_MAX, 10, BYTES_MAX / 2, BYTES_MAX / 3, BYTES_MAX / 3];
        let deliveries = Delivery::of(sizes.iter().enumerate().map(|(at, len)| created(&at.to_string(), *len)));
        assert_eq!(deliveries.iter().map(|delivery| delivery.changes().len()).collect::<Vec<_>>(), [2, 1, 3, 1]);
        let lines = deliveries.iter().map(|delivery| delivery.lines()).collect::<Vec<_>>().concat();
        let names: Vec<String> = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice::<serde_json::Value>(line).expect("JSON")["object"]["metadata"]["name"].to_string())
            .collect();
        assert_eq!(names, (0..sizes.len()).map(|at| format!("\"{at}\"")).collect::<Vec<_>>());
    }
}
