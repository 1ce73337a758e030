/* Prepares shards: reuses the parts of a dataset that are still valid, and makes the others.
 *
 * Each part is a file, durable before the next one begins, and records which range of the sources
 * it covers. So a killed process can continue after the last finished part. One process at a time
 * builds the shards of a dataset; others wait, and then find the finished parts.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/log_once.h"
#include "chat/template/chat_template.h"
#include "data/records/row_kind.h"
#include "data/rows/shards_internal.h"

#define HASH_BYTES (8LL << 20)
#define VERIFY_BYTES (1LL << 30) /* bytes of payload whose SHA-256 is checked at each start */

/* State of preparing one dataset. */
typedef struct chain {
    lathe_shard_job job;
    lathe_sources sources;
    lathe_arena arena;
    lathe_shards *shards;
    char key[65];
    lathe_lock lock;
    int64_t built;
    int64_t max_parts;     /* 0: all */
    int64_t *verify_bytes; /* bytes left to check */
} chain;

static lathe_status hash_key(const lathe_shard_job *job, char out[65])
{
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    const lathe_dataset *dataset = job->dataset;
    const int32_t numbers[4] = {LATHE_SHARD_VERSION, LATHE_TOKENIZER_READING, job->rows,
                                job->sources->type};
    lathe_sha256_update(hash, numbers, sizeof numbers);
    lathe_sha256_update(hash, &job->part_bytes, sizeof job->part_bytes);
    lathe_sha256_update(hash, lathe_tokenizer_hash(job->tok), 64);
    lathe_dataset_hash_columns(dataset, hash);
    if (dataset->chat)
        lathe_sha256_update(hash, lathe_chat_template_hash(dataset->chat), 64);
    lathe_sha256_update(hash, dataset->path, (int64_t)strlen(dataset->path));
    lathe_sha256_finish(hash, out);
    return LATHE_OK;
}

static const char *part_path(chain *c, int64_t part)
{
    const char *name =
        lathe_arena_printf(&c->arena, "shard-%.24s-%05lld.bin", c->key, (long long)part);
    return name ? lathe_path_join(&c->arena, c->job.cache_dir, name) : NULL;
}

/* ---- one builder at a time ---- */

static const char *lock_path(chain *c)
{
    const char *name = lathe_arena_printf(&c->arena, "shard-%.24s.lock", c->key);
    return name ? lathe_path_join(&c->arena, c->job.cache_dir, name) : NULL;
}

static lathe_status take_lock(chain *c)
{
    const char *path = lock_path(c);
    const char *waiting = lathe_arena_printf(
        &c->arena, "%s: waiting for the process that prepares it", c->job.dataset->path);
    return path && waiting ? lathe_lock_wait(path, waiting, &c->lock) : LATHE_E_NOMEM;
}

static void drop_lock(chain *c)
{
    const char *path = c->lock.fd >= 0 ? lock_path(c) : NULL;
    if (path)
        lathe_lock_delete(&c->lock, path);
    else
        lathe_lock_release(&c->lock);
}

/* Removes temporary files with this name. Because this process holds the lock, they belong to
 * processes that have died. */
static lathe_status remove_leftovers(chain *c)
{
    char **names, start[64];
    int64_t n;
    (void)snprintf(start, sizeof start, "shard-%.24s-", c->key);
    LATHE_TRY(lathe_dir_list(c->job.cache_dir, &c->arena, &names, &n));
    for (int64_t i = 0; i < n; i++)
        if (!strncmp(names[i], start, strlen(start)) && strstr(names[i], ".tmp.")) {
            const char *path = lathe_path_join(&c->arena, c->job.cache_dir, names[i]);
            if (path)
                (void)unlink(path);
        }
    return LATHE_OK;
}

/* ---- parts ---- */

/* SHA-256 of the range of the sources that a shard covers, computed as when building it; empty if
 * the range no longer ends there. */
