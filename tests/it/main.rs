//! Tests of whole clusters on the real kernel with real clients: one module for each story.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod access;
mod activation;
mod admission;
mod aggregate;
mod autoscaling;
mod backup;
mod cel;
mod compiling;
#[path = "../../runtimes/wasmtime/tests/battery/components.rs"]
#[allow(dead_code, reason = "the guests of the runtimes' battery, of which the stories need a part")]
mod components;
mod convert;
mod cpus;
mod crash;
mod curl;
mod custom;
mod debug;
mod device_plugins;
mod devices;
mod etcd;
mod extenders;
mod fairness;
mod full_disk;
mod gangs;
mod guests;
mod helm;
mod hostile;
#[cfg(target_arch = "x86_64")]
mod hostile_guest;
mod hostile_node;
mod hostile_tenant;
mod jobs;
mod kills;
mod kinds;
mod kubectl;
mod life;
mod limits;
mod linear;
mod metrics;
#[path = "../../runtimes/wasmtime/tests/battery/modules.rs"]
#[allow(dead_code, reason = "the guests of the runtimes' battery, of which the stories need a part")]
mod modules;
mod node_shutdown;
mod operator;
mod order;
mod ownership;
mod placement;
mod policies;
mod power;
mod preemption;
mod prometheus;
mod protobuf;
mod python;
mod quickstart;
mod registry;
mod replicas;
mod restarts;
mod rollouts;
mod runc_hangs;
mod scaling;
mod scheduler_plugins;
mod schedules;
mod secrets;
mod sets;
mod shared_processes;
mod side_by_side;
mod static_pods;
mod streams;
mod tasks;
mod toolchains;
mod two_nodes;
mod user_namespaces;
mod volumes;
mod webhooks;
