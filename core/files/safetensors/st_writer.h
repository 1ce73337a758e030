/* Writes safetensors: declare every tensor, then fill them in any order, then make them durable.
 *
 * The layout is that of the Python package: tensors by dtype (widest alignment first), then by
 * name; the header padded with spaces to 8 bytes; metadata {"format": "pt"}. No file has its final
 * name before finish; a crash leaves at most files named *.tmp.PID.
 */
#ifndef LATHE_FILES_ST_WRITER_H
#define LATHE_FILES_ST_WRITER_H

#include "files/safetensors/st_tensor.h"
#include "lathe/status.h"
#include "lathe/tensor.h"

typedef struct lathe_st_writer lathe_st_writer;

/** Creates a writer for dir/base.safetensors, or, if the tensors exceed max_shard_bytes (> 0), for
 *  base-00001-of-0000N.safetensors and base.safetensors.index.json. Tensors fill the shards in the
 *  order of add; a tensor that alone exceeds the limit gets its own shard, as in
 *  huggingface_hub. */
lathe_status lathe_st_writer_create(const char *dir, const char *base, int64_t max_shard_bytes,
                                    lathe_st_writer **out);

/** Adds a key to the metadata of every file. Call it before begin. */
lathe_status lathe_st_writer_metadata(lathe_st_writer *w, const char *key, const char *value);

/** Declares a tensor; tensors are numbered from 0 in this order. begin refuses a duplicate name
 *  (LATHE_E_ARG). */
lathe_status lathe_st_writer_add(lathe_st_writer *w, const char *name, const lathe_desc *desc);

/** Declares a tensor as the file that it comes from has it, whatever its dtype and rank. */
lathe_status lathe_st_writer_add_copy(lathe_st_writer *w, const lathe_st_tensor *tensor);

/** Lays out the files and writes their headers. No tensor can be added after that. */
lathe_status lathe_st_writer_begin(lathe_st_writer *w);

/** Writes bytes [offset, offset + bytes) of tensor `index`. Every byte must be written exactly
 *  once; in order within a tensor, with tensors in any order. */
lathe_status lathe_st_writer_write(lathe_st_writer *w, int64_t index, int64_t offset,
                                   const void *data, int64_t bytes);

/** Like lathe_st_writer_write, in any order and from several threads; the caller ensures that every
 *  byte is written once. */
lathe_status lathe_st_writer_write_piece(lathe_st_writer *w, int64_t index, int64_t offset,
                                         const void *data, int64_t bytes);

/** fsyncs and renames every file, writes the index, fsyncs the folder. Removes an older single file
 *  or index that would hide the new ones. LATHE_E_STATE: a tensor is incomplete. */
lathe_status lathe_st_writer_finish(lathe_st_writer *w);

/** Frees the writer; without a successful finish, removes its temporary files. NULL is fine. */
void lathe_st_writer_destroy(lathe_st_writer *w);

#endif
