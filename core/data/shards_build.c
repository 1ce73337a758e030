/* Building a shard: text files and JSON lines into segments of token ids. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/log.h"
#include "data/shards_internal.h"
#include "data/utf8.h"

static const char *const default_names[LATHE_N_COLUMNS] = {"text", "prompt", "chosen", "rejected"};

typedef struct builder {
    const lathe_shard_job *job;
    const lathe_sources *sources;
    lathe_shard_writer *writer;
    lathe_encoder *enc;
    lathe_ids prompt, chosen, rejected; /* chosen serves documents too */
    char *joined;                       /* prompt + completion */
    int64_t joined_bytes;
    int64_t done_bytes, reported_bytes;
    int64_t n_recut; /* prompts whose last tokens merge with the completion */
} builder;

static void report(builder *b, const char *path, int64_t done, int force)
{
    if (!b->job->progress || (!force && done - b->reported_bytes < (4 << 20)))
        return;
    b->reported_bytes = done;
    b->job->progress(b->job->progress_arg, path, done, b->sources->bytes,
                     b->writer->header.n_tokens);
}

static lathe_status end_text(const builder *b, lathe_ids *ids)
{
    const int32_t eos = lathe_tokenizer_eos(b->job->tok);
    if (ids->n > 0 && ids->data[ids->n - 1] == eos)
        return LATHE_OK;
    LATHE_TRY(lathe_ids_reserve(ids, 1));
    ids->data[ids->n++] = eos;
    return LATHE_OK;
}

static lathe_status put_document(builder *b, const char *text, int64_t n)
{
    if (n == 0) {
        b->writer->header.n_skipped++;
        return LATHE_OK;
    }
    b->chosen.n = 0;
    LATHE_TRY(lathe_encoder_run(b->enc, text, n, LATHE_ENCODE_ADD_SPECIAL, &b->chosen));
    LATHE_TRY(end_text(b, &b->chosen));
    return lathe__shard_writer_put(b->writer, b->chosen.data, b->chosen.n);
}

static lathe_status encode_joined(builder *b, const char *prompt, int64_t n_prompt,
                                  const char *text, int64_t n, lathe_ids *out)
{
    if (n_prompt + n > b->joined_bytes) {
        free(b->joined);
        b->joined_bytes = 0;
        b->joined = malloc((size_t)(n_prompt + n));
        if (!b->joined)
            return lathe_error(LATHE_E_NOMEM, "a record of %lld bytes", (long long)(n_prompt + n));
        b->joined_bytes = n_prompt + n;
    }
    if (n_prompt > 0)
        memcpy(b->joined, prompt, (size_t)n_prompt);
    if (n > 0)
        memcpy(b->joined + n_prompt, text, (size_t)n);
    out->n = 0;
    LATHE_TRY(lathe_encoder_run(b->enc, b->joined, n_prompt + n, LATHE_ENCODE_ADD_SPECIAL, out));
    return end_text(b, out);
}

static int64_t common_prefix(const lathe_ids *a, const lathe_ids *b)
{
    int64_t n = 0;
    while (n < a->n && n < b->n && a->data[n] == b->data[n])
        n++;
    return n;
}

/* The prompt alone and each completion behind it are tokenised whole; the completion starts where
 * the two part, as in TRL's DPOTrainer. */
static lathe_status put_pair(builder *b, const char *prompt, int64_t n_prompt, const char *chosen,
                             int64_t n_chosen, const char *rejected, int64_t n_rejected)
{
    b->prompt.n = 0;
    LATHE_TRY(lathe_encoder_run(b->enc, prompt, n_prompt, LATHE_ENCODE_ADD_SPECIAL, &b->prompt));
    LATHE_TRY(encode_joined(b, prompt, n_prompt, chosen, n_chosen, &b->chosen));
    LATHE_TRY(encode_joined(b, prompt, n_prompt, rejected, n_rejected, &b->rejected));
    const int64_t with_chosen = common_prefix(&b->prompt, &b->chosen);
    const int64_t with_rejected = common_prefix(&b->prompt, &b->rejected);
    const int64_t n = with_chosen < with_rejected ? with_chosen : with_rejected;
    b->n_recut += n < b->prompt.n;
    LATHE_TRY(lathe__shard_writer_put(b->writer, b->prompt.data, n));
    LATHE_TRY(lathe__shard_writer_put(b->writer, b->chosen.data + n, b->chosen.n - n));
    return lathe__shard_writer_put(b->writer, b->rejected.data + n, b->rejected.n - n);
}

/* Without a prompt column the completions' common beginning is the prompt, less a space at its end:
 * TRL's extract_prompt. Cuts at a character. */
static int64_t implicit_prompt(const char *a, int64_t n_a, const char *b, int64_t n_b)
{
    const uint8_t *p = (const uint8_t *)a, *q = (const uint8_t *)b;
    int64_t n = 0;
    while (n < n_a && n < n_b && p[n] == q[n])
        n++;
    const int whole = n == n_a || n == n_b; /* one begins the other: all but the last character */
    if (whole && n > 0)
        n--;
    while (n > 0 && n < n_a && (p[n] & 0xc0) == 0x80)
        n--;
    return !whole && n > 0 && p[n - 1] == ' ' ? n - 1 : n;
}

