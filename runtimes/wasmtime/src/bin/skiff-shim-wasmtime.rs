//! The process that is a WASM container. Started by the node agent, never by hand.

fn main() {
    runtimes_wasmtime::shim::main();
}
