/* Parameter groups. */
#include "run/param_groups.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

/* What the reading of one configuration shares. */
typedef struct reader {
    const lathe_config *config;
    const lathe_params *params;
    lathe_param_groups *out;
    double base_lr, weight_decay; /* of the optimizer */
    int32_t has_weight_decay;
} reader;

static lathe_status refuse(const reader *r, const char *key, const char *text)
{
    const lathe_place place = lathe_config_where(r->config, "optimizer", key);
    return lathe_error(LATHE_E_CONFIG, "%s:%d:%d: optimizer.%s: %s", place.file, place.line,
                       place.column, key, text);
}

/* The pattern covers the whole name. */
static int covers(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, 0) == 0;
}

/* A module's path without a pattern's signs may be one part of the name's path; else it must cover the
 * path of the module that holds the parameter. */
static int in_module(const char *pattern, const char *name)
{
    char path[512];
    const char *end = strrchr(name, '.');
    const size_t n = end != NULL ? (size_t)(end - name) : 0;
    if (n == 0 || n >= sizeof path)
        return 0;
    memcpy(path, name, n);
    path[n] = '\0';
    if (strpbrk(pattern, ".*?[") != NULL)
        return covers(pattern, path);
    for (char *part = strtok(path, "."); part != NULL; part = strtok(NULL, "."))
        if (strcmp(part, pattern) == 0)
            return 1;
    return 0;
}

/* Takes the decay from what a list of patterns names. */
static lathe_status no_decay(const reader *r, const char *key,
                             int (*matches)(const char *pattern, const char *name))
{
    const lathe_value *list = lathe_config_get(r->config, "optimizer", key);
    for (int64_t k = 0; list != NULL && k < list->n; k++) {
        int found = 0;
        for (int32_t i = 0; i < r->params->n; i++)
            if (r->params->rows[i]->trainable && matches(list->strs[k], r->params->rows[i]->name)) {
                r->out->decay_mult[i] = 0.0;
                found = 1;
            }
        if (!found) {
            char text[512];
            (void)snprintf(text, sizeof text, "\"%s\" matches no trained parameter", list->strs[k]);
            return refuse(r, key, text);
        }
    }
    return LATHE_OK;
}

/* The multipliers of one group, and how many parameters took it. */
static int32_t take_group(const reader *r, int32_t group, const json_t *pattern, double lr_mult,
                          double decay_mult)
{
    int32_t found = 0;
    for (int32_t i = 0; i < r->params->n; i++) {
        const lathe_param *p = r->params->rows[i];
        if (!p->trainable || !covers(json_string_value(pattern), p->name))
            continue;
        found++;
        if (r->out->group[i] != 0)
            continue;
        r->out->group[i] = group;
        r->out->lr_mult[i] = lr_mult;
        if (decay_mult >= 0.0)
            r->out->decay_mult[i] = decay_mult;
    }
    return found;
}

static lathe_status multipliers(const reader *r, const json_t *entry, double *out_lr,
                                double *out_decay)
{
    const json_t *lr = json_object_get(entry, "lr");
    const json_t *decay = json_object_get(entry, "weight_decay");
    *out_lr = 1.0;
    *out_decay = -1.0; /* as it was */
    if (lr != NULL && r->base_lr <= 0.0)
        return refuse(r, "groups", "a group has an lr, and the optimizer's is 0");
    if (lr != NULL)
        *out_lr = json_number_value(lr) / r->base_lr;
    if (decay == NULL)
        return LATHE_OK;
    if (!r->has_weight_decay)
        return refuse(r, "groups", "the optimizer has no weight_decay that a group could change");
    if (json_number_value(decay) > 0.0 && r->weight_decay <= 0.0)
        return refuse(
            r, "groups",
            "a group decays its weights, and optimizer.weight_decay is 0: set that, and 0 "
            "where there shall be none");
    *out_decay = r->weight_decay > 0.0 ? json_number_value(decay) / r->weight_decay : 0.0;
    return LATHE_OK;
}

