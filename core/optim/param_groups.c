/* Reads the parameter groups. */
#include "optim/param_groups.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/module_pattern.h"
#include "plug/answers.h"

/* State of reading one configuration. */
typedef struct reader {
    const lathe_config *config;
    const lathe_params *params;
    lathe_param_groups *out;
    lathe_diags *diags; /* collects the errors */
} reader;

/* `entry`: the group, from 1; 0: the key as a whole. `inner`: the group's key. */
static lathe_status refuse_in(const reader *r, const char *key, int32_t entry, const char *inner,
                              const char *text)
{
    const lathe_place place =
        entry > 0 ? lathe_config_where_in(r->config, "optimizer", key, entry - 1, inner)
                  : lathe_config_where(r->config, "optimizer", key);
    lathe_diags_add(r->diags, LATHE_DIAG_ERROR, &place, NULL, "optimizer.%s: %s", key, text);
    return lathe_diags_status(r->diags);
}

static lathe_status refuse(const reader *r, const char *key, const char *text)
{
    return refuse_in(r, key, 0, NULL, text);
}

/* Removes the weight decay from the parameters that a list of patterns names. */
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

/* Applies an entry of optimizer.groups to parameter i. */
static lathe_status give(const reader *r, const lathe_group_settings *entry, int32_t i)
{
    const double lr = entry->lr, decay = entry->weight_decay;
    const lathe_optimizer_rates *own = &r->out->rates[i];
    char text[512];
    if (own->lr <= 0.0 && lr > 0.0) {
        (void)snprintf(
            text, sizeof text,
            "a group has an lr, but optimizer.%s, of which it is a multiple, is 0: set it above 0",
            own->lr_key);
        return refuse(r, "groups", text);
    }
    if (!isnan(lr))
        r->out->lr_mult[i] = own->lr > 0.0 ? lr / own->lr : 1.0;
    if (isnan(decay))
        return LATHE_OK;
    if (own->weight_decay_key == NULL)
        return refuse(r, "groups", "the optimizer has no weight_decay that a group could change");
    if (decay > 0.0 && own->weight_decay <= 0.0) {
        (void)snprintf(text, sizeof text,
                       "a group sets a weight decay for '%s', but optimizer.%s is 0: set it above "
                       "0, and set 0 in the groups that shall have no decay",
                       r->params->rows[i]->name, own->weight_decay_key);
        return refuse(r, "groups", text);
    }
    r->out->decay_mult[i] = own->weight_decay > 0.0 ? decay / own->weight_decay : 0.0;
    return LATHE_OK;
}

/* Assigns a group to the parameters that a pattern matches, and counts them. */
static lathe_status take_group(const reader *r, int32_t group, const lathe_group_settings *entry,
                               const char *pattern, int32_t *out_found)
{
    *out_found = 0;
    for (int32_t i = 0; i < r->params->n; i++) {
        const lathe_param *p = r->params->rows[i];
        if (!p->trainable || !lathe_name_matches(pattern, p->name))
            continue;
        ++*out_found;
        if (r->out->group[i] != 0)
            continue;
        r->out->group[i] = group;
        LATHE_TRY(give(r, entry, i));
    }
    return LATHE_OK;
}

/* Refuses two groups of one name, because their figures in the metrics would have the same name. */
static lathe_status check_name(const reader *r, int32_t group)
{
    char text[512];
    for (int32_t i = 0; i < group; i++) {
        if (strcmp(r->out->names[i], r->out->names[group]) != 0)
            continue;
        (void)snprintf(text, sizeof text,
                       i == 0 ? "a group is called \"%s\", the name for parameters in no group; "
                                "expected another name"
                              : "two groups are called \"%s\"; expected a name for each",
                       r->out->names[group]);
        return refuse(r, "groups", text);
    }
    return LATHE_OK;
}

