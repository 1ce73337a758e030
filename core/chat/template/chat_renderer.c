/* Renderers of a chat template: sets the one that writes the conversations, fills in what renderers
 * are told about the folder, and compares a renderer with the folder's template. */
#include "chat/template/chat_template_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/json/json.h"

/* Conversations on which a renderer is compared with the template. It may refuse all but the first,
 * which is the plain one. */
static const char *const trials[] = {
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"},"
    "{\"role\":\"assistant\",\"content\":\"Hi there.\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\" a "
    "\"},{\"role\":\"assistant\",\"content\":\"\\n"
    "b\\n\"},{\"role\":\"user\",\"content\":\"\"},{\"role\":\"assistant\",\"content\":\"\"}]}",
    "{\"messages\":[{\"role\":\"system\",\"content\":\" Be brief.\\n\"},{\"role\":\"user\","
    "\"content\":\"Gr\\u00fc\\u00dfe \\ud83d\\ude42\"},{\"role\":\"assistant\",\"content\":"
    "\"\\u4f60\\u597d\"},{\"role\":\"user\",\"content\":\"c\"}]}",
    "{\"messages\":[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"a\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"b\"},"
    "{\"role\":\"assistant\",\"content\":\"c\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
    "{\"role\":\"assistant\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"d\"}]}",
    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":"
    "\"b\"}]}",
    "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
    "\"c\","
    "\"reasoning_content\":\"because\"},{\"role\":\"user\",\"content\":\"d\"},"
    "{\"role\":\"assistant\",\"content\":\"f\",\"reasoning_content\":\"\\ng\\n\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
    "\"<think>\\nhm\\n</think>\\n\\nc\"},{\"role\":\"user\",\"content\":\"d\"},{\"role\":"
    "\"assistant\",\"content\":\"<think>\\nx\\n</think>\\n\\ny\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"chat_template_kwargs\":"
    "{\"enable_thinking\":false}}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"chat_template_kwargs\":"
    "{\"enable_thinking\":true}}",
    "{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"user\",\"content\":"
    "\"b\"}]}",
    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00001\",\"type\":"
    "\"function\",\"function\":{\"name\":\"add\",\"arguments\":{\"a\":1.5,\"b\":[null,\"\\u00fc\"]}"
    "}}]},"
    "{\"role\":\"tool\",\"content\":\"3\",\"tool_call_id\":\"call00001\"},"
    "{\"role\":\"assistant\",\"content\":\"Three.\"}],\"tools\":[{\"type\":\"function\","
    "\"function\":{\"name\":\"add\",\"description\":\"Adds\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"a\":{\"type\":\"number\"}},\"required\":[\"a\"]}}}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
    "\"so\","
    "\"tool_calls\":[{\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":\"f\","
    "\"arguments\":\"{}\"}},{\"id\":\"call00002\",\"type\":\"function\",\"function\":{\"name\":"
    "\"g\","
    "\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"call00001\"},"
    "{\"role\":\"tool\",\"content\":\"y\",\"tool_call_id\":\"call00002\"}]}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\","
    "\"function\":{\"name\":\"f\",\"parameters\":{}}},{\"type\":\"function\",\"function\":{"
    "\"name\":"
    "\"g\",\"return\":{\"type\":\"number\"}}}]}",
};
enum { N_TRIALS = sizeof trials / sizeof trials[0] };

/* ---- serving ---- */

static lathe_status hash_again(lathe_chat_template *chat)
{
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_sha256_update(hash, chat->hash, 64);
    lathe_sha256_update(hash, chat->renderer.name, (int64_t)strlen(chat->renderer.name) + 1);
    lathe_sha256_update(hash, chat->renderer.version, (int64_t)strlen(chat->renderer.version));
    lathe_sha256_finish(hash, chat->hash);
    return LATHE_OK;
}

