//! Whole stories: the real API server in this process, on a store in memory, all controllers, and a stand-in for
//! scheduler and kubelets. The stand-in binds Pods, makes them ready and lets deleted Pods end.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "what a story cannot do fails it")]

mod activation;
mod autoscaling;
mod certificates;
mod claims;
mod cronjobs;
mod daemonsets;
mod devices;
mod disruption;
mod garbage;
mod jobs;
mod metrics;
mod metrics_server;
mod mirroring;
mod namespaces;
mod nodes;
mod policies;
mod rollout;
mod scaling;
mod statefulsets;
mod support;
mod volumes;
