//! A cluster that records what its containers are made of.

use runtimes_contract::ContainerSpec;
use runtimes_fake::Behaviour;

use super::*;

/// The specs of the containers in the order in which they were made.
pub(super) type Specs = Arc<Mutex<Vec<ContainerSpec>>>;

/// The cluster, whose agent has not begun, and the specs of the containers that both runtimes make.
pub(super) async fn cluster() -> (Cluster, Specs) {
    let specs = Specs::default();
    let script = || {
        let of_runtime = Arc::clone(&specs);
        Script::default().containers(move |spec| {
            of_runtime.lock().push(spec.clone());
            Behaviour::Run
        })
    };
    let mut cluster = Cluster::new(script()).await;
    cluster.wasm = World::new(script());
    (cluster, specs)
}
