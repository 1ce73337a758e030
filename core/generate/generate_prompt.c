/* Reads prompts, decides when a sequence ends (end tokens, stop strings), and makes the text of a
 * result. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/generator_internal.h"

int lathe_is_end_token(const lathe_generation_config *c, const lathe_model_config *model,
                       const lathe_tokenizer *tokenizer, int32_t token)
{
    for (int32_t i = 0; i < c->n_eos; i++)
        if (c->eos[i] == token)
            return 1;
    if (c->n_eos > 0)
        return 0;
    if (tokenizer && token == lathe_tokenizer_eos(tokenizer))
        return 1;
    for (int32_t i = 0; i < model->n_eos; i++)
        if (model->eos[i] == token)
            return 1;
    return 0;
}

/* The end of an answer counts once a chat template is in use. */
static int is_end(const lathe_generator *g, int32_t token)
{
    const lathe_answer_end *answer = &g->parts.data->answer_end;
    return (answer->is_known && token == answer->id) ||
           lathe_is_end_token(g->parts.generation, g->parts.model, g->parts.data->tokenizer, token);
}

static lathe_status encode_text(lathe_generator *g, const lathe_tokenizer *tokenizer,
                                const char *prompt)
{
    lathe_text_loss loss = {0};
    LATHE_TRY(lathe_tokenizer_check_text(tokenizer, "the prompt", prompt, (int64_t)strlen(prompt)));
    LATHE_TRY(lathe_tokenizer_encode_counting(tokenizer, prompt, (int64_t)strlen(prompt),
                                              LATHE_ENCODE_BEGIN, &g->ids, &loss));
    if (!g->has_told_loss) { /* training generates samples from the same prompt many times */
        lathe_text_loss_warn(&loss, "the prompt");
        g->has_told_loss = lathe_text_loss_total(&loss) > 0;
    }
    if (g->ids.n == 0) {
        /* an empty prompt begins a document */
        LATHE_TRY(lathe_ids_reserve(&g->ids, 1));
        const int32_t bos = lathe_tokenizer_bos(tokenizer);
        g->ids.data[g->ids.n++] = bos >= 0 ? bos : lathe_tokenizer_eos(tokenizer);
    }
    return LATHE_OK;
}

static lathe_status copy_ids(lathe_generator *g, const lathe_prompt *prompt)
{
    if (prompt->n_tokens < 1)
        return lathe_error(LATHE_E_ARG,
                           "lathe_prompt.n_tokens is %d; expected at least 1, or tokens NULL and "
                           "the text",
                           prompt->n_tokens);
    LATHE_TRY(lathe_ids_reserve(&g->ids, prompt->n_tokens));
    memcpy(g->ids.data, prompt->tokens, (size_t)prompt->n_tokens * sizeof *prompt->tokens);
    g->ids.n = prompt->n_tokens;
    return LATHE_OK;
}

lathe_status lathe__prompt_read(lathe_generator *g, const lathe_prompt *prompt)
{
    const int64_t vocab = g->parts.model->vocab;
    g->ids.n = 0;
    if (prompt->tokens)
        LATHE_TRY(copy_ids(g, prompt));
    else
        LATHE_TRY(encode_text(g, g->parts.data->tokenizer, prompt->text ? prompt->text : ""));
    for (int64_t i = 0; i < g->ids.n; i++) {
        const int32_t id = g->ids.data[i];
        if (id >= 0 && id < vocab)
            continue;
        if (prompt->tokens)
            return lathe_error(LATHE_E_ARG,
                               "token %lld of the prompt is %d; expected 0 to %lld, the ids of the "
                               "model's vocabulary",
                               (long long)i, id, (long long)vocab - 1);
        return lathe_error(LATHE_E_CONFIG,
                           "the tokenizer gives id %d, but the model's vocabulary has only %lld "
                           "ids",
                           id, (long long)vocab);
    }
    if (g->ids.n >= g->capacity)
        return lathe_error(LATHE_E_ARG,
                           "the prompt has %lld tokens, but the context holds %lld; data.seq_len "
                           "sets its length, up to the model's %lld",
                           (long long)g->ids.n, (long long)g->capacity,
                           (long long)g->parts.model->max_positions);
    return LATHE_OK;
}