static lathe_status hash_range(const chain *c, const lathe_shard_header *h, char out[65])
{
    lathe_reader r;
    out[0] = 0;
    lathe_status status =
        lathe_reader_init(&r, c->job.dataset, &c->sources, c->job.rows, &h->begin);
    r.cut_text = lathe_tokenizer_is_bytes(c->job.tok);
    while (status == LATHE_OK && !lathe_reader_ended(&r) && r.n_bytes <= h->source_bytes &&
           (h->is_last || r.n_bytes < h->source_bytes)) {
        const int64_t left = h->source_bytes - r.n_bytes;
        status = lathe_reader_batch(&r, left > HASH_BYTES ? HASH_BYTES : left > 1 ? left : 1);
    }
    if (status == LATHE_OK && !memcmp(&r.at, &h->end, sizeof r.at) &&
        lathe_reader_ended(&r) == h->is_last)
        status = lathe_reader_content(&r, out);
    lathe_reader_fini(&r);
    return status;
}

/* Whether part `part` exists, covers the sources from *begin on, and is still valid. */
static lathe_status fits(chain *c, const char *path, int64_t part, const lathe_source_place *begin,
                         lathe_shard_header *h, int *out)
{
    char content[65];
    LATHE_TRY(lathe__shard_peek(path, h, out));
    *out = *out && !memcmp(h->key, c->key, 64) && h->part == part &&
           !memcmp(&h->begin, begin, sizeof *begin);
    if (!*out || !memcmp(h->stamp, c->sources.stamp, 64))
        return LATHE_OK;
    /* If a source became unreadable or malformed, making the part again reports the error. */
    *out = hash_range(c, h, content) == LATHE_OK && !memcmp(h->content, content, 64);
    lathe_error_clear();
    return LATHE_OK;
}

static lathe_status write_part(chain *c, lathe_shard_writer *writer)
{
    char content[65];
    LATHE_TRY(lathe__shard_build(&c->job, writer, content));
    LATHE_TRY(lathe__shard_writer_finish(writer, content));
    return lathe_dir_sync(c->job.cache_dir);
}

static lathe_status build(chain *c, const char *path, int64_t part, const lathe_source_place *begin)
{
    lathe_shard_header header;
    memset(&header, 0, sizeof header);
    header.rows = c->job.rows;
    header.eos = lathe_tokenizer_eos(c->job.tok);
    header.vocab_size = lathe_tokenizer_vocab_size(c->job.tok);
    header.token_bytes = header.vocab_size <= 65536 ? 2 : 4;
    header.n_inputs = c->job.dataset->n_inputs;
    header.part = (int32_t)part;
    header.begin = *begin;
    memcpy(header.key, c->key, 64);
    memcpy(header.stamp, c->sources.stamp, 64);
    lathe_shard_writer writer;
    lathe_status status = lathe__shard_writer_init(&writer, path, &header);
    if (status == LATHE_OK)
        status = write_part(c, &writer);
    lathe__shard_writer_fini(&writer);
    return status;
}

static lathe_status open_part(chain *c, const char *path)
{
    lathe_shard shard;
    const int32_t verify = *c->verify_bytes > 0;
    LATHE_TRY(lathe__shard_open(path, verify, &shard));
    *c->verify_bytes -= shard.map.bytes;
    const lathe_status status = lathe__shards_add(c->shards, &shard);
    if (status != LATHE_OK)
        lathe__shard_close(&shard);
    return status;
}

/* Removes parts after the last one; they were made when the sources were longer. */
static void remove_after(chain *c, int64_t part)
{
    const char *path;
    while (c->built && (path = part_path(c, part++)) != NULL && unlink(path) == 0)
        continue;
}

