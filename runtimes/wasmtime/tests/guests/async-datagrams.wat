;; Core module of a component with `wasi:cli/run` of WASI 0.3: sends `ping` to 127.0.0.1 at PORT from a UDP socket, which has a remote
;; address (WAY 1) or whose datagrams have it (2). Ends with 0 when it gets an answer of five bytes, and with 100 + the error code
;; otherwise.
(module
  (import "wasi:sockets/types@0.3.0" "[static]udp-socket.create" (func $create (param i32 i32)))
  (import "wasi:sockets/types@0.3.0" "[method]udp-socket.connect"
    (func $connect (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
  (import "wasi:sockets/types@0.3.0" "[method]udp-socket.send"
    (func $send (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
  (import "wasi:sockets/types@0.3.0" "[method]udp-socket.receive" (func $receive (param i32 i32)))
  (import "wasi:cli/exit@0.3.0" "exit-with-code" (func $exit (param i32)))
  (import "[export]wasi:cli/run@0.3.0" "[task-return]run" (func $return (param i32)))
  (memory (export "memory") 1)
  (global $free (mut i32) (i32.const 8192))
  (data (i32.const 1024) "ping\n")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.set $free (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  (func $must
    (if (i32.load8_u (i32.const 0)) (then (call $exit (i32.add (i32.const 100) (i32.load8_u (i32.const 4)))))))

  (func (export "[async-lift]wasi:cli/run@0.3.0#run") (result i32) (local $socket i32)
    (call $create (i32.const 0) (i32.const 0))
    (call $must)
    (local.set $socket (i32.load (i32.const 4)))
    (if (i32.eq (i32.const WAY) (i32.const 1)) (then
      (call $connect (local.get $socket) (i32.const 0) (i32.const PORT) (i32.const 127) (i32.const 0) (i32.const 0) (i32.const 1)
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
      (call $must)))
    (call $send (local.get $socket) (i32.const 1024) (i32.const 5) (i32.eq (i32.const WAY) (i32.const 2))
      (i32.const 0) (i32.const PORT) (i32.const 127) (i32.const 0) (i32.const 0) (i32.const 1)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
    (call $must)
    ;; result<tuple<list<u8>, ip-socket-address>, error-code> at 0.
    (call $receive (local.get $socket) (i32.const 0))
    (call $must)
    (call $exit (i32.ne (i32.load (i32.const 8)) (i32.const 5)))
    (call $return (i32.const 0))
    (i32.const 0))
  (func (export "[callback][async-lift]wasi:cli/run@0.3.0#run") (param i32 i32 i32) (result i32) unreachable))
