;; Attaches its heap and stores to it, whether it may or not.
(module
  (import "holdfast" "attach" (func $attach (param i32) (result i32)))
  (memory (export "memory") 1)
  (func $scribble
    ;; The record begins with the address of the heap.
    (i32.store offset=0x100 (i32.wrap_i64 (i64.load (i32.const 1024))) (i32.const 42)))
  (func (export "_start")
    (drop (call $attach (i32.const 1024)))
    (call $scribble)))
