/* Chooses the renderer of a folder's chat template. */
#include "run/decide/renderer_choice.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"

enum { WHY_BYTES = 256 };

/* A candidate's answer. */
typedef struct answer {
    lathe_instance instance;
    int32_t score;
    char why[WHY_BYTES];
} answer;

static lathe_chat_renderer renderer_of(const lathe_instance *instance, int32_t is_strict)
{
    return (lathe_chat_renderer){.table = instance->table,
                                 .self = instance->self,
                                 .name = instance->component->plugin->name,
                                 .version = instance->component->plugin->version,
                                 .is_strict = is_strict};
}

static int32_t score_of(const lathe_instance *instance, const lathe_renderer_probe *probe,
                        char *why)
{
    const lathe_renderer_v1 *table = instance->table;
    if (!LATHE_HAS(table, score))
        return LATHE_SCORE_NO;
    const int32_t score = table->score(instance->self, probe, why, WHY_BYTES);
    why[WHY_BYTES - 1] = '\0';
    return score;
}

/* Asks a candidate. Renderers with required keys are only for those who name them. */
static lathe_status ask(const lathe_component *component, const lathe_chat_template *chat,
                        const lathe_renderer_probe *probe, answer *out)
{
    int same = 0;
    memset(out, 0, sizeof *out);
    if (component->plugin->n_fields > 0)
        return LATHE_OK;
    LATHE_TRY(lathe_instance_init(&out->instance, component, NULL));
    out->score = score_of(&out->instance, probe, out->why);
    if (out->score <= LATHE_SCORE_NO)
        return LATHE_OK;
    const lathe_chat_renderer renderer = renderer_of(&out->instance, 0);
    LATHE_TRY(lathe_chat_template_compare(chat, &renderer, &same, out->why, WHY_BYTES));
    lathe_log_alike(LATHE_LOG_DEBUG, "renderer %s: score %d, %s", component->plugin->name,
                    out->score, out->why);
    out->score = same ? out->score : LATHE_SCORE_NO;
    return LATHE_OK;
}

static lathe_status choose_best(const lathe_component **candidates, int64_t n,
                                const lathe_renderer_probe *probe, lathe_chat_template *chat,
                                answer *best)
{
    for (int64_t i = 0; i < n; i++) {
        answer next;
        const lathe_status status = ask(candidates[i], chat, probe, &next);
        if (status == LATHE_OK && next.score > best->score) {
            lathe_instance_fini(&best->instance);
            *best = next;
            continue;
        }
        if (status == LATHE_E_NOMEM)
            return status;
        if (status != LATHE_OK)
            lathe_log_alike(LATHE_LOG_WARN, "renderer %s is not used: %s",
                            candidates[i]->plugin->name, lathe_error_message());
        lathe_instance_fini(&next.instance);
    }
    return LATHE_OK;
}

/* The plugin that the user named. */
static lathe_status take_named(const lathe_component *component, const lathe_value *values,
                               const lathe_renderer_probe *probe, lathe_chat_template *chat,
                               answer *out)
{
    int same = 1;
    LATHE_TRY(lathe_instance_init(&out->instance, component, values));
    (void)score_of(&out->instance, probe, out->why);
    if (probe->template_text.data == NULL)
        return LATHE_OK;
    const lathe_chat_renderer renderer = renderer_of(&out->instance, 0);
    LATHE_TRY(lathe_chat_template_compare(chat, &renderer, &same, out->why, WHY_BYTES));
    if (!same)
        lathe_log_alike(
            LATHE_LOG_WARN,
            "renderer.name = \"%s\" does not write what the folder's chat template writes: %s",
            component->plugin->name, out->why);
    return LATHE_OK;
}

lathe_status lathe_renderer_choose(lathe_registry *registry, const char *name,
                                   const lathe_value *values, const char *model_type,
                                   lathe_chat_template *chat, lathe_arena *arena,
                                   lathe_instance *out, const char **out_why)
{
    const lathe_component **candidates = NULL;
    lathe_renderer_probe probe;
    answer best = {.score = LATHE_SCORE_NO};
    int64_t n = 0;
    const int is_auto = strcmp(name, "auto") == 0;
    memset(out, 0, sizeof *out);
    if (strcmp(name, "jinja") == 0)
        return LATHE_OK;
    lathe_chat_template_probe(chat, &probe);
    probe.model_type = model_type;
    lathe_status status =
        lathe_registry_candidates(registry, LATHE_KIND_RENDERER, name, arena, &candidates, &n);
    if (status == LATHE_E_NOT_FOUND && is_auto)
        return LATHE_OK; /* no renderer is installed: the template renders */
    if (status != LATHE_OK)
        goto out;
    status = is_auto ? choose_best(candidates, n, &probe, chat, &best)
                     : take_named(candidates[0], values, &probe, chat, &best);
    if (status != LATHE_OK)
        goto out;
    if (best.instance.component) {
        const lathe_chat_renderer renderer = renderer_of(&best.instance, !is_auto);
        status = lathe_chat_template_serve(chat, &renderer);
    }
    if (status != LATHE_OK)
        goto out;
    if (out_why)
        *out_why = lathe_arena_strdup(arena, best.why);
out:
    if (status == LATHE_OK)
        *out = best.instance;
    else
        lathe_instance_fini(&best.instance);
    return status;
}
