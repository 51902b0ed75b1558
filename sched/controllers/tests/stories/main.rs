//! Whole stories: the real API server in this process, on a store in memory, all controllers, and
//! a stand-in for scheduler and kubelets that binds Pods, makes them ready and lets them go.

mod certificates;
mod garbage;
mod namespaces;
mod nodes;
mod rollout;
mod support;