static lathe_status read_group(const reader *r, const lathe_group_settings *entry,
                               lathe_arena *arena)
{
    lathe_param_groups *out = r->out;
    const int32_t group = out->n++;
    int32_t found = 0;
    out->names[group] = entry->name != NULL ? lathe_arena_strdup(arena, entry->name)
                                            : lathe_arena_printf(arena, "%d", (int)group);
    if (out->names[group] == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(check_name(r, group));
    for (int64_t k = 0; k < entry->params.n; k++) {
        char text[512];
        LATHE_TRY(take_group(r, group, entry, entry->params.strs[k], &found));
        if (found > 0)
            continue;
        (void)snprintf(text, sizeof text, "group %s: \"%s\" matches no trained parameter",
                       out->names[group], entry->params.strs[k]);
        return refuse_in(r, "groups", group, "params", text);
    }
    return LATHE_OK;
}

static lathe_status read_groups(const reader *r, lathe_arena *arena)
{
    lathe_group_settings list[LATHE_MAX_GROUPS];
    const int64_t n = lathe_group_settings_read(r->config, list);
    if (n >= LATHE_MAX_GROUPS)
        return refuse(r, "groups", "at most 15 groups are possible");
    for (int64_t i = 0; i < n; i++)
        LATHE_TRY(read_group(r, &list[i], arena));
    return LATHE_OK;
}

/* Reads the optimizer's own learning rate and weight decay of every parameter. */
static void read_rates(const lathe_config *config, const lathe_instance *optimizer, double base_lr,
                       const lathe_params *params, int32_t i, lathe_optimizer_rates *out)
{
    const lathe_optimizer_v1 *table = optimizer->table;
    const lathe_value *decay = lathe_config_get(config, "optimizer", "weight_decay");
    const lathe_param_info info = lathe_params_info(params, i);
    *out = (lathe_optimizer_rates){.lr = base_lr,
                                   .weight_decay = decay != NULL && decay->is_set ? decay->f : 0.0,
                                   .lr_key = "lr",
                                   .weight_decay_key = decay != NULL ? "weight_decay" : NULL};
    if (LATHE_HAS(table, rates))
        table->rates(optimizer->self, &info, out);
}

lathe_status lathe_param_groups_read(const lathe_config *config, const lathe_params *params,
                                     const lathe_instance *optimizer, const lathe_instance *adapter,
                                     double base_lr, lathe_arena *arena, lathe_diags *diags,
                                     lathe_param_groups *out)
{
    lathe_diags own = {0};
    const reader r = {
        .config = config, .params = params, .out = out, .diags = diags ? diags : &own};
    const int64_t n = params->n + 1;
    *out = (lathe_param_groups){.n = 1,
                                .names = {"default"},
                                .lr_mult = lathe_arena_alloc(arena, n * (int64_t)sizeof(double)),
                                .decay_mult = lathe_arena_alloc(arena, n * (int64_t)sizeof(double)),
                                .group = lathe_arena_alloc(arena, n * (int64_t)sizeof(int32_t)),
                                .rates = lathe_arena_alloc(arena, n * (int64_t)sizeof *out->rates)};
    if (out->lr_mult == NULL || out->decay_mult == NULL || out->group == NULL || out->rates == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < params->n; i++) {
        const int32_t role = params->rows[i]->role;
        out->lr_mult[i] = 1.0;
        if (params->rows[i]->trainable)
            LATHE_TRY(lathe_answer_rate(adapter, params->rows[i]->name, &out->lr_mult[i]));
        out->decay_mult[i] = role == LATHE_ROLE_NORM || role == LATHE_ROLE_BIAS ? 0.0 : 1.0;
        out->group[i] = 0;
        read_rates(config, optimizer, base_lr, params, i, &out->rates[i]);
    }
    lathe_status status = no_decay(&r, "no_decay_modules", lathe_module_matches);
    if (status == LATHE_OK)
        status = no_decay(&r, "no_decay_params", lathe_name_matches);
    if (status == LATHE_OK)
        status = read_groups(&r, arena);
    for (int32_t g = 0; g < out->n && status == LATHE_OK; g++) {
        out->keys[g] = lathe_arena_printf(arena, "grad_norm/%s", out->names[g]);
        status = out->keys[g] != NULL ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_diags_fini(&own);
    return status;
}

/* Finds the row of the list to which a parameter belongs, or adds one. */
static lathe_group_row *row_of(lathe_group_row *list, int32_t *n, const lathe_group_row *like)
{
    for (int32_t k = 0; k < *n; k++) {
        const lathe_group_row *row = &list[k];
        const int same_part = row->part == like->part || (row->part != NULL && like->part != NULL &&
                                                          strcmp(row->part, like->part) == 0);
        /* Exact comparison is right: equal numbers come from the same product of the same
         * factors. */
        if (row->name == like->name && same_part && row->lr == like->lr &&
            row->weight_decay == like->weight_decay)
            return &list[k];
    }
    list[*n] = *like;
    return &list[(*n)++];
}

lathe_status lathe_param_groups_rows(const lathe_param_groups *groups, const lathe_params *params,
                                     lathe_arena *arena, lathe_group_row **out, int32_t *out_n)
{
    lathe_group_row *list = lathe_arena_alloc(arena, (params->n + 1) * (int64_t)sizeof *list);
    *out = list;
    *out_n = 0;
    if (list == NULL)
        return LATHE_E_NOMEM;
    for (int32_t g = 0; g < groups->n; g++)
        for (int32_t i = 0; i < params->n; i++) {
            if (!params->rows[i]->trainable || groups->group[i] != g)
                continue;
            const lathe_optimizer_rates *own = &groups->rates[i];
            const lathe_group_row like = {.name = groups->names[g],
                                          .part = own->part,
                                          .lr = own->lr * groups->lr_mult[i],
                                          .weight_decay =
                                              own->weight_decay * groups->decay_mult[i]};
            lathe_group_row *row = row_of(list, out_n, &like);
            row->n_tensors++;
            row->n_params += lathe_desc_count(&params->rows[i]->desc);
        }
    return LATHE_OK;
}
