/* The loops of int8_product.c, for the instructions that the processor has. */
#ifndef LATHE_CPU_INT8_LOOPS_H
#define LATHE_CPU_INT8_LOOPS_H

#include "products/int8_simd.h"

/* Sums that a loop keeps in registers: rows of x by vectors of outputs. */
#if VL == 16
#define INT8_TILE_ROWS 6
#define INT8_VECTORS 4
#else
#define INT8_TILE_ROWS 4
#define INT8_VECTORS 2
#endif
#define INT8_TILE (INT8_VECTORS * VL) /* outputs of a tile */
#define INT8_OUTPUTS 64               /* outputs of a part: whole tiles */
#define INT8_FEW_ROWS 4               /* rows of x up to which the weight is read as it lies */

#define INT8_AHEAD 8192 /* bytes from codes to those that are prefetched meanwhile */

/** INT8_TILE outputs: for every four columns those of each output, with 128 added to each code. */
typedef struct int8_panel {
    const uint8_t *codes; /* [stride / 4][INT8_TILE][4] */
    const int8_t *x;      /* [rows][stride] */
    int64_t stride;
    int32_t *sums; /* out, [rows] INT8_OUTPUTS apart: of (code + 128) * x, modulo 2^32 */
} int8_panel;

/** Rows of the weight as they lie. */
typedef struct int8_lines {
    const uint8_t *codes; /* [n][k] with sign */
    int64_t n, k;
    const int8_t *x; /* [rows][stride] */
    int64_t stride;
    int32_t *sums; /* as above */
} int8_lines;

typedef struct int8_loops {
    void (*panel)(const int8_panel *p, int64_t rows); /* rows <= INT8_TILE_ROWS */
    void (*lines)(const int8_lines *p, int64_t rows); /* rows <= INT8_FEW_ROWS */
} int8_loops;

/** The fastest loops of this build on this processor; with dots 0 those that do without
 * instructions for products of four bytes. */
const int8_loops *cpu_int8_loops(int dots);

#endif
