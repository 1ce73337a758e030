/* Makes the folder of a stored teacher. */
#include "run/api/stored_logprobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/stale.h"
#include "checkpoint/state/parents.h"
#include "data/records/row_kind.h"
#include "data/rows/loader_rows.h"
#include "data/rows/logprob_file.h"
#include "exec/program/batch_load.h"
#include "files/safetensors/manifest.h"
#include "run/parts/stored_teacher.h"
#include "run/parts/teacher.h"

#define FILE_BYTES ((int64_t)256 << 20)
#define ENDING ".logprobs"

/* A record in a batch: its tokens are from place `at` of the batch on. */
typedef struct placed {
    int64_t at, n;
} placed;

typedef struct storing {
    lathe_run *run;
    const lathe_storing *how;
    lathe_stored *out;
    lathe_buffer sets; /* JSON of the manifest's "sets" */
    char made_by[65];
    int64_t n_all;

    /* The data that are being read: */
    const lathe_shards *shards;
    const char *name; /* "datasets", "validation" */

    /* A batch: */
    int32_t *memory; /* tokens, targets, positions, doc_start: [4][n_rows * row_tokens] */
    placed *records; /* [n_rows * row_tokens] of the batch, in order */
    int64_t n_placed;
    int32_t *ids;  /* [row_tokens, k] of one record */
    float *values; /* [row_tokens, k + 1] */
} storing;

static const lathe_program *program_of(const storing *s)
{
    return &s->run->programs.top;
}

/* ---- what the numbers depend on ---- */

static lathe_status identify(storing *s)
{
    const lathe_run *run = s->run;
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_sha256 *hash = NULL;
    lathe_buffer_printf(&text, "%d %d %a %d %lld %lld %s %s ", run->open.top_k, s->how->is_f16,
                        run->open.top_temperature, run->params.rows[0]->dtype,
                        (long long)run->set.seq_len, (long long)lathe__teacher_tokens(run),
                        lathe_tokenizer_hash(run->data.tokenizer),
                        lathe_dtype_name(run->set.compute_dtype));
    lathe_status status = lathe_files_list(run->set.teacher_path, lathe__is_weight_file, &text);
    if (status != LATHE_OK)
        goto out;
    status = text.status;
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_sha256_create(&hash)) != LATHE_OK)
        goto out;
    lathe_sha256_update(hash, text.data, text.len);
    lathe_sha256_finish(hash, s->made_by);
out:
    lathe_buffer_fini(&text);
    return status;
}

static lathe_logprob_header header_of(const storing *s, int64_t first_record)
{
    const lathe_run *run = s->run;
    lathe_logprob_header h = {.top_k = run->open.top_k,
                              .value_bytes = s->how->is_f16 ? 2 : 4,
                              .row_tokens = run->set.seq_len,
                              .vocab_size = lathe__teacher_tokens(run),
                              .temperature = run->open.top_temperature,
                              .first_record = first_record};
    memcpy(h.data, lathe_shards_hash(s->shards), sizeof h.data);
    memcpy(h.made_by, s->made_by, sizeof h.made_by);
    return h;
}

/* ---- one batch ---- */

static int64_t record_tokens(const storing *s, int64_t r)
{
    const int64_t n = lathe_shards_offset(s->shards, r + 1) - lathe_shards_offset(s->shards, r);
    return n < s->run->set.seq_len ? n : s->run->set.seq_len;
}

/* Whether a token of the record is a target, within the row that it is cut to. */
static int has_target(const storing *s, int64_t r)
{
    const int64_t begin = lathe_shards_offset(s->shards, r), n = record_tokens(s, r);
    return lathe_shards_first_target(s->shards, begin + (n > 0), begin + n) != begin + n;
}

/* Refuses data to learn from without a target, as training does. */
static lathe_status check_targets(storing *s)
{
    const lathe_run *run = s->run;
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(run->data.shards));
    const int64_t n = lathe_shards_segments(run->data.shards);
    s->shards = run->data.shards;
    for (int64_t r = 0; r < n; r++)
        if (has_target(s, r))
            return LATHE_OK;
    return lathe__run_refuse(
        run, "data", "datasets",
        "the data has no rows for training: 0 %s of %lld, %lld left out because their prompt alone "
        "fills %d tokens; set data.seq_len higher",
        kind->records, (long long)n, (long long)n, run->set.seq_len);
}

/* Fills row `i` of the batch with whole records from *io_record on; those without a target take no
 * place. */
