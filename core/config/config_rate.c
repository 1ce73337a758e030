/* Chooses the learning rate of a run whose file has none. */
#include "config/config_rate.h"

#include <string.h>

#include "config/config_state.h"
#include "lathe/adapter.h"
#include "lathe/stage.h"
#include "plug/kind.h"
#include "plug/row_shape.h"

/* Whether the run trains parameters of an adapter over frozen weights. */
static int trains_adapter(const lathe_config *config)
{
    const lathe_component *component = config->parts[LATHE_KIND_ADAPTER].component;
    const lathe_adapter_v1 *table = component != NULL ? component->plugin->table : NULL;
    return LATHE_HAS(table, wrap);
}

/* Whether the stage compares answers, or scores what the model writes. A reward model, which learns
 * a head of its own from pairs, is fine-tuned as others are. */
static int learns_preferences(const lathe_config *config)
{
    const lathe_component *component = config->parts[LATHE_KIND_STAGE].component;
    const lathe_stage_v1 *table = component != NULL ? component->plugin->table : NULL;
    if (table == NULL)
        return 0;
    const int has_head = LATHE_HAS(table, heads) && table->n_heads > 0;
    return LATHE_HAS(table, iterate) ||
           (lathe_row_shape_get(lathe_rows_of(table))->compares && !has_head);
}

lathe_default_rate lathe_config_default_rate(const lathe_config *config)
{
    static const lathe_default_rate rates[2][2] = {
        {{0.02, "weights of a loaded model"},
         {0.001, "weights of a loaded model and preferences or rewards"}},
        {{0.2, "an adapter over a loaded model"},
         {0.01, "an adapter over a loaded model and preferences or rewards"}}};
    if (!lathe_config_is_set(config, "model", "path"))
        return (lathe_default_rate){1.0, "a new model"};
    return rates[trains_adapter(config)][learns_preferences(config)];
}

static int is_rate(const lathe_field *field)
{
    const size_t n = strlen(field->key);
    return field->type == LATHE_T_FLOAT &&
           (strcmp(field->key, "lr") == 0 || (n > 3 && strcmp(field->key + n - 3, "_lr") == 0));
}

static lathe_status scale(lathe_config *config, struct lathe__section *section, double share)
{
    lathe_value *values =
        lathe_arena_alloc(&config->arena, (section->n_fields + 1) * (int64_t)sizeof *values);
    if (values == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < section->n_fields; i++) {
        values[i] = section->values[i];
        if (is_rate(&section->fields[i]) && values[i].is_set && !values[i].is_explicit)
            values[i].f *= share;
    }
    section->values = values;
    config->parts[LATHE_KIND_OPTIMIZER].values = values;
    return LATHE_OK;
}

lathe_status lathe__config_settle_rate(lathe_config *config)
{
    const double share = lathe_config_default_rate(config).share;
    for (int32_t i = 0; i < config->n_sections; i++)
        if (config->sections[i].kind == LATHE_KIND_OPTIMIZER && config->sections[i].values != NULL)
            return share < 1.0 ? scale(config, &config->sections[i], share) : LATHE_OK;
    return LATHE_OK;
}
