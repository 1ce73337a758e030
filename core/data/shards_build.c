/* Builds a shard: tokenises records in batches on all threads and writes them in order. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "data/chat_record.h"
#include "data/implicit_prompt.h"
#include "data/row_kind.h"
#include "data/shards_internal.h"
#include "text/text_cut.h"

#define BATCH_BYTES (8LL << 20)
#define UNIT_BYTES (64LL << 10) /* text that a thread takes at a time */
#define STRETCH (256LL << 10)   /* the same, if the document is cut */
#define LONG_BYTES (1LL << 20)  /* maximum length of the pieces into which the reader cuts texts */

/* A part of the batch's records, and the result of tokenising it. */
typedef struct unit {
    int64_t first, n; /* records; for a long document: bytes of its text */
    lathe_ids ids;
    lathe_shard_piece *pieces; /* their ids are NULL: they follow each other in the unit's ids */
    int64_t n_pieces, capacity;
    int64_t n_skipped, n_recut, n_spaces, n_known;
    int64_t n_unlearnt;           /* conversations without a token to learn */
    int64_t n_equal, first_equal; /* pairs; the first counts from the first of the unit */
    int64_t line;                 /* LATHE_SHARD_LINE of the record that is tokenised */
    lathe_status status;
    char message[512];
} unit;

/* State of one thread. */
typedef struct worker {
    lathe_encoder *enc;
    lathe_fields fields;
    lathe_ids prompt, chosen, rejected;
    lathe_chat_tokens talk;
    char *joined; /* prompt + completion */
    int64_t joined_bytes;
} worker;

typedef struct builder {
    const lathe_shard_job *job;
    lathe_shard_writer *writer;
    lathe_reader reader;
    worker *workers;
    int32_t n_workers;
    int32_t goes_on; /* the last record of the previous batch continues */
    unit *units;
    int64_t n_units, units_max;
    atomic_llong next; /* next unit to take */
    int64_t n_recut;   /* prompts whose last tokens merge with the completion */
    int64_t n_spaces;  /* those of them that end with a space */
    int64_t n_unlearnt;
    const char *text; /* text of the long document that the units cut, else NULL */
    int64_t n_text;
    int32_t may_cut; /* LATHE_CUT_* of the tokenizer */
} builder;

/* Copies the piece's ids; if they are NULL, they are already at the end of u->ids. */
static lathe_status add_piece(unit *u, lathe_shard_piece piece)
{
    if (u->n_pieces == u->capacity) {
        const int64_t capacity = u->capacity * 2 + 64;
        lathe_shard_piece *pieces = realloc(u->pieces, (size_t)capacity * sizeof *pieces);
        if (!pieces)
            return lathe_error(LATHE_E_NOMEM, "%lld documents", (long long)capacity);
        u->pieces = pieces;
        u->capacity = capacity;
    }
    if (piece.ids)
        LATHE_TRY(lathe_ids_append(&u->ids, piece.ids, piece.n));
    piece.ids = NULL;
    piece.line = u->line;
    u->pieces[u->n_pieces++] = piece;
    return LATHE_OK;
}

static lathe_status end_text(const lathe_tokenizer *tok, lathe_ids *ids, int64_t begin)
{
    const int32_t eos = lathe_tokenizer_eos(tok);
    if (ids->n > begin && ids->data[ids->n - 1] == eos)
        return LATHE_OK;
    LATHE_TRY(lathe_ids_reserve(ids, 1));
    ids->data[ids->n++] = eos;
    return LATHE_OK;
}

static lathe_status put_document(const builder *b, worker *w, unit *u, const char *text, int64_t n,
                                 int32_t more)
{
    if (n == 0) {
        u->n_skipped++;
        return LATHE_OK;
    }
    const int64_t begin = u->ids.n;
    LATHE_TRY(lathe_encoder_run(w->enc, text, n, LATHE_ENCODE_ADD_SPECIAL, &u->ids));
    if (!more)
        LATHE_TRY(end_text(b->job->tok, &u->ids, begin));
    return add_piece(u, (lathe_shard_piece){.n = u->ids.n - begin, .text_bytes = n, .more = more});
}

