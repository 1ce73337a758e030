/* Measures the data pipeline.
 *
 *     bench_data loader [STEPS] [section.key=value ...]
 *         ratio of the step time with data from disk to that with the same batches in memory
 *     bench_data tokenise TOKENIZER PATH
 *         MB/s of preparing a dataset with 1 and 2 threads
 *     bench_data pack [N] [T]
 *         seconds to pack N documents into rows of T tokens, and how full the rows are
 *
 * Prints one "key value" per line. `loader` measures both kinds of step in turn in one run, and
 * drops the pages of the shards before every step from disk; the ratio is the median over the
 * pairs.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/parallel.h"
#include "bench_open.h"
#include "lathe/rng.h"
#include "run/open/opening.h"
#include "run/state/run_state.h"
#include "tokenizer/json/tokenizer_file.h"

enum { MAX_STEPS = 512, MAX_SETTINGS = 32, ROWS = 8, T = 512, VOCAB = 512 };

static char folder[] = "/var/tmp/lathe_bench_data_XXXXXX"; /* on a disk: /tmp may be memory */

static void die(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, lathe_error_message());
    (void)lathe_dir_remove(folder);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

/* ---- loader ---- */

/* 16 MB of random words in documents of different lengths. */
static void put_corpus(const char *path)
{
    FILE *file = fopen(path, "wb");
    uint32_t state = 1;
    if (!file)
        die("corpus");
    for (int64_t bytes = 0; bytes < 16000000;) {
        state = state * 1664525u + 1013904223u;
        int n = 20 + (int)(state >> 20);
        bytes += n + 13;
        (void)fputs("{\"text\": \"", file);
        for (; n > 0; n--) {
            state = state * 1664525u + 1013904223u;
            (void)fputc(state >> 29 ? 'a' + (int)(state >> 16) % 26 : ' ', file);
        }
        (void)fputs("\"}\n", file);
    }
    (void)fclose(file);
}

/* Makes the kernel drop the shards' pages from its cache, also those that this process has
 * mapped. */
static void drop_pages(void)
{
    char line[1024], path[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long long begin, end;
    while (maps && fgets(line, sizeof line, maps)) {
        if (!strstr(line, "/shard-") ||
            sscanf(line, "%llx-%llx %*s %*s %*s %*s %511s", &begin, &end, path) != 3)
            continue;
        (void)madvise((void *)(uintptr_t)begin, (size_t)(end - begin), MADV_DONTNEED);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            (void)close(fd);
        }
    }
    if (maps)
        (void)fclose(maps);
}

static lathe_run *open_run(int n_more, char *const *more)
{
    char datasets[128], cache[128], plugins[512];
    (void)snprintf(datasets, sizeof datasets, "[{path = \"%s/corpus.jsonl\"}]", folder);
    (void)snprintf(cache, sizeof cache, "%s/cache", folder);
    (void)snprintf(plugins, sizeof plugins, "[\"%s/lib/lathe/plugins\"]", LATHE_BUILD);
    const lathe_override settings[] = {{"model.model_type", "llama"},
                                       {"model.vocab_size", "512"},
                                       {"model.hidden_size", "128"},
                                       {"model.intermediate_size", "384"},
                                       {"model.num_hidden_layers", "2"},
                                       {"model.num_attention_heads", "4"},
                                       {"model.max_position_embeddings", "512"},
                                       {"tokenizer.path", "bytes"},
                                       {"train.max_steps", "1000000"},
                                       {"train.micro_batch_size", "8"},
                                       {"data.seq_len", "512"},
                                       {"data.datasets", datasets},
                                       {"data.cache_dir", cache},
                                       {"optimizer.lr", "3e-4"},
                                       {"plugins.paths", plugins}};
    lathe_override list[MAX_SETTINGS];
    lathe_run *run = NULL;
    int32_t n = (int32_t)(sizeof settings / sizeof *settings);
    memcpy(list, settings, sizeof settings);
    for (int i = 0; i < n_more && n < MAX_SETTINGS; i++) {
        char *equals = strchr(more[i], '=');
        if (!equals)
            continue;
        *equals = '\0';
        list[n++] = (lathe_override){more[i], equals + 1};
    }
    if (bench_open(list, n, LATHE_OPEN_TRAIN, &run) != LATHE_OK)
        die("open");
    return run;
}

static double one_step(lathe_run *run, const lathe_run_batch *batch)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    lathe_step_result s = {.size = (uint32_t)sizeof s};
    const double begun = lathe_now();
    if (lathe_forward(run, batch, LATHE_FORWARD_TRAIN, &f) != LATHE_OK ||
        lathe_backward(run, NULL) != LATHE_OK || lathe_step(run, &s) != LATHE_OK)
        die("step");
    return lathe_now() - begun;
}

