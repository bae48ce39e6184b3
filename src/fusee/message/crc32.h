/* CRC-32 as zlib computes it (polynomial 0x04C11DB7, reflected), for the compiled modules: no Python object per sum.
 *
 * Where the processor multiplies without carries, 64 bytes are folded at a time. A CRC is the remainder of a polynomial
 * over GF(2); what lies n bits in front of the end may be replaced by itself times x^n modulo the polynomial, so four
 * 128-bit registers are each moved 512 bits on by two multiplications and added to what lies there. The constants are
 * those powers of x (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel
 * 2009). The last 128 bits are reduced to 32 by the same means, and what is left behind the last 16 bytes goes by table.
 *
 * Newer ones multiply four times 128 bits at once: there 256 bytes are folded at a time, each register 2048 bits on, and
 * bytes that are to be copied are stored as they pass. Elsewhere eight bytes at a time go through eight tables. All are
 * compared with zlib's by tests.
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

#define FUSEE_CRC_BY_512 0x01C6E41596, 0x0154442BD4
#define FUSEE_CRC_BY_128 0x00CCAA009E, 0x01751997D0

/* 128 bits to 96, to 64, and by Barrett's reduction to 32. */
FUSEE_CRC_TARGET static inline uint32_t fusee_crc_reduce(__m128i a) {
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163CD6124);
    const __m128i reduction = _mm_set_epi64x(0x01F7011641, 0x01DB710641);
    const __m128i low_halves = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i rest;
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, _mm_set_epi64x(FUSEE_CRC_BY_128), 0x10));
    rest = _mm_srli_si128(a, 4);
    a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low_halves), by_64, 0x00), rest);
    rest = _mm_clmulepi64_si128(_mm_and_si128(a, low_halves), reduction, 0x10);
    rest = _mm_clmulepi64_si128(_mm_and_si128(rest, low_halves), reduction, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, rest), 1);
}

/* `size` is at least 64 and a multiple of 16. */
FUSEE_CRC_TARGET static uint32_t fusee_crc_by_folding(uint32_t crc, const unsigned char *at, size_t size) {
    const __m128i by_512 = _mm_set_epi64x(FUSEE_CRC_BY_512), by_128 = _mm_set_epi64x(FUSEE_CRC_BY_128);
    __m128i a = _mm_xor_si128(fusee_crc_load(at), _mm_cvtsi32_si128((int)crc));
    __m128i b = fusee_crc_load(at + 16), c = fusee_crc_load(at + 32), d = fusee_crc_load(at + 48);
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64) {
        a = fusee_crc_fold(a, by_512, fusee_crc_load(at));
        b = fusee_crc_fold(b, by_512, fusee_crc_load(at + 16));
        c = fusee_crc_fold(c, by_512, fusee_crc_load(at + 32));
        d = fusee_crc_fold(d, by_512, fusee_crc_load(at + 48));
    }
    a = fusee_crc_fold(fusee_crc_fold(fusee_crc_fold(a, by_128, b), by_128, c), by_128, d);
    for (; size >= 16; at += 16, size -= 16) a = fusee_crc_fold(a, by_128, fusee_crc_load(at));
    return fusee_crc_reduce(a);
}

#if (defined(__GNUC__) && __GNUC__ >= 9) || (defined(__clang__) && __clang_major__ >= 9)
#define FUSEE_CRC_FOLDS_WIDE 1
#define FUSEE_CRC_WIDE_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

