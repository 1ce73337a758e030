/* Builds a shard: tokenises records in batches on all threads and writes them in order. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "chat/template/chat_template.h"
#include "data/records/row_kind.h"
#include "data/rows/record_pieces.h"
#include "data/rows/shards_internal.h"
#include "tokenizer/encode/text_cut.h"

#define BATCH_BYTES (8LL << 20)
#define UNIT_BYTES (64LL << 10)   /* bytes of text that a thread takes at a time */
#define RANGE_BYTES (256LL << 10) /* the same, in a long document */
#define LONG_BYTES (1LL << 20) /* maximum length of the pieces into which the reader cuts texts */

/* A part of the batch's records, and the result of tokenising it. */
typedef struct unit {
    int64_t first, n; /* records; for a long document: bytes of its text */
    lathe_pieces pieces;
    lathe_status status;
    lathe_kept_error error;
} unit;

typedef struct builder {
    const lathe_shard_job *job;
    lathe_shard_writer *writer;
    lathe_reader reader;
    lathe_record_encoder *workers; /* one for each thread */
    int32_t n_workers;
    int32_t goes_on; /* the last record of the previous batch continues */
    unit *units;
    int64_t n_units, units_max;
    atomic_llong next; /* next unit to take */
    const char *text;  /* text of the long document that the units cut, else NULL */
    int64_t n_text;
    int32_t may_cut; /* LATHE_CUT_* of the tokenizer */
} builder;

/* A parallel_for body: takes units until none is left. */
static void work(void *arg, int64_t begin, int64_t end, int32_t index)
{
    builder *b = arg;
    (void)begin;
    (void)end;
    for (;;) {
        const int64_t i = atomic_fetch_add(&b->next, 1);
        if (i >= b->n_units)
            return;
        unit *u = &b->units[i];
        if (b->text)
            u->status =
                lathe__record_encode_range(&b->workers[index], &b->workers[0].fields, b->text,
                                           b->n_text, u->first, u->first + u->n, &u->pieces);
        for (int64_t k = 0; k < u->n && u->status == LATHE_OK && !b->text; k++)
            u->status = lathe__record_encode(&b->workers[index], &b->reader,
                                             &b->reader.list[u->first + k], &u->pieces);
        if (u->status != LATHE_OK)
            lathe_error_keep(&u->error);
    }
}

static lathe_status add_unit(builder *b, int64_t first, int64_t n)
{
    if (b->n_units == b->units_max) {
        const int64_t max = b->units_max * 2 + 64;
        unit *units = realloc(b->units, (size_t)max * sizeof *units);
        if (!units)
            return lathe_error(LATHE_E_NOMEM, "%lld pieces of work", (long long)max);
        memset(units + b->units_max, 0, (size_t)(max - b->units_max) * sizeof *units);
        b->units = units;
        b->units_max = max;
    }
    unit *u = &b->units[b->n_units++];
    u->first = first;
    u->n = n;
    lathe__pieces_clear(&u->pieces);
    u->status = LATHE_OK;
    return LATHE_OK;
}

/* Whether the document is tokenised in ranges. */
static int is_long(const builder *b, const lathe_record *record)
{
    return b->may_cut != LATHE_CUT_NONE && record->n > LONG_BYTES;
}

/* Cuts records into units of about equal size, up to the next long document. The cuts depend only
 * on the records. *out_next is the record after them. */
static lathe_status cut_units(builder *b, int64_t from, int64_t *out_next)
{
    const lathe_reader *r = &b->reader;
    int64_t i = from;
    b->n_units = 0;
    while (i < r->n && !is_long(b, &r->list[i])) {
        const int64_t first = i;
        for (int64_t bytes = 0; i < r->n && bytes < UNIT_BYTES && !is_long(b, &r->list[i]); i++)
            bytes += r->list[i].n + 64;
        LATHE_TRY(add_unit(b, first, i - first));
    }
    *out_next = i;
    return LATHE_OK;
}

static lathe_status write_unit(builder *b, const unit *u)
{
    const lathe_pieces *p = &u->pieces;
    int64_t at = 0;
    if (u->status != LATHE_OK)
        return lathe_error_raise(u->status, &u->error);
    lathe_shard_header *h = &b->writer->header;
    lathe__record_counts_add(&h->counts, &p->counts,
                             h->n_segments / lathe_row_kind_get(h->rows)->n_segments);
    lathe__record_notes_add(&b->writer->notes, &p->notes);
    for (int32_t i = 0; i < LATHE_N_LEFT; i++)
        h->n_skipped += p->counts.left[i].n;
    for (int64_t k = 0; k < p->n; k++) {
        lathe_shard_piece piece = p->list[k];
        piece.ids = p->ids.data + at;
        piece.inputs = p->inputs ? p->inputs + piece.first_input : NULL;
        piece.record = piece.json_bytes > 0 ? p->records.data + piece.json : NULL;
        LATHE_TRY(lathe__shard_writer_put(b->writer, &piece));
        at += piece.n;
    }
    return LATHE_OK;
}

/* Frees the memory of a unit that contained an unusually long document. */
static void shrink(unit *u)
{
    if (u->pieces.ids.capacity > 64 * UNIT_BYTES)
        lathe_ids_fini(&u->pieces.ids);
}

static lathe_status put_units(builder *b)
{
    atomic_store(&b->next, 0);
    lathe_parallel_for(b->n_workers, 1, work, b);
    for (int64_t i = 0; i < b->n_units; i++) {
        LATHE_TRY(write_unit(b, &b->units[i]));
        shrink(&b->units[i]);
    }
    return LATHE_OK;
}

