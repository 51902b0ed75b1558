;; Writes its arguments after the first, joined by spaces, and a newline.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $at i32) (local $end i32)
    (drop (call $sizes (i32.const 0) (i32.const 4)))
    ;; The pointers go to 1024, the bytes to 4096.
    (drop (call $args (i32.const 1024) (i32.const 4096)))
    (local.set $at (i32.load (i32.const 1028)))
    (local.set $end (i32.add (i32.const 4096) (i32.load (i32.const 4))))
    (i32.store (i32.const 8) (local.get $at))
    (i32.store (i32.const 12) (i32.sub (local.get $end) (local.get $at)))
    ;; Every terminating zero becomes a space, the last one a newline.
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (if (i32.eqz (i32.load8_u (local.get $at))) (then (i32.store8 (local.get $at) (i32.const 32))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (i32.store8 (i32.sub (local.get $end) (i32.const 1)) (i32.const 10))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16)))))
