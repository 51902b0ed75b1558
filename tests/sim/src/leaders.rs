//! An elected leader writes only while it leads: no write of a former leader is stored, however late it arrives.

use std::future::Future;

use crate::history::History;
use crate::object::text;

/// The namespace of the Leases.
pub const NAMESPACE: &str = "kube-system";

/// A process as the leader of a Lease.
#[derive(Clone)]
pub struct Leader {
    /// The name of the Lease.
    pub lease: String,
    /// The holder.
    pub identity: String,
}

tokio::task_local! {
    /// Whose request the server answers in this task.
    static LEADER: Leader;
}

/// The server's work for a request of a leader, or of anybody else.
pub async fn writing_as<T>(leader: Option<Leader>, serving: impl Future<Output = T>) -> T {
    match leader {
        Some(leader) => LEADER.scope(leader, serving).await,
        None => serving.await,
    }
}

/// Looks at a write that was committed just now. A write of which the server made a task of its own is anybody's.
pub fn check(history: &History, key: &str) {
    let broken = LEADER.try_with(|Leader { lease, identity }| {
        let holder = history.read(|view| Some(text(view.get("leases", NAMESPACE, lease)?, "/spec/holderIdentity").to_owned()));
        (holder.as_ref() != Some(identity)).then(|| format!("{identity} writes {key}, and the holder of {lease} is {holder:?}"))
    });
    // Without a leader, a user or a node writes.
    if let Ok(Some(broken)) = broken {
        history.violate(broken);
    }
}
