/* Any bytes as a dataset's file, tokenised by bytes into a shard, and read again from the
 * middle. */
#ifndef LATHE_TEST_FUZZ_DATASET_H
#define LATHE_TEST_FUZZ_DATASET_H

#include <string.h>
#include <sys/stat.h>

#include "base/parallel.h"
#include "data/rows/shards_internal.h"
#include "fuzz/fuzz_file.h"

/* Builds the parts of the file one after another, each of at least part_bytes. Returns the number
 * of segments, -1 if the file is refused. */
static inline int64_t fuzz_build(const lathe_dataset *dataset, const lathe_sources *sources,
                                 const lathe_tokenizer *tok, const char *target, int32_t rows,
                                 int64_t part_bytes, int64_t *out_tokens)
{
    lathe_source_place begin = {.line = 1};
    int64_t n_segments = 0, n_parts = 0;
    *out_tokens = 0;
    for (;;) {
        const lathe_shard_job job = {.dataset = dataset,
                                     .sources = sources,
                                     .tok = tok,
                                     .part_bytes = part_bytes,
                                     .rows = rows};
        const lathe_shard_header header = {.rows = rows,
                                           .token_bytes = 2,
                                           .eos = lathe_tokenizer_eos(tok),
                                           .vocab_size = lathe_tokenizer_vocab_size(tok),
                                           .begin = begin};
        lathe_shard_writer writer;
        char content[65];
        if (lathe__shard_writer_init(&writer, target, &header) != LATHE_OK)
            abort();
        const lathe_status status = lathe__shard_build(&job, &writer, content);
        const lathe_shard_header h = writer.header;
        lathe__shard_writer_fini(&writer);
        if (status != LATHE_OK)
            return -1;
        if (strlen(content) != 64 || (rows == LATHE_ROWS_PAIRS && h.n_segments % 3 != 0) ||
            ++n_parts > sources->bytes + 2) /* each part consumes a byte, or is the last */
            abort();
        n_segments += h.n_segments;
        *out_tokens += h.n_tokens;
        begin = h.end;
        if (h.is_last)
            return n_segments;
    }
}

/* Bit 0 of the first byte selects preference pairs, else bit 7 examples, else documents; bit 6
 * columns made by formats. Parts of any size must have the same content. */
static inline int fuzz_dataset(int32_t type, const char *name, const uint8_t *data, size_t size)
{
    static lathe_tokenizer *tok;
    static char target[64];
    struct stat info;
    if (size == 0)
        return 0;
    if (tok == NULL) {
        if (lathe_tokenizer_bytes(&tok) != LATHE_OK)
            abort();
        /* with threads, distributing a few bytes would take most of the time */
        lathe_parallel_init(1);
        (void)snprintf(target, sizeof target, "%s/lathe-fuzz-%s-%ld",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", name, (long)getpid());
    }
    const fuzz_file file = fuzz_file_open(data + 1, size - 1);
    if (fstat(file.fd, &info) != 0)
        abort();
    const int32_t rows = data[0] & 1u      ? LATHE_ROWS_PAIRS
                         : data[0] & 0x80u ? LATHE_ROWS_COMPLETIONS
                                           : LATHE_ROWS_PACKED;
    lathe_dataset dataset = {.path = file.path, .type = type};
    if (data[0] & 0x40u)
        for (int32_t c = 0; c < LATHE_N_COLUMNS; c++)
            dataset.formats[c] = c == LATHE_COLUMN_PROMPT ? "{{{id}}} {text}\n" : "{text}{id}";
    const lathe_source source = {.path = file.path,
                                 .bytes = info.st_size,
                                 .seconds = info.st_mtim.tv_sec,
                                 .nanoseconds = info.st_mtim.tv_nsec};
    const lathe_sources sources = {.list = &source, .n = 1, .bytes = info.st_size, .type = type};
    int64_t n_tokens, n_again;
    const int64_t whole =
        fuzz_build(&dataset, &sources, tok, target, rows, LATHE_PART_BYTES, &n_tokens);
    const int64_t parts =
        fuzz_build(&dataset, &sources, tok, target, rows, 7 + (int64_t)size / 4, &n_again);
    if (whole != parts || (whole >= 0 && n_tokens != n_again))
        abort();
    fuzz_file_close(&file);
    return 0;
}

#endif