static lathe_status column(const builder *b, const json_t *record, const char *place, int32_t which,
                           int required, const char **out, int64_t *out_n)
{
    const char *given = b->job->dataset->columns[which];
    const char *name = given ? given : default_names[which];
    const json_t *value = json_object_get(record, name);
    *out = NULL;
    *out_n = 0;
    if (!value && !required && !given)
        return LATHE_OK;
    if (!value)
        return lathe_error(LATHE_E_CONFIG, "%s: no column \"%s\"; name it in columns.%s", place,
                           name, default_names[which]);
    if (!json_is_string(value))
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: column \"%s\" is no string", place, name);
    *out = json_string_value(value);
    *out_n = (int64_t)json_string_length(value);
    return LATHE_OK;
}

static lathe_status put_record(builder *b, const json_t *record, const char *place)
{
    if (!json_is_object(record))
        return lathe_error(LATHE_E_PARSE, "%s: expected one JSON object a line", place);
    const char *text[LATHE_N_COLUMNS];
    int64_t n[LATHE_N_COLUMNS];
    if (b->job->rows == LATHE_ROWS_PACKED) {
        LATHE_TRY(column(b, record, place, LATHE_COLUMN_TEXT, 1, &text[0], &n[0]));
        return put_document(b, text[0], n[0]);
    }
    LATHE_TRY(column(b, record, place, LATHE_COLUMN_PROMPT, 0, &text[1], &n[1]));
    LATHE_TRY(column(b, record, place, LATHE_COLUMN_CHOSEN, 1, &text[2], &n[2]));
    LATHE_TRY(column(b, record, place, LATHE_COLUMN_REJECTED, 1, &text[3], &n[3]));
    if (text[1])
        return put_pair(b, text[1], n[1], text[2], n[2], text[3], n[3]);
    const int64_t cut = implicit_prompt(text[2], n[2], text[3], n[3]);
    return put_pair(b, text[2], cut, text[2] + cut, n[2] - cut, text[3] + cut, n[3] - cut);
}

static int is_blank(const char *text, int64_t n)
{
    while (n > 0 && (*text == ' ' || *text == '\t' || *text == '\r')) {
        text++;
        n--;
    }
    return n == 0;
}

static lathe_status put_lines(builder *b, const char *path, const lathe_map *map)
{
    const char *text = (const char *)map->data;
    int64_t line = 1;
    for (int64_t at = 0; at < map->bytes; line++) {
        const char *end = memchr(text + at, '\n', (size_t)(map->bytes - at));
        const int64_t n = end ? end - (text + at) : map->bytes - at;
        if (!is_blank(text + at, n)) {
            json_error_t error;
            char place[640];
            snprintf(place, sizeof place, "%s:%lld", path, (long long)line);
            json_t *record =
                json_loadb(text + at, (size_t)n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
            if (!record)
                return lathe_error(LATHE_E_PARSE, "%s:%d: %s", place, error.column, error.text);
            const lathe_status status = put_record(b, record, place);
            json_decref(record);
            if (status != LATHE_OK)
                return status;
        }
        at += n + 1;
        report(b, path, b->done_bytes + at, 0);
    }
    return LATHE_OK;
}

static lathe_status put_file(builder *b, const char *path, const lathe_map *map)
{
    if (b->job->dataset->type == LATHE_DATASET_JSONL)
        return put_lines(b, path, map);
    if (map->bytes > 0 && (memchr(map->data, 0, (size_t)map->bytes) ||
                           lathe_utf8_prefix(map->data, map->bytes) < map->bytes)) {
        b->writer->header.n_skipped++;
        return LATHE_OK;
    }
    return put_document(b, (const char *)map->data, map->bytes);
}

static lathe_status put_sources(builder *b, lathe_sha256 *hash)
{
    for (int64_t i = 0; i < b->sources->n; i++) {
        const char *path = b->sources->paths[i];
        lathe_map map;
        LATHE_TRY(lathe_map_open(path, &map));
        lathe_sha256_update(hash, &map.bytes, sizeof map.bytes);
        lathe_sha256_update(hash, map.data, map.bytes);
        const lathe_status status = put_file(b, path, &map);
        b->done_bytes += map.bytes;
        lathe_map_close(&map);
        if (status != LATHE_OK)
            return status;
        report(b, path, b->done_bytes, i + 1 == b->sources->n);
    }
    return LATHE_OK;
}

lathe_status lathe__shard_build(const lathe_shard_job *job, const lathe_sources *sources,
                                lathe_shard_writer *writer, char content[65])
{
    if (job->rows == LATHE_ROWS_PAIRS && job->dataset->type != LATHE_DATASET_JSONL)
        return lathe_error(LATHE_E_CONFIG, "%s: pairs come from a dataset of type jsonl",
                           job->dataset->path);
    builder b;
    memset(&b, 0, sizeof b);
    b.job = job;
    b.sources = sources;
    b.writer = writer;
    lathe_sha256 *hash = NULL;
    lathe_status status = lathe_encoder_create(job->tok, &b.enc);
    if (status == LATHE_OK)
        status = lathe_sha256_create(&hash);
    if (status == LATHE_OK)
        status = put_sources(&b, hash);
    if (status == LATHE_OK) {
        lathe_sha256_finish(hash, content);
        hash = NULL;
        if (b.n_recut)
            lathe_log(LATHE_LOG_WARN,
                      "%s: in %lld records the end of the prompt merges with the completion; those "
                      "tokens count as completion",
                      job->dataset->path, (long long)b.n_recut);
    }
    lathe_sha256_destroy(hash);
    lathe_encoder_destroy(b.enc);
    lathe_ids_fini(&b.prompt);
    lathe_ids_fini(&b.chosen);
    lathe_ids_fini(&b.rejected);
    free(b.joined);
    return status;
}
