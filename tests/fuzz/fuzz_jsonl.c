/* libFuzzer target: any bytes as a JSONL dataset (first byte even: documents, odd: preference pairs),
 * tokenised by bytes into a shard. */
#include <string.h>

#include "data/shards_internal.h"
#include "fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lathe_tokenizer *tok;
    static char target[64];
    if (size == 0)
        return 0;
    if (tok == NULL) {
        if (lathe_tokenizer_bytes(&tok) != LATHE_OK)
            abort();
        (void)snprintf(target, sizeof target, "/tmp/lathe-fuzz-jsonl-%ld", (long)getpid());
    }
    const fuzz_file file = fuzz_file_open(data + 1, size - 1);
    char *paths[1] = {(char *)(uintptr_t)file.path};
    const lathe_dataset dataset = {.path = file.path, .type = LATHE_DATASET_JSONL};
    const lathe_sources sources = {.paths = paths, .n = 1, .bytes = (int64_t)size - 1};
    const lathe_shard_job job = {.dataset = &dataset,
                                 .tok = tok,
                                 .rows = data[0] & 1u ? LATHE_ROWS_PAIRS : LATHE_ROWS_PACKED};
    const lathe_shard_header header = {.rows = job.rows,
                                       .token_bytes = 2,
                                       .eos = lathe_tokenizer_eos(tok),
                                       .vocab_size = lathe_tokenizer_vocab_size(tok)};
    lathe_shard_writer writer;
    char content[65];
    if (lathe__shard_writer_init(&writer, target, &header) != LATHE_OK)
        abort();
    if (lathe__shard_build(&job, &sources, &writer, content) == LATHE_OK &&
        (strlen(content) != 64 ||
         (job.rows == LATHE_ROWS_PAIRS && writer.header.n_segments % 3 != 0)))
        abort();
    lathe__shard_writer_fini(&writer);
    fuzz_file_close(&file);
    return 0;
}
