//! Checks linearizability: whether the operations of all clients could have happened one after the other, each at some
//! moment between its call and its answer. It also checks whether watches reported all changes.
//!
//! The search is Wing and Gong's with Lowe's memory of the states that it has already tried. Keys are independent of
//! each other, so each key is checked alone. Every write writes a different value. So a value identifies its write, and
//! a condition on a revision is a condition on a value.

use std::collections::{BTreeMap, HashSet};

/// The request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create the object, with a value.
    Create(u64),
    /// Change it from one value to another.
    Update(u64, u64),
    /// Remove it.
    Delete,
    /// Read it.
    Get,
}

/// The answer to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The write was done.
    Done,
    /// The value that was read.
    Found(Option<u64>),
    /// It exists already.
    Exists,
    /// It does not exist.
    Missing,
    /// It has changed.
    Conflict,
    /// No answer, or a failure: the write may have happened, at any time after the call, or never.
    Unknown,
}

/// One operation on one key.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The request.
    pub action: Action,
    /// The answer.
    pub outcome: Outcome,
    /// The time of the call, on a clock that all clients share.
    pub called: u64,
    /// The time of the answer.
    pub returned: u64,
}

/// The value after an operation, or None if it cannot have had that outcome in that state. For an operation with an
/// unknown outcome this is the value if it happened; `check` tries the other case by leaving the operation out.
fn step(state: Option<u64>, operation: &Operation) -> Option<Option<u64>> {
    use Action::{Create, Delete, Get, Update};
    use Outcome::{Conflict, Done, Exists, Found, Missing, Unknown};
    match (operation.action, operation.outcome, state) {
        (Create(value), Done | Unknown, None) => Some(Some(value)),
        (Create(_), Exists, Some(_)) => Some(state),
        (Update(from, to), Done | Unknown, Some(now)) if now == from => Some(Some(to)),
        (Update(from, _), Conflict, Some(now)) if now != from => Some(state),
        (Delete, Done | Unknown, Some(_)) => Some(None),
        (Update(..) | Delete, Missing, None) => Some(state),
        (Get, Found(seen), _) if seen == state => Some(state),
        _ => None,
    }
}

/// Checks the operations on one key, which does not exist at first. If there is no order, the error lists the
/// operations around the place where the search failed.
pub fn check(operations: &[Operation]) -> Result<(), String> {
    let mut list = List::new(operations);
    let mut tried: HashSet<(Vec<u64>, Option<u64>)> = HashSet::new();
    let mut done = vec![0_u64; operations.len().div_ceil(64)];
    let mut state = None;
    let mut taken: Vec<(usize, Option<u64>)> = Vec::new();
    let mut best = (0, None);
    let mut at = list.first();
    loop {
        let Some(here) = at else { return Ok(()) };
        let Moment { operation, is_call } = list.moments[here];
        let call_made = &operations[operation];
        if is_call {
            let next = step(state, call_made).filter(|next| {
                let mut with = done.clone();
                with[operation / 64] |= 1 << (operation % 64);
                tried.insert((with, *next))
            });
            at = match next {
                Some(next) => {
                    taken.push((operation, state));
                    done[operation / 64] |= 1 << (operation % 64);
                    state = next;
                    list.lift(operation);
                    list.first()
                }
                None => list.after(here),
            };
            continue;
        }
        if call_made.outcome == Outcome::Unknown {
            // Only operations with an unknown outcome are left. They may never have happened.
            return Ok(());
        }
        if taken.len() >= best.0 {
            best = (taken.len(), Some((operation, state)));
        }
        let Some((last, before)) = taken.pop() else { return Err(explain(operations, best.1)) };
        done[last / 64] &= !(1 << (last % 64));
        state = before;
        list.unlift(last);
        at = list.after(list.call[last]);
    }
}

fn explain(operations: &[Operation], stuck: Option<(usize, Option<u64>)>) -> String {
    let Some((stuck, state)) = stuck else { return "no order".to_owned() };
    let late = &operations[stuck];
    let mut around: Vec<_> = operations.iter().filter(|o| o.called <= late.returned && o.returned + 50_000 >= late.called).collect();
    around.sort_by_key(|operation| operation.called);
    let lines: Vec<String> = around.iter().rev().take(30).rev().map(|operation| format!("{operation:?}")).collect();
    format!("no order gets past {late:?} (value then: {state:?}); around it:\n{}", lines.join("\n"))
}

/// A call or a return.
#[derive(Clone, Copy)]
struct Moment {
    operation: usize,
    is_call: bool,
}