/* Two groups of one name would be one figure in the metrics. */
static lathe_status check_name(const reader *r, int32_t group)
{
    char text[512];
    for (int32_t i = 0; i < group; i++) {
        if (strcmp(r->out->names[i], r->out->names[group]) != 0)
            continue;
        (void)snprintf(text, sizeof text,
                       i == 0 ? "a group is called \"%s\", as the parameters of no group are; "
                                "expected another name"
                              : "two groups are called \"%s\"; expected a name for each",
                       r->out->names[group]);
        return refuse(r, "groups", text);
    }
    return LATHE_OK;
}

static lathe_status read_group(const reader *r, const json_t *entry, lathe_arena *arena)
{
    lathe_param_groups *out = r->out;
    const json_t *patterns = json_object_get(entry, "params");
    const char *name = json_string_value(json_object_get(entry, "name"));
    const int32_t group = out->n++;
    double lr_mult, decay_mult;
    LATHE_TRY(multipliers(r, entry, &lr_mult, &decay_mult));
    out->names[group] = name != NULL ? lathe_arena_strdup(arena, name)
                                     : lathe_arena_printf(arena, "%d", (int)group);
    if (out->names[group] == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(check_name(r, group));
    for (size_t k = 0; k < json_array_size(patterns); k++)
        if (take_group(r, group, json_array_get(patterns, k), lr_mult, decay_mult) == 0) {
            char text[512];
            (void)snprintf(text, sizeof text, "group %s: \"%s\" matches no trained parameter",
                           out->names[group], json_string_value(json_array_get(patterns, k)));
            return refuse(r, "groups", text);
        }
    return LATHE_OK;
}

static lathe_status read_groups(const reader *r, lathe_arena *arena)
{
    const char *text = lathe_config_string(r->config, "optimizer", "groups");
    json_t *root = NULL;
    if (text == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_json_load("optimizer.groups", text, (int64_t)strlen(text), &root));
    lathe_status status = LATHE_OK;
    if (json_array_size(root) >= LATHE_MAX_GROUPS)
        status = refuse(r, "groups", "at most 15 groups are taken");
    for (size_t i = 0; i < json_array_size(root) && status == LATHE_OK; i++)
        status = read_group(r, json_array_get(root, i), arena);
    json_decref(root);
    return status;
}

lathe_status lathe_param_groups_read(const lathe_config *config, const lathe_params *params,
                                     double base_lr, lathe_arena *arena, lathe_param_groups *out)
{
    const lathe_value *decay = lathe_config_get(config, "optimizer", "weight_decay");
    const reader r = {.config = config,
                      .params = params,
                      .out = out,
                      .base_lr = base_lr,
                      .weight_decay = decay != NULL && decay->is_set ? decay->f : 0.0,
                      .has_weight_decay = decay != NULL};
    const int64_t n = params->n + 1;
    *out = (lathe_param_groups){.n = 1,
                                .names = {"default"},
                                .lr_mult = lathe_arena_alloc(arena, n * (int64_t)sizeof(double)),
                                .decay_mult = lathe_arena_alloc(arena, n * (int64_t)sizeof(double)),
                                .group = lathe_arena_alloc(arena, n * (int64_t)sizeof(int32_t))};
    if (out->lr_mult == NULL || out->decay_mult == NULL || out->group == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < params->n; i++) {
        const int32_t role = params->rows[i]->role;
        out->lr_mult[i] = 1.0;
        out->decay_mult[i] = role == LATHE_ROLE_NORM || role == LATHE_ROLE_BIAS ? 0.0 : 1.0;
        out->group[i] = 0;
    }
    LATHE_TRY(no_decay(&r, "no_decay_modules", in_module));
    LATHE_TRY(no_decay(&r, "no_decay_params", covers));
    LATHE_TRY(read_groups(&r, arena));
    for (int32_t g = 0; g < out->n; g++) {
        out->keys[g] = lathe_arena_printf(arena, "grad_norm/%s", out->names[g]);
        if (out->keys[g] == NULL)
            return LATHE_E_NOMEM;
    }
    return LATHE_OK;
}
