/* Chooses among candidates by score. */
#include "plug/select.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "lathe/device.h"

enum { WHY_BYTES = 256 };

/* The best candidate so far, and the answers of all. */
struct vote {
    lathe_arena *arena;
    lathe_buffer said;
    int64_t best;
    int32_t best_score;
    const char *best_why;
};

static void cast(struct vote *vote, int64_t index, const char *name, int32_t score, char *why)
{
    why[WHY_BYTES - 1] = '\0';
    lathe_buffer_printf(&vote->said, "%s%s: %s", vote->said.len > 0 ? "; " : "", name,
                        why[0] != '\0' ? why : "refused");
    if (score <= vote->best_score)
        return;
    vote->best = index;
    vote->best_score = score;
    vote->best_why = lathe_arena_strdup(vote->arena, why);
}

/* Returns the winner. refusal: the error message if all refused. */
static lathe_status result(struct vote *vote, const char *refusal, int64_t *out_index,
                           const char **out_why)
{
    lathe_status status = vote->said.status;
    *out_index = vote->best;
    if (status == LATHE_OK && vote->best < 0)
        status = lathe_error(LATHE_E_UNSUPPORTED, "%s (%s)", refusal,
                             vote->said.len > 0 ? vote->said.data : "none there");
    if (out_why != NULL)
        *out_why = vote->best_why != NULL ? vote->best_why : "";
    lathe_buffer_fini(&vote->said);
    return status;
}

lathe_status lathe_select_device(lathe_registry *registry, const char *name, lathe_arena *arena,
                                 const lathe_component **out, const char **out_why)
{
    const lathe_component **candidates = NULL;
    int64_t n = 0, best = -1;
    struct vote vote = {arena, LATHE_BUFFER_INIT, -1, LATHE_SCORE_NO, NULL};
    *out = NULL;
    LATHE_TRY(lathe_registry_candidates(registry, LATHE_KIND_DEVICE, name, arena, &candidates, &n));
    for (int64_t i = 0; i < n; i++) {
        const lathe_device_v1 *table = candidates[i]->plugin->table;
        char why[WHY_BYTES] = "";
        const int32_t score =
            LATHE_HAS(table, score) ? table->score(why, WHY_BYTES) : LATHE_SCORE_PORTABLE;
        cast(&vote, i, candidates[i]->plugin->name, score, why);
    }
    char refusal[160] = "no device can run on this machine";
    if (strcmp(name, "auto") != 0)
        (void)snprintf(refusal, sizeof refusal, "device \"%.100s\" cannot run on this machine",
                       name);
    LATHE_TRY(result(&vote, refusal, &best, out_why));
    *out = candidates[best];
    return LATHE_OK;
}

lathe_status lathe_select_attention(const lathe_instance *instances, int64_t n,
                                    const lathe_attention_problem *problem, lathe_arena *arena,
                                    int64_t *out_index, const char **out_why)
{
    struct vote vote = {arena, LATHE_BUFFER_INIT, -1, LATHE_SCORE_NO, NULL};
    for (int64_t i = 0; i < n; i++) {
        const lathe_attention_v1 *table = instances[i].table;
        char why[WHY_BYTES] = "";
        const int32_t score = LATHE_HAS(table, score)
                                  ? table->score(instances[i].self, problem, why, WHY_BYTES)
                                  : LATHE_SCORE_NO;
        cast(&vote, i, instances[i].component->plugin->name, score, why);
    }
    const lathe_status status =
        result(&vote, "no attention backend takes this problem", out_index, out_why);
    return status == LATHE_OK
               ? status
               : lathe_error_at(status, "attention", "name", "%s", lathe_error_message());
}

lathe_status lathe_select_collective(lathe_registry *registry, const char *name,
                                     const lathe_collective_probe *probe, lathe_arena *arena,
                                     const lathe_component **out, const char **out_why)
{
    const lathe_component **candidates = NULL;
    int64_t n = 0, best = -1;
    struct vote vote = {arena, LATHE_BUFFER_INIT, -1, LATHE_SCORE_NO, NULL};
    *out = NULL;
    LATHE_TRY(
        lathe_registry_candidates(registry, LATHE_KIND_COLLECTIVE, name, arena, &candidates, &n));
    for (int64_t i = 0; i < n; i++) {
        const lathe_collective_v1 *table = candidates[i]->plugin->table;
        char why[WHY_BYTES] = "";
        cast(&vote, i, candidates[i]->plugin->name, table->score(probe, why, WHY_BYTES), why);
    }
    LATHE_TRY(result(&vote, "no collective engine serves this process", &best, out_why));
    *out = candidates[best];
    return LATHE_OK;
}
