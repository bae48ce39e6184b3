/* CRC-32 as zlib computes it (polynomial 0x04C11DB7, reflected), for the compiled modules: no Python object per sum.
 *
 * Where the processor multiplies without carries, 64 bytes are folded at a time. A CRC is the remainder of a polynomial
 * over GF(2); what lies n bits in front of the end may be replaced by itself times x^n modulo the polynomial, so four
 * 128-bit registers are each moved 512 bits on by two multiplications and added to what lies there. The constants are
 * those powers of x (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel
 * 2009). The last 128 bits are reduced to 32 by the same means, and what is left behind the last 16 bytes goes by table.
 *
 * Elsewhere eight bytes at a time go through eight tables. Both are compared with zlib's by tests.
 */
#ifndef FUSEE_CRC32_H
#define FUSEE_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t fusee_crc_tables[8][256];

static void fusee_crc_fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        fusee_crc_tables[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int table = 1; table < 8; table++) {
            uint32_t before = fusee_crc_tables[table - 1][byte];
            fusee_crc_tables[table][byte] = before >> 8 ^ fusee_crc_tables[0][before & 0xFF];
        }
}

/* `crc` is the state, which begins as all ones and is inverted at the end. */
static uint32_t fusee_crc_by_table(uint32_t crc, const unsigned char *at, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = fusee_crc_tables[7][low & 0xFF] ^ fusee_crc_tables[6][low >> 8 & 0xFF] ^
              fusee_crc_tables[5][low >> 16 & 0xFF] ^ fusee_crc_tables[4][low >> 24] ^ fusee_crc_tables[3][at[4]] ^
              fusee_crc_tables[2][at[5]] ^ fusee_crc_tables[1][at[6]] ^ fusee_crc_tables[0][at[7]];
        at += 8;
        size -= 8;
    }
    while (size--) crc = crc >> 8 ^ fusee_crc_tables[0][(crc ^ *at++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define FUSEE_CRC_FOLDS 1
#include <immintrin.h>

#define FUSEE_CRC_TARGET __attribute__((target("pclmul,sse4.1")))

FUSEE_CRC_TARGET static inline __m128i fusee_crc_fold(__m128i value, __m128i powers, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(value, powers, 0x00), high = _mm_clmulepi64_si128(value, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FUSEE_CRC_TARGET static inline __m128i fusee_crc_load(const unsigned char *at) {
    return _mm_loadu_si128((const __m128i *)at);
}

/* `size` is at least 64 and a multiple of 16. */
FUSEE_CRC_TARGET static uint32_t fusee_crc_by_folding(uint32_t crc, const unsigned char *at, size_t size) {
    const __m128i by_512 = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4);
    const __m128i by_128 = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163CD6124);
    const __m128i reduction = _mm_set_epi64x(0x01F7011641, 0x01DB710641);
    const __m128i low_halves = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i a = _mm_xor_si128(fusee_crc_load(at), _mm_cvtsi32_si128((int)crc));
    __m128i b = fusee_crc_load(at + 16), c = fusee_crc_load(at + 32), d = fusee_crc_load(at + 48);
    __m128i rest;
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64) {
        a = fusee_crc_fold(a, by_512, fusee_crc_load(at));
        b = fusee_crc_fold(b, by_512, fusee_crc_load(at + 16));
        c = fusee_crc_fold(c, by_512, fusee_crc_load(at + 32));
        d = fusee_crc_fold(d, by_512, fusee_crc_load(at + 48));
    }
    a = fusee_crc_fold(fusee_crc_fold(fusee_crc_fold(a, by_128, b), by_128, c), by_128, d);
    for (; size >= 16; at += 16, size -= 16) a = fusee_crc_fold(a, by_128, fusee_crc_load(at));
    /* 128 bits to 96, to 64, and by Barrett's reduction to 32 */
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_128, 0x10));
    rest = _mm_srli_si128(a, 4);
    a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low_halves), by_64, 0x00), rest);
    rest = _mm_clmulepi64_si128(_mm_and_si128(a, low_halves), reduction, 0x10);
    rest = _mm_clmulepi64_si128(_mm_and_si128(rest, low_halves), reduction, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, rest), 1);
}
#endif

static int fusee_crc_state; /* 0: not begun, 1: tables only, 2: folds */

/* Under the interpreter's lock, before the first sum. */
static void fusee_crc_begin(void) {
    fusee_crc_fill_tables();
    fusee_crc_state = 1;
#ifdef FUSEE_CRC_FOLDS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) fusee_crc_state = 2;
#endif
}

static uint32_t fusee_crc32(const unsigned char *at, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
#ifdef FUSEE_CRC_FOLDS
    if (size >= 64 && fusee_crc_state == 2) {
        size_t folded = size & ~(size_t)15;
        crc = fusee_crc_by_folding(crc, at, folded);
        at += folded;
        size -= folded;
    }
#endif
    return ~fusee_crc_by_table(crc, at, size);
}

#endif
