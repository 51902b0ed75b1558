;; A WASI preview 1 module that writes into the file `guest` in its first directory until that fails, and exits with the error.
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 5)
  (data (i32.const 0) "guest")
  ;; 32: the vector to write, 64: the descriptor, 68: the number of bytes, 65536: 256 KiB of content
  (func $check (param $errno i32)
    (if (local.get $errno) (then (call $proc_exit (local.get $errno)))))
  (func (export "_start")
    (i32.store (i32.const 32) (i32.const 65536))
    (i32.store (i32.const 36) (i32.const 262144))
    (call $check (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 5) (i32.const 1)
      (i64.const 0x40) (i64.const 0) (i32.const 0) (i32.const 64)))
    (loop $again
      (call $check (call $fd_write (i32.load (i32.const 64)) (i32.const 32) (i32.const 1) (i32.const 68)))
      (br $again))))
