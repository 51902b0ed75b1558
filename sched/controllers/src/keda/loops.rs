//! When the triggers of each object are looked at: at once for a new object and for a new spec, then once in its polling interval.
//!
//! A look counts only when its whole pass succeeded. A pass that fails is tried again, and looks again.

use std::collections::HashMap;
use std::time::Duration;

use api_client::informer::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::meta;

/// The loops of all objects of a kind.
#[derive(Default)]
pub struct Loops(Mutex<State>);

#[derive(Default)]
struct State {
    loops: HashMap<ObjectKey, Loop>,
    /// When an object was last awakened. A look that began before that has not read why.
    awakened: HashMap<ObjectKey, Instant>,
}

struct Loop {
    uid: String,
    generation: Option<i64>,
    /// When the triggers are looked at next.
    due: Instant,
}

/// A look at the triggers of an object.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    began: Instant,
    /// The time of the next one.
    next: Instant,
}

impl Look {
    /// A look that begins now.
    pub fn begin(polling: Duration) -> Self {
        let began = Instant::now();
        Self { began, next: began + polling }
    }
}

/// What a pass is to its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The first pass of an object.
    New,
    /// The first pass of a spec.
    Changed,
    /// The triggers are due.
    Due,
    /// The triggers are due after this time.
    Waiting(Duration),
}

impl Loops {
    /// Begins a pass.
    pub fn begin(&self, key: &ObjectKey, metadata: &ObjectMeta) -> Begun {
        let now = Instant::now();
        match self.0.lock().loops.get(key).filter(|one| one.uid == meta::uid(metadata)) {
            None => Begun::New,
            Some(one) if one.generation != metadata.generation => Begun::Changed,
            Some(one) if one.due > now => Begun::Waiting(one.due - now),
            Some(_) => Begun::Due,
        }
    }

    /// Counts the look of a pass.
    pub fn complete(&self, key: &ObjectKey, metadata: &ObjectMeta, look: Look) {
        let mut state = self.0.lock();
        let is_outdated = state.awakened.remove(key).is_some_and(|at| at >= look.began);
        let due = if is_outdated { Instant::now() } else { look.next };
        state.loops.insert(key.clone(), Loop { uid: meta::uid(metadata).to_owned(), generation: metadata.generation, due });
    }

    /// The triggers of an object are due now, also if a look is under way.
    pub fn wake(&self, key: &ObjectKey) {
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.awakened.insert(key.clone(), now);
        if let Some(one) = state.loops.get_mut(key) {
            one.due = now;
        }
    }

    /// Ends a loop. Returns whether there was one.
    pub fn end(&self, key: &ObjectKey) -> bool {
        let mut state = self.0.lock();
        state.awakened.remove(key);
        state.loops.remove(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_due_at_once_and_then_once_in_its_interval() {
        let (loops, key, polling) = (Loops::default(), ObjectKey::new("a", "b"), Duration::from_secs(30));
        let object =
            |uid: &str, generation| ObjectMeta { uid: Some(uid.to_owned()), generation: Some(generation), ..ObjectMeta::default() };
        let complete = |uid: &str, generation| loops.complete(&key, &object(uid, generation), Look::begin(polling));
        assert_eq!(loops.begin(&key, &object("1", 1)), Begun::New);
        assert_eq!(loops.begin(&key, &object("1", 1)), Begun::New, "the first pass failed");
        complete("1", 1);
        assert_eq!(loops.begin(&key, &object("1", 1)), Begun::Waiting(polling));
        assert_eq!(loops.begin(&key, &object("1", 2)), Begun::Changed);
        assert_eq!(loops.begin(&key, &object("1", 2)), Begun::Changed, "the first pass of the new spec failed");
        complete("1", 2);
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(loops.begin(&key, &object("1", 2)), Begun::Waiting(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(loops.begin(&key, &object("1", 2)), Begun::Due);
        complete("1", 2);
        assert_eq!(loops.begin(&key, &object("1", 2)), Begun::Waiting(polling));
        loops.wake(&key);
        assert_eq!(loops.begin(&key, &object("1", 2)), Begun::Due, "awakened");
        let look = Look::begin(polling);
        tokio::time::advance(Duration::from_secs(1)).await;
        loops.wake(&key);
        loops.complete(&key, &object("1", 2), look);
        assert_eq!(loops.begin(&key, &object("1", 2)), Begun::Due, "awakened during the look");
        tokio::time::advance(Duration::from_secs(1)).await;
        complete("1", 2);
        assert_eq!(loops.begin(&key, &object("1", 2)), Begun::Waiting(polling));
        assert_eq!(loops.begin(&key, &object("2", 2)), Begun::New, "created again under its name");
        assert!(loops.end(&key) && !loops.end(&key));
        assert_eq!(loops.begin(&key, &object("2", 2)), Begun::New);
    }
}
