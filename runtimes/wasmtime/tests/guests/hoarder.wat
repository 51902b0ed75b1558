;; Stores values of 1 MiB until the store has no room, and then wants one of them COPIES times at once. Traps if it has no memory for them.
(module
  (import "wasi:cli/exit@0.2.12" "exit-with-code" (func $exit (param i32)))
  (import "wasi:keyvalue/store@0.2.0-draft" "open" (func $open (param i32 i32 i32)))
  (import "wasi:keyvalue/store@0.2.0-draft" "[method]bucket.set" (func $set (param i32 i32 i32 i32 i32 i32)))
  (import "wasi:keyvalue/batch@0.2.0-draft" "get-many" (func $get-many (param i32 i32 i32 i32)))
  (memory (export "memory") 32)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
    ;; Answers are far behind what the guest wrote.
    (local.set $at (memory.grow (i32.add (i32.shr_u (local.get 3) (i32.const 16)) (i32.const 1))))
    (if (i32.eq (local.get $at) (i32.const -1)) (then (unreachable)))
    (i32.shl (local.get $at) (i32.const 16)))
  (func (export "wasi:cli/run@0.2.12#run") (result i32) (local $bucket i32) (local $key i32)
    (call $open (i32.const 0) (i32.const 0) (i32.const 16))
    (local.set $bucket (i32.load (i32.const 20)))
    (block $full
      (loop $more
        ;; The key is four bytes of ASCII.
        (i32.store (i32.const 0) (i32.add (i32.const 0x20202020) (local.get $key)))
        (call $set (local.get $bucket) (i32.const 0) (i32.const 4) (i32.const 65536) (i32.const 1048576) (i32.const 16))
        (br_if $full (i32.load8_u (i32.const 16)))
        (local.set $key (i32.add (local.get $key) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $key) (i32.const 96)))
        ;; There was room for 96 MiB.
        (call $exit (i32.const 9))))
    (if (i32.eqz (local.get $key)) (then (call $exit (i32.const 8))))
    (i32.store (i32.const 0) (i32.const 0x20202020))
    (local.set $key (i32.const 0))
    (loop $next
      (i32.store (i32.add (i32.const 65536) (i32.shl (local.get $key) (i32.const 3))) (i32.const 0))
      (i32.store (i32.add (i32.const 65540) (i32.shl (local.get $key) (i32.const 3))) (i32.const 4))
      (local.set $key (i32.add (local.get $key) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $key) (i32.const COPIES))))
    (call $get-many (local.get $bucket) (i32.const 65536) (i32.const COPIES) (i32.const 16))
    (i32.const 0)))
