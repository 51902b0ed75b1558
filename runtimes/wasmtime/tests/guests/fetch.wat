;; Core module of a wasi:cli/command component: sends GET to the authority that stands at 1024 (NAME), and ends with 0 when there is an
;; answer of status 200, and with 100 + the error code otherwise.
(module
  (import "wasi:http/types@0.2.12" "[constructor]fields" (func $fields (result i32)))
  (import "wasi:http/types@0.2.12" "[constructor]outgoing-request" (func $request (param i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-authority" (func $authority (param i32 i32 i32 i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-path-with-query" (func $path (param i32 i32 i32 i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]future-incoming-response.subscribe" (func $subscribe (param i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]future-incoming-response.get" (func $get (param i32 i32)))
  (import "wasi:http/types@0.2.12" "[method]incoming-response.status" (func $status (param i32) (result i32)))
  (import "wasi:http/outgoing-handler@0.2.12" "handle" (func $handle (param i32 i32 i32 i32)))
  (import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))
  (import "wasi:cli/exit@0.2.12" "exit-with-code" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 1000) "/")
  (data (i32.const 1024) "NAME")
  ;; For the text of an error.
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
  (func (export "wasi:cli/run@0.2.12#run") (result i32) (local $request i32) (local $future i32)
    (local.set $request (call $request (call $fields)))
    (if (call $authority (local.get $request) (i32.const 1) (i32.const 1024) (i32.const LEN)) (then (call $exit (i32.const 99))))
    (if (call $path (local.get $request) (i32.const 1) (i32.const 1000) (i32.const 1)) (then (call $exit (i32.const 98))))
    ;; result<future, error-code> at 0: the future or the code at 8.
    (call $handle (local.get $request) (i32.const 0) (i32.const 0) (i32.const 0))
    (if (i32.load8_u (i32.const 0)) (then (call $exit (i32.add (i32.const 100) (i32.load8_u (i32.const 8))))))
    (local.set $future (i32.load (i32.const 8)))
    (call $block (call $subscribe (local.get $future)))
    ;; option<result<result<response, error-code>>> at 64: tags at 64, 72 and 80, the response or the code at 88.
    (call $get (local.get $future) (i32.const 64))
    (if (i32.load8_u (i32.const 80)) (then (call $exit (i32.add (i32.const 100) (i32.load8_u (i32.const 88))))))
    (call $exit (i32.ne (call $status (i32.load (i32.const 88))) (i32.const 200)))
    (i32.const 0)))