static lathe_status fill_row(storing *s, int64_t i, int64_t *io_record)
{
    const lathe_program *p = program_of(s);
    const int64_t T = p->row_tokens, plane = p->n_rows * T, n = lathe_shards_segments(s->shards);
    int32_t *const base = s->memory + i * T;
    const lathe_row row = {.tokens = base,
                           .targets = base + plane,
                           .positions = base + 2 * plane,
                           .doc_start = base + 3 * plane,
                           .n_tokens = T};
    int64_t at = 0;
    while (*io_record < n && s->n_placed < plane) {
        const int64_t r = *io_record, begin = lathe_shards_offset(s->shards, r);
        int64_t length = has_target(s, r) ? record_tokens(s, r) : 0, n_target = 0;
        if (at + length > T)
            break;
        if (length > 0)
            LATHE_TRY(lathe__row_piece(s->shards, begin, length, 0, at, &row, &n_target));
        s->records[s->n_placed++] = (placed){i * T + at, length};
        at += length;
        ++*io_record;
    }
    lathe__row_fill(&row, at, lathe_shards_eos(s->shards));
    return LATHE_OK;
}

static lathe_status run_batch(storing *s)
{
    lathe_run *run = s->run;
    lathe_program *p = &run->programs.top;
    const int64_t plane = p->n_rows * p->row_tokens;
    const lathe_run_batch batch = {.size = (uint32_t)sizeof batch,
                                   .n_rows = p->n_rows,
                                   .row_tokens = (int32_t)p->row_tokens,
                                   .tokens = s->memory,
                                   .targets = s->memory + plane,
                                   .positions = s->memory + 2 * plane,
                                   .doc_start = s->memory + 3 * plane};
    double count = 0.0;
    LATHE_TRY(lathe__batch_load(p, &run->teacher->model, &run->parts.stage, &batch, 0, 0, &count));
    LATHE_TRY(lathe_exec_send(p->exec));
    return lathe_exec_run(p->exec, 0);
}

/* The results of the batch, by part of the program. */
typedef struct results {
    const int32_t *ids;
    const float *values;
    int64_t part; /* -1: none fetched yet */
} results;

/* Appends the entry of token i of the batch to those of the record that is being written. */
static lathe_status take_entry(storing *s, results *got, int64_t i, int64_t to)
{
    const lathe_program *p = program_of(s);
    const int64_t k = s->run->open.top_k, part = i / p->top_rows, row = i % p->top_rows;
    if (part != got->part || got->ids == NULL) {
        const void *ids = NULL, *values = NULL;
        LATHE_TRY(lathe_exec_fetch(p->exec, p->top_ids[part], &ids));
        LATHE_TRY(lathe_exec_fetch(p->exec, p->top_values[part], &values));
        *got = (results){ids, values, part};
    }
    memcpy(s->ids + to * k, got->ids + row * k, (size_t)k * sizeof *s->ids);
    memcpy(s->values + to * (k + 1), got->values + row * (k + 1),
           (size_t)(k + 1) * sizeof *s->values);
    for (int64_t j = 0; j <= k; j++) { /* a log-probability of 0 may be rounded up */
        float *x = &s->values[to * (k + 1) + j];
        *x = *x > 0.0f && *x < 1e-5f ? 0.0f : *x;
        if (j < k && s->ids[to * k + j] < 0) /* TOPK found too few numbers */
            *x = (float)NAN;
    }
    return LATHE_OK;
}

/* Writes the records of the batch. */
static lathe_status put_batch(storing *s, lathe_logprob_writer *writer)
{
    const lathe_program *p = program_of(s);
    const int32_t *targets = s->memory + p->n_rows * p->row_tokens;
    results got = {NULL, NULL, -1};
    for (int64_t r = 0; r < s->n_placed; r++) {
        int64_t n = 0;
        for (int64_t i = s->records[r].at; i < s->records[r].at + s->records[r].n; i++)
            if (targets[i] >= 0)
                LATHE_TRY(take_entry(s, &got, i, n++));
        LATHE_TRY(lathe__logprob_writer_put(writer, n, s->ids, s->values));
        s->out->n_targets += n;
    }
    return LATHE_OK;
}

/* ---- one file ---- */

