;; Grows its memory and fills it until it is refused; then ends with 3.
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $at i32)
    (loop $again
      (local.set $at (memory.grow (i32.const 16)))
      (if (i32.eq (local.get $at) (i32.const -1)) (then (call $exit (i32.const 3))))
      (memory.fill (i32.shl (local.get $at) (i32.const 16)) (i32.const 7) (i32.const 1048576))
      (br $again))))
