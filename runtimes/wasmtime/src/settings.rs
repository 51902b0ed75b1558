//! The settings of wasmtime. The compiler (in the agent) and the shim (which only runs compiled code) must agree on every
//! setting that shapes the machine code; both use [`config`].

use std::collections::BTreeSet;

#[cfg(feature = "shim")]
use runtimes_contract::HTTP_CONCURRENCY_MAX;
use runtimes_contract::{ContainerSpec, WasmProposal};
use serde::{Deserialize, Serialize};
use wasmtime::Config;
#[cfg(feature = "shim")]
use wasmtime::{InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::kind::Abi;

/// Most guest instances that an HTTP component has at once, if its spec does not say another number; further requests wait.
#[cfg(feature = "shim")]
const HTTP_CONCURRENCY_DEFAULT: u32 = 64;
/// Additional instances, for the node's probes alone.
#[cfg(feature = "shim")]
pub const HTTP_PROBE_INSTANCES_MAX: u32 = 4;
/// The most bytes of one linear memory of an HTTP component whose instances come from the pool.
#[cfg(feature = "shim")]
const HTTP_MEMORY_LEN_MAX: usize = 1 << 30;
/// The bytes of a memory or a table that a pooled slot keeps mapped for the next request: the pages that a small guest touches.
#[cfg(feature = "shim")]
const MEMORY_RESIDENT_LEN: usize = 128 << 10;
/// The same of a stack. wasmtime overwrites so much after each request, whether it was used or not, so each slot has it in memory.
#[cfg(feature = "shim")]
const STACK_RESIDENT_LEN: usize = 32 << 10;

/// The stack of a guest. wasmtime's default is half a MiB. Code without optimization needs several times the stack of optimized code (a
/// recursive function with twelve variables: 4.5 times), and must not overflow where that does not.
#[cfg(feature = "shim")]
const STACK_LEN_MAX: usize = 4 << 20;
/// The stack beyond it, for the host's functions that a guest calls: as much as by wasmtime's default.
#[cfg(feature = "shim")]
const HOST_STACK_LEN: usize = 3 << 19;

/// The stacks of an instance with the async ABI: each of its calls that waits has one, unless the function has a callback. All instances
/// share them, those of probes too: an instance with more calls than this takes them from others.
#[cfg(feature = "shim")]
const ASYNC_STACKS_MAX: u32 = 8;

/// The settings of a container that shape its machine code.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CodeSettings {
    /// The proposals that are off by default and that it may use.
    pub proposals: BTreeSet<WasmProposal>,
    /// Whether its code counts fuel, so that a store without fuel runs nothing.
    pub has_fuel: bool,
}

impl CodeSettings {
    /// Those of a container, also for the programs that are run in it.
    pub fn of(spec: &ContainerSpec) -> Self {
        Self { proposals: spec.proposals.clone(), has_fuel: spec.fuel.is_some() }
    }
}

/// The settings that machine code depends on. Of the proposals, those that wasmtime calls stable (its tier 1) and has on by default are
/// on: exceptions, GC and what they need are among them.
///
/// Only code with the async ABI pays for it: its instances have more state, and calls between them do more.
pub fn config(settings: &CodeSettings, abi: Abi) -> Config {
    let CodeSettings { proposals, has_fuel } = settings;
    let mut config = Config::new();
    config.concurrency_support(abi == Abi::Async);
    config.wasm_custom_page_sizes(proposals.contains(&WasmProposal::CustomPageSizes));
    config.wasm_stack_switching(proposals.contains(&WasmProposal::StackSwitching));
    config.wasm_wide_arithmetic(proposals.contains(&WasmProposal::WideArithmetic));
    config.wasm_threads(proposals.contains(&WasmProposal::Threads));
    // Does not shape the code: whether a shared memory can be created.
    config.shared_memory(proposals.contains(&WasmProposal::Threads));
    // SIGTERM and fairness between requests reach a guest that never calls out.
    config.epoch_interruption(true);
    // The code is slower with it.
    config.consume_fuel(*has_fuel);
    config.wasm_component_model(true);
    // Guests with a snapshot (JavaScript, Python) start twenty times faster with it; small guests lose nothing.
    config.memory_init_cow(true);
    // Names in a trap's message are worth their bytes.
    config.wasm_backtrace_max_frames(std::num::NonZeroUsize::new(16));
    config
}

/// The settings for plugins, which run in the process that calls them: what a call costs is counted in instructions, which are the
/// same on every machine, and so are the results. Their interface needs no heap.
#[cfg(feature = "compile")]
pub fn plugin_config() -> Config {
    let mut config = config(&CodeSettings::default(), Abi::Sync);
    config.wasm_exceptions(false).gc_support(false);
    config.consume_fuel(true);
    config.cranelift_nan_canonicalization(true);
    config.relaxed_simd_deterministic(true);
    config
}

/// The settings for running a guest, which always has a stack of its own.
#[cfg(feature = "shim")]
pub fn guest_config(settings: &CodeSettings, abi: Abi) -> Config {
    let mut config = config(settings, abi);
    config.max_wasm_stack(STACK_LEN_MAX);
    config.async_stack_size(STACK_LEN_MAX + HOST_STACK_LEN);
    config
}

