/* The table that lathe quantize prints: weights of one place in all layers are a line. */
#ifndef LATHE_CMD_QUANTIZE_TABLE_H
#define LATHE_CMD_QUANTIZE_TABLE_H

#include "lathe/jobs.h"

enum { LATHE_QUANTIZE_LINES = 32, LATHE_QUANTIZE_NAME = 96 };

typedef struct lathe_quantize_line {
    char name[LATHE_QUANTIZE_NAME]; /* "model.layers.*.mlp.up_proj.weight" */
    const char *format;             /* NULL: they have several */
    int64_t rows, cols;             /* 0: they have several shapes */
    int64_t n, n_numbers, n_bytes;
    double error; /* the largest relative error of them */
} lathe_quantize_line;

/** Zeros: empty. */
typedef struct lathe_quantize_table {
    lathe_quantize_line lines[LATHE_QUANTIZE_LINES]; /* the last one takes what finds no room */
    int32_t n;
} lathe_quantize_table;

void lathe_quantize_table_add(lathe_quantize_table *table, const lathe_job_weight *weight);
void lathe_quantize_table_print(const lathe_quantize_table *table);

#endif
