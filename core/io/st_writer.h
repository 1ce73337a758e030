/* Writing safetensors: declare every tensor, then fill them in any order, then make it durable.
 *
 * The layout is that of the Python package: tensors by dtype (widest alignment first) then name,
 * the header padded with spaces to 8 bytes, metadata {"format": "pt"}. Nothing carries its final
 * name until finish, and a crash leaves at most files called *.tmp.PID behind.
 */
#ifndef LATHE_IO_ST_WRITER_H
#define LATHE_IO_ST_WRITER_H

#include "lathe/status.h"
#include "lathe/tensor.h"

typedef struct lathe_st_writer lathe_st_writer;

/** A writer of dir/base.safetensors, or, when the tensors exceed max_shard_bytes (> 0), of
 *  base-00001-of-0000N.safetensors and base.safetensors.index.json. Tensors fill the shards in the
 *  order of add; one that alone exceeds the limit gets a shard of its own, as huggingface_hub does
 *  it. */
lathe_status lathe_st_writer_create(const char *dir, const char *base, int64_t max_shard_bytes,
                                    lathe_st_writer **out);

/** Adds a key to the metadata of every file. Before begin. */
lathe_status lathe_st_writer_metadata(lathe_st_writer *w, const char *key, const char *value);

/** Declares a tensor; tensors are numbered from 0 in this order. A name given twice is refused by
 *  begin (LATHE_E_ARG). */
lathe_status lathe_st_writer_add(lathe_st_writer *w, const char *name, const lathe_desc *desc);

/** Lays out the files and writes their headers. No add afterwards. */
lathe_status lathe_st_writer_begin(lathe_st_writer *w);

/** Bytes [offset, offset + bytes) of tensor `index`. Every byte must be written, each once, in
 *  order within its tensor; tensors in any order. */
lathe_status lathe_st_writer_write(lathe_st_writer *w, int64_t index, int64_t offset,
                                   const void *data, int64_t bytes);

/** The same in any order and from several threads at a time; the caller sees to it that every byte
 *  is written once. */
lathe_status lathe_st_writer_write_piece(lathe_st_writer *w, int64_t index, int64_t offset,
                                         const void *data, int64_t bytes);

/** fsyncs and renames every file, writes the index, fsyncs the folder. An older single file, or an
 *  older index, that would shadow the new ones is removed. LATHE_E_STATE: a tensor is
 *  incomplete. */
lathe_status lathe_st_writer_finish(lathe_st_writer *w);

/** Releases the writer; without a successful finish its temporary files are removed. Takes NULL. */
void lathe_st_writer_destroy(lathe_st_writer *w);

#endif