/// The same for a guest with an instance for each request: slots are created once and reused ([`has_pool`]).
#[cfg(feature = "shim")]
pub fn pooled_config(settings: &CodeSettings, abi: Abi, concurrency: u32) -> Config {
    let mut config = guest_config(settings, abi);
    let instances = concurrency + HTTP_PROBE_INSTANCES_MAX;
    let stacks = match abi {
        Abi::Sync => 1,
        Abi::Async => ASYNC_STACKS_MAX,
    };
    // Without `pagemap_scan`: it finds no page that is swapped out or that the kernel moves at that moment, so that the next request would
    // read what this one wrote there (wasmtime 48, https://github.com/bytecodealliance/wasmtime/pull/14357). And without batches of slots
    // to reset: they would take turns, instead of the one whose memory is in the CPU's cache.
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances * 8)
        // The heap of the GC proposal takes the place of a memory.
        .total_memories(instances * 2)
        .total_gc_heaps(instances)
        .total_tables(instances * 2)
        .total_stacks(instances * stacks)
        .max_core_instances_per_component(64)
        .max_memories_per_component(4)
        .max_tables_per_component(32)
        .max_memory_size(HTTP_MEMORY_LEN_MAX)
        .table_elements(20_000)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .async_stack_keep_resident(STACK_RESIDENT_LEN)
        .linear_memory_keep_resident(MEMORY_RESIDENT_LEN)
        .table_keep_resident(MEMORY_RESIDENT_LEN);
    // Else a slot keeps every page of its stack that any request has used, and no budget counts them.
    config.async_stack_zeroing(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Whether the instances of an HTTP component come from a pool. The pool has no shared memories, so a guest that may use them gets
/// new memory for each instance, as one whose spec says so.
#[cfg(feature = "shim")]
pub fn has_pool(spec: &ContainerSpec) -> bool {
    spec.http.pooling.unwrap_or(true) && !spec.proposals.contains(&WasmProposal::Threads)
}

/// The requests that an HTTP component handles at once.
#[cfg(feature = "shim")]
pub fn http_concurrency(spec: &ContainerSpec) -> u32 {
    spec.http.concurrency.unwrap_or(HTTP_CONCURRENCY_DEFAULT).clamp(1, HTTP_CONCURRENCY_MAX)
}

/// The linear memory that a guest may have within its container's limit. The rest is for the shim itself, so that an allocation
/// beyond it fails before the kernel kills the guest.
#[cfg(feature = "shim")]
pub fn memory_len_max(limit_bytes: Option<u64>) -> Option<usize> {
    const SHIM_BYTES: u64 = 4 << 20;
    let limit = limit_bytes?;
    usize::try_from(limit.saturating_sub(SHIM_BYTES).max(limit / 2)).ok()
}

#[cfg(all(test, feature = "shim"))]
mod tests {
    use super::*;

    #[cfg(feature = "compile")]
    #[tokio::test]
    async fn a_slot_gives_back_the_stack_that_a_request_has_used() {
        use std::sync::Arc;

        use tokio::sync::Barrier;
        use wasmtime::{Caller, Engine, Linker, Module, Store};

        fn memory_kib() -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        }

        const SLOTS: usize = 16;
        let engine = Engine::new(&pooled_config(&CodeSettings::default(), Abi::Sync, 16)).unwrap();
        let text = r#"(module (import "" "wait" (func $wait))
            (func $deep (export "deep") (param i32) (result i32)
              (if (result i32) (local.get 0)
                (then (i32.add (local.get 0) (call $deep (i32.sub (local.get 0) (i32.const 1)))))
                (else (call $wait) (i32.const 0)))))"#;
        let module = Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
        let all_deep = Arc::new(Barrier::new(SLOTS + 1));
        let mut linker = Linker::new(&engine);
        let barrier = all_deep.clone();
        let wait = linker.func_wrap_async("", "wait", move |_: Caller<'_, ()>, (): ()| {
            let barrier = barrier.clone();
            Box::new(async move {
                // Once when all are there, once when the memory was read.
                barrier.wait().await;
                barrier.wait().await;
            })
        });
        wait.unwrap();
        let request = async || {
            let mut store = Store::new(&engine, ());
            store.set_epoch_deadline(1 << 40);
            let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
            let deep = instance.get_typed_func::<i32, i32>(&mut store, "deep").unwrap();
            deep.call_async(&mut store, 80_000).await.unwrap();
        };
        let before = memory_kib();
        let measure = async {
            all_deep.wait().await;
            let memory = memory_kib();
            all_deep.wait().await;
            memory
        };
        let (used, _) = tokio::join!(measure, futures::future::join_all((0..SLOTS).map(|_| request())));
        let after = memory_kib();
        println!("{before} KiB, {used} KiB with deep stacks, {after} KiB afterwards");
        assert!(used > before + 1_500 * SLOTS as u64, "{used} KiB instead of {before} KiB");
        assert!(after < before + 200 * SLOTS as u64, "{after} KiB instead of {before} KiB");
    }

    #[test]
    fn a_guest_has_its_limit_but_for_what_the_shim_needs() {
        let mib = |count: u64| count << 20;
        for (limit, wanted) in [(None, None), (Some(mib(64)), Some(mib(60))), (Some(mib(4)), Some(mib(2))), (Some(0), Some(0))] {
            assert_eq!(memory_len_max(limit), wanted.map(|bytes| usize::try_from(bytes).unwrap()));
        }
    }
}
