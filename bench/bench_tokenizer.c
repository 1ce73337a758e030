/* Speed of a tokenizer on one thread.
 *
 *     bench_tokenizer speed TOKENIZER FILE...   MB/s of encoding each file, and all of them
 *     bench_tokenizer linear TOKENIZER          ns per byte of 1 and 10 MB of one character
 *     bench_tokenizer load TOKENIZER            ms to load it
 *
 * Figures are medians of REPEATS; every pass over the files starts with a new encoder with a cold
 * cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/map.h"
#include "tokenizer/json/tokenizer_file.h"

enum { REPEATS = 5, MAX_FILES = 32 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, REPEATS, sizeof *v, by_value);
    return v[REPEATS / 2];
}

static lathe_status time_files(const lathe_tokenizer *tok, const lathe_map *maps, int n_files,
                               double *seconds)
{
    lathe_encoder *enc;
    lathe_ids ids = {NULL, 0, 0};
    lathe_status status = lathe_encoder_create(tok, &enc);
    for (int i = 0; i < n_files && status == LATHE_OK; i++) {
        const double begun = now();
        ids.n = 0;
        status = lathe_encoder_run(enc, (const char *)maps[i].data, maps[i].bytes, 0, &ids);
        seconds[i] = now() - begun;
    }
    lathe_encoder_destroy(enc);
    lathe_ids_fini(&ids);
    return status;
}

static lathe_status speed(const lathe_tokenizer *tok, char **files, int n_files)
{
    static double seconds[MAX_FILES][REPEATS], all[REPEATS];
    lathe_map maps[MAX_FILES];
    int64_t bytes = 0;
    if (n_files > MAX_FILES)
        return lathe_error(LATHE_E_ARG, "%d files, at most %d", n_files, MAX_FILES);
    for (int i = 0; i < n_files; i++) {
        LATHE_TRY(lathe_map_open(files[i], &maps[i]));
        bytes += maps[i].bytes;
    }
    for (int r = -1; r < REPEATS; r++) { /* the first pass brings the files into the cache */
        double pass[MAX_FILES];
        LATHE_TRY(time_files(tok, maps, n_files, pass));
        if (r < 0)
            continue;
        all[r] = 0;
        for (int i = 0; i < n_files; i++) {
            seconds[i][r] = pass[i];
            all[r] += pass[i];
        }
    }
    for (int i = 0; i < n_files; i++) {
        printf("file %s %.2f\n", files[i], 1e-6 * (double)maps[i].bytes / median(seconds[i]));
        lathe_map_close(&maps[i]);
    }
    printf("mb_s %.2f\n", 1e-6 * (double)bytes / median(all));
    return LATHE_OK;
}

static lathe_status time_run(const lathe_tokenizer *tok, const char *unit, int64_t bytes,
                             double *out_ns)
{
    const int64_t n_unit = (int64_t)strlen(unit), n = bytes / n_unit * n_unit;
    lathe_ids ids = {NULL, 0, 0};
    char *text = malloc((size_t)n);
    if (!text)
        return lathe_error(LATHE_E_NOMEM, "text");
    for (int64_t i = 0; i < n; i++)
        text[i] = unit[i % n_unit];
    const double begun = now();
    const lathe_status status = lathe_tokenizer_encode(tok, text, n, 0, &ids);
    *out_ns = 1e9 * (now() - begun) / (double)n;
    free(text);
    lathe_ids_fini(&ids);
    return status;
}

static lathe_status linear(const lathe_tokenizer *tok)
{
    static const char *const units[][2] = {
        {"space", " "},    {"a", "a"},        {"1", "1"},
        {"newline", "\n"}, {"!", "!"},        {"e-acute", "é"},
        {"U+8ECA", "車"},  {"U+1F600", "😀"},  {"U+0301", "\xcc\x81"},
        {"0xff", "\xff"},  {"a-space", "a "}, {"'s", "'s"},
    };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        double small, large;
        LATHE_TRY(time_run(tok, units[i][1], 1000000, &small));
        LATHE_TRY(time_run(tok, units[i][1], 10000000, &large));
        printf("linear %s 1MB %.1f 10MB %.1f ns/byte\n", units[i][0], small, large);
    }
    return LATHE_OK;
}

static lathe_status load(const char *path)
{
    double ms[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        lathe_tokenizer *tok;
        const double begun = now();
        LATHE_TRY(lathe_tokenizer_load(path, &tok));
        ms[r] = 1e3 * (now() - begun);
        lathe_tokenizer_destroy(tok);
    }
    printf("load_ms %.1f\n", median(ms));
    return LATHE_OK;
}

static lathe_status run(int argc, char **argv)
{
    if (!strcmp(argv[1], "load"))
        return load(argv[2]);
    lathe_tokenizer *tok;
    LATHE_TRY(lathe_tokenizer_load(argv[2], &tok));
    const lathe_status status =
        strcmp(argv[1], "linear") ? speed(tok, argv + 3, argc - 3) : linear(tok);
    lathe_tokenizer_destroy(tok);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3 || (!strcmp(argv[1], "speed") && argc < 4)) {
        fprintf(stderr, "usage: bench_tokenizer speed|linear|load TOKENIZER [FILE...]\n");
        return 2;
    }
    if (run(argc, argv) == LATHE_OK)
        return 0;
    fprintf(stderr, "bench_tokenizer: %s\n", lathe_error_message());
    return 1;
}
