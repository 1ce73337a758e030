/* Reads the texts of datasets one after another. */
#include "data/records/corpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json/json.h"
#include "data/records/chat_alpaca.h"
#include "data/records/record_reader.h"

#define BATCH_BYTES (4LL << 20)

struct lathe_corpus {
    const lathe_dataset *datasets;
    lathe_sources *sources; /* [n] */
    int64_t n, at;          /* index of the dataset that is being read */
    int32_t rows, open;     /* open: 1 while that dataset's reader is open */
    lathe_arena arena;
    lathe_reader reader;
    int64_t record;        /* next record of the batch */
    lathe_fields fields;   /* of the current record */
    int32_t column;        /* next field */
    lathe_buffer contents; /* the contents of the current record's messages */
    int64_t n_skipped;     /* in the earlier datasets */
};

lathe_status lathe_corpus_open(const lathe_dataset *datasets, int64_t n, int32_t rows,
                               lathe_corpus **out)
{
    lathe_corpus *c = calloc(1, sizeof *c);
    if (c == NULL)
        return lathe_error(LATHE_E_NOMEM, "corpus");
    c->datasets = datasets;
    c->n = n;
    c->rows = rows;
    c->column = LATHE_N_COLUMNS;
    c->sources = lathe_arena_alloc(&c->arena, (n + 1) * (int64_t)sizeof *c->sources);
    lathe_status status = c->sources ? LATHE_OK : LATHE_E_NOMEM;
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        status = lathe_sources_list(&datasets[i], &c->arena, &c->sources[i]);
    if (status != LATHE_OK) {
        lathe_corpus_close(c);
        return status;
    }
    *out = c;
    return LATHE_OK;
}

void lathe_corpus_close(lathe_corpus *corpus)
{
    if (corpus == NULL)
        return;
    if (corpus->open)
        lathe_reader_fini(&corpus->reader);
    lathe_fields_fini(&corpus->fields);
    lathe_buffer_fini(&corpus->contents);
    lathe_arena_fini(&corpus->arena);
    free(corpus);
}

/* Appends the texts of a message's content: a string, or a list of parts with a text each. */
static void put_content(json_t *content, lathe_buffer *out)
{
    json_t *part;
    size_t i;
    if (json_is_string(content)) {
        lathe_buffer_append(out, json_string_value(content), (int64_t)json_string_length(content));
        lathe_buffer_puts(out, "\n");
    }
    json_array_foreach(content, i, part) put_content(json_object_get(part, "text"), out);
}

/* Appends the contents of all messages in the lists of a record. */
static lathe_status put_messages(const lathe_fields *fields, lathe_buffer *out)
{
    json_t *row, *list, *message;
    const char *key;
    size_t i;
    LATHE_TRY(lathe_json_load_with_nul("record", fields->row, fields->n_row, &row));
    if (fields->layout == LATHE_LAYOUT_KNOWN) {
        const lathe_status status = lathe_chat_alpaca_read(0, row, NULL);
        if (status != LATHE_OK) {
            json_decref(row);
            return status;
        }
    }
    json_object_foreach(row, key, list) json_array_foreach(list, i, message)
    {
        json_t *content = json_object_get(message, "content");
        put_content(content ? content : json_object_get(message, "value"), out);
    }
    json_decref(row);
    return out->status;
}

/* Reads the fields of the next record. *out_any is 0 at the end. */
static lathe_status next_record(lathe_corpus *c, int *out_any)
{
    lathe_reader *r = &c->reader;
    *out_any = 0;
    while (c->open ? c->record == r->n : c->at < c->n) {
        if (!c->open) {
            const lathe_source_place begin = {.line = 1};
            LATHE_TRY(
                lathe_reader_init(r, &c->datasets[c->at], &c->sources[c->at], c->rows, &begin));
            c->open = 1;
            c->record = 0;
        } else if (lathe_reader_ended(r)) {
            c->n_skipped += r->n_skipped;
            lathe_reader_fini(r);
            c->open = 0;
            c->at++;
        } else {
            LATHE_TRY(lathe_reader_batch(r, BATCH_BYTES));
            c->record = 0;
        }
    }
    *out_any = c->open;
    c->contents.len = 0;
    if (!c->open)
        return LATHE_OK;
    const lathe_record *record = &r->list[c->record++];
    LATHE_TRY(lathe_fields_read(&c->fields, r, record));
    if (!c->fields.is_chat)
        return LATHE_OK;
    return lathe_record_error(put_messages(&c->fields, &c->contents), r, record);
}

lathe_status lathe_corpus_next(void *corpus, const char **out_text, int64_t *out_bytes)
{
    lathe_corpus *c = corpus;
    *out_text = NULL;
    *out_bytes = 0;
    for (;;) {
        if (c->contents.len > 0 && c->column == 0) {
            c->column = LATHE_N_COLUMNS;
            *out_text = c->contents.data;
            *out_bytes = c->contents.len;
            return LATHE_OK;
        }
        for (; c->column < LATHE_N_COLUMNS; c->column++)
            if (c->fields.n[c->column] > 0) {
                *out_text = c->fields.text[c->column];
                *out_bytes = c->fields.n[c->column++];
                return LATHE_OK;
            }
        int any;
        LATHE_TRY(next_record(c, &any));
        if (!any)
            return LATHE_OK;
        c->column = 0;
    }
}

int64_t lathe_corpus_skipped(const lathe_corpus *corpus)
{
    return corpus->n_skipped + (corpus->open ? corpus->reader.n_skipped : 0);
}

lathe_status lathe_corpus_hash(const lathe_corpus *corpus, char out[65])
{
    lathe_sha256 *hash;
    lathe_status status = LATHE_OK;
    LATHE_TRY(lathe_sha256_create(&hash));
    for (int64_t i = 0; i < corpus->n && status == LATHE_OK; i++) {
        const lathe_sources *sources = &corpus->sources[i];
        lathe_sha256_update(hash, &sources->type, sizeof sources->type);
        lathe_dataset_hash_columns(&corpus->datasets[i], hash);
        for (int64_t f = 0; f < sources->n && status == LATHE_OK; f++) {
            char hex[65];
            status = lathe_sha256_file(sources->list[f].path, hex);
            if (status == LATHE_OK)
                lathe_sha256_update(hash, hex, 64);
        }
    }
    if (status == LATHE_OK)
        lathe_sha256_finish(hash, out);
    else
        lathe_sha256_destroy(hash);
    return status;
}