/* Tokenises a document of many megabytes in ranges, on all threads, without keeping all its ids
 * in memory. */
static lathe_status put_long(builder *b, const lathe_record *record)
{
    lathe_fields *f = &b->workers[0].fields;
    LATHE_TRY(lathe_fields_read(f, &b->reader, record));
    lathe__record_note_unread(
        &b->reader, record, f,
        LATHE_SHARD_LINE(record->file, lathe_record_at(b->job->sources, record)),
        &b->writer->notes);
    b->text = f->text[LATHE_COLUMN_TEXT];
    b->n_text = f->n[LATHE_COLUMN_TEXT];
    lathe_status status = LATHE_OK;
    for (int64_t at = 0; at < b->n_text && status == LATHE_OK;) {
        b->n_units = 0;
        while (at < b->n_text && b->n_units < 4 * b->n_workers && status == LATHE_OK) {
            const int64_t end = lathe__cut_after(b->may_cut, b->text, b->n_text, at + RANGE_BYTES);
            status = add_unit(b, at, end - at);
            at = end;
        }
        if (status == LATHE_OK)
            status = put_units(b);
    }
    if (b->n_text == 0) {
        lathe_record_counts *counts = &b->writer->header.counts;
        b->writer->header.n_skipped++;
        if (counts->left[LATHE_LEFT_EMPTY].n++ == 0)
            counts->left[LATHE_LEFT_EMPTY].first =
                LATHE_SHARD_LINE(record->file, lathe_record_at(b->job->sources, record));
    }
    b->text = NULL;
    return status;
}

static lathe_status put_batch(builder *b)
{
    for (int64_t i = 0; i < b->reader.n;) {
        int64_t next;
        LATHE_TRY(cut_units(b, i, &next));
        LATHE_TRY(put_units(b));
        if (next < b->reader.n)
            LATHE_TRY(put_long(b, &b->reader.list[next++]));
        i = next;
    }
    b->goes_on = b->reader.n > 0 && b->reader.list[b->reader.n - 1].more;
    return LATHE_OK;
}

static lathe_status put_part(builder *b)
{
    const lathe_shard_job *job = b->job;
    lathe_reader *r = &b->reader;
    while (!lathe_reader_ended(r) && (r->n_bytes < job->part_bytes || b->goes_on)) {
        const int64_t left = job->part_bytes - r->n_bytes;
        LATHE_TRY(lathe_reader_batch(r, left > BATCH_BYTES ? BATCH_BYTES : left > 1 ? left : 1));
        LATHE_TRY(put_batch(b));
        if (job->progress)
            job->progress(job->progress_arg, job->dataset->path, job->done_bytes + r->n_bytes,
                          /* what a plugin reads may be compressed: the total is not known */
                          job->sources->type == LATHE_DATASET_READER ? 0 : job->sources->bytes,
                          job->done_tokens + b->writer->header.n_tokens);
    }
    return LATHE_OK;
}

static lathe_status init(builder *b)
{
    b->n_workers = lathe_parallel_threads();
    b->workers = calloc((size_t)b->n_workers, sizeof *b->workers);
    if (!b->workers)
        return lathe_error(LATHE_E_NOMEM, "%d threads", b->n_workers);
    for (int32_t i = 0; i < b->n_workers; i++) {
        b->workers[i].job = b->job;
        LATHE_TRY(lathe_encoder_create(b->job->tok, &b->workers[i].enc));
    }
    LATHE_TRY(lathe_reader_init(&b->reader, b->job->dataset, b->job->sources, b->job->rows,
                                &b->writer->header.begin));
    b->reader.file_bytes = b->job->file_bytes;
    b->may_cut = b->job->rows == LATHE_ROWS_PACKED ? lathe__cuts_of(b->job->tok) : LATHE_CUT_NONE;
    b->reader.cut_text = lathe_tokenizer_is_bytes(b->job->tok);
    return LATHE_OK;
}

static void fini(builder *b)
{
    for (int32_t i = 0; i < b->n_workers && b->workers; i++)
        lathe__record_encoder_fini(&b->workers[i]);
    for (int64_t i = 0; i < b->units_max; i++)
        lathe__pieces_fini(&b->units[i].pieces);
    free(b->workers);
    free(b->units);
    lathe_reader_fini(&b->reader);
}

lathe_status lathe__shard_build(const lathe_shard_job *job, lathe_shard_writer *writer,
                                char content[65])
{
    builder b = {.job = job, .writer = writer, .reader = {.fd = -1}};
    lathe_shard_header *h = &writer->header;
    lathe_status status = init(&b);
    if (status == LATHE_OK && (status = put_part(&b)) == LATHE_OK)
        status = lathe_reader_content(&b.reader, content);
    if (status == LATHE_OK) {
        h->end = b.reader.at;
        h->is_last = lathe_reader_ended(&b.reader);
        h->source_bytes = b.reader.n_bytes;
        h->n_skipped += b.reader.n_skipped;
        h->counts.left[LATHE_LEFT_FILE] =
            (lathe_record_count){b.reader.n_skipped, LATHE_SHARD_LINE(b.reader.skipped[0], 1)};
        for (int32_t i = 0; i < b.n_workers; i++)
            lathe_text_loss_add(&writer->notes.loss, lathe_encoder_loss(b.workers[i].enc));
        writer->notes.n_skipped = b.reader.n_skipped;
        memcpy(writer->notes.skipped, b.reader.skipped, sizeof b.reader.skipped);
    }
    fini(&b);
    return status;
}
