(module
  (import "env" "launch_missiles" (func))
  (memory (export "memory") 1)
  (func (export "_start")))