static lathe_status write_records(storing *s, lathe_logprob_writer *writer, int64_t *io_record)
{
    const lathe_program *p = program_of(s);
    const int64_t n = lathe_shards_segments(s->shards), k = s->run->open.top_k;
    const int64_t each = k * (writer->header.id_bytes + writer->header.value_bytes) + 4;
    const int64_t most = s->how->file_bytes > 0 ? s->how->file_bytes : FILE_BYTES;
    while (*io_record < n && writer->header.n_targets * each < most) {
        const int64_t before = *io_record;
        s->n_placed = 0;
        LATHE_TRY(lathe_work_tell(&s->how->watch, s->out->n_records, s->n_all));
        for (int64_t i = 0; i < p->n_rows; i++)
            LATHE_TRY(fill_row(s, i, io_record));
        LATHE_TRY(run_batch(s));
        LATHE_TRY(put_batch(s, writer));
        s->out->n_records += *io_record - before;
    }
    return LATHE_OK;
}

/* Removes the manifest: the folder is not complete while files are written. */
static lathe_status begin_writing(const storing *s)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/" LATHE_MANIFEST_NAME, s->how->dir) >= (int)sizeof path)
        return lathe_error(LATHE_E_ARG, "%s: the path is too long", s->how->dir);
    return !lathe_path_exists(path) || unlink(path) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_IO, "%s: cannot be removed", path);
}

static lathe_status make_file(storing *s, const char *path, int64_t *io_record)
{
    const lathe_logprob_header header = header_of(s, *io_record);
    lathe_logprob_writer writer;
    uint64_t checksum = 0;
    LATHE_TRY(begin_writing(s));
    lathe_status status = lathe__logprob_writer_init(&writer, path, &header);
    if (status != LATHE_OK)
        goto out;
    if ((status = write_records(s, &writer, io_record)) != LATHE_OK)
        goto out;
    if ((status = lathe__logprob_writer_finish(&writer, &checksum)) != LATHE_OK)
        goto out;
    s->out->bytes += writer.header.file_bytes;
out:
    lathe__logprob_writer_fini(&writer);
    return status;
}

/* Takes a file that an earlier call finished. */
static lathe_status keep_file(storing *s, const char *path, int64_t *io_record)
{
    const lathe_logprob_header wanted = header_of(s, *io_record);
    lathe_logprob_file file;
    LATHE_TRY(lathe__logprob_open(path, 1, &file));
    const lathe_logprob_header h = file.header;
    lathe__logprob_close(&file);
    if (memcmp(h.made_by, wanted.made_by, sizeof h.made_by) != 0 ||
        memcmp(h.data, wanted.data, sizeof h.data) != 0 || h.first_record != *io_record ||
        h.n_records > lathe_shards_segments(s->shards) - *io_record)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: made of other data, by another teacher or with other settings: "
                           "remove the folder, or name another with --output",
                           path);
    *io_record += h.n_records;
    s->out->n_records += h.n_records;
    s->out->n_targets += h.n_targets;
    s->out->bytes += h.file_bytes;
    s->out->n_kept++;
    return LATHE_OK;
}

/* ---- the data of one key ---- */

static lathe_status store_set(storing *s, const char *name, const lathe_shards *shards)
{
    const int64_t n = lathe_shards_segments(shards), before = s->out->n_targets;
    int64_t record = 0;
    s->shards = shards;
    s->name = name;
    lathe_buffer_printf(&s->sets,
                        "%s{\"name\": \"%s\", \"data\": \"%s\", \"records\": %lld, "
                        "\"files\": [",
                        s->sets.len > 0 ? ", " : "", name, lathe_shards_hash(shards), (long long)n);
    for (int32_t i = 0; record < n; i++) {
        char file[64], path[512];
        (void)snprintf(file, sizeof file, "%s-%05d" ENDING, name, i);
        if (snprintf(path, sizeof path, "%s/%s", s->how->dir, file) >= (int)sizeof path)
            return lathe_error(LATHE_E_ARG, "%s: the path is too long", s->how->dir);
        LATHE_TRY(lathe_path_exists(path) ? keep_file(s, path, &record)
                                          : make_file(s, path, &record));
        lathe_buffer_printf(&s->sets, "%s\"%s\"", i ? ", " : "", file);
        s->out->n_files++;
    }
    lathe_buffer_printf(&s->sets, "], \"targets\": %lld}", (long long)(s->out->n_targets - before));
    return s->sets.status;
}

/* ---- the folder ---- */

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Refuses a folder with other files, and removes unfinished files of earlier calls: the folder is
 * locked, so no process writes them. The manifest stays until a file is written: a call that is
 * refused leaves a folder as it was. */
