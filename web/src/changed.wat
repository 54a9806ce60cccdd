;; Finds pages in which two memories differ: a heap in an applet's memory, and as it is stored.
(module
  (import "applet" "memory" (memory $applet 0))
  (import "stored" "memory" (memory $stored 0))
  ;; The first page from $ours on, below $end, that differs from the one as far from $theirs; $end
  ;; where none does. All are multiples of 4096.
  (func (export "changed") (param $ours i32) (param $theirs i32) (param $end i32) (result i32)
    (local $at i32)
    (local $stop i32)
    (block $done
      (loop $page
        (br_if $done (i32.ge_u (local.get $ours) (local.get $end)))
        (local.set $at (local.get $ours))
        (local.set $stop (i32.add (local.get $ours) (i32.const 4096)))
        (loop $line
          (if (v128.any_true
                (v128.or
                  (v128.or
                    (v128.xor (v128.load $applet (local.get $at))
                              (v128.load $stored (local.get $theirs)))
                    (v128.xor (v128.load $applet offset=16 (local.get $at))
                              (v128.load $stored offset=16 (local.get $theirs))))
                  (v128.or
                    (v128.xor (v128.load $applet offset=32 (local.get $at))
                              (v128.load $stored offset=32 (local.get $theirs)))
                    (v128.xor (v128.load $applet offset=48 (local.get $at))
                              (v128.load $stored offset=48 (local.get $theirs))))))
            (then (return (local.get $ours))))
          (local.set $theirs (i32.add (local.get $theirs) (i32.const 64)))
          (local.set $at (i32.add (local.get $at) (i32.const 64)))
          (br_if $line (i32.lt_u (local.get $at) (local.get $stop))))
        (local.set $ours (local.get $stop))
        (br $page)))
    (local.get $end)))
