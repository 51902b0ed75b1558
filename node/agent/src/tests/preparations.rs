//! What a first start prepares, and how its Pod shows it.

use runtimes_contract::Preparation;
use runtimes_fake::{Fault, Operation};

use super::*;

const LARGE: Preparation = Preparation { bytes: 18_400_000, takes_long: true };
const SMALL: Preparation = Preparation { bytes: 200, takes_long: false };

fn begun(world: &World) -> usize {
    world.calls().iter().filter(|call| **call == Operation::Prepare).count()
}

#[tokio::test]
async fn a_long_preparation_has_events_and_a_short_one_has_none() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.wasm.set_preparation(Some(LARGE));
    cluster.create("large", one("wasm/hello:1")).await;
    cluster.ready("large").await;
    let compiling = "Compiling: Compiling the WebAssembly module of image \"wasm/hello:1\" (18400000 bytes)";
    cluster.event("large", compiling).await;
    cluster.event("large", "Compiled: Successfully compiled the WebAssembly module of image \"wasm/hello:1\" in ").await;
    for (name, preparation) in [("small", Some(SMALL)), ("prepared", None)] {
        cluster.wasm.set_preparation(preparation);
        cluster.create(name, one("wasm/hello:1")).await;
        cluster.ready(name).await;
        // Events of a Pod come in order.
        cluster.event(name, "Started: Container started").await;
        let events = cluster.events(name).await;
        assert!(!events.iter().any(|event| event.starts_with("Compil")), "{events:?}");
    }
}

#[tokio::test]
async fn a_short_preparation_does_not_wait_for_long_ones_of_its_namespace() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.wasm.set_preparation(Some(LARGE));
    cluster.wasm.inject(Operation::Prepare, [(); 2].map(|()| Fault::Delay(Duration::from_secs(3_600))));
    for name in ["first", "second", "third"] {
        cluster.create(name, one("wasm/hello:1")).await;
        cluster.event(name, "Compiling: ").await;
    }
    assert!(poll(async || begun(&cluster.wasm) == 2).await, "a namespace has two at the same time");
    cluster.wasm.set_preparation(Some(SMALL));
    cluster.create("small", one("wasm/hello:1")).await;
    cluster.ready("small").await;
    assert_eq!(begun(&cluster.wasm), 3);
    // A Pod that ends makes room.
    cluster.delete("first", 1).await;
    cluster.gone("first").await;
    cluster.delete("second", 1).await;
    cluster.gone("second").await;
    cluster.ready("third").await;
}

/// Reading the code of a large module takes a while, too.
#[tokio::test]
async fn code_in_the_cache_waits_for_a_permit_of_its_namespace_and_a_linux_image_for_none() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.wasm.set_preparation(None);
    cluster.wasm.inject(Operation::Prepare, [(); 2].map(|()| Fault::Delay(Duration::from_secs(3_600))));
    for name in ["first", "second"] {
        cluster.create(name, one("wasm/hello:1")).await;
    }
    assert!(poll(async || begun(&cluster.wasm) == 2).await, "a namespace has two at the same time");
    cluster.create("third", one("wasm/hello:1")).await;
    cluster.event("third", "Pulled: ").await;
    cluster.create("linux", one("web:1")).await;
    cluster.ready("linux").await;
    assert_eq!(begun(&cluster.wasm), 2);
    // A Pod that ends makes room.
    cluster.delete("first", 1).await;
    cluster.gone("first").await;
    cluster.ready("third").await;
}
