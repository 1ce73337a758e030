/* Small runs on their own text: a folder with a corpus, and settings added line by line. */
#ifndef LATHE_TEST_SMALL_RUN_H
#define LATHE_TEST_SMALL_RUN_H

#include <stdarg.h>
#include <unistd.h>

#include "base/fs.h"
#include "run_case.h"
#include "train/train.h"

/* "key=value" settings, as many as open_run takes. */
typedef struct settings {
    char text[MAX_SETTINGS][192];
    const char *list[MAX_SETTINGS + 1];
    int n;
} settings;

static void set(settings *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void set(settings *s, const char *format, ...)
{
    va_list args;
    cr_assert(s->n < MAX_SETTINGS);
    va_start(args, format);
    vsnprintf(s->text[s->n], sizeof s->text[0], format, args);
    va_end(args);
    s->list[s->n] = s->text[s->n];
    s->list[++s->n] = NULL;
}

/* Adds every setting of a NULL-terminated list. */
__attribute__((unused)) static void set_all(settings *s, const char *const *list)
{
    for (; *list; list++)
        set(s, "%s", *list);
}

/* Writes about n bytes of sentences in an order without a period. */
static void write_corpus(const char *path, int64_t n)
{
    static const char *const parts[] = {
        "the wheel turns ", "a thread is cut ",    "oil drips down ",  "the tool holds ",
        "chips fly off.\n", "and the part spins ", "so it is made.\n", "slow feed wins "};
    FILE *f = fopen(path, "w");
    uint32_t state = 12345;
    cr_assert(f, "%s", path);
    while (ftell(f) < n) {
        state = state * 1664525u + 1013904223u;
        fputs(parts[state >> 29], f);
    }
    fclose(f);
}

/* A folder in /tmp with corpus.txt. */
__attribute__((unused)) static void make_folder(char *dir, int64_t corpus_bytes)
{
    char path[256];
    cr_assert(mkdtemp(dir), "%s", dir);
    snprintf(path, sizeof path, "%s/corpus.txt", dir);
    write_corpus(path, corpus_bytes);
}

/* The folder's data with the bytes tokenizer, prepared in the same folder. */
__attribute__((unused)) static void set_data(settings *s, const char *dir)
{
    set(s, "data.datasets=[{path = \"%s/corpus.txt\"}]", dir);
    set(s, "data.cache_dir=%s/cache", dir);
    set(s, "checkpoint.dir=%s/out", dir);
    set(s, "tokenizer.path=bytes");
    set(s, "log.progress=off");
}

/* A llama-like model with random weights. */
__attribute__((unused)) static void set_llama(settings *s, int layers, int width, int heads,
                                              int kv_heads, int inner)
{
    set(s, "model.model_type=llama");
    set(s, "model.vocab_size=320");
    set(s, "model.hidden_size=%d", width);
    set(s, "model.intermediate_size=%d", inner);
    set(s, "model.num_hidden_layers=%d", layers);
    set(s, "model.num_attention_heads=%d", heads);
    set(s, "model.num_key_value_heads=%d", kv_heads);
    set(s, "model.max_position_embeddings=512");
}

/* Trains. After a failure the message is in lathe_error_message(); the printed text is in
 * `said`. */
__attribute__((unused)) static lathe_status train_said(lathe_run *run, char *said, size_t bytes,
                                                       lathe_train_result *out)
{
    FILE *f = fmemopen(said, bytes, "w");
    const lathe_train_options options = {.out = f};
    const lathe_status status = lathe_train(run, &options, out);
    fclose(f);
    return status;
}

/* Checks that the message contains every part of a NULL-terminated list. */
__attribute__((unused)) static void expect_parts(const char *const *parts)
{
    for (; *parts; parts++)
        cr_expect(strstr(lathe_error_message(), *parts), "no '%s' in: %s", *parts,
                  lathe_error_message());
}

#endif
