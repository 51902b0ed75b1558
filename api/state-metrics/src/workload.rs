//! Workloads: the kinds that create Pods, one file each.

mod cronjob;
mod daemonset;
mod deployment;
mod job;
mod replicaset;
mod replicationcontroller;
mod statefulset;

#[cfg(test)]
mod tests;
