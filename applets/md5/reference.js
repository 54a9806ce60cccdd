"use strict";
// MD5 (RFC 1321) in JavaScript: what the applet is compared with. The same steps as md5.c, written out, as its macros
// are by the compiler: V8 inlines no 64 calls.

const x = new Int32Array(16);

/** Takes whole blocks of a DataView into the state. */
function takeBlocks(state, view, blocks) {
  let a = state[0];
  let b = state[1];
  let c = state[2];
  let d = state[3];
  for (let block = 0; block < blocks; block++) {
    const aBefore = a;
    const bBefore = b;
    const cBefore = c;
    const dBefore = d;
    for (let word = 0; word < 16; word++) x[word] = view.getInt32(64 * block + 4 * word, true);

    a = (a + x[0] + 0xd76aa478 + (d ^ (b & (c ^ d)))) | 0;
    a = (((a << 7) | (a >>> 25)) + b) | 0;
    d = (d + x[1] + 0xe8c7b756 + (c ^ (a & (b ^ c)))) | 0;
    d = (((d << 12) | (d >>> 20)) + a) | 0;
    c = (c + x[2] + 0x242070db + (b ^ (d & (a ^ b)))) | 0;
    c = (((c << 17) | (c >>> 15)) + d) | 0;
    b = (b + x[3] + 0xc1bdceee + (a ^ (c & (d ^ a)))) | 0;
    b = (((b << 22) | (b >>> 10)) + c) | 0;
    a = (a + x[4] + 0xf57c0faf + (d ^ (b & (c ^ d)))) | 0;
    a = (((a << 7) | (a >>> 25)) + b) | 0;
    d = (d + x[5] + 0x4787c62a + (c ^ (a & (b ^ c)))) | 0;
    d = (((d << 12) | (d >>> 20)) + a) | 0;
    c = (c + x[6] + 0xa8304613 + (b ^ (d & (a ^ b)))) | 0;
    c = (((c << 17) | (c >>> 15)) + d) | 0;
    b = (b + x[7] + 0xfd469501 + (a ^ (c & (d ^ a)))) | 0;
    b = (((b << 22) | (b >>> 10)) + c) | 0;
    a = (a + x[8] + 0x698098d8 + (d ^ (b & (c ^ d)))) | 0;
    a = (((a << 7) | (a >>> 25)) + b) | 0;
    d = (d + x[9] + 0x8b44f7af + (c ^ (a & (b ^ c)))) | 0;
    d = (((d << 12) | (d >>> 20)) + a) | 0;
    c = (c + x[10] + 0xffff5bb1 + (b ^ (d & (a ^ b)))) | 0;
    c = (((c << 17) | (c >>> 15)) + d) | 0;
    b = (b + x[11] + 0x895cd7be + (a ^ (c & (d ^ a)))) | 0;
    b = (((b << 22) | (b >>> 10)) + c) | 0;
    a = (a + x[12] + 0x6b901122 + (d ^ (b & (c ^ d)))) | 0;
    a = (((a << 7) | (a >>> 25)) + b) | 0;
    d = (d + x[13] + 0xfd987193 + (c ^ (a & (b ^ c)))) | 0;
    d = (((d << 12) | (d >>> 20)) + a) | 0;
    c = (c + x[14] + 0xa679438e + (b ^ (d & (a ^ b)))) | 0;
    c = (((c << 17) | (c >>> 15)) + d) | 0;
    b = (b + x[15] + 0x49b40821 + (a ^ (c & (d ^ a)))) | 0;
    b = (((b << 22) | (b >>> 10)) + c) | 0;

    a = (a + x[1] + 0xf61e2562 + (~d & c) + (d & b)) | 0;
    a = (((a << 5) | (a >>> 27)) + b) | 0;
    d = (d + x[6] + 0xc040b340 + (~c & b) + (c & a)) | 0;
    d = (((d << 9) | (d >>> 23)) + a) | 0;
    c = (c + x[11] + 0x265e5a51 + (~b & a) + (b & d)) | 0;
    c = (((c << 14) | (c >>> 18)) + d) | 0;
    b = (b + x[0] + 0xe9b6c7aa + (~a & d) + (a & c)) | 0;
    b = (((b << 20) | (b >>> 12)) + c) | 0;
    a = (a + x[5] + 0xd62f105d + (~d & c) + (d & b)) | 0;
    a = (((a << 5) | (a >>> 27)) + b) | 0;
    d = (d + x[10] + 0x02441453 + (~c & b) + (c & a)) | 0;
    d = (((d << 9) | (d >>> 23)) + a) | 0;
    c = (c + x[15] + 0xd8a1e681 + (~b & a) + (b & d)) | 0;
    c = (((c << 14) | (c >>> 18)) + d) | 0;
    b = (b + x[4] + 0xe7d3fbc8 + (~a & d) + (a & c)) | 0;
    b = (((b << 20) | (b >>> 12)) + c) | 0;
    a = (a + x[9] + 0x21e1cde6 + (~d & c) + (d & b)) | 0;
    a = (((a << 5) | (a >>> 27)) + b) | 0;
    d = (d + x[14] + 0xc33707d6 + (~c & b) + (c & a)) | 0;
    d = (((d << 9) | (d >>> 23)) + a) | 0;
    c = (c + x[3] + 0xf4d50d87 + (~b & a) + (b & d)) | 0;
    c = (((c << 14) | (c >>> 18)) + d) | 0;
    b = (b + x[8] + 0x455a14ed + (~a & d) + (a & c)) | 0;
    b = (((b << 20) | (b >>> 12)) + c) | 0;
    a = (a + x[13] + 0xa9e3e905 + (~d & c) + (d & b)) | 0;
    a = (((a << 5) | (a >>> 27)) + b) | 0;
    d = (d + x[2] + 0xfcefa3f8 + (~c & b) + (c & a)) | 0;
    d = (((d << 9) | (d >>> 23)) + a) | 0;
    c = (c + x[7] + 0x676f02d9 + (~b & a) + (b & d)) | 0;
    c = (((c << 14) | (c >>> 18)) + d) | 0;
    b = (b + x[12] + 0x8d2a4c8a + (~a & d) + (a & c)) | 0;
    b = (((b << 20) | (b >>> 12)) + c) | 0;

    a = (a + x[5] + 0xfffa3942 + (b ^ (c ^ d))) | 0;
    a = (((a << 4) | (a >>> 28)) + b) | 0;
    d = (d + x[8] + 0x8771f681 + (a ^ (b ^ c))) | 0;
    d = (((d << 11) | (d >>> 21)) + a) | 0;
    c = (c + x[11] + 0x6d9d6122 + (d ^ (a ^ b))) | 0;
    c = (((c << 16) | (c >>> 16)) + d) | 0;
    b = (b + x[14] + 0xfde5380c + (c ^ (d ^ a))) | 0;
    b = (((b << 23) | (b >>> 9)) + c) | 0;
    a = (a + x[1] + 0xa4beea44 + (b ^ (c ^ d))) | 0;
    a = (((a << 4) | (a >>> 28)) + b) | 0;
    d = (d + x[4] + 0x4bdecfa9 + (a ^ (b ^ c))) | 0;
    d = (((d << 11) | (d >>> 21)) + a) | 0;
    c = (c + x[7] + 0xf6bb4b60 + (d ^ (a ^ b))) | 0;
    c = (((c << 16) | (c >>> 16)) + d) | 0;
    b = (b + x[10] + 0xbebfbc70 + (c ^ (d ^ a))) | 0;
    b = (((b << 23) | (b >>> 9)) + c) | 0;
    a = (a + x[13] + 0x289b7ec6 + (b ^ (c ^ d))) | 0;
    a = (((a << 4) | (a >>> 28)) + b) | 0;
    d = (d + x[0] + 0xeaa127fa + (a ^ (b ^ c))) | 0;
    d = (((d << 11) | (d >>> 21)) + a) | 0;
    c = (c + x[3] + 0xd4ef3085 + (d ^ (a ^ b))) | 0;
    c = (((c << 16) | (c >>> 16)) + d) | 0;
    b = (b + x[6] + 0x04881d05 + (c ^ (d ^ a))) | 0;
    b = (((b << 23) | (b >>> 9)) + c) | 0;
    a = (a + x[9] + 0xd9d4d039 + (b ^ (c ^ d))) | 0;
    a = (((a << 4) | (a >>> 28)) + b) | 0;
    d = (d + x[12] + 0xe6db99e5 + (a ^ (b ^ c))) | 0;
    d = (((d << 11) | (d >>> 21)) + a) | 0;
    c = (c + x[15] + 0x1fa27cf8 + (d ^ (a ^ b))) | 0;
    c = (((c << 16) | (c >>> 16)) + d) | 0;
    b = (b + x[2] + 0xc4ac5665 + (c ^ (d ^ a))) | 0;
    b = (((b << 23) | (b >>> 9)) + c) | 0;

    a = (a + x[0] + 0xf4292244 + (c ^ (b | ~d))) | 0;
    a = (((a << 6) | (a >>> 26)) + b) | 0;
    d = (d + x[7] + 0x432aff97 + (b ^ (a | ~c))) | 0;
    d = (((d << 10) | (d >>> 22)) + a) | 0;
    c = (c + x[14] + 0xab9423a7 + (a ^ (d | ~b))) | 0;
    c = (((c << 15) | (c >>> 17)) + d) | 0;
    b = (b + x[5] + 0xfc93a039 + (d ^ (c | ~a))) | 0;
    b = (((b << 21) | (b >>> 11)) + c) | 0;
    a = (a + x[12] + 0x655b59c3 + (c ^ (b | ~d))) | 0;
    a = (((a << 6) | (a >>> 26)) + b) | 0;
    d = (d + x[3] + 0x8f0ccc92 + (b ^ (a | ~c))) | 0;
    d = (((d << 10) | (d >>> 22)) + a) | 0;
    c = (c + x[10] + 0xffeff47d + (a ^ (d | ~b))) | 0;
    c = (((c << 15) | (c >>> 17)) + d) | 0;
    b = (b + x[1] + 0x85845dd1 + (d ^ (c | ~a))) | 0;
    b = (((b << 21) | (b >>> 11)) + c) | 0;
    a = (a + x[8] + 0x6fa87e4f + (c ^ (b | ~d))) | 0;
    a = (((a << 6) | (a >>> 26)) + b) | 0;
    d = (d + x[15] + 0xfe2ce6e0 + (b ^ (a | ~c))) | 0;
    d = (((d << 10) | (d >>> 22)) + a) | 0;
    c = (c + x[6] + 0xa3014314 + (a ^ (d | ~b))) | 0;
    c = (((c << 15) | (c >>> 17)) + d) | 0;
    b = (b + x[13] + 0x4e0811a1 + (d ^ (c | ~a))) | 0;
    b = (((b << 21) | (b >>> 11)) + c) | 0;
    a = (a + x[4] + 0xf7537e82 + (c ^ (b | ~d))) | 0;
    a = (((a << 6) | (a >>> 26)) + b) | 0;
    d = (d + x[11] + 0xbd3af235 + (b ^ (a | ~c))) | 0;
    d = (((d << 10) | (d >>> 22)) + a) | 0;
    c = (c + x[2] + 0x2ad7d2bb + (a ^ (d | ~b))) | 0;
    c = (((c << 15) | (c >>> 17)) + d) | 0;
    b = (b + x[9] + 0xeb86d391 + (d ^ (c | ~a))) | 0;
    b = (((b << 21) | (b >>> 11)) + c) | 0;

    a = (a + aBefore) | 0;
    b = (b + bBefore) | 0;
    c = (c + cBefore) | 0;
    d = (d + dBefore) | 0;
  }
  state.set([a, b, c, d]);
}

/** The digest of a Uint8Array, in hexadecimal digits. */
function digest(message) {
  const state = Int32Array.from([0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476]);
  const whole = Math.floor(message.length / 64);
  takeBlocks(state, new DataView(message.buffer, message.byteOffset), whole);
  const filled = message.length - 64 * whole;
  const end = new Uint8Array(filled < 56 ? 64 : 128);
  end.set(message.subarray(64 * whole));
  end[filled] = 0x80;
  const view = new DataView(end.buffer);
  view.setBigUint64(end.length - 8, BigInt(message.length) * 8n, true);
  takeBlocks(state, view, end.length / 64);
  return Buffer.from(state.buffer).toString("hex");
}

module.exports = { digest };
