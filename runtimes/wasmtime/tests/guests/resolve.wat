;; Core module of a wasi:cli/command component: looks up the name that stands at 1024 (NAME) and ends
;; with the last number of the IPv4 address, or with 100 + the error code.
(module
  (import "wasi:sockets/instance-network@0.2.12" "instance-network" (func $network (result i32)))
  (import "wasi:sockets/ip-name-lookup@0.2.12" "resolve-addresses" (func $resolve (param i32 i32 i32 i32)))
  (import "wasi:sockets/ip-name-lookup@0.2.12" "[method]resolve-address-stream.resolve-next-address" (func $next (param i32 i32)))
  (import "wasi:sockets/ip-name-lookup@0.2.12" "[method]resolve-address-stream.subscribe" (func $subscribe (param i32) (result i32)))
  (import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))
  (import "wasi:cli/exit@0.2.12" "exit-with-code" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "NAME")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
  (func (export "wasi:cli/run@0.2.12#run") (result i32) (local $stream i32)
    ;; result<stream, error-code> at 0.
    (call $resolve (call $network) (i32.const 1024) (i32.const LEN) (i32.const 0))
    (if (i32.load8_u (i32.const 0)) (then (call $exit (i32.add (i32.const 100) (i32.load8_u (i32.const 4))))))
    (local.set $stream (i32.load (i32.const 4)))
    (call $block (call $subscribe (local.get $stream)))
    ;; result<option<ip-address>, error-code> at 16: tags at 16 and 18, the variant's at 20, bytes from 22.
    (call $next (local.get $stream) (i32.const 16))
    (if (i32.load8_u (i32.const 16)) (then (call $exit (i32.add (i32.const 100) (i32.load8_u (i32.const 18))))))
    (call $exit (i32.load8_u (i32.const 25)))
    (i32.const 0)))
