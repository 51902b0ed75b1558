//! `wasi:http` servers whose guests begin with much memory.

use runtimes_battery::Harness as _;
use runtimes_contract::RuntimeError;

use crate::components;
use crate::harness::Wasmtime;
use crate::http::{Network, web_of};

#[tokio::test]
async fn a_server_does_not_start_with_less_memory_than_its_guest_begins_with() {
    let (harness, network) = (Wasmtime::new(), Network::new("memory"));
    let runtime = harness.runtime();
    let large = components::http_with_pages(16 * 48);
    for (mib, starts) in [(51, false), (52, true)] {
        let mut spec = web_of(&harness, &network, &format!("web{mib}"), &large);
        spec.resources.memory_limit_bytes = Some(mib << 20);
        runtime.create(&spec).await.unwrap();
        let started = runtime.start(&spec.id).await;
        if starts {
            started.unwrap();
            assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"));
        } else {
            let error = started.unwrap_err();
            assert!(matches!(&error, RuntimeError::Start(_)), "{error:?}");
            let wanted = "the memory limit is too low: the WebAssembly begins with 49152 KiB of memory, and of the limit of 52224 KiB it may \
                          have 48128 KiB";
            assert_eq!(error.to_string(), wanted);
        }
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_whose_guest_is_too_large_for_the_pool_starts_without() {
    let (harness, network) = (Wasmtime::new(), Network::new("large"));
    let runtime = harness.runtime();
    // A mebibyte more than a memory of the pool may have.
    let large = components::http_with_pages(16 * 1025);
    for pooling in [None, Some(false)] {
        let mut spec = web_of(&harness, &network, &format!("web-{}", pooling.is_some()), &large);
        spec.http.pooling = pooling;
        runtime.create(&spec).await.unwrap();
        let started = runtime.start(&spec.id).await;
        if pooling == Some(false) {
            started.unwrap();
            assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"));
        } else {
            let error = started.unwrap_err();
            assert!(matches!(&error, RuntimeError::Start(_)), "{error:?}");
            let wanted = "with the annotation wasm.skiff.internal/http-pooling: \"false\" it has no pool: ";
            assert!(error.to_string().contains(wanted), "{error}");
        }
        runtime.remove(&spec.id).await.unwrap();
    }
}
