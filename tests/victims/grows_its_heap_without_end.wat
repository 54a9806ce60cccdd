;; Takes heap memory until it gets no more, and says by its exit status why: 40 + the host's code.
(module
  (import "holdfast" "attach" (func $attach (param i32) (result i32)))
  (import "holdfast" "grow" (func $grow (param i64) (result i64)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (local $size i64)
    (local $code i32)
    (local.set $code (call $attach (i32.const 1024)))
    (if (local.get $code) (then (call $exit (local.get $code))))
    (local.set $size (i64.load (i32.const 1032)))
    (loop $more
      (local.set $size (call $grow (i64.add (local.get $size) (i64.const 1))))
      (br_if $more (i64.gt_s (local.get $size) (i64.const 0))))
    (call $exit (i32.sub (i32.const 40) (i32.wrap_i64 (local.get $size))))))