/* ---- the text ---- */

/* Decodes tokens to text, malloc'ed. Ids of padding rows of the vocabulary, which the tokenizer
 * lacks, are skipped. */
static lathe_status decode(const lathe_tokenizer *tokenizer, const int32_t *ids, int64_t n,
                           char **out, int64_t *out_bytes)
{
    int32_t *known = malloc((size_t)(n + 1) * sizeof *known);
    int64_t n_known = 0, bytes;
    if (!known)
        return lathe_error(LATHE_E_NOMEM, "no memory to decode %lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (lathe_tokenizer_token(tokenizer, ids[i], &bytes))
            known[n_known++] = ids[i];
    const lathe_status status = lathe_tokenizer_decode(tokenizer, known, n_known,
                                                       LATHE_DECODE_SKIP_SPECIAL, out, out_bytes);
    free(known);
    return status;
}

/* Byte at which the first stop string begins in the text; -1: the text has none. */
static int64_t find_stop(const lathe_sampling *how, const char *text, int64_t bytes)
{
    int64_t first = -1;
    for (int32_t i = 0; i < how->n_stop; i++) {
        const char *found = memmem(text, (size_t)bytes, how->stop[i], strlen(how->stop[i]));
        if (found && (first < 0 || found - text < first))
            first = found - text;
    }
    return first;
}

/* Whether the last tokens contain a stop string. Decodes as many tokens as the longest string has
 * bytes, and some more, because a token may have no text. */
static lathe_status stops(lathe_generator *g, const lathe__sequence *s, int32_t *out)
{
    enum { MORE = 16 };
    size_t longest = 0;
    char *text = NULL;
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->how.n_stop; i++)
        longest = strlen(s->how.stop[i]) > longest ? strlen(s->how.stop[i]) : longest;
    const int64_t window = (int64_t)longest + MORE;
    const int64_t from = s->n - s->n_prompt > window ? s->n - window : s->n_prompt;
    LATHE_TRY(decode(g->parts.data->tokenizer, s->ids + from, s->n - from, &text, &bytes));
    *out = find_stop(&s->how, text, bytes) >= 0;
    free(text);
    return LATHE_OK;
}

lathe_status lathe__sequence_ends(lathe_generator *g, lathe__sequence *s, int32_t *out_ends)
{
    int32_t stop = 0;
    if (s->how.n_stop > 0)
        LATHE_TRY(stops(g, s, &stop));
    s->finish = LATHE_FINISH_LENGTH;
    if (stop)
        s->finish = LATHE_FINISH_STOP;
    else if (s->how.stop_at_eos && is_end(g, s->ids[s->n - 1]))
        s->finish = LATHE_FINISH_EOS;
    for (int32_t i = 0; i < s->how.n_stop_tokens && !stop; i++)
        if (s->how.stop_tokens[i] == s->ids[s->n - 1])
            s->finish = LATHE_FINISH_EOS;
    *out_ends = s->finish != LATHE_FINISH_LENGTH || s->n >= s->limit;
    return LATHE_OK;
}

lathe_status lathe__sequence_result(lathe_generator *g, const lathe__sequence *s,
                                    lathe_generation *out)
{
    int64_t bytes = 0;
    free(g->text);
    g->text = NULL;
    LATHE_TRY(decode(g->parts.data->tokenizer, s->ids + s->n_prompt, s->n - s->n_prompt, &g->text,
                     &bytes));
    const int64_t stop = find_stop(&s->how, g->text, bytes);
    if (stop >= 0) {
        g->text[stop] = '\0';
        bytes = stop;
    }
    *out = (lathe_generation){.size = (uint32_t)sizeof *out,
                              .n_tokens = (int32_t)(s->n - s->n_prompt),
                              .tokens = s->ids + s->n_prompt,
                              .logprobs = s->logprobs,
                              .text = g->text,
                              .text_bytes = bytes,
                              .prompt_tokens = s->ids,
                              .n_prompt_tokens = (int32_t)s->n_prompt,
                              .finish = s->finish};
    return LATHE_OK;
}
