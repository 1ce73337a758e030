/* Rows of activations in the orders in which products with codes read them (code_sums.h), and their
 * sums over groups of columns. */
#ifndef LATHE_CPU_CODE_INPUTS_H
#define LATHE_CPU_CODE_INPUTS_H

#include "cpu.h"
#include "lathe/packed.h"
#include "matmul_spec.h"

/** In which order a row lies, and over what it is summed. Products whose forms are equal share
 *  one. */
typedef struct code_form {
    int32_t order, bits; /* of lathe_weight_codes */
    int64_t group;       /* 0: no sums */
    int64_t cols;
    int64_t row_bytes, sums; /* bytes of a row; floats of its sums: whole vectors */
} code_form;

/** The form that these codes of `cols` columns need. */
code_form code_form_of(const lathe_weight_codes *codes, int64_t cols);
int code_form_equal(const code_form *a, const code_form *b);
/** Bytes of m rows and their sums; the sums begin at m * row_bytes. */
int64_t code_form_bytes(const code_form *form, int64_t m);

/** Fills `to` from the bf16 rows a [m][cols]. Columns beyond the last are zeros. */
void code_form_fill(const lathe_host *host, const code_form *form, const uint16_t *a, int64_t m,
                    char *to);

#endif