FUSEE_CRC_WIDE_TARGET static inline __m512i fusee_crc_fold_wide(__m512i value, __m512i powers, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(value, powers, 0x00), high = _mm512_clmulepi64_epi128(value, powers, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* exclusive or of all three */
}

FUSEE_CRC_WIDE_TARGET __attribute__((always_inline)) static inline __m512i fusee_crc_pass(unsigned char *into, const unsigned char *at, size_t place) {
    __m512i value = _mm512_loadu_si512((const void *)(at + place));
    if (into) _mm512_storeu_si512((void *)(into + place), value);
    return value;
}

/* The same, with a copy `into` if that is given. `size` is at least 256 and a multiple of 16. */
FUSEE_CRC_WIDE_TARGET __attribute__((always_inline)) static inline uint32_t fusee_crc_by_wide_folding(
    uint32_t crc, unsigned char *into, const unsigned char *at, size_t size
) {
    const __m128i by_128 = _mm_set_epi64x(FUSEE_CRC_BY_128);
    const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(FUSEE_CRC_BY_512));
    const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01322D1430, 0x011542778A));
    size_t place = 256;
    __m512i a = _mm512_xor_si512(
        fusee_crc_pass(into, at, 0), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc))
    );
    __m512i b = fusee_crc_pass(into, at, 64), c = fusee_crc_pass(into, at, 128), d = fusee_crc_pass(into, at, 192);
    __m128i rest;
    for (; place + 256 <= size; place += 256) {
        a = fusee_crc_fold_wide(a, by_2048, fusee_crc_pass(into, at, place));
        b = fusee_crc_fold_wide(b, by_2048, fusee_crc_pass(into, at, place + 64));
        c = fusee_crc_fold_wide(c, by_2048, fusee_crc_pass(into, at, place + 128));
        d = fusee_crc_fold_wide(d, by_2048, fusee_crc_pass(into, at, place + 192));
    }
    a = fusee_crc_fold_wide(fusee_crc_fold_wide(fusee_crc_fold_wide(a, by_512, b), by_512, c), by_512, d);
    for (; place + 64 <= size; place += 64) a = fusee_crc_fold_wide(a, by_512, fusee_crc_pass(into, at, place));
    rest = fusee_crc_fold(_mm512_castsi512_si128(a), by_128, _mm512_extracti32x4_epi32(a, 1));
    rest = fusee_crc_fold(rest, by_128, _mm512_extracti32x4_epi32(a, 2));
    rest = fusee_crc_fold(rest, by_128, _mm512_extracti32x4_epi32(a, 3));
    for (; place < size; place += 16) {
        __m128i value = fusee_crc_load(at + place);
        if (into) _mm_storeu_si128((__m128i *)(into + place), value);
        rest = fusee_crc_fold(rest, by_128, value);
    }
    return fusee_crc_reduce(rest);
}

/* Two functions, so that neither asks at each step whether bytes are to be copied. */
FUSEE_CRC_WIDE_TARGET static uint32_t fusee_crc_wide(uint32_t crc, const unsigned char *at, size_t size) {
    return fusee_crc_by_wide_folding(crc, NULL, at, size);
}

FUSEE_CRC_WIDE_TARGET static uint32_t fusee_crc_wide_copy(
    uint32_t crc, unsigned char *into, const unsigned char *at, size_t size
) {
    return fusee_crc_by_wide_folding(crc, into, at, size);
}
#endif
#endif

static int fusee_crc_state; /* 0: not begun, 1: tables only, 2: folds, 3: folds 512 bits */

/* Under the interpreter's lock, before the first sum. `state_max` leaves out what a processor could do. */
static void fusee_crc_begin_at_most(int state_max) {
    int state = 1;
    fusee_crc_fill_tables();
#ifdef FUSEE_CRC_FOLDS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        state = 2;
#ifdef FUSEE_CRC_FOLDS_WIDE
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) state = 3;
#endif
    }
#endif
    fusee_crc_state = state < state_max ? state : state_max;
}

static void fusee_crc_begin(void) { fusee_crc_begin_at_most(3); }

static uint32_t fusee_crc32(const unsigned char *at, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
#ifdef FUSEE_CRC_FOLDS
    size_t folded = size & ~(size_t)15;
#ifdef FUSEE_CRC_FOLDS_WIDE
    if (size >= 256 && fusee_crc_state == 3)
        crc = fusee_crc_wide(crc, at, folded);
    else
#endif
    if (size >= 64 && fusee_crc_state >= 2)
        crc = fusee_crc_by_folding(crc, at, folded);
    else
        folded = 0;
    at += folded;
    size -= folded;
#endif
    return ~fusee_crc_by_table(crc, at, size);
}

/* Copies, and sums what was copied: the bytes are read once, so the sum is of the copy whatever becomes of them. */
static uint32_t fusee_copy_crc32(unsigned char *into, const unsigned char *at, size_t size) {
#ifdef FUSEE_CRC_FOLDS_WIDE
    if (size >= 256 && fusee_crc_state == 3) {
        size_t folded = size & ~(size_t)15;
        uint32_t crc = fusee_crc_wide_copy(0xFFFFFFFFu, into, at, folded);
        memcpy(into + folded, at + folded, size - folded);
        return ~fusee_crc_by_table(crc, into + folded, size - folded);
    }
#endif
    memcpy(into, at, size);
    return fusee_crc32(into, size);
}

#endif
