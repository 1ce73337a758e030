/* Tokenises records. */
#include "data/record_pieces.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/implicit_prompt.h"
#include "dialog/chat_lists.h"
#include "records/record_json.h"
#include "records/row_kind.h"
#include "template/chat_template.h"

void lathe__pieces_clear(lathe_pieces *p)
{
    p->ids.n = p->n = p->n_inputs = 0;
    p->records.len = 0;
    memset(&p->counts, 0, sizeof p->counts);
    memset(&p->notes, 0, sizeof p->notes);
}

void lathe__pieces_fini(lathe_pieces *p)
{
    lathe_ids_fini(&p->ids);
    lathe_buffer_fini(&p->records);
    free(p->list);
    free(p->inputs);
    memset(p, 0, sizeof *p);
}

void lathe__record_encoder_fini(lathe_record_encoder *e)
{
    lathe_encoder_destroy(e->enc);
    lathe_fields_fini(&e->fields);
    lathe_ids_fini(&e->prompt);
    lathe_ids_fini(&e->full[0]);
    lathe_ids_fini(&e->full[1]);
    lathe_chat_tokens_fini(&e->chat);
    free(e->joined);
    memset(e, 0, sizeof *e);
}

/* ---- pieces ---- */

/* Copies the piece's ids; if they are NULL, they are already at the end of p->ids. */
static lathe_status add_piece(lathe_pieces *p, lathe_shard_piece piece)
{
    if (p->n == p->capacity) {
        const int64_t capacity = p->capacity * 2 + 64;
        lathe_shard_piece *list = realloc(p->list, (size_t)capacity * sizeof *list);
        if (!list)
            return lathe_error(LATHE_E_NOMEM, "%lld documents", (long long)capacity);
        p->list = list;
        p->capacity = capacity;
    }
    if (piece.ids)
        LATHE_TRY(lathe_ids_append(&p->ids, piece.ids, piece.n));
    piece.ids = NULL;
    piece.line = p->line;
    p->list[p->n++] = piece;
    return LATHE_OK;
}

/* Appends the inputs of a record. The piece that begins the record refers to them. */
static lathe_status add_inputs(const lathe_dataset *dataset, const lathe_fields *f, lathe_pieces *p)
{
    const int64_t n = dataset->n_inputs;
    if (p->n_inputs + n > p->inputs_capacity) {
        const int64_t capacity = 2 * p->inputs_capacity + 64;
        double *inputs = realloc(p->inputs, (size_t)capacity * sizeof *inputs);
        if (!inputs)
            return lathe_error(LATHE_E_NOMEM, "%lld inputs", (long long)capacity);
        p->inputs = inputs;
        p->inputs_capacity = capacity;
    }
    for (int64_t i = 0; i < n; i++)
        p->inputs[p->n_inputs++] = f->inputs[i];
    return LATHE_OK;
}

/* Records the columns' values of the record whose pieces follow. */
static lathe_status begin_record(const lathe_record_encoder *e, const lathe_reader *reader,
                                 const lathe_record *record, lathe_pieces *p, int64_t *out_bytes)
{
    const int64_t begin = p->records.len;
    *out_bytes = 0;
    LATHE_TRY(add_inputs(e->job->dataset, &e->fields, p));
    if (!lathe_row_kind_get(e->job->rows)->has_records)
        return LATHE_OK;
    LATHE_TRY(lathe_record_json(reader, record, &p->records));
    *out_bytes = p->records.len - begin;
    return LATHE_OK;
}

static void tell(lathe_pieces *p, int32_t what)
{
    const lathe_record_count one = {1, p->line};
    lathe__record_count_add(&p->notes.told[what], &one);
}

static void count_left(lathe_pieces *p, int32_t why)
{
    lathe_record_count *c = &p->counts.left[why];
    if (c->n++ == 0)
        c->first = p->line;
}

/* Counts a record by what the chat template does not write of it. *out = 1: it is left out, because
 * it has an answer that is only calls, and would teach an empty answer. */