/* Tokenises the unit's stretch of the long document; the tokenizer allows cuts at its ends. */
static lathe_status put_stretch(const builder *b, worker *w, unit *u)
{
    const lathe_tokenizer *tok = b->job->tok;
    const int32_t more = u->first + u->n < b->n_text;
    if (u->first == 0)
        LATHE_TRY(lathe_tokenizer_put_prefix(tok, &u->ids));
    LATHE_TRY(lathe_encoder_run(w->enc, b->text + u->first, u->n, 0, &u->ids));
    if (!more) {
        LATHE_TRY(lathe_tokenizer_put_suffix(tok, &u->ids));
        LATHE_TRY(end_text(tok, &u->ids, 0));
    }
    return add_piece(u, (lathe_shard_piece){.n = u->ids.n, .text_bytes = u->n, .more = more});
}

static lathe_status encode_joined(const builder *b, worker *w, const char *prompt, int64_t n_prompt,
                                  const char *text, int64_t n, lathe_ids *out)
{
    if (n_prompt + n > w->joined_bytes) {
        free(w->joined);
        w->joined_bytes = 0;
        w->joined = malloc((size_t)(n_prompt + n));
        if (!w->joined)
            return lathe_error(LATHE_E_NOMEM, "a record of %lld bytes", (long long)(n_prompt + n));
        w->joined_bytes = n_prompt + n;
    }
    if (n_prompt > 0)
        memcpy(w->joined, prompt, (size_t)n_prompt);
    if (n > 0)
        memcpy(w->joined + n_prompt, text, (size_t)n);
    out->n = 0;
    LATHE_TRY(lathe_encoder_run(w->enc, w->joined, n_prompt + n, LATHE_ENCODE_ADD_SPECIAL, out));
    return end_text(b->job->tok, out, 0);
}

static int64_t common_prefix(const lathe_ids *a, const lathe_ids *b)
{
    int64_t n = 0;
    while (n < a->n && n < b->n && a->data[n] == b->data[n])
        n++;
    return n;
}

/* Counts a record whose prompt's last tokens merge with the completion. */
static void count_recut(unit *u, int is_recut, const char *prompt, int64_t n)
{
    u->n_recut += is_recut;
    u->n_spaces += is_recut && n > 0 && prompt[n - 1] == ' ';
}

/* Tokenises the prompt alone, and each prompt with its completion as one text. The completion
 * starts where the two results diverge, as in TRL's DPOTrainer. */
static lathe_status put_pair(const builder *b, worker *w, unit *u, const char *prompt,
                             int64_t n_prompt, const char *chosen, int64_t n_chosen,
                             const char *rejected, int64_t n_rejected)
{
    w->prompt.n = 0;
    LATHE_TRY(lathe_encoder_run(w->enc, prompt, n_prompt, LATHE_ENCODE_ADD_SPECIAL, &w->prompt));
    LATHE_TRY(encode_joined(b, w, prompt, n_prompt, chosen, n_chosen, &w->chosen));
    LATHE_TRY(encode_joined(b, w, prompt, n_prompt, rejected, n_rejected, &w->rejected));
    const int64_t with_chosen = common_prefix(&w->prompt, &w->chosen);
    const int64_t with_rejected = common_prefix(&w->prompt, &w->rejected);
    const int64_t n = with_chosen < with_rejected ? with_chosen : with_rejected;
    count_recut(u, n < w->prompt.n, prompt, n_prompt);
    LATHE_TRY(
        add_piece(u, (lathe_shard_piece){.ids = w->chosen.data, .n = n, .text_bytes = n_prompt}));
    LATHE_TRY(add_piece(u, (lathe_shard_piece){.ids = w->chosen.data + n,
                                               .n = w->chosen.n - n,
                                               .text_bytes = n_chosen}));
    return add_piece(u, (lathe_shard_piece){.ids = w->rejected.data + n,
                                            .n = w->rejected.n - n,
                                            .text_bytes = n_rejected});
}

