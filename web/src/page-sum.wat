;; Sums of pages: by them a page that has changed is told from one that has not, and bytes that were
;; written from bytes that were damaged.
;;
;; Eight sums of 64 bits, two a vector: each line of 64 bytes adds to every sum the product of the two
;; halves of one word, and its neighbour as it is, so that a change in one word changes them. The
;; keys, which make words of other places count otherwise, grow with each line. At the end the eight
;; become one.
(module
  (import "applet" "memory" (memory 0))
  ;; The upper 53 bits of the sum of a page: one number in JavaScript, too.
  (func (export "sum") (param $at i32) (result f64)
    (f64.convert_i64_u (i64.shr_u (call $page (local.get $at)) (i64.const 11))))
  ;; The sum of whole pages up to $end, that come behind those of $sum.
  (func (export "chain") (param $sum i64) (param $at i32) (param $end i32) (result i64)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $sum
          (i64.mul
            (i64.xor
              (i64.rotl (local.get $sum) (i64.const 23))
              (call $page (local.get $at)))
            (i64.const 0x9e3779b97f4a7c15)))
        (local.set $at (i32.add (local.get $at) (i32.const 4096)))
        (br $next)))
    (local.get $sum))
  ;; $at is a multiple of 4096.
  (func $page (param $at i32) (result i64)
    (local $end i32) (local $sum i64) (local $words v128) (local $keyed v128)
    (local $sums0 v128) (local $key0 v128)
    (local $sums1 v128) (local $key1 v128)
    (local $sums2 v128) (local $key2 v128)
    (local $sums3 v128) (local $key3 v128)
    (local.set $key0 (v128.const i64x2 0xb9096a04e7d80068 0xc963cfe0afae5a3b))
    (local.set $key1 (v128.const i64x2 0xe1454c40c439f34a 0x26b563b1e794ee14))
    (local.set $key2 (v128.const i64x2 0xac8be7d742840d2b 0xd96e5adfa2beee31))
    (local.set $key3 (v128.const i64x2 0x19fcfc64e7aa8576 0x53d23c0bdf43efb2))
    (local.set $end (i32.add (local.get $at) (i32.const 4096)))
    (loop $line
      (local.set $words (v128.load (local.get $at)))
      (local.set $keyed (v128.xor (local.get $words) (local.get $key0)))
      (local.set $key0
        (i64x2.add (local.get $key0) (v128.const i64x2 0xe7ca430e92ac3d42 0x06e82a012b5c5cd1)))
      (local.set $sums0
        (i64x2.add
          (i64x2.add
            (local.get $sums0)
            (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7
              (local.get $words) (local.get $words)))
          (i64x2.extmul_low_i32x4_u
            (i8x16.shuffle 0 1 2 3 8 9 10 11 0 1 2 3 8 9 10 11
              (local.get $keyed) (local.get $keyed))
            (i8x16.shuffle 4 5 6 7 12 13 14 15 4 5 6 7 12 13 14 15
              (local.get $keyed) (local.get $keyed)))))
      (local.set $words (v128.load offset=16 (local.get $at)))
      (local.set $keyed (v128.xor (local.get $words) (local.get $key1)))
      (local.set $key1
        (i64x2.add (local.get $key1) (v128.const i64x2 0xe7ca430e92ac3d42 0x06e82a012b5c5cd1)))
      (local.set $sums1
        (i64x2.add
          (i64x2.add
            (local.get $sums1)
            (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7
              (local.get $words) (local.get $words)))
          (i64x2.extmul_low_i32x4_u
            (i8x16.shuffle 0 1 2 3 8 9 10 11 0 1 2 3 8 9 10 11
              (local.get $keyed) (local.get $keyed))
            (i8x16.shuffle 4 5 6 7 12 13 14 15 4 5 6 7 12 13 14 15
              (local.get $keyed) (local.get $keyed)))))
      (local.set $words (v128.load offset=32 (local.get $at)))
      (local.set $keyed (v128.xor (local.get $words) (local.get $key2)))
      (local.set $key2
        (i64x2.add (local.get $key2) (v128.const i64x2 0xe7ca430e92ac3d42 0x06e82a012b5c5cd1)))
      (local.set $sums2
        (i64x2.add
          (i64x2.add
            (local.get $sums2)
            (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7
              (local.get $words) (local.get $words)))
          (i64x2.extmul_low_i32x4_u
            (i8x16.shuffle 0 1 2 3 8 9 10 11 0 1 2 3 8 9 10 11
              (local.get $keyed) (local.get $keyed))
            (i8x16.shuffle 4 5 6 7 12 13 14 15 4 5 6 7 12 13 14 15
              (local.get $keyed) (local.get $keyed)))))
      (local.set $words (v128.load offset=48 (local.get $at)))
      (local.set $keyed (v128.xor (local.get $words) (local.get $key3)))
      (local.set $key3
        (i64x2.add (local.get $key3) (v128.const i64x2 0xe7ca430e92ac3d42 0x06e82a012b5c5cd1)))
      (local.set $sums3
        (i64x2.add
          (i64x2.add
            (local.get $sums3)
            (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7
              (local.get $words) (local.get $words)))
          (i64x2.extmul_low_i32x4_u
            (i8x16.shuffle 0 1 2 3 8 9 10 11 0 1 2 3 8 9 10 11
              (local.get $keyed) (local.get $keyed))
            (i8x16.shuffle 4 5 6 7 12 13 14 15 4 5 6 7 12 13 14 15
              (local.get $keyed) (local.get $keyed)))))
      (local.set $at (i32.add (local.get $at) (i32.const 64)))
      (br_if $line (i32.ne (local.get $at) (local.get $end))))
    (local.set $sum
      (i64.mul
        (i64.xor (local.get $sum) (i64x2.extract_lane 0 (local.get $sums0)))
        (i64.const 0x9e3779b97f4a7c15)))
    (local.set $sum (i64.xor (local.get $sum) (i64.shr_u (local.get $sum) (i64.const 29))))
    (local.set $sum
      (i64.mul
        (i64.xor (local.get $sum) (i64x2.extract_lane 1 (local.get $sums0)))
        (i64.const 0x9e3779b97f4a7c15)))
    (local.set $sum (i64.xor (local.get $sum) (i64.shr_u (local.get $sum) (i64.const 29))))
    (local.set $sum
      (i64.mul
        (i64.xor (local.get $sum) (i64x2.extract_lane 0 (local.get $sums1)))
        (i64.const 0x9e3779b97f4a7c15)))
    (local.set $sum (i64.xor (local.get $sum) (i64.shr_u (local.get $sum) (i64.const 29))))
    (local.set $sum
      (i64.mul
        (i64.xor (local.get $sum) (i64x2.extract_lane 1 (local.get $sums1)))
        (i64.const 0x9e3779b97f4a7c15)))
    (local.set $sum (i64.xor (local.get $sum) (i64.shr_u (local.get $sum) (i64.const 29))))
    (local.set $sum
      (i64.mul
        (i64.xor (local.get $sum) (i64x2.extract_lane 0 (local.get $sums2)))
        (i64.const 0x9e3779b97f4a7c15)))
    (local.set $sum (i64.xor (local.get $sum) (i64.shr_u (local.get $sum) (i64.const 29))))
    (local.set $sum
      (i64.mul
        (i64.xor (local.get $sum) (i64x2.extract_lane 1 (local.get $sums2)))
        (i64.const 0x9e3779b97f4a7c15)))
    (local.set $sum (i64.xor (local.get $sum) (i64.shr_u (local.get $sum) (i64.const 29))))
    (local.set $sum
      (i64.mul
        (i64.xor (local.get $sum) (i64x2.extract_lane 0 (local.get $sums3)))
        (i64.const 0x9e3779b97f4a7c15)))
    (local.set $sum (i64.xor (local.get $sum) (i64.shr_u (local.get $sum) (i64.const 29))))
    (local.set $sum
      (i64.mul
        (i64.xor (local.get $sum) (i64x2.extract_lane 1 (local.get $sums3)))
        (i64.const 0x9e3779b97f4a7c15)))
    (local.set $sum (i64.xor (local.get $sum) (i64.shr_u (local.get $sum) (i64.const 29))))
    (local.get $sum)))
