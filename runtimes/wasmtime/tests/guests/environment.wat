;; Core module of a command of either ABI: compares its environment, its args and its working directory with COLOUR=green, `run --fast`
;; and /data. Ends with the number of the first step that went wrong, or with 0.
(module
  (import "wasi:cli/environment@VERSION" "get-environment" (func $environment (param i32)))
  (import "wasi:cli/environment@VERSION" "get-arguments" (func $arguments (param i32)))
  (import "wasi:cli/environment@VERSION" "INITIAL-CWD" (func $directory (param i32)))
  (import "wasi:cli/exit@VERSION" "exit-with-code" (func $exit (param i32)))
  (memory (export "memory") 1)
  (global $free (mut i32) (i32.const 4096))
  (data (i32.const 1024) "COLOURgreenrun--fast/data")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.set $free (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  ;; Ends with a number unless the condition is true.
  (func $must (param $holds i32) (param $step i32)
    (if (i32.eqz (local.get $holds)) (then (call $exit (local.get $step)))))
  ;; Whether the string whose pointer and length are at an address is this text.
  (func $is (param $at i32) (param $text i32) (param $length i32) (result i32)
    (local $index i32)
    (if (i32.ne (i32.load (i32.add (local.get $at) (i32.const 4))) (local.get $length)) (then (return (i32.const 0))))
    (loop $next
      (if (i32.eq (local.get $index) (local.get $length)) (then (return (i32.const 1))))
      (if (i32.ne
          (i32.load8_u (i32.add (i32.load (local.get $at)) (local.get $index)))
          (i32.load8_u (i32.add (local.get $text) (local.get $index))))
        (then (return (i32.const 0))))
      (local.set $index (i32.add (local.get $index) (i32.const 1)))
      (br $next))
    (unreachable))
  (func (export "RUN") (result i32)
    ;; Lists: pointer, length.
    (call $environment (i32.const 16))
    (call $must (i32.eq (i32.load (i32.const 20)) (i32.const 1)) (i32.const 1))
    (call $must (call $is (i32.load (i32.const 16)) (i32.const 1024) (i32.const 6)) (i32.const 2))
    (call $must (call $is (i32.add (i32.load (i32.const 16)) (i32.const 8)) (i32.const 1030) (i32.const 5)) (i32.const 3))
    (call $arguments (i32.const 32))
    (call $must (i32.eq (i32.load (i32.const 36)) (i32.const 2)) (i32.const 4))
    (call $must (call $is (i32.load (i32.const 32)) (i32.const 1035) (i32.const 3)) (i32.const 5))
    (call $must (call $is (i32.add (i32.load (i32.const 32)) (i32.const 8)) (i32.const 1038) (i32.const 6)) (i32.const 6))
    ;; option<string>: tag, pointer, length.
    (call $directory (i32.const 48))
    (call $must (i32.eq (i32.load8_u (i32.const 48)) (i32.const 1)) (i32.const 7))
    (call $must (call $is (i32.const 52) (i32.const 1044) (i32.const 5)) (i32.const 8))
    (call $exit (i32.const 0))
    (unreachable))
  (;callback;))
