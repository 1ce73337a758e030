/* Copies a batch into the inputs of a program: tokens, targets, positions, the stage's inputs. */
#include "exec/program/batch_load.h"

#include <string.h>

#include "base/error.h"
#include "plug/stage_inputs.h"

int64_t lathe__batch_row(const lathe_program *p, const lathe_run_batch *b, int64_t r)
{
    const int64_t all = p->n_rows / p->rows_per_record, some = b->n_rows / p->rows_per_record;
    const int64_t record = r % all;
    return record < some ? r / all * some + record : -1;
}

/* Tokens of a row that are copied: a program of shorter rows takes no padding. */
static int64_t copied_tokens(const lathe_program *p, const lathe_run_batch *b)
{
    return b->row_tokens < p->row_tokens ? b->row_tokens : p->row_tokens;
}

/* Copies one column of the batch into the program's input [rows, tokens]. Rows and tokens that the
 * batch lacks get `padding`. from NULL: padding everywhere. */
static void fill_input(const lathe_program *p, const lathe_run_batch *b, const int32_t *from,
                       int32_t padding, int32_t *to)
{
    const int64_t tokens = p->row_tokens;
    for (int64_t r = 0; r < p->n_rows; r++) {
        const int64_t row = from ? lathe__batch_row(p, b, r) : -1;
        int64_t t = row >= 0 ? copied_tokens(p, b) : 0;
        if (t > 0)
            memcpy(to + r * tokens, from + row * b->row_tokens, (size_t)t * sizeof *to);
        for (; t < tokens; t++)
            to[r * tokens + t] = padding;
    }
}

/* Positions of the longest document in the first n tokens of a batch's rows. */
static int64_t longest_document(const lathe_run_batch *b, int64_t n)
{
    int64_t last = 0;
    if (!b->positions)
        return n;
    for (int64_t r = 0; r < b->n_rows; r++)
        for (int64_t t = r * b->row_tokens; t < r * b->row_tokens + n; t++)
            last = b->positions[t] > last ? b->positions[t] : last;
    return last + 1;
}

/* Positions count within the row; the padding after a short row is a separate document. Columns of
 * the batch replace them if it has any. longrope chooses its factors by the longest document. */
static void fill_positions(const lathe_model_config *model, const lathe_program *p,
                           const lathe_run_batch *b, int32_t *positions, int32_t *doc_start)
{
    const int64_t tokens = p->row_tokens, n = copied_tokens(p, b);
    const int64_t offset = lathe_model_position_offset(model, tokens, longest_document(b, n));
    const size_t bytes = (size_t)n * sizeof *positions;
    for (int64_t r = 0; r < p->n_rows; r++) {
        const int64_t row = lathe__batch_row(p, b, r);
        for (int64_t t = 0; t < tokens; t++) {
            const int64_t begin = t < b->row_tokens ? 0 : b->row_tokens;
            positions[r * tokens + t] = (int32_t)(t - begin);
            doc_start[r * tokens + t] = (int32_t)begin;
        }
        if (row >= 0 && b->positions)
            memcpy(positions + r * tokens, b->positions + row * b->row_tokens, bytes);
        if (row >= 0 && b->doc_start)
            memcpy(doc_start + r * tokens, b->doc_start + row * b->row_tokens, bytes);
    }
    for (int64_t i = 0; offset > 0 && i < p->n_rows * tokens; i++)
        positions[i] += (int32_t)offset;
}

/* The end of the keys that each token sees: of the batch; else, and in padding, those of a document
 * that sees itself, or of no prefix. */
static void fill_key_end(const lathe_program *p, const lathe_run_batch *b, const int32_t *doc_start,
                         int32_t *key_end)
{
    const int64_t tokens = p->row_tokens, n = copied_tokens(p, b);
    for (int64_t r = 0; r < p->n_rows; r++) {
        const int64_t row = lathe__batch_row(p, b, r), at = r * tokens;
        for (int64_t t = tokens; t-- > 0;) {
            const int ends = t + 1 == tokens || doc_start[at + t + 1] != doc_start[at + t];
            key_end[at + t] = ends || p->objective == LATHE_OBJECTIVE_PREFIX ? (int32_t)(t + 1)
                                                                             : key_end[at + t + 1];
        }
        if (row >= 0 && b->key_end)
            memcpy(key_end + at, b->key_end + row * b->row_tokens, (size_t)n * sizeof *key_end);
    }
}