static void count_unwritten(lathe_pieces *p, const lathe_chat_unwritten *found, int *out)
{
    const lathe_record_count one = {1, p->line};
    *out = found->empty_answer;
    if (*out)
        count_left(p, LATHE_LEFT_CALLS);
    if (found->calls && !*out)
        lathe__record_count_add(&p->counts.unwritten[LATHE_UNWRITTEN_CALLS], &one);
    if (found->tools && !*out)
        lathe__record_count_add(&p->counts.unwritten[LATHE_UNWRITTEN_TOOLS], &one);
    if (found->documents && !*out)
        lathe__record_count_add(&p->counts.unwritten[LATHE_UNWRITTEN_DOCUMENTS], &one);
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

/* A text that a template may have written, with its tokens, as `generate` reads it: what the
 * tokenizer puts around a text is put there once. A prompt is continued, so nothing is put after
 * it. */
enum { WHOLE_TEXT = LATHE_ENCODE_ADD_SPECIAL | LATHE_ENCODE_BEGIN };

/* ---- documents ---- */

static lathe_status put_document(lathe_record_encoder *e, lathe_pieces *p, int32_t more)
{
    const char *text = e->fields.text[LATHE_COLUMN_TEXT];
    const int64_t n = e->fields.n[LATHE_COLUMN_TEXT], begin = p->ids.n;
    LATHE_TRY(lathe_encoder_run(e->enc, text, n, WHOLE_TEXT, &p->ids));
    if (!more)
        LATHE_TRY(end_text(e->job->tok, &p->ids, begin));
    return add_piece(p, (lathe_shard_piece){.n = p->ids.n - begin, .text_bytes = n, .more = more});
}

lathe_status lathe__record_encode_range(lathe_record_encoder *e, const lathe_fields *fields,
                                        const char *text, int64_t n, int64_t begin, int64_t end,
                                        lathe_pieces *out)
{
    const lathe_tokenizer *tok = e->job->tok;
    const int32_t more = end < n;
    LATHE_TRY(add_inputs(e->job->dataset, fields, out));
    LATHE_TRY(lathe_encoder_run(e->enc, text + begin, end - begin,
                                begin == 0 ? LATHE_ENCODE_BEGIN : 0, &out->ids));
    if (!more) {
        LATHE_TRY(lathe_tokenizer_put_suffix(tok, &out->ids, 0));
        LATHE_TRY(end_text(tok, &out->ids, 0));
    }
    return add_piece(out,
                     (lathe_shard_piece){.n = out->ids.n, .text_bytes = end - begin, .more = more});
}

/* ---- prompts and completions ---- */

static lathe_status encode_joined(lathe_record_encoder *e, const char *prompt, int64_t n_prompt,
                                  const char *text, int64_t n, lathe_ids *out)
{
    if (n_prompt + n > e->joined_bytes) {
        free(e->joined);
        e->joined_bytes = 0;
        e->joined = malloc((size_t)(n_prompt + n));
        if (!e->joined)
            return lathe_error(LATHE_E_NOMEM, "a record of %lld bytes", (long long)(n_prompt + n));
        e->joined_bytes = n_prompt + n;
    }
    if (n_prompt)
        memcpy(e->joined, prompt, (size_t)n_prompt);
    if (n)
        memcpy(e->joined + n_prompt, text, (size_t)n);
    out->n = 0;
    LATHE_TRY(lathe_encoder_run(e->enc, e->joined, n_prompt + n, WHOLE_TEXT, out));
    return end_text(e->job->tok, out, 0);
}

static int64_t common_prefix(const lathe_ids *a, const lathe_ids *b)
{
    int64_t n = 0;
    while (n < a->n && n < b->n && a->data[n] == b->data[n])
        n++;
    return n;
}

/* A text of the record. */
typedef struct span {
    const char *text;
    int64_t n;
} span;

static span text_of(const lathe_fields *f, int32_t column)
{
    return f->text[column] ? (span){f->text[column], f->n[column]} : (span){"", 0};
}

/* The texts of a record with a prompt and one or two completions. Without a column for the prompt,
 * that of a pair is the common beginning of both completions. */
static void split_texts(const lathe_fields *f, int is_pair, span *prompt, span full[2])
{
    *prompt = text_of(f, LATHE_COLUMN_PROMPT);
    full[0] = text_of(f, is_pair ? LATHE_COLUMN_CHOSEN : LATHE_COLUMN_COMPLETION);
    full[1] = text_of(f, LATHE_COLUMN_REJECTED);
    if (!is_pair || f->text[LATHE_COLUMN_PROMPT])
        return;
    const int64_t cut = lathe__implicit_prompt(full[0].text, full[0].n, full[1].text, full[1].n);
    *prompt = (span){full[0].text, cut};
    for (int k = 0; k < 2; k++)
        full[k] = (span){full[k].text + cut, full[k].n - cut};
}

/* The character at or before byte `at` of a text; -1: there is none. */
static int32_t char_at(const span *s, int64_t at)
{
    int32_t n;
    while (at > 0 && at < s->n && ((uint8_t)s->text[at] & 0xc0) == 0x80)
        at--;
    return at >= 0 && at < s->n ? lathe_utf8_at((const uint8_t *)s->text + at, s->n - at, &n) : -1;
}

/* Whether words that end or begin with the character have white space between them: not in the
 * scripts of Thailand, Laos, Myanmar and Cambodia, nor in Chinese and Japanese. */
static int is_spaced(int32_t c)
{
    return c > ' ' && !(c >= 0x0e00 && c <= 0x0eff) && !(c >= 0x1000 && c <= 0x109f) &&
           !(c >= 0x1780 && c <= 0x17ff) && c < 0x2e80 && c != 0xa0;
}

static int is_word(int32_t c)
{
    return is_spaced(c) && (c >= 0x80 || isalnum((int)c));
}

/* Whether prompt and completion are glued to each other. */
static int is_glued(const span *prompt, const span *completion)
{
    return is_spaced(char_at(prompt, prompt->n - 1)) && is_spaced(char_at(completion, 0));
}

/* Whether the text is the JSON of a list of messages. */
static int is_json_list(const span *s)
{
    int64_t i = 0;
    while (i < s->n && lathe_is_one_of(s->text[i], " \t\r\n["))
        i++;
    return i > 0 && i < s->n && s->text[0] == '[' && s->text[i] == '{' &&
           (memmem(s->text, (size_t)s->n, "\"role\"", 6) ||
            memmem(s->text, (size_t)s->n, "\"from\"", 6));
}

/* Tells what is odd about a record of texts. */
static void tell_texts(const lathe_record_encoder *e, const span *prompt, const span *full,
                       int32_t n_full, lathe_pieces *p)
{
    const int has_prompt = e->fields.text[LATHE_COLUMN_PROMPT] != NULL;
    int glued = 0, is_json = is_json_list(prompt);
    for (int32_t k = 0; k < n_full; k++) {
        glued |= has_prompt && is_glued(prompt, &full[k]);
        is_json |= is_json_list(&full[k]);
    }
    if (e->job->dataset->chat && e->job->dataset->as_chat == 0)
        tell(p, LATHE_TOLD_PAST_TEMPLATE);
    if (glued)
        tell(p, LATHE_TOLD_SEAM);
    if (is_json)
        tell(p, LATHE_TOLD_JSON);
    if (n_full < 2 || has_prompt)
        return;
    const int is_cut = is_word(char_at(prompt, prompt->n - 1)) &&
                       (is_word(char_at(&full[0], 0)) || is_word(char_at(&full[1], 0)));
    if (prompt->n == 0 || is_cut)
        tell(p, LATHE_TOLD_NO_PROMPT);
}

/* Tokenises the prompt alone, and the prompt with each completion: texts, or lists of messages.
 * bytes: of the prompt's text and of each completion's. *is_out = 1: the record is left out. */
static lathe_status encode_parts(lathe_record_encoder *e, const lathe_reader *reader,
                                 const lathe_record *record, int32_t n_full, int64_t bytes[3],
                                 int *ends_with_space, int *is_out, lathe_pieces *p)
{
    lathe_fields *f = &e->fields;
    lathe_chat_lists_facts facts = {0};
    span prompt, full[2];
    *ends_with_space = *is_out = 0;
    if (f->is_chat) {
        LATHE_TRY(lathe_chat_encode_lists(reader, record, f, n_full, e->enc,
                                          lathe_tokenizer_vocab_size(e->job->tok), &e->prompt,
                                          e->full, bytes, &facts));
        *is_out = facts.prompts_differ;
        if (*is_out)
            count_left(p, LATHE_LEFT_PROMPTS);
        else
            count_unwritten(p, &facts.unwritten, is_out);
        if (facts.has_marks && !*is_out)
            tell(p, LATHE_TOLD_MARKS);
        if (facts.is_begun && !*is_out)
            tell(p, n_full == 0 ? LATHE_TOLD_CONTINUED : LATHE_TOLD_BEGUN);
        return LATHE_OK;
    }
    split_texts(f, n_full == 2, &prompt, full);
    tell_texts(e, &prompt, full, n_full, p);
    e->prompt.n = 0;
    /* a prompt alone is read as `generate` reads it */
    LATHE_TRY(n_full > 0 ? lathe_encoder_run_open(e->enc, prompt.text, prompt.n, LATHE_ENCODE_BEGIN,
                                                  NULL, &e->prompt)
                         : lathe_encoder_run(e->enc, prompt.text, prompt.n, LATHE_ENCODE_BEGIN,
                                             &e->prompt));
    bytes[0] = prompt.n;
    *ends_with_space = prompt.n > 0 && prompt.text[prompt.n - 1] == ' ';
    for (int32_t k = 0; k < n_full; k++) {
        LATHE_TRY(encode_joined(e, prompt.text, prompt.n, full[k].text, full[k].n, &e->full[k]));
        bytes[1 + k] = full[k].n;
    }
    return LATHE_OK;
}

/* Finds the token at which the completion begins, as TRL's trainers do: the first one in which the
 * tokens of prompt and completion differ from the tokens of the prompt alone. */
static int64_t find_completion(const lathe_record_encoder *e, int32_t n_full, int has_prompt,
                               int ends_with_space, lathe_pieces *p)
{
    int64_t n = common_prefix(&e->prompt, &e->full[0]);
    if (n_full == 2 && common_prefix(&e->prompt, &e->full[1]) < n)
        n = common_prefix(&e->prompt, &e->full[1]);
    if (has_prompt && n < e->prompt.n) {
        tell(p, LATHE_TOLD_RECUT);
        if (ends_with_space)
            tell(p, LATHE_TOLD_SPACES);
    }
    return n;
}

/* A pair is three segments: prompt, chosen, rejected. */
static lathe_status put_pair(lathe_record_encoder *e, const lathe_reader *reader,
                             const lathe_record *record, lathe_pieces *p)
{
    int64_t bytes[3];
    int ends_with_space, is_out;
    LATHE_TRY(encode_parts(e, reader, record, 2, bytes, &ends_with_space, &is_out, p));
    if (is_out)
        return LATHE_OK;
    const int64_t n = find_completion(e, 2, 1, ends_with_space, p);
    if (e->full[0].n == e->full[1].n &&
        (e->full[0].n == 0 ||
         memcmp(e->full[0].data, e->full[1].data, (size_t)e->full[0].n * sizeof(int32_t)) == 0)) {
        if (p->counts.n_equal++ == 0)
            p->counts.first_equal = p->n / 3;
    }
    LATHE_TRY(
        add_piece(p, (lathe_shard_piece){.ids = e->full[0].data, .n = n, .text_bytes = bytes[0]}));
    for (int k = 0; k < 2; k++)
        LATHE_TRY(add_piece(p, (lathe_shard_piece){.ids = e->full[k].data + n,
                                                   .n = e->full[k].n - n,
                                                   .text_bytes = bytes[1 + k]}));
    return LATHE_OK;
}

/* A prompt with its completion: one segment whose prompt is no target, or two segments if the
 * examples are unpaired. */
static lathe_status put_completion(lathe_record_encoder *e, const lathe_reader *reader,
                                   const lathe_record *record, lathe_pieces *p)
{
    const int32_t is_one = lathe_row_kind_get(e->job->rows)->n_segments == 1;
    int64_t bytes[3];
    int ends_with_space, is_out;
    LATHE_TRY(encode_parts(e, reader, record, 1, bytes, &ends_with_space, &is_out, p));
    if (is_out)
        return LATHE_OK;
    const int64_t n = find_completion(e, 1, bytes[0] > 0, ends_with_space, p);
    LATHE_TRY(add_piece(p, (lathe_shard_piece){.ids = e->full[0].data,
                                               .n = n,
                                               .text_bytes = bytes[0],
                                               .more = is_one,
                                               .is_context = is_one}));
    return add_piece(p, (lathe_shard_piece){.ids = e->full[0].data + n,
                                            .n = e->full[0].n - n,
                                            .text_bytes = bytes[1]});
}

/* A prompt alone: a text, messages, or token ids. */
static lathe_status put_prompt(lathe_record_encoder *e, const lathe_reader *reader,
                               const lathe_record *record, lathe_pieces *p)
{
    int64_t bytes[3];
    int ends_with_space, is_out;
    LATHE_TRY(encode_parts(e, reader, record, 0, bytes, &ends_with_space, &is_out, p));
    if (is_out)
        return LATHE_OK;
    return add_piece(
        p, (lathe_shard_piece){.ids = e->prompt.data, .n = e->prompt.n, .text_bytes = bytes[0]});
}

/* ---- conversations ---- */

/* Counts a conversation that has nothing to learn, by the reason. */
static void count_unlearnt(const lathe_record_encoder *e, lathe_pieces *p)
{
    const lathe_chat_tokens *t = &e->chat;
    lathe_record_counts *c = &p->counts;
    const int32_t why = t->n_answers > 0 && t->n_muted == t->n_answers ? LATHE_LEFT_MUTED
                        : t->n_answers > 0                             ? LATHE_LEFT_MASKED
                        : t->odd_role[0]                               ? LATHE_LEFT_UNKNOWN_ROLE
                                                                       : LATHE_LEFT_NO_ANSWER;
    if (why == LATHE_LEFT_UNKNOWN_ROLE && c->left[why].n == 0)
        memcpy(c->role, t->odd_role, sizeof c->role);
    count_left(p, why);
}

/* The tokens of a conversation: runs of context and of targets in turn. */
static lathe_status put_runs(lathe_record_encoder *e, lathe_pieces *p)
{
    const lathe_chat_tokens *t = &e->chat;
    const int is_masked = lathe_row_kind_get(e->job->rows)->is_masked;
    for (int64_t at = 0, end; at < t->ids.n; at = end) {
        for (end = at + 1; end < t->ids.n && (!is_masked || t->learnt[end] == t->learnt[at]);)
            end++;
        LATHE_TRY(add_piece(p, (lathe_shard_piece){.ids = t->ids.data + at,
                                                   .n = end - at,
                                                   .text_bytes = at == 0 ? t->text_bytes : 0,
                                                   .more = end < t->ids.n,
                                                   .is_context = is_masked && !t->learnt[at]}));
    }
    return LATHE_OK;
}

/* ---- records ---- */

/* Whether the record is left out: it has no text, or it is a conversation with nothing to learn. */
static lathe_status is_left_out(lathe_record_encoder *e, const lathe_record *record,
                                lathe_pieces *p, int *out)
{
    const int is_masked = lathe_row_kind_get(e->job->rows)->is_masked;
    const int32_t rows = e->job->rows;
    const lathe_fields *f = &e->fields;
    *out = 0;
    if (f->is_chat == LATHE_FIELDS_CHAT && rows != LATHE_ROWS_PROMPTS &&
        rows != LATHE_ROWS_UNPAIRED) {
        LATHE_TRY(lathe_chat_encode(e->job->dataset, &e->job->sources->list[record->file],
                                    lathe_record_at(e->job->sources, record), &e->fields,
                                    e->job->tok, e->enc, &e->chat));
        const int is_empty = is_masked ? e->chat.n_learnt == 0 : e->chat.ids.n == 0;
        if (is_empty && !e->chat.unwritten.empty_answer)
            count_unlearnt(e, p);
        else
            count_unwritten(p, &e->chat.unwritten, out);
        *out |= is_empty;
        if (!*out && !is_masked && e->chat.n_muted > 0)
            tell(p, LATHE_TOLD_MARKS);
        if (!*out && is_masked && e->chat.n_others > 0)
            tell(p, LATHE_TOLD_OTHERS);
        return LATHE_OK;
    }
    const int32_t column = rows == LATHE_ROWS_PACKED        ? LATHE_COLUMN_TEXT
                           : rows == LATHE_ROWS_COMPLETIONS ? LATHE_COLUMN_COMPLETION
                           : rows == LATHE_ROWS_UNPAIRED    ? LATHE_COLUMN_COMPLETION
                           : rows == LATHE_ROWS_PROMPTS     ? LATHE_COLUMN_PROMPT
                                                            : -1;
    *out = column >= 0 && f->is_chat == LATHE_FIELDS_TEXTS && f->n[column] == 0;
    if (*out)
        count_left(p, LATHE_LEFT_EMPTY);
    return LATHE_OK;
}

static lathe_status put_record(lathe_record_encoder *e, const lathe_reader *reader,
                               const lathe_record *record, lathe_pieces *p)
{
    switch (e->job->rows) {
    case LATHE_ROWS_PACKED:
        return e->fields.is_chat ? put_runs(e, p) : put_document(e, p, record->more);
    case LATHE_ROWS_PAIRS:
        return put_pair(e, reader, record, p);
    case LATHE_ROWS_PROMPTS:
        return put_prompt(e, reader, record, p);
    default:
        return e->fields.is_chat == LATHE_FIELDS_CHAT && e->job->rows != LATHE_ROWS_UNPAIRED
                   ? put_runs(e, p)
                   : put_completion(e, reader, record, p);
    }
}

/* Adds a field's name without control characters. */
static void add_unread(lathe_record_notes *notes, const char *name, int64_t n, int64_t line)
{
    const lathe_record_count one = {1, line};
    char text[sizeof notes->unread[0].name];
    const int64_t most = (int64_t)sizeof text - 1;
    n = n < most ? n : lathe_utf8_prefix((const uint8_t *)name, most);
    for (int64_t i = 0; i < n; i++)
        text[i] = (uint8_t)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i];
    text[n] = '\0';
    if (n > 0)
        lathe__unread_column_add(notes, text, &one);
}

