/* Tokenises records. */
#include "data/rows/record_pieces.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/template/chat_template.h"
#include "data/conversation/answer_list.h"
#include "data/conversation/chat_lists.h"
#include "data/records/record_json.h"
#include "data/records/row_kind.h"
#include "data/rows/implicit_prompt.h"

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
    for (int32_t k = 0; k < LATHE_MAX_ANSWERS; k++)
        lathe_ids_fini(&e->full[k]);
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
    for (int32_t i = 0; i < found->n_keys && !*out; i++) {
        char name[sizeof LATHE_RECORD_OF_MESSAGES + LATHE_UNWRITTEN_KEY_BYTES];
        const int n = snprintf(name, sizeof name, LATHE_RECORD_OF_MESSAGES "%s", found->keys[i]);
        add_unread(&p->notes, name, n, p->line);
    }
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

/* The texts of a record: its prompt and its answers, each behind the prompt. */
typedef struct texts {
    span prompt, full[LATHE_MAX_ANSWERS];
    int32_t n, has_prompt; /* has_prompt 0: it is the common beginning of all answers */
} texts;

/* The texts of the record's columns, or of its list of answers. */
static void take_texts(const lathe_record_encoder *e, const lathe_answer_list *list, texts *t)
{
    const lathe_fields *f = &e->fields;
    const int32_t *columns = lathe_row_kind_get(e->job->rows)->answers;
    t->prompt = text_of(f, LATHE_COLUMN_PROMPT);
    t->has_prompt = f->text[LATHE_COLUMN_PROMPT] != NULL;
    if (list->row) {
        t->prompt = list->prompt ? (span){list->prompt, list->n_prompt} : (span){"", 0};
        t->has_prompt = list->prompt != NULL;
    }
    for (int32_t k = 0; k < t->n; k++) {
        const json_t *item = json_array_get(list->items, (size_t)k);
        t->full[k] = list->row ? (span){json_string_value(item), (int64_t)json_string_length(item)}
                               : text_of(f, columns[k]);
    }
}