/* Tokenises a prompt with its completion as one document. As in put_pair, the completion begins
 * where the tokens of both together differ from those of the prompt alone. */
static lathe_status put_completion(const builder *b, worker *w, unit *u, const char *prompt,
                                   int64_t n_prompt, const char *text, int64_t n)
{
    if (n == 0) {
        u->n_skipped++;
        return LATHE_OK;
    }
    w->prompt.n = 0;
    LATHE_TRY(lathe_encoder_run(w->enc, prompt, n_prompt, LATHE_ENCODE_ADD_SPECIAL, &w->prompt));
    LATHE_TRY(encode_joined(b, w, prompt, n_prompt, text, n, &w->chosen));
    const int64_t n_context = common_prefix(&w->prompt, &w->chosen);
    count_recut(u, n_prompt > 0 && n_context < w->prompt.n, prompt, n_prompt);
    LATHE_TRY(add_piece(u, (lathe_shard_piece){.ids = w->chosen.data,
                                               .n = n_context,
                                               .text_bytes = n_prompt,
                                               .more = 1,
                                               .is_context = 1}));
    return add_piece(u, (lathe_shard_piece){.ids = w->chosen.data + n_context,
                                            .n = w->chosen.n - n_context,
                                            .text_bytes = n});
}

/* The tokens of a conversation: runs of context and of targets in turn. */
static lathe_status put_chat(const builder *b, worker *w, unit *u, const lathe_record *record)
{
    lathe_chat_tokens *t = &w->talk;
    const int is_masked = lathe_row_kind_get(b->job->rows)->is_masked;
    LATHE_TRY(lathe_chat_encode(b->job->dataset, b->job->sources->list[record->file].path,
                                record->line, b->reader.data + record->begin, record->n,
                                b->job->tok, w->enc, t));
    if (is_masked ? t->n_learnt == 0 : t->ids.n == 0) {
        u->n_unlearnt++;
        return LATHE_OK;
    }
    for (int64_t at = 0, end; at < t->ids.n; at = end) {
        for (end = at + 1; end < t->ids.n && (!is_masked || t->learnt[end] == t->learnt[at]);)
            end++;
        LATHE_TRY(add_piece(u, (lathe_shard_piece){.ids = t->ids.data + at,
                                                   .n = end - at,
                                                   .text_bytes = at == 0 ? t->text_bytes : 0,
                                                   .more = end < t->ids.n,
                                                   .is_context = is_masked && !t->learnt[at]}));
    }
    return LATHE_OK;
}