/// All calls and returns in the order of time, as a linked list. The search takes operations out and puts them back.
struct List {
    moments: Vec<Moment>,
    next: Vec<usize>,
    previous: Vec<usize>,
    call: Vec<usize>,
    ret: Vec<usize>,
}

impl List {
    fn new(operations: &[Operation]) -> Self {
        let mut moments = Vec::with_capacity(operations.len() * 2);
        for (operation, call_made) in operations.iter().enumerate() {
            let returned = if call_made.outcome == Outcome::Unknown { u64::MAX } else { call_made.returned };
            moments.push((call_made.called, 0, Moment { operation, is_call: true }));
            moments.push((returned, 1, Moment { operation, is_call: false }));
        }
        moments.sort_by_key(|(time, is_return, _)| (*time, *is_return));
        let moments: Vec<Moment> = moments.into_iter().map(|(_, _, moment)| moment).collect();
        // The index after the last moment is the list's head.
        let head = moments.len();
        let (mut call, mut ret) = (vec![0; operations.len()], vec![0; operations.len()]);
        for (index, moment) in moments.iter().enumerate() {
            if moment.is_call { call[moment.operation] = index } else { ret[moment.operation] = index }
        }
        let next = (0..=head).map(|n| if n == head { 0 } else { n + 1 }).collect();
        let previous = (0..=head).map(|n| if n == 0 { head } else { n - 1 }).collect();
        Self { moments, next, previous, call, ret }
    }

    fn first(&self) -> Option<usize> {
        self.after(self.moments.len())
    }

    fn after(&self, index: usize) -> Option<usize> {
        Some(self.next[index]).filter(|next| *next < self.moments.len())
    }

    fn lift(&mut self, operation: usize) {
        for index in [self.call[operation], self.ret[operation]] {
            let (previous, next) = (self.previous[index], self.next[index]);
            self.next[previous] = next;
            self.previous[next] = previous;
        }
    }

    fn unlift(&mut self, operation: usize) {
        for index in [self.ret[operation], self.call[operation]] {
            let (previous, next) = (self.previous[index], self.next[index]);
            self.next[previous] = index;
            self.previous[next] = index;
        }
    }
}

/// One change that a watch reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedChange {
    /// The revision of the change.
    pub revision: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: String,
    /// The object's name.
    pub key: String,
    /// The object's value; for a deletion the last one.
    pub value: u64,
}

