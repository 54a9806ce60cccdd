;; Takes volatile memory until it gets no more, then fails as a C program does.
(module
  (memory (export "memory") 1)
  (func $take_all
    (loop $more
      (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))
      unreachable))
  (func (export "_start") (call $take_all)))
