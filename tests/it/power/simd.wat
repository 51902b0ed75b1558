;; A WASI preview 1 module with vector instructions that compilers make one instruction of where the CPU has SSSE3, SSE4 or FMA. It traps
;; when a result is wrong.
(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\00\01\02\03\04\05\06\07\08\09\0a\0b\0c\0d\0e\0f")
  (data (i32.const 16) "\0f\0e\0d\0c\0b\0a\09\08\07\06\05\04\03\02\01\00")
  ;; 1.5
  (data (i32.const 32) "\00\00\c0\3f")
  (func $up (result v128) (v128.load (i32.const 0)))
  (func $down (result v128) (v128.load (i32.const 16)))
  (func $expect (param v128 v128)
    (if (i32.eqz (i8x16.all_true (i8x16.eq (local.get 0) (local.get 1)))) (then (unreachable))))
  (func (export "_start")
    (local $twos v128)
    ;; SSSE3
    (call $expect (i8x16.swizzle (call $down) (call $down)) (call $up))
    (call $expect (i8x16.abs (i8x16.neg (call $up))) (call $up))
    ;; SSE4.1
    (call $expect (i8x16.max_s (call $up) (call $down)) (v128.const i8x16 15 14 13 12 11 10 9 8 8 9 10 11 12 13 14 15))
    (local.set $twos (f32x4.ceil (f32x4.splat (f32.load (i32.const 32)))))
    (call $expect (local.get $twos) (f32x4.splat (f32.const 2)))
    ;; SSE4.2
    (call $expect (i64x2.gt_s (call $up) (call $down)) (v128.const i64x2 0 -1))
    ;; FMA, and the relaxed instructions
    (call $expect (f32x4.relaxed_madd (local.get $twos) (local.get $twos) (local.get $twos)) (f32x4.splat (f32.const 6)))
    (call $expect (i8x16.relaxed_swizzle (call $down) (call $down)) (call $up))
    (call $expect (i8x16.popcnt (v128.or (call $up) (call $down))) (i8x16.splat (i32.const 4)))))