static void bench_loader(int steps, int n_more, char *const *more)
{
    char path[128];
    static double disk[MAX_STEPS], ratio[MAX_STEPS];
    if (!mkdtemp(folder))
        die(folder);
    (void)snprintf(path, sizeof path, "%s/corpus.jsonl", folder);
    put_corpus(path);
    lathe_run *run = open_run(n_more, more);
    lathe_loader_config config = {.shards = run->data.shards,
                                  .n_rows = ROWS,
                                  .row_tokens = T,
                                  .seed = run->set.data_seed,
                                  .packing = run->set.packing};
    lathe_loader *twin = NULL; /* gives the same batches, prepared in advance */
    if (lathe_loader_create(&config, &twin) != LATHE_OK)
        die("loader");
    static int32_t copy[4][ROWS * T];
    for (int i = -2; i < steps; i++) { /* two warm-up steps */
        lathe_batch b;
        if (lathe_loader_next(twin, &b) != LATHE_OK)
            die("batch");
        const int32_t *const parts[4] = {b.tokens, b.targets, b.positions, b.doc_start};
        for (int k = 0; k < 4; k++)
            memcpy(copy[k], parts[k], sizeof copy[k]);
        const lathe_run_batch memory = {.size = (uint32_t)sizeof memory,
                                        .n_rows = ROWS,
                                        .row_tokens = T,
                                        .tokens = copy[0],
                                        .targets = copy[1],
                                        .positions = copy[2],
                                        .doc_start = copy[3]};
        /* alternates which one is first */
        double from_memory = i % 2 ? one_step(run, &memory) : 0.0;
        drop_pages();
        const double from_disk = one_step(run, NULL);
        if (i % 2 == 0)
            from_memory = one_step(run, &memory);
        if (i >= 0) {
            disk[i] = from_disk;
            ratio[i] = from_disk / from_memory;
        }
    }
    (void)printf("step_ms %.2f\nloader_ratio %.4f\n", 1e3 * median(disk, steps),
                 median(ratio, steps));
    lathe_loader_destroy(twin);
    lathe_run_close(run);
    (void)lathe_dir_remove(folder);
}

/* ---- tokenising ---- */

static void bench_tokenise(const char *tokenizer, const char *path)
{
    lathe_tokenizer *tok = NULL;
    const lathe_status status = strcmp(tokenizer, "bytes") ? lathe_tokenizer_load(tokenizer, &tok)
                                                           : lathe_tokenizer_bytes(&tok);
    if (status != LATHE_OK || !mkdtemp(folder))
        die(tokenizer);
    for (int32_t threads = 1; threads <= 2; threads++) {
        const lathe_dataset dataset = {.path = path, .type = LATHE_DATASET_AUTO};
        lathe_arena arena = LATHE_ARENA_INIT;
        lathe_sources sources;
        lathe_shards *shards = NULL;
        lathe_parallel_init(threads);
        (void)lathe_dir_remove(folder);
        if (lathe_sources_list(&dataset, &arena, &sources) != LATHE_OK)
            die(path);
        const double begun = lathe_now();
        if (lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PACKED, tok, folder, NULL, NULL,
                                 &shards) != LATHE_OK)
            die(path);
        const double seconds = lathe_now() - begun;
        (void)printf("tokenise_mb_s.%d %.1f\n", threads, (double)sources.bytes / seconds / 1e6);
        if (threads == 2)
            (void)printf("tokens %lld\nhash %s\n", (long long)lathe_shards_tokens(shards),
                         lathe_shards_hash(shards));
        lathe_shards_destroy(shards);
        lathe_arena_fini(&arena);
    }
    lathe_tokenizer_destroy(tok);
    (void)lathe_dir_remove(folder);
}

/* ---- packing ---- */

/* Documents of log-normal length: median 300 tokens, a third of them above 500. */
static void bench_pack(int64_t n, int64_t row_tokens)
{
    int64_t *offsets = malloc((size_t)(n + 1) * sizeof *offsets);
    lathe_shards *shards = NULL;
    if (!offsets)
        die("memory");
    offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        const lathe_u32x4 w = lathe_rng_block(1, 0, 0, (uint64_t)i);
        const double u = ((double)w.v[0] + 1.0) / 4294967297.0, v = (double)w.v[1] / 4294967296.0;
        const double normal = sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
        offsets[i + 1] = offsets[i] + 1 + (int64_t)(300.0 * exp(1.1 * normal));
    }
    int32_t *ids = calloc((size_t)offsets[n] + 1, sizeof *ids);
    if (!ids ||
        lathe_shards_from_ids(LATHE_ROWS_PACKED, ids, offsets, n, 0, 2, &shards) != LATHE_OK)
        die("shards");
    free(ids);
    free(offsets);
    for (int32_t packing = 0; packing < 2; packing++) {
        const lathe_loader_config config = {
            .shards = shards, .n_rows = 1, .row_tokens = (int32_t)row_tokens, .packing = packing};
        lathe_loader_facts facts;
        lathe_loader *loader = NULL;
        const double begun = lathe_now();
        if (lathe_loader_create(&config, &loader) != LATHE_OK)
            die("loader");
        const double seconds = lathe_now() - begun;
        lathe_loader_facts_get(loader, &facts);
        const char *name = packing ? "multipack" : "sequential";
        (void)printf("%s_seconds %.3f\n%s_fill %.5f\n%s_index_mib %.1f\n", name, seconds, name,
                     facts.fill, name, (double)facts.index_bytes / 1048576.0);
        lathe_loader_destroy(loader);
    }
    lathe_shards_destroy(shards);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "loader";
    if (strcmp(what, "tokenise") == 0 && argc == 4) {
        bench_tokenise(argv[2], argv[3]);
    } else if (strcmp(what, "pack") == 0) {
        bench_pack(argc > 2 ? atoll(argv[2]) : 1000000, argc > 3 ? atoll(argv[3]) : 2048);
    } else if (strcmp(what, "loader") == 0) {
        const int steps = argc > 2 ? atoi(argv[2]) : 40;
        if (steps < 1 || steps > MAX_STEPS)
            return 2;
        bench_loader(steps, argc > 3 ? argc - 3 : 0, argv + 3);
    } else {
        (void)fputs("usage: bench_data loader|tokenise|pack ...\n", stderr);
        return 2;
    }
    return 0;
}