/* Without a column for the prompt, that of several answers is their common beginning. */
static void split_texts(texts *t)
{
    if (t->n < 2 || t->has_prompt)
        return;
    int64_t cut = t->full[0].n;
    for (int32_t k = 1; k < t->n; k++) {
        const int64_t with =
            lathe__implicit_prompt(t->full[0].text, t->full[0].n, t->full[k].text, t->full[k].n);
        cut = with < cut ? with : cut;
    }
    t->prompt = (span){t->full[0].text, cut};
    for (int32_t k = 0; k < t->n; k++)
        t->full[k] = (span){t->full[k].text + cut, t->full[k].n - cut};
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
static void tell_texts(const lathe_record_encoder *e, const texts *t, lathe_pieces *p)
{
    int glued = 0, is_word_cut = 0, is_json = is_json_list(&t->prompt);
    for (int32_t k = 0; k < t->n; k++) {
        glued |= t->has_prompt && is_glued(&t->prompt, &t->full[k]);
        is_json |= is_json_list(&t->full[k]);
        is_word_cut |= is_word(char_at(&t->full[k], 0));
    }
    if (e->job->dataset->chat && e->job->dataset->as_chat == 0)
        tell(p, LATHE_TOLD_PAST_TEMPLATE);
    if (glued)
        tell(p, LATHE_TOLD_SEAM);
    if (is_json)
        tell(p, LATHE_TOLD_JSON);
    if (t->n < 2 || t->has_prompt)
        return;
    if (t->prompt.n == 0 || (is_word_cut && is_word(char_at(&t->prompt, t->prompt.n - 1))))
        tell(p, LATHE_TOLD_NO_PROMPT);
}

/* The facts that encode_parts finds of a record beside its tokens. */
typedef struct parts {
    int64_t bytes[1 + LATHE_MAX_ANSWERS]; /* of the prompt's text and of each answer's */
    int ends_with_space;                  /* the prompt's text does */
    int is_out;                           /* 1: the record is left out */
} parts;

static lathe_status encode_lists(lathe_record_encoder *e, const lathe_reader *reader,
                                 int32_t n_full, parts *out, lathe_pieces *p)
{
    lathe_chat_lists_facts facts = {0};
    LATHE_TRY(lathe_chat_encode_lists(reader, &e->fields, n_full, e->enc,
                                      lathe_tokenizer_vocab_size(e->job->tok), &e->prompt, e->full,
                                      out->bytes, &facts));
    out->is_out = facts.prompts_differ;
    if (out->is_out)
        count_left(p, LATHE_LEFT_PROMPTS);
    else
        count_unwritten(p, &facts.unwritten, &out->is_out);
    if (facts.has_marks && !out->is_out)
        tell(p, LATHE_TOLD_MARKS);
    if (facts.is_begun && !out->is_out)
        tell(p, n_full == 0 ? LATHE_TOLD_CONTINUED : LATHE_TOLD_BEGUN);
    return LATHE_OK;
}

static lathe_status encode_texts(lathe_record_encoder *e, const texts *t, parts *out)
{
    const span *prompt = &t->prompt;
    e->prompt.n = 0;
    /* a prompt alone is read as `generate` reads it */
    LATHE_TRY(t->n > 0 ? lathe_encoder_run_open(e->enc, prompt->text, prompt->n, LATHE_ENCODE_BEGIN,
                                                NULL, &e->prompt)
                       : lathe_encoder_run(e->enc, prompt->text, prompt->n, LATHE_ENCODE_BEGIN,
                                           &e->prompt));
    out->bytes[0] = prompt->n;
    out->ends_with_space = prompt->n > 0 && prompt->text[prompt->n - 1] == ' ';
    for (int32_t k = 0; k < t->n; k++) {
        LATHE_TRY(
            encode_joined(e, prompt->text, prompt->n, t->full[k].text, t->full[k].n, &e->full[k]));
        out->bytes[1 + k] = t->full[k].n;
    }
    return LATHE_OK;
}

/* Tokenises the prompt alone, and the prompt with each of n_full answers: texts, or lists of
 * messages. */
static lathe_status encode_parts(lathe_record_encoder *e, const lathe_reader *reader,
                                 int32_t n_full, parts *out, lathe_pieces *p)
{
    const lathe_row_kind *kind = lathe_row_kind_get(e->job->rows);
    lathe_answer_list list = {.are_texts = !e->fields.is_chat};
    texts t = {.n = n_full};
    lathe_status status = LATHE_OK;
    memset(out, 0, sizeof *out);
    if (kind->n_answers > 0 && kind->answers == NULL) {
        status = lathe_answer_list_read(reader, &e->fields, n_full, &list);
        list.are_texts &= e->job->dataset->as_chat <= 0; /* else the template writes them */
    }
    e->is_rendered = !list.are_texts;
    if (status == LATHE_OK && !list.are_texts) {
        status = encode_lists(e, reader, n_full, out, p);
    } else if (status == LATHE_OK) {
        take_texts(e, &list, &t);
        split_texts(&t);
        tell_texts(e, &t, p);
        status = encode_texts(e, &t, out);
    }
    lathe_answer_list_fini(&list);
    return status;
}

/* Finds the token at which the completion begins, as TRL's trainers do: the first one in which the
 * tokens of prompt and completion differ from the tokens of the prompt alone. */
static int64_t find_completion(const lathe_record_encoder *e, int32_t n_full, int has_prompt,
                               int ends_with_space, lathe_pieces *p)
{
    int64_t n = common_prefix(&e->prompt, &e->full[0]);
    for (int32_t k = 1; k < n_full; k++) {
        const int64_t with = common_prefix(&e->prompt, &e->full[k]);
        n = with < n ? with : n;
    }
    if (has_prompt && n < e->prompt.n) {
        tell(p, LATHE_TOLD_RECUT);
        if (ends_with_space)
            tell(p, LATHE_TOLD_SPACES);
    }
    return n;
}

static int are_equal(const lathe_ids *a, const lathe_ids *b)
{
    return a->n == b->n &&
           (a->n == 0 || memcmp(a->data, b->data, (size_t)a->n * sizeof(int32_t)) == 0);
}

/* A record with several answers is a segment for the prompt, and one for each answer. */
static lathe_status put_answers(lathe_record_encoder *e, const lathe_reader *reader,
                                int32_t n_answers, lathe_pieces *p)
{
    parts found;
    int all_equal = 1;
    LATHE_TRY(encode_parts(e, reader, n_answers, &found, p));
    if (found.is_out)
        return LATHE_OK;
    const int64_t n = find_completion(e, n_answers, 1, found.ends_with_space, p);
    for (int32_t k = 1; k < n_answers; k++)
        all_equal &= are_equal(&e->full[0], &e->full[k]);
    if (all_equal && p->counts.n_equal++ == 0)
        p->counts.first_equal = p->n / (1 + n_answers);
    LATHE_TRY(add_piece(
        p, (lathe_shard_piece){.ids = e->full[0].data, .n = n, .text_bytes = found.bytes[0]}));
    for (int32_t k = 0; k < n_answers; k++)
        LATHE_TRY(add_piece(p, (lathe_shard_piece){.ids = e->full[k].data + n,
                                                   .n = e->full[k].n - n,
                                                   .text_bytes = found.bytes[1 + k]}));
    return LATHE_OK;
}

/* A prompt with its completion: one segment whose prompt is no target, or two segments if the
 * examples are unpaired. */
static lathe_status put_completion(lathe_record_encoder *e, const lathe_reader *reader,
                                   lathe_pieces *p)
{
    const int32_t is_one = lathe_row_kind_get(e->job->rows)->n_segments == 1;
    parts found;
    LATHE_TRY(encode_parts(e, reader, 1, &found, p));
    if (found.is_out)
        return LATHE_OK;
    const int64_t n = find_completion(e, 1, found.bytes[0] > 0, found.ends_with_space, p);
    LATHE_TRY(add_piece(p, (lathe_shard_piece){.ids = e->full[0].data,
                                               .n = n,
                                               .text_bytes = found.bytes[0],
                                               .more = is_one,
                                               .is_context = is_one}));
    return add_piece(p, (lathe_shard_piece){.ids = e->full[0].data + n,
                                            .n = e->full[0].n - n,
                                            .text_bytes = found.bytes[1]});
}

/* A prompt alone: a text, messages, or token ids. */
static lathe_status put_prompt(lathe_record_encoder *e, const lathe_reader *reader, lathe_pieces *p)
{
    parts found;
    LATHE_TRY(encode_parts(e, reader, 0, &found, p));
    if (found.is_out)
        return LATHE_OK;
    return add_piece(p, (lathe_shard_piece){
                            .ids = e->prompt.data, .n = e->prompt.n, .text_bytes = found.bytes[0]});
}

/* ---- conversations ---- */

/* Counts a conversation that has nothing to learn, by the reason. */
static void count_unlearnt(const lathe_record_encoder *e, lathe_pieces *p)
{
    const lathe_chat_tokens *t = &e->chat;
    lathe_record_counts *c = &p->counts;
    const int32_t why = t->n_answers > 0 && t->n_muted == t->n_answers ? LATHE_LEFT_MUTED
                        : t->n_answers > 0                             ? LATHE_LEFT_MASKED
                        : t->unusual_role[0]                           ? LATHE_LEFT_UNKNOWN_ROLE
                                                                       : LATHE_LEFT_NO_ANSWER;
    if (why == LATHE_LEFT_UNKNOWN_ROLE && c->left[why].n == 0)
        memcpy(c->role, t->unusual_role, sizeof c->role);
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

/* Whether the record is a conversation that is learnt as a whole; in padded rows one is the prompt,
 * or ends with the answer. */
static int is_whole_talk(const lathe_record_encoder *e)
{
    return e->fields.is_chat == LATHE_FIELDS_CHAT && !lathe_row_shape_get(e->job->rows)->is_padded;
}

/* Whether the record is left out: it has no text, or it is a conversation with nothing to learn. */
static lathe_status is_left_out(lathe_record_encoder *e, lathe_pieces *p, int *out)
{
    const lathe_row_kind *kind = lathe_row_kind_get(e->job->rows);
    const int is_masked = kind->is_masked;
    const lathe_fields *f = &e->fields;
    *out = 0;
    if (is_whole_talk(e)) {
        LATHE_TRY(lathe_chat_encode(e->job->dataset, &e->fields, e->job->tok, e->enc, &e->chat));
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
    *out = kind->main >= 0 && f->is_chat == LATHE_FIELDS_TEXTS && f->n[kind->main] == 0;
    if (*out)
        count_left(p, LATHE_LEFT_EMPTY);
    return LATHE_OK;
}

static lathe_status put_record(lathe_record_encoder *e, const lathe_reader *reader,
                               const lathe_record *record, lathe_pieces *p)
{
    const lathe_row_kind *kind = lathe_row_kind_get(e->job->rows);
    if (is_whole_talk(e))
        return put_runs(e, p);
    if (kind->main == LATHE_COLUMN_TEXT)
        return put_document(e, p, record->more);
    return kind->n_answers == 0   ? put_prompt(e, reader, p)
           : kind->n_answers == 1 ? put_completion(e, reader, p)
                                  : put_answers(e, reader, kind->n_answers, p);
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

static lathe_status encode_record(lathe_record_encoder *e, const lathe_reader *reader,
                                  const lathe_record *record, lathe_pieces *out)
{
    const int64_t first = out->n, input = out->n_inputs, json = out->records.len;
    int64_t n_json;
    int is_out;
    LATHE_TRY(lathe_fields_read(&e->fields, reader, record));
    out->counts.n_known += e->fields.layout == LATHE_LAYOUT_KNOWN;
    out->line = LATHE_SHARD_LINE(record->file, lathe_record_at(reader->sources, record));
    e->is_rendered = e->fields.is_chat != LATHE_FIELDS_TEXTS;
    LATHE_TRY(is_left_out(e, out, &is_out));
    if (is_out) {
        out->counts.n_chats += e->is_rendered;
        return LATHE_OK;
    }
    LATHE_TRY(begin_record(e, reader, record, out, &n_json));
    LATHE_TRY(put_record(e, reader, record, out));
    out->counts.n_chats += e->is_rendered;
    if (e->is_rendered && lathe_chat_template_reads_clock(e->job->dataset->chat))
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

lathe_status lathe__record_encode(lathe_record_encoder *e, const lathe_reader *reader,
                                  const lathe_record *record, lathe_pieces *out)
{
    return lathe_record_error(encode_record(e, reader, record, out), reader, record);
}
