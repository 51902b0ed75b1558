//! WASM containers: ahead-of-time compile and a small shim.
