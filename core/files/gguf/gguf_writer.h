/* Writes a GGUF file (version 3): keys first, then the list of tensors, then their data in order.
 * The file gets its name when it is complete; until then it is NAME.tmp.PID. What processes that
 * have ended left under such names is removed. */
#ifndef LATHE_FILES_GGUF_WRITER_H
#define LATHE_FILES_GGUF_WRITER_H

#include "base/buffer.h"
#include "files/gguf/gguf_file.h"

typedef struct lathe_gguf_writer lathe_gguf_writer;

lathe_status lathe_gguf_writer_create(const char *path, lathe_gguf_writer **out);

/* Keys: before begin. A failure is reported by begin. */
void lathe_gguf_put_u32(lathe_gguf_writer *w, const char *key, int64_t value);
void lathe_gguf_put_float(lathe_gguf_writer *w, const char *key, double value);
void lathe_gguf_put_bool(lathe_gguf_writer *w, const char *key, int32_t value);
void lathe_gguf_put_text(lathe_gguf_writer *w, const char *key, const char *text, int64_t bytes);
/** n elements of the type, as the file has them: texts by lathe_gguf_append_text. */
void lathe_gguf_put_array(lathe_gguf_writer *w, const char *key, int32_t type, int64_t n,
                          const lathe_buffer *elements);
void lathe_gguf_append_text(lathe_buffer *elements, const char *text, int64_t bytes);

/** Declares a tensor; tensors are numbered from 0 in this order. cols is a multiple of the type's
 *  block; rows 0: a vector of cols elements. */
lathe_status lathe_gguf_writer_add(lathe_gguf_writer *w, const char *name,
                                   const lathe_gguf_type *type, int64_t rows, int64_t cols);

/** Likewise for the matrices [rows, cols] of n experts in one tensor. */
lathe_status lathe_gguf_writer_add_experts(lathe_gguf_writer *w, const char *name,
                                           const lathe_gguf_type *type, int64_t n, int64_t rows,
                                           int64_t cols);

/** Writes everything before the data. */
lathe_status lathe_gguf_writer_begin(lathe_gguf_writer *w);

/** Writes the next bytes of the data, without the padding between tensors: tensor 0 first, each
 *  complete before the next. */
lathe_status lathe_gguf_writer_write(lathe_gguf_writer *w, const void *data, int64_t bytes);

/** Makes the file durable and gives it its name. LATHE_E_STATE: a tensor is incomplete. */
lathe_status lathe_gguf_writer_finish(lathe_gguf_writer *w);

/** Frees the writer; without a successful finish, removes the temporary file. NULL is fine. */
void lathe_gguf_writer_destroy(lathe_gguf_writer *w);

#endif