static lathe_status put_record(const builder *b, worker *w, unit *u, const lathe_record *record)
{
    lathe_fields *f = &w->fields;
    LATHE_TRY(lathe_fields_read(f, &b->reader, record));
    u->n_known += f->layout == LATHE_LAYOUT_KNOWN;
    u->line = LATHE_SHARD_LINE(record->file, record->line);
    if (f->is_chat)
        return put_chat(b, w, u, record);
    if (b->job->rows == LATHE_ROWS_PACKED)
        return put_document(b, w, u, f->text[0], f->n[0], record->more);
    if (b->job->rows == LATHE_ROWS_COMPLETIONS)
        return put_completion(b, w, u,
                              f->text[LATHE_COLUMN_PROMPT] ? f->text[LATHE_COLUMN_PROMPT] : "",
                              f->n[LATHE_COLUMN_PROMPT], f->text[LATHE_COLUMN_COMPLETION],
                              f->n[LATHE_COLUMN_COMPLETION]);
    const char *const chosen = f->text[LATHE_COLUMN_CHOSEN];
    const char *const rejected = f->text[LATHE_COLUMN_REJECTED];
    const int64_t n_chosen = f->n[LATHE_COLUMN_CHOSEN], n_rejected = f->n[LATHE_COLUMN_REJECTED];
    if (n_chosen == n_rejected && memcmp(chosen, rejected, (size_t)n_chosen) == 0 &&
        u->n_equal++ == 0)
        u->first_equal = u->n_pieces / 3;
    if (f->text[LATHE_COLUMN_PROMPT])
        return put_pair(b, w, u, f->text[LATHE_COLUMN_PROMPT], f->n[LATHE_COLUMN_PROMPT], chosen,
                        n_chosen, rejected, n_rejected);
    const int64_t cut = lathe__implicit_prompt(chosen, n_chosen, rejected, n_rejected);
    return put_pair(b, w, u, chosen, cut, chosen + cut, n_chosen - cut, rejected + cut,
                    n_rejected - cut);
}

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
            u->status = put_stretch(b, &b->workers[index], u);
        for (int64_t k = 0; k < u->n && u->status == LATHE_OK && !b->text; k++)
            u->status = put_record(b, &b->workers[index], u, &b->reader.list[u->first + k]);
        if (u->status != LATHE_OK)
            (void)snprintf(u->message, sizeof u->message, "%s", lathe_error_message());
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
    u->ids.n = u->n_pieces = u->n_skipped = u->n_recut = u->n_known = u->n_equal = 0;
    u->n_spaces = u->n_unlearnt = 0;
    u->status = LATHE_OK;
    return LATHE_OK;
}

/* Whether the document is cut into stretches. */
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
    int64_t at = 0;
    if (u->status != LATHE_OK)
        return lathe_error(u->status, "%s", u->message);
    lathe_shard_header *h = &b->writer->header;
    if (u->n_equal > 0 && h->n_equal == 0)
        h->first_equal = h->n_segments / 3 + u->first_equal;
    h->n_equal += u->n_equal;
    h->n_known += u->n_known;
    for (int64_t k = 0; k < u->n_pieces; k++) {
        lathe_shard_piece piece = u->pieces[k];
        piece.ids = u->ids.data + at;
        LATHE_TRY(lathe__shard_writer_put(b->writer, &piece));
        at += piece.n;
    }
    h->n_skipped += u->n_skipped + u->n_unlearnt;
    b->n_recut += u->n_recut;
    b->n_spaces += u->n_spaces;
    b->n_unlearnt += u->n_unlearnt;
    return LATHE_OK;
}

/* Frees the memory of a unit that contained an unusually long document. */
static void shrink(unit *u)
{
    if (u->ids.capacity > 64 * UNIT_BYTES)
        lathe_ids_fini(&u->ids);
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

/* Tokenises a document of many megabytes in stretches, on all threads, without keeping all its ids
 * in memory. */
static lathe_status put_long(builder *b, const lathe_record *record)
{
    lathe_fields *f = &b->workers[0].fields;
    LATHE_TRY(lathe_fields_read(f, &b->reader, record));
    b->text = f->text[LATHE_COLUMN_TEXT];
    b->n_text = f->n[LATHE_COLUMN_TEXT];
    lathe_status status = LATHE_OK;
    for (int64_t at = 0; at < b->n_text && status == LATHE_OK;) {
        b->n_units = 0;
        while (at < b->n_text && b->n_units < 4 * b->n_workers && status == LATHE_OK) {
            const int64_t end = lathe__cut_after(b->may_cut, b->text, b->n_text, at + STRETCH);
            status = add_unit(b, at, end - at);
            at = end;
        }
        if (status == LATHE_OK)
            status = put_units(b);
    }
    if (b->n_text == 0)
        b->writer->header.n_skipped++;
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
                          job->sources->bytes, job->done_tokens + b->writer->header.n_tokens);
    }
    return LATHE_OK;
}

