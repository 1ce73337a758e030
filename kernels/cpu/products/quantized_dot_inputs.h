/* Rows of activations in the orders in which products with codes read them (quantized_dot.h), and
 * their sums over groups of columns. */
#ifndef LATHE_CPU_QUANTIZED_DOT_INPUTS_H
#define LATHE_CPU_QUANTIZED_DOT_INPUTS_H

#include "base/cpu.h"
#include "lathe/packed.h"
#include "shared/matmul_spec.h"

/** In which order a row lies, and over what it is summed. Products whose layouts are equal share
 *  one. */
typedef struct dot_layout {
    int32_t order, bits; /* of lathe_weight_codes */
    int64_t group;       /* 0: no sums */
    int64_t cols;
    int64_t row_bytes, sums; /* bytes of a row; floats of its sums: whole vectors */
} dot_layout;

/** The layout that these codes of `cols` columns need. */
dot_layout dot_layout_of(const lathe_weight_codes *codes, int64_t cols);
int dot_layout_equal(const dot_layout *a, const dot_layout *b);
/** Bytes of m rows and their sums; the sums begin at m * row_bytes. */
int64_t dot_layout_bytes(const dot_layout *layout, int64_t m);

/** Fills `to` from the bf16 rows a [m][cols]. Columns beyond the last are zeros. */
void dot_layout_fill(const lathe_host *host, const dot_layout *layout, const uint16_t *a, int64_t m,
                     char *to);

#endif