static lathe_status check_key_end(const lathe_program *p, const lathe_run_batch *b)
{
    if (!b->key_end)
        return LATHE_OK;
    if (p->key_end == LATHE_NONE)
        return lathe_error(LATHE_E_ARG,
                           "a batch with key_end, and the run's objective is causal: set "
                           "stage.objective to prefix or masked");
    for (int64_t i = 0; i < (int64_t)b->n_rows * b->row_tokens; i++)
        if (b->key_end[i] <= i % b->row_tokens || b->key_end[i] > b->row_tokens)
            return lathe_error(LATHE_E_ARG,
                               "key_end %d at row %lld, column %lld; expected more than the column "
                               "and at most %d",
                               b->key_end[i], (long long)(i / b->row_tokens),
                               (long long)(i % b->row_tokens), b->row_tokens);
    return LATHE_OK;
}

static lathe_status check_ids(const lathe_run_batch *b, int64_t vocab, int64_t most_tokens)
{
    const int64_t n = (int64_t)b->n_rows * b->row_tokens;
    for (int64_t i = 0; i < n; i++) {
        if (b->tokens[i] < 0 || b->tokens[i] >= vocab)
            return lathe_error(
                LATHE_E_ARG, "token %d at row %lld, column %lld is outside the vocabulary of %lld",
                b->tokens[i], (long long)(i / b->row_tokens), (long long)(i % b->row_tokens),
                (long long)vocab);
        if (b->targets && b->targets[i] >= vocab)
            return lathe_error(
                LATHE_E_ARG, "target %d at row %lld, column %lld is outside the vocabulary",
                b->targets[i], (long long)(i / b->row_tokens), (long long)(i % b->row_tokens));
        if (b->positions && (b->positions[i] < 0 || b->positions[i] >= most_tokens))
            return lathe_error(LATHE_E_ARG, "position %d is outside 0 .. %lld", b->positions[i],
                               (long long)most_tokens - 1);
        if (b->doc_start && (b->doc_start[i] < 0 || b->doc_start[i] > i % b->row_tokens))
            return lathe_error(LATHE_E_ARG, "doc_start %d is after its token", b->doc_start[i]);
    }
    return LATHE_OK;
}

/* The batch's values of the stage's input called `name`; NULL: it has none. */
static const void *find_input(const lathe_run_batch *b, const char *name)
{
    for (int32_t i = 0; i < b->n_inputs; i++)
        if (b->inputs[i].name && strcmp(b->inputs[i].name, name) == 0)
            return b->inputs[i].values;
    return NULL;
}

/* Refuses an input that the stage does not have: its values would be ignored. */
static lathe_status check_inputs(const lathe_stage_v1 *stage, const char *stage_name,
                                 const lathe_program *p, const lathe_run_batch *b)
{
    if (b->n_inputs > 0 && !b->inputs)
        return lathe_error(LATHE_E_ARG, "a batch of %d inputs without them", b->n_inputs);
    for (int32_t i = 0; i < b->n_inputs; i++) {
        const char *name = b->inputs[i].name ? b->inputs[i].name : "";
        int32_t k = 0;
        const int32_t n = LATHE_HAS(stage, inputs) ? stage->n_inputs : 0;
        while (k < n && strcmp(stage->inputs[k].name, name) != 0)
            k++;
        if (k == n)
            return lathe_error(LATHE_E_ARG, "stage \"%s\" has no input \"%s\"", stage_name, name);
        if (k < p->n_inputs && p->inputs[k] == LATHE_NONE)
            return lathe_error(LATHE_E_ARG,
                               "stage \"%s\" has no input \"%s\": the teacher is a model of the "
                               "run, and not stored (teacher.stored)",
                               stage_name, name);
    }
    return LATHE_OK;
}

/* Copies the batch's values `from` of input i. NULL: the input's fallback. Padding gets 0, and -1
 * for stored tokens. */