static lathe_status set_renderer(lathe_chat_template *chat, const lathe_chat_renderer *renderer)
{
    static const char tojson[] = "{{ x | tojson }}";
    chat->renderer = *renderer;
    return chat->tojson
               ? LATHE_OK
               : lathe_template_parse("tojson", tojson, (int64_t)sizeof tojson - 1, &chat->tojson);
}

lathe_status lathe_chat_template_serve(lathe_chat_template *chat,
                                       const lathe_chat_renderer *renderer)
{
    LATHE_TRY(set_renderer(chat, renderer));
    return hash_again(chat);
}

const char *lathe_chat_template_renderer(const lathe_chat_template *chat)
{
    return chat->renderer.table ? chat->renderer.name : NULL;
}

static lathe_chars token_of(const lathe_chat_template *chat, const char *name)
{
    json_t *x = json_object_get(chat->tokens, name);
    return (lathe_chars){json_string_value(x), (int64_t)json_string_length(x)};
}

void lathe_chat_template_probe(const lathe_chat_template *chat, lathe_renderer_probe *out)
{
    *out = (lathe_renderer_probe){.size = (uint32_t)sizeof *out,
                                  .template_sha256 = chat->text ? chat->text_hash : NULL,
                                  .template_text = {chat->text, chat->text_bytes},
                                  .bos = token_of(chat, "bos_token"),
                                  .eos = token_of(chat, "eos_token")};
}

/* ---- special tokens ---- */

typedef struct token_taker {
    lathe_status (*take)(void *ctx, lathe_chars name, int learnt);
    void *ctx;
} token_taker;

static lathe_status pass_token(void *ctx, const lathe_piece *piece)
{
    const token_taker *t = ctx;
    return piece->kind == LATHE_PIECE_TOKEN && piece->text.bytes > 0
               ? t->take(t->ctx, piece->text, piece->trained)
               : LATHE_OK;
}

lathe_status
lathe_chat_template_tokens(const lathe_chat_template *chat,
                           lathe_status (*take)(void *ctx, lathe_chars name, int learnt), void *ctx)
{
    static const char *const plain[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"assistant\",\"content\":\"b\"}]}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
        "\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":"
        "\"c\"},{\"role\":\"assistant\",\"content\":\"d\"}]}",
    };
    token_taker taker = {take, ctx};
    const lathe_piece_sink sink = {.size = (uint32_t)sizeof sink, .ctx = &taker, .put = pass_token};
    const lathe_chars own = token_of(chat, "eos_token");
    const lathe_chars eos = own.data ? own : (lathe_chars){"eos_token", 9};
    lathe_status status = LATHE_OK;
    for (size_t i = 0; chat->renderer.table && i < 2 && status == LATHE_OK; i++) {
        json_t *row = NULL, *owned = NULL;
        lathe_chat what;
        LATHE_TRY(lathe_json_load("conversation", plain[i], (int64_t)strlen(plain[i]), &row));
        status = lathe_chat_from_row(row, &what, &owned);
        if (status == LATHE_OK)
            status = lathe__chat_pass_pieces(chat, &what, eos, &sink);
        if (status == LATHE_E_UNSUPPORTED) { /* the family has no system messages, for example */
            lathe_error_clear();
            status = LATHE_OK;
        }
        json_decref(owned);
        json_decref(row);
    }
    return status;
}

/* ---- comparing ---- */

/* Copies the spans to out; joins adjacent ones and leaves out empty ones. Returns their number. */
static int64_t merge(const lathe_rendering *text, lathe_template_span *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < text->n_spans; i++) {
        const lathe_template_span span = text->spans[i];
        if (span.begin >= span.end)
            continue;
        if (n > 0 && out[n - 1].end == span.begin)
            out[n - 1].end = span.end;
        else
            out[n++] = span;
    }
    return n;
}