void lathe__record_note_unread(const lathe_reader *reader, const lathe_record *record,
                               const lathe_fields *fields, int64_t line, lathe_record_notes *notes)
{
    lathe_json_string key;
    if (lathe_row_kind_get(reader->rows)->has_records) /* a reward may read any field */
        return;
    for (int64_t i = 0; lathe_fields_unread(fields, reader, record, &i, &key);)
        add_unread(notes, key.text, key.n_raw, line);
}

lathe_status lathe__record_encode(lathe_record_encoder *e, const lathe_reader *reader,
                                  const lathe_record *record, lathe_pieces *out)
{
    const int64_t first = out->n, input = out->n_inputs, json = out->records.len;
    int64_t n_json;
    int is_out;
    LATHE_TRY(lathe_fields_read(&e->fields, reader, record));
    out->counts.n_known += e->fields.layout == LATHE_LAYOUT_KNOWN;
    out->line = LATHE_SHARD_LINE(record->file, lathe_record_at(reader->sources, record));
    out->counts.n_chats += e->fields.is_chat != LATHE_FIELDS_TEXTS;
    LATHE_TRY(is_left_out(e, record, out, &is_out));
    if (is_out)
        return LATHE_OK;
    LATHE_TRY(begin_record(e, reader, record, out, &n_json));
    LATHE_TRY(put_record(e, reader, record, out));
    if (e->fields.is_chat != LATHE_FIELDS_TEXTS &&
        lathe_chat_template_reads_clock(e->job->dataset->chat))
        tell(out, LATHE_TOLD_DATE);
    lathe__record_note_unread(reader, record, &e->fields, out->line, &out->notes);
    if (out->n == first) { /* it is left out */
        out->n_inputs = input;
        out->records.len = json;
    }
    for (int64_t i = first; i < out->n; i++) {
        out->list[i].first_input = input;
        out->list[i].json = json;
        out->list[i].json_bytes = i == first ? n_json : 0;
    }
    return LATHE_OK;
}