static lathe_status init(builder *b)
{
    b->n_workers = lathe_parallel_threads();
    b->workers = calloc((size_t)b->n_workers, sizeof *b->workers);
    if (!b->workers)
        return lathe_error(LATHE_E_NOMEM, "%d threads", b->n_workers);
    for (int32_t i = 0; i < b->n_workers; i++)
        LATHE_TRY(lathe_encoder_create(b->job->tok, &b->workers[i].enc));
    LATHE_TRY(lathe_reader_init(&b->reader, b->job->dataset, b->job->sources, b->job->rows,
                                &b->writer->header.begin));
    b->may_cut = b->job->rows == LATHE_ROWS_PACKED ? lathe__cuts_of(b->job->tok) : LATHE_CUT_NONE;
    b->reader.cut_text = lathe_tokenizer_is_bytes(b->job->tok);
    return LATHE_OK;
}

static void fini(builder *b)
{
    for (int32_t i = 0; i < b->n_workers && b->workers; i++) {
        worker *w = &b->workers[i];
        lathe_encoder_destroy(w->enc);
        lathe_fields_fini(&w->fields);
        lathe_ids_fini(&w->prompt);
        lathe_ids_fini(&w->chosen);
        lathe_ids_fini(&w->rejected);
        lathe_chat_tokens_fini(&w->talk);
        free(w->joined);
    }
    for (int64_t i = 0; i < b->units_max; i++) {
        lathe_ids_fini(&b->units[i].ids);
        free(b->units[i].pieces);
    }
    free(b->workers);
    free(b->units);
    lathe_reader_fini(&b->reader);
}

/* Names the skipped files. They are known only here, when a shard is made, which happens once. */
static void name_skipped(const builder *b)
{
    char names[768] = "";
    const lathe_reader *r = &b->reader;
    for (int64_t i = 0; i < r->n_skipped && i < LATHE_READER_NAMES; i++)
        (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.240s",
                       i ? ", " : "", b->job->sources->list[r->skipped[i]].path);
    if (r->n_skipped > 0)
        lathe_log(LATHE_LOG_WARN, "%s: left out because they are no UTF-8 text: %s%s",
                  b->job->dataset->path, names, r->n_skipped > LATHE_READER_NAMES ? ", ..." : "");
}

lathe_status lathe__shard_build(const lathe_shard_job *job, lathe_shard_writer *writer,
                                char content[65])
{
    builder b = {.job = job, .writer = writer, .reader = {.fd = -1}};
    lathe_shard_header *h = &writer->header;
    lathe_status status = init(&b);
    if (status == LATHE_OK)
        status = put_part(&b);
    if (status == LATHE_OK)
        status = lathe_reader_content(&b.reader, content);
    if (status == LATHE_OK) {
        h->end = b.reader.at;
        h->is_last = lathe_reader_ended(&b.reader);
        h->source_bytes = b.reader.n_bytes;
        h->n_skipped += b.reader.n_skipped;
        for (int32_t i = 0; i < b.n_workers; i++)
            if (job->loss)
                lathe_text_loss_add(job->loss, lathe_encoder_loss(b.workers[i].enc));
        if (h->n_segments > 0) /* else the dataset is refused, with the same words */
            name_skipped(&b);
        if (b.n_unlearnt)
            lathe_log(LATHE_LOG_WARN,
                      "%s: %lld conversations have nothing to learn and are left out",
                      job->dataset->path, (long long)b.n_unlearnt);
        if (b.n_recut)
            lathe_log(LATHE_LOG_WARN,
                      "%s: in %lld records the end of the prompt merges with the completion; those "
                      "tokens count as completion%s",
                      job->dataset->path, (long long)b.n_recut,
                      b.n_spaces < b.n_recut
                          ? ""
                          : ": these prompts end with a space; begin the completions with it"
                            " instead");
    }
    fini(&b);
    return status;
}
