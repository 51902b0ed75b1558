//! References, registry pull, content store, WASM artifacts, garbage collection.
