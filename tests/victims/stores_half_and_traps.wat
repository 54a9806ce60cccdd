;; Takes its heap, stores to it, and divides by zero.
(module
  (import "holdfast" "attach" (func $attach (param i32) (result i32)))
  (memory (export "memory") 1)
  (func $divide (param $by i32) (result i32) (i32.div_u (i32.const 1) (local.get $by)))
  (func (export "_start")
    (drop (call $attach (i32.const 1024)))
    (drop (call $divide (i32.const 0)))))
