;; Attaches its heap and stores to it, whether it may or not.
(module
  (import "holdfast" "attach" (func $attach (param i32) (result i32)))
  (memory (export "memory") 1)
  (func $scribble
    (i32.store (i32.const 0x80000100) (i32.const 42)))
  (func (export "_start")
    (drop (call $attach (i32.const 1024)))
    (call $scribble)))