static lathe_status prepare_parts(chain *c)
{
    lathe_source_place begin = {.line = 1};
    for (int64_t part = 0;; part++) {
        lathe_shard_header h;
        int current;
        const char *path = part_path(c, part);
        if (!path)
            return LATHE_E_NOMEM;
        LATHE_TRY(fits(c, path, part, &begin, &h, &current));
        if (!current &&
            c->lock.fd < 0) { /* another process may have made the part in the meantime */
            LATHE_TRY(take_lock(c));
            LATHE_TRY(remove_leftovers(c));
            LATHE_TRY(fits(c, path, part, &begin, &h, &current));
        }
        if (!current) {
            LATHE_TRY(build(c, path, part, &begin));
            LATHE_TRY(lathe__shard_peek(path, &h, &current));
            c->built++;
        }
        LATHE_TRY(open_part(c, path));
        /* a part that ends in another file than it begins counts for neither */
        c->job.file_bytes = h.begin.file == h.end.file ? c->job.file_bytes + h.source_bytes : 0;
        c->job.done_bytes += h.source_bytes;
        c->job.done_tokens += h.n_tokens;
        begin = h.end;
        if (c->max_parts > 0 && part + 1 >= c->max_parts)
            return LATHE_OK;
        if (h.is_last) {
            remove_after(c, part + 1);
            return LATHE_OK;
        }
    }
}

/* Logs a warning of a dataset, once per process. */
__attribute__((format(printf, 1, 2))) static void warn(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lathe_log_once(LATHE_LOG_WARN, text);
}

/* Warns of what the tokens of the cached data lack or have. These notes are kept in the shards,
 * because each start needs them, not only the one that makes the cache. */
static void warn_of_tokens(const chain *c)
{
    const lathe_shards_set *set = &c->shards->sets[c->shards->n_sets - 1];
    const lathe_record_notes *notes = &set->notes;
    const char *path = c->job.dataset->path;
    const int64_t n_recut = notes->told[LATHE_TOLD_RECUT].n;
    lathe_buffer names = LATHE_BUFFER_INIT;
    for (int64_t i = 0; i < notes->n_skipped && i < LATHE_READER_NAMES; i++)
        if (notes->skipped[i] >= 0 && notes->skipped[i] < c->sources.n)
            lathe_buffer_printf(&names, "%s%s", i ? ", " : "",
                                c->sources.list[notes->skipped[i]].path);
    if (notes->n_skipped > 0 && set->n_segments > 0) /* a refusal of the data names the files */
        warn("%s: left out because they are not UTF-8 text: %s%s", path,
             names.data ? names.data : "", notes->n_skipped > LATHE_READER_NAMES ? ", ..." : "");
    lathe_buffer_fini(&names);
    if (notes->told[LATHE_TOLD_DATE].n > 0)
        warn("%s: the chat template writes the date (strftime_now); the prepared data keep that of "
             "the day on which they were prepared, and data prepared on another day have other "
             "tokens",
             path);
    if (n_recut > 0)
        warn("%s: in %lld records the end of the prompt merges with the completion; those tokens "
             "count as completion%s",
             path, (long long)n_recut,
             notes->told[LATHE_TOLD_SPACES].n < n_recut
                 ? ""
                 : ": these prompts end with a space; begin the completions with it instead");
    lathe_text_loss_warn(&notes->loss, path);
}

static lathe_status prepare_dataset(chain *c)
{
    LATHE_TRY(lathe_sources_list(c->job.dataset, &c->arena, &c->sources));
    LATHE_TRY(lathe__shards_note(c->shards, &c->sources));
    c->job.sources = &c->sources;
    LATHE_TRY(hash_key(&c->job, c->key));
    const lathe_status status = prepare_parts(c);
    drop_lock(c);
    if (status == LATHE_OK)
        warn_of_tokens(c);
    c->shards->n_built += c->built;
    return status;
}