static void fill_stage_input(const lathe_stage_v1 *stage, int32_t i, const lathe_program *p,
                             const lathe_run_batch *b, const void *from, void *to)
{
    const lathe_stage_input *input = &stage->inputs[i];
    const int per_row = input->per == LATHE_PER_ROW;
    const int64_t count = lathe_stage_input_count(stage, i, p->n_stored);
    const int64_t n = count * (per_row ? 1 : p->row_tokens);
    const int64_t n_given = count * (per_row ? 1 : b->row_tokens);
    const int64_t n_copied = n < n_given ? n : n_given;
    const int has_fallback = input->source == LATHE_INPUT_COLUMN && !input->required;
    const int are_tokens =
        input->source == LATHE_INPUT_STORED && lathe_stage_shape(stage, i).dtype == LATHE_I32;
    memset(to, are_tokens ? 0xff : 0, (size_t)(p->n_rows * n) * 4);
    for (int64_t r = 0; r < p->n_rows; r++) {
        const int64_t row = lathe__batch_row(p, b, r);
        if (row >= 0 && from)
            memcpy((char *)to + r * n * 4, (const char *)from + row * n_given * 4,
                   (size_t)n_copied * 4);
        for (int64_t k = 0; row >= 0 && !from && has_fallback && k < n_copied; k++)
            ((float *)to)[r * n + k] = (float)input->fallback;
    }
}

/* Copies the batch's values of each input of the stage. */
static lathe_status fill_stage_inputs(const lathe_instance *from_stage, const lathe_program *p,
                                      const lathe_run_batch *b, int32_t are_needed)
{
    const lathe_stage_v1 *stage = from_stage->component ? from_stage->table : NULL;
    const char *stage_name = stage ? from_stage->component->plugin->name : "";
    LATHE_TRY(check_inputs(stage, stage_name, p, b));
    for (int32_t i = 0; stage && i < p->n_inputs; i++) {
        const lathe_stage_input *input = &stage->inputs[i];
        const int has_fallback = input->source == LATHE_INPUT_COLUMN && !input->required;
        const void *from = find_input(b, input->name);
        if (p->inputs[i] == LATHE_NONE)
            continue;
        if (!from && are_needed && !has_fallback)
            return lathe_error(LATHE_E_STATE,
                               "stage \"%s\" needs its input \"%s\" with each batch "
                               "(lathe_run_batch.inputs); the run's own data have none",
                               stage_name, input->name);
        fill_stage_input(stage, i, p, b, from, lathe_exec_input(p->exec, p->inputs[i]));
    }
    return LATHE_OK;
}

static void fill_target_mask(const int32_t *targets, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = targets[i] >= 0 ? 1.0f : 0.0f;
}

/* Marks the last token of each row that is not `pad`, as transformers' sequence classifiers find
 * it. A row's sequence is its first document; the padding is another. */
static void fill_last_mask(const lathe_program *p, const lathe_run_batch *b, const int32_t *tokens,
                           const int32_t *doc_start, int32_t pad, float *to)
{
    const int64_t n = p->row_tokens;
    memset(to, 0, (size_t)(p->n_rows * n) * sizeof *to);
    for (int64_t r = 0; r < p->n_rows; r++) {
        const int64_t row = r * n;
        int64_t last = 0;
        if (lathe__batch_row(p, b, r) < 0)
            continue;
        for (int64_t t = 1; t < n && doc_start[row + t] == 0; t++)
            last = tokens[row + t] != pad ? t : last;
        to[row + last] = 1.0f;
    }
}

/* Tokens of row r without its padding, which is the row's last document and has no target. */
static int64_t row_length(const lathe_run_batch *b, int64_t r, int32_t is_own)
{
    const int64_t n = b->row_tokens, row = r * n;
    if (!b->doc_start || !b->targets)
        return n;
    const int64_t last = b->doc_start[row + n - 1];
    int64_t t = last;
    while (t < n && b->targets[row + t] < 0)
        t++;
    if (t < n)
        return n;
    return last > 0 ? last : is_own ? 0 : n;
}

