;; Makes the file PATH in the directory that is shown as DIRECTORY, ends with WASI's error number (44,
;; no such file, when there is no such directory).
(module
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 100) "PATH")
  (func (export "_start") (local $fd i32)
    (local.set $fd (i32.const 3))
    (loop $next
      (if (call $prestat (local.get $fd) (i32.const 0)) (then (call $exit (i32.const 44))))
      (drop (call $name (local.get $fd) (i32.const 16) (i32.load (i32.const 4))))
      ;; Its length, and its first or second letter.
      (if (i32.and (i32.eq (i32.load (i32.const 4)) (i32.const DIRECTORY_LEN)) (i32.eq (i32.load8_u (i32.const LETTER_AT)) (i32.const DIRECTORY_LETTER)))
        (then
          ;; O_CREAT, the right to write.
          (call $exit (call $open (local.get $fd) (i32.const 0) (i32.const 100) (i32.const PATH_LEN) (i32.const 1)
            (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 40)))))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br $next))))
