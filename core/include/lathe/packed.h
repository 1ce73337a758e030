/* Weights that stay in a packed format while a product is computed: how a device decodes a part.
 *
 * A device that sets lathe_device_info.packed_weights may be asked for LINEAR, LINEARS, LINEAR_DX,
 * LINEAR_GELU and LINEAR_DX_GELU with a W of dtype LATHE_PLANES. The pointer of such an input is
 * `const void *const [LATHE_MAX_PLANES]`, its planes in the order of lathe_quant_v1.planes(), and
 * lathe_kernel_problem.weights says how they are decoded. The device holds no more of W at a time
 * than a part for each thread, and counts these in the kernel's scratch. What it multiplies are the
 * numbers of lathe_quant_v1.decode() in the dtype of x.
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
        run_bytes;            /* from one row to the next of its run; from one run to the next */
    int32_t layout;           /* LATHE_CODES_* */
    int32_t shift, run_shift; /* BYTES: lowest bit of a code in the first run; what a further
                                 run adds */
    int32_t reserved;         /* 0 */
} lathe_part_codes;
LATHE_ABI_SIZE(lathe_part_codes, 40);
enum {
    LATHE_CODES_LOW_FIRST = 0,  /* two codes in a byte, the first in the low four bits */
    LATHE_CODES_HIGH_FIRST = 1, /* the same, the first in the high four bits */
    LATHE_CODES_BYTES = 2 /* one code in a byte, from bit `shift` on; bits above it may be set,
                             so that values repeat where codes have fewer than four bits */
};
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
