//! What is particular to WASM: traps, complaints about modules, confinement, the compile cache.