int64_t lathe__batch_length(const lathe_run_batch *b)
{
    int64_t longest = 0;
    for (int64_t r = 0; r < b->n_rows; r++) {
        const int64_t length = row_length(b, r, 0);
        longest = length > longest ? length : longest;
    }
    return longest;
}

int64_t lathe__batch_tokens(const lathe_run_batch *b, int32_t are_padded, int32_t is_own)
{
    int64_t n = 0;
    if (!are_padded)
        return (int64_t)b->n_rows * b->row_tokens;
    for (int64_t r = 0; r < b->n_rows; r++)
        n += row_length(b, r, is_own);
    return n;
}

/* Marks the tokens that are no padding. */
static void fill_token_mask(const lathe_program *p, const lathe_run_batch *b, float *to)
{
    const int64_t n = p->row_tokens;
    for (int64_t r = 0; r < p->n_rows; r++) {
        const int64_t row = lathe__batch_row(p, b, r);
        const int64_t length = row < 0 ? 0 : row_length(b, row, 1);
        for (int64_t t = 0; t < n; t++)
            to[r * n + t] = t < length ? 1.0f : 0.0f;
    }
}

lathe_status lathe__batch_check(const lathe_program *p, const lathe_run_batch *b, int64_t vocab)
{
    if (b->n_rows < 1 || b->row_tokens < 1 || b->n_rows > p->n_rows ||
        b->row_tokens > p->row_tokens)
        return lathe_error(LATHE_E_SHAPE, "a batch of %d x %d does not fit the run's %d x %lld",
                           b->n_rows, b->row_tokens, p->n_rows, (long long)p->row_tokens);
    if (!b->tokens)
        return lathe_error(LATHE_E_ARG, "a batch without tokens");
    if (b->n_rows % p->rows_per_record != 0)
        return lathe_error(LATHE_E_SHAPE,
                           "a batch of %d rows; expected a multiple of %d: the first rows of all "
                           "records, then their second rows (of pairs: chosen, then rejected), and "
                           "so on",
                           b->n_rows, p->rows_per_record);
    LATHE_TRY(check_key_end(p, b));
    return check_ids(b, vocab, p->row_tokens);
}

lathe_status lathe__batch_load(lathe_program *p, const lathe_model_config *model,
                               const lathe_instance *stage, const lathe_run_batch *b,
                               int64_t n_records, int32_t needs_inputs, double *out_count)
{
    LATHE_TRY(lathe_exec_next_inputs(p->exec));
    int32_t *targets = lathe_exec_input(p->exec, p->targets);
    fill_input(p, b, b->targets, -1, targets);
    int32_t *tokens = lathe_exec_input(p->exec, p->tokens);
    int32_t *doc_start = lathe_exec_input(p->exec, p->doc_start);
    fill_input(p, b, b->tokens, 0, tokens);
    fill_positions(model, p, b, lathe_exec_input(p->exec, p->positions), doc_start);
    if (p->key_end != LATHE_NONE)
        fill_key_end(p, b, doc_start, lathe_exec_input(p->exec, p->key_end));
    float *mask = p->record_mask != LATHE_NONE ? lathe_exec_input(p->exec, p->record_mask) : NULL;
    for (int64_t i = 0; mask && i < p->n_rows / p->rows_per_record; i++)
        mask[i] = i < n_records ? 1.0f : 0.0f;
    LATHE_TRY(fill_stage_inputs(stage, p, b, needs_inputs));
    if (p->target_mask != LATHE_NONE)
        fill_target_mask(targets, p->n_rows * p->row_tokens,
                         lathe_exec_input(p->exec, p->target_mask));
    if (p->token_mask != LATHE_NONE)
        fill_token_mask(p, b, lathe_exec_input(p->exec, p->token_mask));
    if (p->last_mask != LATHE_NONE)
        fill_last_mask(p, b, tokens, doc_start, model->pad,
                       lathe_exec_input(p->exec, p->last_mask));
    *out_count = 0.0;
    for (int64_t i = 0; i < p->n_rows * p->row_tokens; i++)
        *out_count += targets[i] >= 0;
    if (p->stage.count_unit != LATHE_COUNT_TOKENS)
        *out_count = (double)n_records;
    return LATHE_OK;
}
