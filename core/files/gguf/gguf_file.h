/* Reads GGUF, the file format of llama.cpp: keys with values, then tensors, memory-mapped.
 *
 *   "GGUF", u32 version (2 or 3), u64 number of tensors, u64 number of keys;
 *   each key: text, u32 type, value;
 *   each tensor: text, u32 number of dimensions, u64 dimensions (the fastest first), u32 type,
 *   u64 offset in the data;
 *   padding to general.alignment (32), then the data.
 *
 * All numbers are little-endian; a text is a u64 length and that many bytes. Every count, length
 * and offset is compared with the size of the file before it is used. Texts must be UTF-8 without
 * NUL. A file that breaks a rule is refused with LATHE_E_CORRUPT, and one that uses what Lathe does
 * not read with LATHE_E_UNSUPPORTED; the message names the file, and the byte, key or tensor.
 */
#ifndef LATHE_FILES_GGUF_FILE_H
#define LATHE_FILES_GGUF_FILE_H

#include "files/gguf/gguf_type.h"
#include "lathe/status.h"
#include "lathe/tensor.h"

typedef struct lathe_gguf lathe_gguf;

/* Types of values; the numbers are those of the format. */
enum {
    LATHE_GGUF_U8 = 0,
    LATHE_GGUF_I8 = 1,
    LATHE_GGUF_U16 = 2,
    LATHE_GGUF_I16 = 3,
    LATHE_GGUF_U32 = 4,
    LATHE_GGUF_I32 = 5,
    LATHE_GGUF_FLOAT = 6,
    LATHE_GGUF_BOOL = 7,
    LATHE_GGUF_TEXT = 8,
    LATHE_GGUF_ARRAY = 9,
    LATHE_GGUF_U64 = 10,
    LATHE_GGUF_I64 = 11,
    LATHE_GGUF_DOUBLE = 12
};

/** A key and its value. Borrowed from the file. */
typedef struct lathe_gguf_entry {
    const char *key;
    int32_t type;        /* LATHE_GGUF_U8 ...; of an array: the type of its elements */
    int32_t is_array;    /* 1: n elements */
    int64_t n;           /* 1 for a value that is not an array */
    const uint8_t *data; /* the first element, as in the file */
    const uint8_t *end;  /* the byte after the last */
    int32_t is_read;     /* 1: lathe_gguf_value has given it */
} lathe_gguf_entry;

/** A tensor. dims are in Lathe's order, the slowest first. Borrowed from the file. */
typedef struct lathe_gguf_tensor {
    const char *name;
    const lathe_gguf_type *type;
    int32_t rank; /* 1 to 4 */
    int64_t dims[LATHE_MAX_RANK];
    int64_t rows, cols; /* cols: the last dimension; rows: the product of the others */
    int64_t bytes;
    const uint8_t *data;
} lathe_gguf_tensor;

/** Maps and checks a file. Errors: as above; LATHE_E_IO. */
lathe_status lathe_gguf_open(const char *path, lathe_gguf **out);

/** Checks the content of a file in memory, which must outlive the result; `name` is for
 *  messages. */
lathe_status lathe_gguf_parse(const char *name, const void *data, int64_t bytes, lathe_gguf **out);

/** Call it after the last read of tensors. LATHE_E_IO: the file became shorter or unreadable since
 *  it was opened. */
lathe_status lathe_gguf_check(const lathe_gguf *file);

/** Unmaps the file; NULL is fine. */
void lathe_gguf_close(lathe_gguf *file);

/** The path that was opened, or the name that was given: for messages. */
const char *lathe_gguf_path(const lathe_gguf *file);

int64_t lathe_gguf_count(const lathe_gguf *file);
const lathe_gguf_tensor *lathe_gguf_at(const lathe_gguf *file, int64_t i);
/** The tensor of that name, or NULL. */
const lathe_gguf_tensor *lathe_gguf_find(const lathe_gguf *file, const char *name);

int64_t lathe_gguf_value_count(const lathe_gguf *file);
const lathe_gguf_entry *lathe_gguf_value_at(const lathe_gguf *file, int64_t i);
/** The value of a key, which is then noted as read; or NULL. */
const lathe_gguf_entry *lathe_gguf_value(const lathe_gguf *file, const char *key);

/* ---- values; a missing key is no error: the default is given ---- */

/** A whole number of any integer type. LATHE_E_CONFIG: another type, or not in [lo, hi]. */
lathe_status lathe_gguf_int(const lathe_gguf *file, const char *key, int64_t lo, int64_t hi,
                            int64_t missing, int64_t *out);
/** A number of type f32 or f64. LATHE_E_CONFIG: another type, or not finite. */
lathe_status lathe_gguf_float(const lathe_gguf *file, const char *key, double missing, double *out);
lathe_status lathe_gguf_bool(const lathe_gguf *file, const char *key, int32_t missing,
                             int32_t *out);
/** A text, borrowed and without NUL at its end; *out NULL: there is no such key. */
lathe_status lathe_gguf_text(const lathe_gguf *file, const char *key, const char **out,
                             int64_t *out_bytes);
/** An array whose elements have the type; *out NULL: there is no such key. */
lathe_status lathe_gguf_array(const lathe_gguf *file, const char *key, int32_t type,
                              const lathe_gguf_entry **out);

/** The text at *at, which begins as array->data; moves *at to the next one. */
const char *lathe_gguf_next_text(const uint8_t **at, int64_t *out_bytes);
/** Element i of an array of f32 or i32. */
float lathe_gguf_float_at(const lathe_gguf_entry *array, int64_t i);
int32_t lathe_gguf_int_at(const lathe_gguf_entry *array, int64_t i);

#endif
