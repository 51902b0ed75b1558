;; Core module of a component with `wasi:cli/run` of WASI 0.3, by the async ABI with a callback: writes a line, returns RESULT, and writes
;; another line 20 ms later.
(module
  (import "wasi:cli/stdout@0.3.0" "write-via-stream" (func $output (param i32) (result i32)))
  (import "wasi:cli/stdout@0.3.0" "[stream-new-0]write-via-stream" (func $stream (result i64)))
  (import "wasi:cli/stdout@0.3.0" "[async-lower][stream-write-0]write-via-stream" (func $write (param i32 i32 i32) (result i32)))
  (import "wasi:cli/exit@0.3.0" "exit-with-code" (func $exit-with-code (param i32)))
  (import "wasi:clocks/monotonic-clock@0.3.0" "[async-lower]wait-for" (func $wait-for (param i64) (result i32)))
  (import "[export]wasi:cli/run@0.3.0" "[task-return]run" (func $return (param i32)))
  (import "$root" "[waitable-set-new]" (func $set (result i32)))
  (import "$root" "[waitable-join]" (func $join (param i32 i32)))
  (memory (export "memory") 1)
  (global $writer (mut i32) (i32.const 0))
  (global $next (mut i32) (i32.const 0))
  (data (i32.const 1024) "at first\nand later\n")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)

  (func $wait (param $handle i32) (param $step i32) (result i32)
    (local $waitables i32)
    (local.set $waitables (call $set))
    (call $join (local.get $handle) (local.get $waitables))
    (global.set $next (local.get $step))
    (i32.or (i32.shl (local.get $waitables) (i32.const 4)) (i32.const 2)))

  (func $say (param $from i32) (param $length i32) (param $step i32) (result i32)
    (if (i32.eq (call $write (global.get $writer) (local.get $from) (local.get $length)) (i32.const -1))
      (then (return (call $wait (global.get $writer) (local.get $step)))))
    (call $continue (local.get $step)))

  (func $continue (param $step i32) (result i32)
    (if (i32.eq (local.get $step) (i32.const 1)) (then
      (;then;)
      (call $return (i32.const RESULT))
      (return (call $wait (i32.shr_u (call $wait-for (i64.const 20000000)) (i32.const 4)) (i32.const 2)))))
    (if (i32.eq (local.get $step) (i32.const 2)) (then (return (call $say (i32.const 1033) (i32.const 10) (i32.const 3)))))
    (i32.const 0))

  (func (export "[async-lift]wasi:cli/run@0.3.0#run") (result i32)
    (local $pair i64)
    (local.set $pair (call $stream))
    (global.set $writer (i32.wrap_i64 (i64.shr_u (local.get $pair) (i64.const 32))))
    (drop (call $output (i32.wrap_i64 (local.get $pair))))
    (call $say (i32.const 1024) (i32.const 9) (i32.const 1)))

  (func (export "[callback][async-lift]wasi:cli/run@0.3.0#run") (param $event i32) (param $handle i32) (param i32) (result i32)
    (call $join (local.get $handle) (i32.const 0))
    (call $continue (global.get $next))))
