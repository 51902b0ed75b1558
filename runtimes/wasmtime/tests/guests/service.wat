;; Core module of a component with `wasi:http/handler` of WASI 0.3, by the async ABI with a callback. It answers 200 `hello from 0.3 N`,
;; where N is the number of requests that its instance has handled. By the first three letters of the request's path:
;; `/trap`, `/spin` before an answer; `/error` answers with an error; `/host` with the authority of the request in place of the text;
;; `/echo` sends the request's body back; `/wait` answers after 50 ms,
;; `/silent` never; `/cut` traps in the middle of its answer, `/late` 50 ms after it.
(module
  (import "wasi:http/types@0.3.0" "[constructor]fields" (func $fields (result i32)))
  (import "wasi:http/types@0.3.0" "[method]request.get-path-with-query" (func $path (param i32 i32)))
  (import "wasi:http/types@0.3.0" "[method]request.get-authority" (func $authority (param i32 i32)))
  (import "wasi:http/types@0.3.0" "[static]request.consume-body" (func $consume (param i32 i32 i32)))
  (import "wasi:http/types@0.3.0" "[future-new-0][static]request.consume-body" (func $received (result i64)))
  (import "wasi:http/types@0.3.0" "[static]response.new" (func $response (param i32 i32 i32 i32 i32)))
  (import "wasi:http/types@0.3.0" "[stream-new-0][static]response.new" (func $stream (result i64)))
  (import "wasi:http/types@0.3.0" "[async-lower][stream-write-0][static]response.new" (func $write (param i32 i32 i32) (result i32)))
  (import "wasi:http/types@0.3.0" "[stream-drop-writable-0][static]response.new" (func $drop-stream (param i32)))
  (import "wasi:http/types@0.3.0" "[future-new-1][static]response.new" (func $trailers (result i64)))
  (import "wasi:http/types@0.3.0" "[async-lower][future-write-1][static]response.new" (func $finish (param i32 i32) (result i32)))
  (import "wasi:http/types@0.3.0" "[future-drop-writable-1][static]response.new" (func $drop-trailers (param i32)))
  (import "wasi:http/types@0.3.0" "[future-drop-readable-2][static]response.new" (func $drop-sent (param i32)))
  (import "wasi:clocks/monotonic-clock@0.3.0" "[async-lower]wait-for" (func $wait-for (param i64) (result i32)))
  (import "[export]wasi:http/handler@0.3.0" "[task-return]handle" (func $return (param i32 i32 i32 i64 i32 i32 i32 i32)))
  (import "$root" "[waitable-set-new]" (func $set (result i32)))
  (import "$root" "[waitable-join]" (func $join (param i32 i32)))
  (import "$root" "[subtask-drop]" (func $drop-subtask (param i32)))
  (memory (export "memory") 1)
  (global $free (mut i32) (i32.const 4096))
  (global $count (mut i32) (i32.const 0))
  ;; What the callback continues with.
  (global $next (mut i32) (i32.const 0))
  (global $writer (mut i32) (i32.const 0))
  (global $last (mut i32) (i32.const 0))
  (global $sent (mut i32) (i32.const 0))
  (global $text (mut i32) (i32.const 1024))
  (global $length (mut i32) (i32.const 17))
  (global $word (mut i32) (i32.const 0))
  (data (i32.const 1024) "hello from 0.3 0\n")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.set $free (i32.add (local.get $at) (local.get 3)))
    (local.get $at))

  ;; The code that waits for an event of this handle, and then continues with that step.
  (func $wait (param $handle i32) (param $step i32) (result i32)
    (local $waitables i32)
    (local.set $waitables (call $set))
    (call $join (local.get $handle) (local.get $waitables))
    (global.set $next (local.get $step))
    (i32.or (i32.shl (local.get $waitables) (i32.const 4)) (i32.const 2)))

  (func $sleep (param $ns i64) (param $step i32) (result i32)
    (local $status i32)
    (local.set $status (call $wait-for (local.get $ns)))
    (if (i32.eq (i32.and (local.get $status) (i32.const 15)) (i32.const 2)) (then (return (call $continue (local.get $step)))))
    (call $wait (i32.shr_u (local.get $status) (i32.const 4)) (local.get $step)))

  (func $answer (result i32)
    (local $pair i64) (local $reader i32) (local $end i32)
    (global.set $count (i32.add (global.get $count) (i32.const 1)))
    (i32.store8 (i32.const 1039) (i32.add (i32.const 48) (global.get $count)))
    (local.set $pair (call $stream))
    (local.set $reader (i32.wrap_i64 (local.get $pair)))
    (global.set $writer (i32.wrap_i64 (i64.shr_u (local.get $pair) (i64.const 32))))
    (local.set $pair (call $trailers))
    (local.set $end (i32.wrap_i64 (local.get $pair)))
    (global.set $last (i32.wrap_i64 (i64.shr_u (local.get $pair) (i64.const 32))))
    (call $response (call $fields) (i32.const 1) (local.get $reader) (local.get $end) (i32.const 16))
    (global.set $sent (i32.load (i32.const 20)))
    (call $return (i32.const 0) (i32.load (i32.const 16)) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
    (if (i32.eq (call $write (global.get $writer) (global.get $text) (global.get $length)) (i32.const -1))
      (then (return (call $wait (global.get $writer) (i32.const 1)))))
    (call $continue (i32.const 1)))

  (func $echo (param $request i32) (result i32)
    (call $consume (local.get $request) (i32.wrap_i64 (call $received)) (i32.const 32))
    (call $response (call $fields) (i32.const 1) (i32.load (i32.const 32)) (i32.load (i32.const 36)) (i32.const 16))
    (call $return (i32.const 0) (i32.load (i32.const 16)) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
    (i32.const 0))

  (func $continue (param $step i32) (result i32)
    ;; 1: the body is written.
    (if (i32.eq (local.get $step) (i32.const 1)) (then
      (if (i32.eq (global.get $word) (i32.const 0x7475632f)) (then unreachable))
      (call $join (global.get $writer) (i32.const 0))
      (call $drop-stream (global.get $writer))
      (i64.store (i32.const 64) (i64.const 0))
      (i64.store (i32.const 72) (i64.const 0))
      (if (i32.eq (call $finish (global.get $last) (i32.const 64)) (i32.const -1))
        (then (return (call $wait (global.get $last) (i32.const 2)))))
      (return (call $continue (i32.const 2)))))
    ;; 2: the answer has ended.
    (if (i32.eq (local.get $step) (i32.const 2)) (then
      (call $join (global.get $last) (i32.const 0))
      (call $drop-trailers (global.get $last))
      (call $drop-sent (global.get $sent))
      (if (i32.eq (global.get $word) (i32.const 0x74616c2f)) (then (return (call $sleep (i64.const 50000000) (i32.const 4)))))
      (return (i32.const 0))))
    ;; 3: it is time to answer.
    (if (i32.eq (local.get $step) (i32.const 3)) (then (return (call $answer))))
    unreachable)

  (func (export "[async-lift]wasi:http/handler@0.3.0#handle") (param $request i32) (result i32)
    ;; option<string> at 0: tag, pointer, length.
    (call $path (local.get $request) (i32.const 0))
    (global.set $word (i32.load (i32.load (i32.const 4))))
    (if (i32.lt_u (i32.load (i32.const 8)) (i32.const 4)) (then (global.set $word (i32.const 0))))
    (if (i32.eq (global.get $word) (i32.const 0x6172742f)) (then unreachable))
    (if (i32.eq (global.get $word) (i32.const 0x6970732f)) (then (loop $again (br $again))))
    (if (i32.eq (global.get $word) (i32.const 0x7272652f)) (then
      (call $return (i32.const 1) (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
      (return (i32.const 0))))
    (if (i32.eq (global.get $word) (i32.const 0x736f682f)) (then
      (call $authority (local.get $request) (i32.const 0))
      (global.set $text (i32.load (i32.const 4)))
      (global.set $length (i32.load (i32.const 8)))))
    (if (i32.eq (global.get $word) (i32.const 0x6863652f)) (then (return (call $echo (local.get $request)))))
    (if (i32.eq (global.get $word) (i32.const 0x6961772f)) (then (return (call $sleep (i64.const 50000000) (i32.const 3)))))
    (if (i32.eq (global.get $word) (i32.const 0x6c69732f)) (then (return (call $sleep (i64.const 3600000000000) (i32.const 3)))))
    (call $answer))

  ;; Its only event is the one that it waits for.
  (func (export "[callback][async-lift]wasi:http/handler@0.3.0#handle") (param $event i32) (param $handle i32) (param $state i32) (result i32)
    (if (i32.eq (local.get $event) (i32.const 1)) (then
      (call $join (local.get $handle) (i32.const 0))
      (call $drop-subtask (local.get $handle))))
    (call $continue (global.get $next))))
