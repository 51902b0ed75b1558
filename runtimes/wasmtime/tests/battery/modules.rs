//! Modules of WASI preview 1 from WAT, each of which uses a proposal of WebAssembly and ends with 22. The stories of the whole project use
//! them too.

/// A module with these definitions and that body, which calls `$exit` or `$write`.
pub fn module(definitions: &str, body: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
             (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
             (memory (export "memory") 1) {definitions} (func (export "_start") {body}))"#
    ))
    .unwrap()
}

/// `gc`.
pub fn garbage_collection() -> Vec<u8> {
    module(
        "(type $pair (struct (field i32) (field i32))) (type $numbers (array (mut i32)))",
        "(call $exit (i32.add (struct.get $pair 1 (struct.new $pair (i32.const 1) (i32.const 20)))
           (array.get $numbers (array.new $numbers (i32.const 2) (i32.const 9)) (i32.const 8))))",
    )
}

/// `exception-handling`.
pub fn exceptions() -> Vec<u8> {
    module(
        "(tag $failed (param i32)) (func $fail (throw $failed (i32.const 22)))",
        "(block $caught (result i32) (try_table (catch $failed $caught) (call $fail)) (unreachable)) (call $exit)",
    )
}

/// `stack-switching`.
pub fn stack_switching() -> Vec<u8> {
    module(
        "(type $work (func)) (type $continuation (cont $work)) (tag $yield (param i32))
         (func $produce (suspend $yield (i32.const 22))) (elem declare func $produce)",
        "(block $suspended (result i32 (ref null $continuation))
           (resume $continuation (on $yield $suspended) (cont.new $continuation (ref.func $produce))) (unreachable))
         (drop) (call $exit)",
    )
}

/// `threads`.
pub fn threads() -> Vec<u8> {
    module(
        "(memory $shared 1 1 shared)",
        "(drop (i32.atomic.rmw.add $shared (i32.const 8) (i32.const 22))) (call $exit (i32.atomic.load $shared (i32.const 8)))",
    )
}
