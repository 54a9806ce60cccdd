;; Never returns.
(module
  (memory (export "memory") 1)
  (func $wait_for_nothing (loop $again (br $again)))
  (func (export "_start") (call $wait_for_nothing)))
