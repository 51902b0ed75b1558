//! What an autoscaler proposed and did in the last time. As upstream, it is in memory alone: a new leader begins anew.

use jiff::{SignedDuration, Timestamp};

/// The longest stabilization window has fewer passes, unless somebody changes the autoscaler again and again.
const PROPOSALS_MAX: usize = 1_000;
/// The longest policy period has fewer passes, likewise.
const CHANGES_MAX: usize = 1_000;

/// The history of one autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// UID of the autoscaler: another one of the same name has no history.
    pub uid: String,
    proposals: Vec<(Timestamp, i32)>,
    ups: Vec<(Timestamp, i32)>,
    downs: Vec<(Timestamp, i32)>,
}

impl History {
    /// A history that begins with the present number of replicas, so that a proposal from before the start of this process is
    /// not forgotten at once.
    pub fn begin(uid: &str, replicas: i32, now: Timestamp) -> Self {
        Self { uid: uid.to_owned(), proposals: vec![(now, replicas)], ..Self::default() }
    }

    /// Adds a proposal, and drops those that are older than `window`.
    pub fn propose(&mut self, replicas: i32, window: SignedDuration, now: Timestamp) {
        self.proposals.retain(|(at, _)| now.duration_since(*at) <= window);
        add(&mut self.proposals, (now, replicas), PROPOSALS_MAX);
    }

    /// The proposals with their ages.
    pub fn proposals(&self, now: Timestamp) -> impl Iterator<Item = (SignedDuration, i32)> {
        self.proposals.iter().map(move |(at, replicas)| (now.duration_since(*at), *replicas))
    }

    /// Adds a change of the target's replicas, and drops those that are older than `period`.
    pub fn scale(&mut self, from: i32, to: i32, period: SignedDuration, now: Timestamp) {
        for changes in [&mut self.ups, &mut self.downs] {
            changes.retain(|(at, _)| now.duration_since(*at) <= period);
        }
        let changes = if to > from { &mut self.ups } else { &mut self.downs };
        add(changes, (now, to.saturating_sub(from).saturating_abs()), CHANGES_MAX);
    }

    /// The number of replicas at the start of a period that ends now with `current`.
    pub fn at_start_of(&self, period: SignedDuration, current: i32, now: Timestamp) -> i32 {
        let sum = |changes: &[(Timestamp, i32)]| {
            let recent = changes.iter().filter(|(at, _)| now.duration_since(*at) < period);
            recent.fold(0_i32, |sum, (_, replicas)| sum.saturating_add(*replicas))
        };
        current.saturating_sub(sum(&self.ups)).saturating_add(sum(&self.downs))
    }
}

fn add(list: &mut Vec<(Timestamp, i32)>, entry: (Timestamp, i32), max: usize) {
    if list.len() >= max {
        list.remove(0);
    }
    list.push(entry);
}
