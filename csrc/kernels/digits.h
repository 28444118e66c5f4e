// Exact integer dot products of a group of 32 activations with 16 rows of weights, per instruction set.
//
//   store_payload(payload, first, last)   32 quantized activations (|q| <= 32639) to the 64 bytes that the dot products below read
//   load_payload(payload, q)              the way back, in natural order
//   dot_integers<bits, apart, rows>(w, payload, stride, start, sum)   sum[r] = start[r] + sum over c of q[r][c] * integer[n][c], integers
//   of
//                                         4, 5 or 6 bits in [0, 2^bits); apart: columns 0..15 in sum[r], 16..31 in sum[rows + r]
//   dot_int8<rows>(w, payload, stride, q_sum, stride, sum)   sum[r] = sum over c of q[r][c] * int8[n][c]
//
// Layout of w: packed_matrix.h. Everything fits int32: 32 * 32639 * 255 < 2^28.
#pragma once

#include "activations.h"
#include "packed_matrix.h"
#include "simd/vec16.h"

#if defined(__AVX512VNNI__)
#include "kernels/digits_vnni.h"
#elif defined(__AVX2__)
#include "kernels/digits_madd.h"
#else
#include "kernels/digits_portable.h"
#endif