static lathe_status clear(const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = 0;
    lathe_status status = lathe_dir_list(dir, &arena, &names, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const int is_ours = ends_with(names[i], ENDING) ||
                            strcmp(names[i], LATHE_MANIFEST_NAME) == 0 ||
                            strstr(names[i], ENDING ".tmp.") != NULL ||
                            lathe_stale_is_unfinished(names[i], LATHE_MANIFEST_NAME);
        if (!is_ours)
            status =
                lathe_error(LATHE_E_CONFIG,
                            "%s: the folder has other files, such as %s; expected a new folder, "
                            "or one of an earlier lathe logprobs",
                            dir, names[i]);
    }
    lathe_arena_fini(&arena);
    return status == LATHE_OK ? lathe_stale_remove_locked(dir, NULL) : status;
}

static lathe_status put_manifest(storing *s)
{
    const lathe_run *run = s->run;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer meta = LATHE_BUFFER_INIT;
    lathe_buffer_printf(
        &meta,
        "{\"kind\": \"" LATHE_LOGPROBS_KIND "\", \"lathe\": \"%s\", \"made_by\": \"logprobs\", "
        "\"top_k\": %d, \"temperature\": %.17g, \"seq_len\": %d, \"vocab_size\": %lld, "
        "\"tokenizer\": \"%s\", \"precision\": \"%s\", "
        "\"teacher_precision\": \"%s\", \"parents\": [",
        lathe_version(), run->open.top_k, run->open.top_temperature, run->set.seq_len,
        (long long)lathe__teacher_tokens(run), lathe_tokenizer_hash(run->data.tokenizer),
        s->how->is_f16 ? "fp16" : "fp32", lathe_dtype_name(run->params.rows[0]->dtype));
    lathe_status status = lathe__parent_put(run->set.teacher_path, "\"teacher\"", &arena, &meta);
    lathe_buffer_puts(&meta, "]");
    lathe__parents_put_place(s->how->dir, &arena, &meta);
    lathe_buffer_puts(&meta, ", \"sets\": [");
    if (s->sets.data)
        lathe_buffer_puts(&meta, s->sets.data);
    lathe_buffer_puts(&meta, "]}");
    if (status == LATHE_OK)
        status = meta.status;
    if (status == LATHE_OK)
        status = lathe_manifest_write(s->how->dir, meta.data);
    lathe_buffer_fini(&meta);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status allocate(storing *s)
{
    const lathe_program *p = program_of(s);
    const size_t plane = (size_t)p->n_rows * (size_t)p->row_tokens;
    const size_t k = (size_t)s->run->open.top_k;
    s->memory = malloc(4 * plane * sizeof *s->memory);
    s->records = malloc(plane * sizeof *s->records);
    s->ids = malloc((size_t)p->row_tokens * k * sizeof *s->ids);
    s->values = malloc((size_t)p->row_tokens * (k + 1) * sizeof *s->values);
    return s->memory && s->records && s->ids && s->values
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory for a batch of %d x %lld tokens", p->n_rows,
                             (long long)p->row_tokens);
}

static lathe_status fill_folder(storing *s)
{
    const lathe_run_data *data = &s->run->data;
    LATHE_TRY(clear(s->how->dir));
    LATHE_TRY(allocate(s));
    LATHE_TRY(identify(s));
    s->n_all = lathe_shards_segments(data->shards) +
               (data->validation_shards ? lathe_shards_segments(data->validation_shards) : 0);
    LATHE_TRY(store_set(s, "datasets", data->shards));
    if (data->validation_shards &&
        strcmp(lathe_shards_hash(data->validation_shards), lathe_shards_hash(data->shards)) != 0)
        LATHE_TRY(store_set(s, "validation", data->validation_shards));
    return put_manifest(s);
}

/* This folder grows in place, because a call that was interrupted goes on in it: its manifest,
 * which is written last, says that it is complete. */
static lathe_status store_all(storing *s)
{
    lathe_lock lock = LATHE_LOCK_INIT;
    LATHE_TRY(check_targets(s));
    const int is_new = !lathe_path_exists(s->how->dir);
    LATHE_TRY(lathe_dir_create(s->how->dir));
    LATHE_TRY(lathe_lock_folder(s->how->dir, &lock));
    const lathe_status status = fill_folder(s);
    lathe_lock_release(&lock);
    if (status != LATHE_OK && is_new)
        (void)rmdir(s->how->dir); /* fails if a file was finished, which the next call keeps */
    return status;
}

lathe_status lathe__logprobs_store(lathe_run *run, const lathe_storing *how, lathe_stored *out)
{
    storing s = {.run = run, .how = how, .out = out, .sets = LATHE_BUFFER_INIT};
    *out = (lathe_stored){.n_records = 0};
    const lathe_status status = store_all(&s);
    lathe_buffer_fini(&s.sets);
    free(s.memory);
    free(s.records);
    free(s.ids);
    free(s.values);
    return status;
}
