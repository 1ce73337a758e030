/* Weights that stay in a packed format while a product is computed: how a device decodes a part.
 *
 * A device that sets lathe_device_info.packed_weights may be asked for LINEAR, LINEARS, LINEAR_DX,
 * LINEAR_GELU and LINEAR_DX_GELU with a W of dtype LATHE_PLANES. The pointer of such an input is
 * `const void *const [LATHE_MAX_PLANES]`, its planes in the order of lathe_quant_v1.planes(), and
 * lathe_kernel_problem.weights says how they are decoded. The device holds no more of W at a time
 * than a part for each thread, and counts these in the kernel's scratch. What it multiplies are the
 * numbers of lathe_quant_v1.decode() in the dtype of x, or, if x is bf16 and the format has
 * lathe_quant_v1.codes, numbers at least as near to those of decode() in F32. A format with
 * lathe_quant_v1.activations may ask that x be quantized too; only devices that say so in
 * lathe_device_info.activations are then given such a W.
 */
#ifndef LATHE_PACKED_H
#define LATHE_PACKED_H

#include "abi.h"

/** The dtype of a W [O,I] that stays in its planes. No tensor has it. */
#define LATHE_PLANES (-2)

/** A part of W [O,I]: columns [col, col + cols) of `runs` runs of `rows` rows. Run k begins at row
 *  `row + k * distance`. Plain data. */
typedef struct lathe_weight_part {
    int64_t row, rows;
    int64_t runs, distance; /* 1, 0: neighbouring rows */
    int64_t col, cols;      /* col is a multiple of LATHE_PART_COLS, and so is cols, unless the part
                               ends at the last column */
    int64_t stride;         /* elements from one decoded row to the next, >= cols */
} lathe_weight_part;
LATHE_ABI_SIZE(lathe_weight_part, 56);
#define LATHE_PART_COLS 512

/** How the rows of a format lie in memory. Plain data. */
typedef struct lathe_part_rows {
    int64_t rows; /* parts are fastest whose `row` and `rows` are multiples of this, >= 1: rows that
                     share cache lines, as in a transposed layout */
    /* Rows r, r + distance, ..., `runs` of them, share bytes: a part that has all of them reads
     * each byte once. distance * runs is the number of rows. 1, 0: no rows do. */
    int64_t runs, distance;
} lathe_part_rows;
LATHE_ABI_SIZE(lathe_part_rows, 24);

/** How codes lie in their plane. */
enum {
    /* Row by row of W. */
    LATHE_CODES_LOW_FIRST = 0,  /* two codes in a byte, the first in the low four bits */
    LATHE_CODES_HIGH_FIRST = 1, /* the same, the first in the high four bits */
    LATHE_CODES_BYTES = 2,      /* [O * bits / 8, I] bytes: byte i of row r has column i of the rows
                                   r, r + O * bits / 8, ..., the first in the highest bits */
    LATHE_CODES_PAIRS = 3,      /* [O/2][I/64][2][64] bytes: 64 columns of a row, then those of the
                                   next; within 16, columns of the first and second half in turn */
    /* Input by input, in words of 32 bits. */
    LATHE_CODES_DOWN = 4, /* [I * bits / 32, O]: columns of one row, the first in the lowest bits */
    LATHE_CODES_ALONG = 5 /* [I, O / 8]: eight rows, in the order 0 2 4 6 1 3 5 7 */
};

/** Meanings of codes of eight bits. */
enum {
    LATHE_VALUES_TABLE = 0, /* fewer bits: lathe_weight_codes.table */
    LATHE_VALUES_U8 = 1,
    LATHE_VALUES_I8 = 2,
    LATHE_VALUES_E4M3 = 3 /* lathe/fp8.h; 0x7f and 0xff are NaN */
};

/** How the codes of a weight lie and what they stand for, for devices that multiply codes in bf16
 *  and scale the sum of each group of columns:
 *
 *    W[o,i] = scale[o,g] * value(code[o,i]) + offset[o,g],  g = i / group
 *
 *  lathe_quant_v1.codes() fills *out, which is zero on entry, and returns 1; 0: there are no such
 *  codes, and the device decodes. planes NULL: as far as it does not depend on them; a device asks
 *  so when it makes a kernel. With planes, which may decide that there are none, it asks in each
 *  run, on one thread; only the table may be another one then.
 *
 *  lathe_quant_v1.part_scales() computes the scales and offsets of a part of whole groups, on any
 *  thread, as decode_part. Of codes that lie row by row: scales [runs * rows][groups of the part],
 *  else [groups][rows]; part->stride floats from one to the next. offsets is NULL without
 *  has_offsets. The part's row is a multiple of 128 with words, of 2 with PAIRS; with BYTES it has
 *  all runs.
 *
 *  Plain data. */