static int same_spans(const lathe_rendering *a, const lathe_rendering *b)
{
    lathe_template_span *memory = malloc((size_t)(a->n_spans + b->n_spans + 1) * sizeof *memory);
    int same = 0;
    if (memory) {
        const int64_t n = merge(a, memory);
        same = merge(b, memory + n) == n &&
               memcmp(memory, memory + n, (size_t)n * sizeof *memory) == 0;
    }
    free(memory);
    return same;
}

/* Compares the texts, and without a generation prompt the learnt parts, of one conversation. Adds 1
 * to *served if the renderer `by` renders it; sets *why if there is a difference. */
static lathe_status compare_one(const lathe_chat_template *chat, const lathe_chat_template *by,
                                const lathe_chat *what, int32_t *served, const char **why)
{
    lathe_rendering ours = {0}, theirs = {0};
    int serves = 0;
    LATHE_TRY(lathe__chat_render_pieces(by, what, json_array_size(what->messages),
                                        what->add_generation_prompt, &ours, &serves));
    if (!serves)
        return LATHE_OK;
    (*served)++;
    lathe_status status = lathe_chat_render(chat, what, &theirs);
    if (status == LATHE_E_NOMEM)
        goto out;
    if (status != LATHE_OK)
        *why = "it renders a conversation that the template refuses";
    else if (ours.bytes != theirs.bytes || memcmp(ours.text, theirs.text, (size_t)ours.bytes) != 0)
        *why = "it writes another text than the template";
    status = LATHE_OK;
    if (*why || what->add_generation_prompt)
        goto out;
    lathe_rendering_fini(&theirs);
    status = lathe_chat_render_training(chat, what, &theirs);
    if (status == LATHE_OK && !same_spans(&ours, &theirs))
        *why = "it lets other parts be learnt than the template";
    if (status != LATHE_E_NOMEM) /* the template alone may not find what is learnt */
        status = LATHE_OK;
out:
    lathe_rendering_fini(&ours);
    lathe_rendering_fini(&theirs);
    return status;
}

static lathe_status compare(const lathe_chat_template *chat, const lathe_chat_template *by,
                            int32_t *served, int32_t *first, const char **why)
{
    for (int32_t i = 0; i < 2 * N_TRIALS && *why == NULL; i++) {
        json_t *row = NULL, *owned = NULL;
        lathe_chat what;
        const char *text = trials[i / 2];
        LATHE_TRY(lathe_json_load("trial", text, (int64_t)strlen(text), &row));
        lathe_status status = lathe_chat_from_row(row, &what, &owned);
        if (status == LATHE_OK) {
            what.add_generation_prompt = i % 2;
            what.now = 1753000000;
            status = compare_one(chat, by, &what, served, why);
        }
        json_decref(owned);
        json_decref(row);
        LATHE_TRY(status);
        if (i == 0)
            *first = *served;
    }
    return LATHE_OK;
}

lathe_status lathe_chat_template_compare(const lathe_chat_template *chat,
                                         const lathe_chat_renderer *renderer, int *out_same,
                                         char *why, int64_t why_bytes)
{
    lathe_chat_template by = *chat, plain = *chat;
    const char *difference = NULL;
    int32_t served = 0, first = 0;
    lathe_chat_renderer lenient = *renderer;
    lenient.is_strict = 0;
    *out_same = 0;
    by.tojson = NULL;
    plain.renderer.table = NULL;
    lathe_status status = set_renderer(&by, &lenient);
    if (status == LATHE_OK)
        status = compare(&plain, &by, &served, &first, &difference);
    lathe_template_destroy(by.tojson);
    LATHE_TRY(status);
    if (difference == NULL && first == 0)
        difference = "it refuses a plain conversation";
    *out_same = difference == NULL;
    if (difference)
        (void)snprintf(why, (size_t)why_bytes, "%s", difference);
    else
        (void)snprintf(why, (size_t)why_bytes, "same text on %d of %d conversations%s", served,
                       2 * N_TRIALS, served < 2 * N_TRIALS ? ", refuses the rest" : "");
    return LATHE_OK;
}