/* Refuses a dataset of which all records were skipped, and names the reason. */
static lathe_status check_filled(const lathe_shards *shards, const lathe_dataset *dataset)
{
    const lathe_shards_set *set = &shards->sets[shards->n_sets - 1];
    lathe_buffer why = LATHE_BUFFER_INIT;
    int64_t bytes = 0;
    if (set->n_segments > 0)
        return LATHE_OK;
    for (int64_t i = 0; i < set->n_sources; i++)
        bytes += shards->sources[set->first_source + i].bytes;
    for (int32_t i = 0; i < LATHE_N_LEFT; i++)
        if (set->counts.left[i].n > 0) {
            lathe_buffer_puts(&why, why.len ? ", " : "; left out: ");
            lathe_shards_put_left(shards, set, i, &why);
        }
    const lathe_status status = lathe_error(
        LATHE_E_CONFIG, "%s: no %s in it%s", dataset->path,
        lathe_row_kind_get(shards->rows)->records,
        bytes == 0 ? (set->n_sources == 1 ? "; the file is empty" : "; its files are empty")
        : why.data ? why.data
        : set->n_sources == 1 ? "; the file has no records"
                              : "; its files have no records");
    lathe_buffer_fini(&why);
    return status;
}

static lathe_status prepare_all(const lathe_dataset *datasets, int64_t n_datasets, int32_t rows,
                                const lathe_tokenizer *tok, const char *cache_dir,
                                int64_t part_bytes, int64_t max_parts,
                                lathe_shards_progress progress, void *arg, lathe_shards **out)
{
    if (!lathe_rows_valid(rows))
        return lathe_error(LATHE_E_ARG, "rows is %d: no kind of rows", rows);
    if (lathe_tokenizer_eos(tok) < 0)
        return lathe_error(LATHE_E_CONFIG,
                           "the tokenizer names no end-of-text token; set eos_token "
                           "in tokenizer_config.json");
    LATHE_TRY(lathe_dir_create(cache_dir));
    lathe_shards *shards;
    LATHE_TRY(lathe__shards_create(n_datasets, rows, lathe_tokenizer_eos(tok),
                                   lathe_tokenizer_vocab_size(tok), &shards));
    lathe_status status = LATHE_OK;
    int64_t verify_bytes = VERIFY_BYTES;
    for (int64_t i = 0; i < n_datasets && status == LATHE_OK; i++) {
        chain c = {.job = {.dataset = &datasets[i],
                           .tok = tok,
                           .cache_dir = cache_dir,
                           .part_bytes = part_bytes,
                           .rows = rows,
                           .progress = progress,
                           .progress_arg = arg},
                   .shards = shards,
                   .max_parts = max_parts,
                   .lock = LATHE_LOCK_INIT,
                   .verify_bytes = &verify_bytes};
        lathe__shards_begin(shards, datasets[i].weight);
        status = prepare_dataset(&c);
        if (status == LATHE_OK)
            status = check_filled(shards, &datasets[i]);
        lathe_arena_fini(&c.arena);
    }
    if (status == LATHE_OK)
        status = lathe__shards_seal(shards);
    if (status != LATHE_OK) {
        lathe_shards_destroy(shards);
        return status;
    }
    *out = shards;
    return LATHE_OK;
}

lathe_status lathe__shards_prepare_parts(const lathe_dataset *datasets, int64_t n_datasets,
                                         int32_t rows, const lathe_tokenizer *tok,
                                         const char *cache_dir, int64_t part_bytes,
                                         lathe_shards_progress progress, void *arg,
                                         lathe_shards **out)
{
    return prepare_all(datasets, n_datasets, rows, tok, cache_dir, part_bytes, 0, progress, arg,
                       out);
}

lathe_status lathe_shards_sample(const lathe_dataset *datasets, int64_t n_datasets, int32_t rows,
                                 const lathe_tokenizer *tok, const char *dir, int64_t bytes,
                                 lathe_shards **out)
{
    return prepare_all(datasets, n_datasets, rows, tok, dir, bytes, 1, NULL, NULL, out);
}

lathe_status lathe_shards_prepare(const lathe_dataset *datasets, int64_t n_datasets, int32_t rows,
                                  const lathe_tokenizer *tok, const char *cache_dir,
                                  lathe_shards_progress progress, void *arg, lathe_shards **out)
{
    return lathe__shards_prepare_parts(datasets, n_datasets, rows, tok, cache_dir, LATHE_PART_BYTES,
                                       progress, arg, out);
}