typedef struct lathe_weight_codes {
    int32_t order;       /* LATHE_CODES_* */
    int32_t bits;        /* 4; BYTES: 1, 2, 4 or 8; PAIRS: 8; DOWN: 2, 4 or 8 */
    int32_t values;      /* LATHE_VALUES_* */
    int32_t plane;       /* that has the codes */
    int32_t has_offsets; /* 0: all offsets are 0 */
    int32_t reserved;    /* 0 */
    int64_t group;       /* columns that share scale and offset; it divides the row. LOW_FIRST,
                            HIGH_FIRST: 16, 32, 64 or 128. With words, and with BYTES of fewer than
                            8 bits: a power of two from 32 to LATHE_PART_COLS. Else: a multiple of
                            16, or the row; if it does not divide the row, the last is short */
    float table[16];     /* of the 2^bits codes of fewer than 8 bits. Devices round it to bf16, so a
                            format whose values have more bits may choose a factor that loses less,
                            and divide the scales by it */
} lathe_weight_codes;
LATHE_ABI_SIZE(lathe_weight_codes, 96);

/** How products y = x W^T with a weight quantize the rows of x, which is computed from the batch.
 *  With dtype LATHE_I8, for each row x [I], s = max |x_i| over the elements that are no outliers:
 *
 *    outliers: |x_i| >= threshold, if threshold > 0
 *    c_i = x_i (127 / s) rounded to even; 0 for outliers, and if 127 / s is infinite
 *    y_o = scale_o ((s / 127) sum_i c_i code_oi + sum_outliers x_i code_oi)
 *
 *  The first sum is exact, the second in f32. A row with an element that is not finite gives NaN in
 *  every output. The bits of a row depend on no other row. Derivatives are those of the product
 * with the decoded weight and x as it is.
 *
 *  lathe_quant_v1.activations() fills *out and returns 1; the weight then has codes of order BYTES,
 * 8 bits, values I8, one group and no offsets, and at most LATHE_ACTIVATION_COLS columns. 0, or no
 *  such function: products take x as it is. Plain data. */
typedef struct lathe_activations {
    int32_t dtype;   /* LATHE_I8 */
    float threshold; /* finite, >= 0 */
} lathe_activations;
LATHE_ABI_SIZE(lathe_activations, 8);
#define LATHE_ACTIVATION_COLS 131072 /* columns whose sums of codes 32 bits hold */

/** The codes of a part, for formats whose elements are each one of 16 values that a group of
 * columns shares: a device may multiply them without decoding. Plain data.
 *
 *  lathe_quant_v1.code_group() returns the columns of a group; the row's and LATHE_PART_COLS are
 *  multiples of it, and it is one of 32. 0: this weight has no such codes.
 *  lathe_quant_v1.part_codes() fills *out and values [runs * rows][cols / group][16], rounded to
 * dtype as decode_part rounds. Codes that do not lie as *out can say are copied to room, which has
 *  [runs * rows * cols / 2] bytes and 64-byte alignment. Returns 0 if the planes of this part do
 * not allow it; the device then decodes. */
typedef struct lathe_part_codes {
    const uint8_t *codes; /* of the first row's first column */
    int64_t row_bytes,
        run_bytes;  /* from one row to the next of its run; from one run to the next */
    int32_t layout; /* LOW_FIRST, HIGH_FIRST or BYTES: one code in a byte, from bit `shift`
                       on; bits above it may be set, so that values repeat where codes
                       have fewer than four bits */
    int32_t shift, run_shift; /* BYTES: lowest bit of a code in the first run; what a further
                                 run adds */
    int32_t reserved;         /* 0 */
} lathe_part_codes;
LATHE_ABI_SIZE(lathe_part_codes, 40);
#define LATHE_CODE_VALUES 16

struct lathe_quant_v1;

/** The format of a weight: an instance of a quant plugin whose table has decode_part. The table and
 *  the instance outlive every kernel. Plain data. */
typedef struct lathe_packed_weight {
    const struct lathe_quant_v1 *table; /* NULL: this input is an ordinary tensor */
    void *self;
} lathe_packed_weight;
LATHE_ABI_SIZE(lathe_packed_weight, 16);

#endif