/// Checks watches that began at one revision and resumed where they had ended. All watches must report the same changes
/// in the order of their revisions, none twice. Every answered write must be among them. The changes of each object
/// must fit each other.
pub fn check_watches(watches: &[Vec<WatchedChange>], answered: &[(u64, u64)]) -> Result<(), String> {
    let Some(first) = watches.first() else { return Ok(()) };
    for (number, watch) in watches.iter().enumerate() {
        if let Some(pair) = watch.windows(2).find(|pair| pair[0].revision >= pair[1].revision) {
            return Err(format!("watch {number} is out of order: {pair:?}"));
        }
        let differs = first.iter().zip(watch).find(|(a, b)| a != b);
        if let Some((a, b)) = differs {
            return Err(format!("watch {number} tells {b:?} where watch 0 tells {a:?}"));
        }
        if first.len() != watch.len() {
            return Err(format!("watch {number} tells {} changes, watch 0 {}", watch.len(), first.len()));
        }
    }
    let changes: BTreeMap<u64, &WatchedChange> = first.iter().map(|seen| (seen.revision, seen)).collect();
    for (revision, value) in answered {
        match changes.get(revision) {
            Some(seen) if seen.value == *value && seen.kind != "DELETED" => {}
            other => return Err(format!("value {value} was written at revision {revision}; watches tell {other:?}")),
        }
    }
    let mut present: BTreeMap<&str, u64> = BTreeMap::new();
    for seen in first {
        let before = present.get(seen.key.as_str()).copied();
        let fits = match seen.kind.as_str() {
            "ADDED" => before.is_none(),
            "MODIFIED" => before.is_some_and(|before| before != seen.value),
            "DELETED" => before == Some(seen.value),
            _ => false,
        };
        if !fits {
            return Err(format!("{seen:?} after value {before:?}"));
        }
        match seen.kind.as_str() {
            "DELETED" => present.remove(seen.key.as_str()),
            _ => present.insert(&seen.key, seen.value),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Action::{Create, Delete, Get, Update};
    use super::Outcome::{Conflict, Done, Exists, Found, Missing, Unknown};
    use super::*;

    fn op(called: u64, returned: u64, action: Action, outcome: Outcome) -> Operation {
        Operation { action, outcome, called, returned }
    }

    #[test]
    fn one_after_the_other_is_as_it_says() {
        let good = [
            op(0, 1, Get, Found(None)),
            op(2, 3, Create(1), Done),
            op(4, 5, Create(2), Exists),
            op(6, 7, Update(1, 3), Done),
            op(8, 9, Update(1, 4), Conflict),
            op(10, 11, Get, Found(Some(3))),
            op(12, 13, Delete, Done),
            op(14, 15, Delete, Missing),
            op(16, 17, Update(3, 5), Missing),
        ];
        check(&good).expect("is in order");
        for (at, wrong) in [(0, Found(Some(1))), (2, Done), (3, Conflict), (4, Done), (5, Found(Some(1))), (6, Missing), (7, Done)] {
            let mut bad = good;
            bad[at].outcome = wrong;
            check(&bad).expect_err(&format!("{:?}", bad[at]));
        }
    }

    #[test]
    fn a_read_may_see_a_write_under_way_but_not_lose_it_again() {
        let write = op(0, 10, Create(1), Done);
        check(&[write, op(1, 2, Get, Found(None)), op(3, 4, Get, Found(Some(1)))]).expect("at 2.5");
        check(&[write, op(1, 2, Get, Found(Some(1))), op(3, 4, Get, Found(None))]).expect_err("seen, then not");
        check(&[write, op(11, 12, Get, Found(None))]).expect_err("a stale read");
    }

    #[test]
    fn an_unanswered_write_may_happen_late_or_never_but_not_twice() {
        let lost = op(0, 5, Create(1), Unknown);
        check(&[lost]).expect("never");
        check(&[lost, op(6, 7, Get, Found(None)), op(8, 9, Get, Found(Some(1)))]).expect("late");
        check(&[lost, op(6, 7, Get, Found(Some(1))), op(8, 9, Delete, Done), op(10, 11, Get, Found(Some(1)))]).expect_err("twice");
    }

    #[test]
    fn of_two_updates_of_one_state_only_one_can_have_been_done() {
        let made = op(0, 1, Create(1), Done);
        check(&[made, op(2, 9, Update(1, 2), Done), op(2, 9, Update(1, 3), Conflict)]).expect("the second lost");
        check(&[made, op(2, 9, Update(1, 2), Done), op(2, 9, Update(1, 3), Done)]).expect_err("a lost update");
    }

    #[test]
    fn many_at_once_are_judged_in_time() {
        // Rounds of eight racing updates: one update wins, and all clients read its value.
        let mut operations = vec![op(0, 1, Create(0), Done)];
        for round in 0..50_u64 {
            let (from, time) = (round * 8, 10 + round * 10);
            for racer in 1..=8 {
                let outcome = if racer == 8 { Done } else { Conflict };
                operations.push(op(time, time + 5, Update(from, from + racer), outcome));
                operations.push(op(time + 6, time + 9, Get, Found(Some(from + 8))));
            }
            operations.push(op(time, time + 5, Update(from, 100_000 + round), Unknown));
        }
        check(&operations).expect("is in order");
        operations.push(op(600, 601, Get, Found(Some(8))));
        check(&operations).expect_err("a stale read at the end");
    }

    #[test]
    fn watches_are_judged() {
        let seen = |revision, kind: &str, value| WatchedChange { revision, kind: kind.to_owned(), key: "a".to_owned(), value };
        let good = vec![seen(1, "ADDED", 1), seen(2, "MODIFIED", 2), seen(4, "DELETED", 2), seen(5, "ADDED", 3)];
        let answered = [(1, 1), (2, 2), (5, 3)];
        check_watches(&[good.clone(), good.clone()], &answered).expect("is whole");
        let without = |at: usize| {
            let mut watch = good.clone();
            watch.remove(at);
            watch
        };
        for at in 0..4 {
            check_watches(&[good.clone(), without(at)], &answered).expect_err("a gap in one");
        }
        for at in 0..3 {
            check_watches(&[without(at)], &answered).expect_err("a gap in all");
        }
        let mut swapped = good.clone();
        swapped.swap(0, 1);
        check_watches(&[swapped], &answered).expect_err("out of order");
        let mut twice = good.clone();
        twice.push(good[3].clone());
        check_watches(&[twice], &answered).expect_err("twice");
    }
}
