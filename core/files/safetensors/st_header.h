/* Reads the headers of safetensors files: their tensors and metadata. */
#ifndef LATHE_FILES_ST_HEADER_H
#define LATHE_FILES_ST_HEADER_H

#include <jansson.h>

#include "base/arena.h"
#include "files/safetensors/st_tensor.h"
#include "lathe/status.h"

typedef struct lathe_st_table {
    lathe_arena arena;        /* names */
    lathe_st_tensor *tensors; /* malloc'ed */
    int64_t n, capacity;
    json_t *metadata;  /* members of __metadata__; the first file that has a key gives its value */
    int32_t takes_all; /* 1: tensors of other dtypes and ranks are taken as bytes */
} lathe_st_table;

/** Appends the tensors of one file, bytes[0, n), which must outlive the table, and adds its
 *  metadata. `file` is its path, borrowed. LATHE_E_CORRUPT and LATHE_E_UNSUPPORTED name file and
 *  tensor. */
lathe_status lathe__st_table_add(lathe_st_table *table, const char *file, const uint8_t *bytes,
                                 int64_t n);

#endif
