;; 40,000 times `x` in one write, a newline, and `end` without one.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (memory.fill (i32.const 1000) (i32.const 120) (i32.const 40000))
    (i32.store (i32.const 0) (i32.const 1000))
    (i32.store (i32.const 4) (i32.const 40004))
    (i32.store (i32.const 41000) (i32.const 0x646e650a))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 100)))))
