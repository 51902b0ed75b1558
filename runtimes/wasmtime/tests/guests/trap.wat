(module
  (memory (export "memory") 1)
  (func $deep unreachable)
  (func (export "_start") (call $deep)))
