/* Compares the special tokens that a renderer writes with those of the tokenizer. */
#include "run/decide/renderer_tokens.h"

#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "chat/template/chat_template.h"

enum { MAX_NAMES = 16 };

typedef struct missing {
    const lathe_run *run;
    const char *names[MAX_NAMES]; /* each once */
    int32_t n, ends_answers;      /* 1: one of them is learnt */
    int32_t lacks_eos;            /* 1: the learnt one is eos_token, which has no name */
    lathe_arena arena;
} missing;

static lathe_status take(void *ctx, lathe_chars name, int learnt)
{
    missing *m = ctx;
    if (lathe_tokenizer_id(m->run->data.tokenizer, name.data, name.bytes) >= 0)
        return LATHE_OK;
    m->ends_answers |= learnt;
    m->lacks_eos |= learnt && name.bytes == 9 && memcmp(name.data, "eos_token", 9) == 0;
    for (int32_t i = 0; i < m->n; i++)
        if (strlen(m->names[i]) == (size_t)name.bytes &&
            memcmp(m->names[i], name.data, (size_t)name.bytes) == 0)
            return LATHE_OK;
    if (m->n == MAX_NAMES)
        return LATHE_OK;
    m->names[m->n] = lathe_arena_strndup(&m->arena, name.data, name.bytes);
    return m->names[m->n++] ? LATHE_OK : LATHE_E_NOMEM;
}

/* The folder names no eos_token, so nothing is written for it. */
static void warn_of_eos(const lathe_run *run)
{
    lathe__run_warn(
        run, "renderer", "name",
        "renderer.name = \"%s\" ends an answer with the eos_token, and the tokenizer's folder "
        "names none, so nothing ends an answer; add \"eos_token\" to its tokenizer_config.json, "
        "or name another renderer (lathe ls renderer)",
        run->parts.renderer.component->plugin->name);
}

static void warn(const missing *m)
{
    const lathe_run *run = m->run;
    lathe_buffer list = LATHE_BUFFER_INIT;
    for (int32_t i = 0; i < m->n; i++)
        lathe_buffer_printf(&list, "%s%s",
                            i == 0          ? ""
                            : i + 1 == m->n ? " and "
                                            : ", ",
                            m->names[i]);
    lathe__run_warn(
        run, "renderer", "name",
        "renderer.name = \"%s\" writes %s, which %s no special token%s of the tokenizer: %s "
        "ordinary text, so no token ends an answer; name the renderer of the tokenizer's family "
        "(lathe ls renderer), or a tokenizer that has %s, or stop at the text with generate.stop",
        run->parts.renderer.component->plugin->name, list.data ? list.data : "",
        m->n == 1 ? "is" : "are", m->n == 1 ? "" : "s", m->n == 1 ? "it becomes" : "they become",
        m->n == 1 ? "it" : "them");
    lathe_buffer_fini(&list);
}

lathe_status lathe__renderer_tokens_warn(const lathe_run *run)
{
    missing m = {.run = run, .arena = LATHE_ARENA_INIT};
    lathe_status status = LATHE_OK;
    if (run->data.tokenizer && run->parts.renderer.component)
        status = lathe_chat_template_tokens(run->data.chat, take, &m);
    lathe_renderer_probe probe = {.size = 0};
    if (run->data.chat)
        lathe_chat_template_probe(run->data.chat, &probe);
    if (status == LATHE_OK && m.lacks_eos && probe.eos.data == NULL)
        warn_of_eos(run);
    else if (status == LATHE_OK && m.ends_answers)
        warn(&m);
    lathe_arena_fini(&m.arena);
    return status;
}
