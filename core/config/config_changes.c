/* Compares the configurations of two starts of a run, key by key. */
#include "config/config_changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"

#define MAX_VALUE 100 /* bytes of a value in a message */

static json_t *or_null(json_t *value)
{
    return value ? json_incref(value) : json_null();
}

/* Adds section.key when its two values differ. */
static int add(json_t *out, const char *section, const char *key, json_t *from, json_t *to)
{
    char name[160];
    if (from == to || (from && to && json_equal(from, to)))
        return 0;
    (void)snprintf(name, sizeof name, "%s.%s", section, key);
    return json_object_set_new(out, name,
                               json_pack("{s:o, s:o}", "from", or_null(from), "to", or_null(to)));
}

static int add_section(json_t *out, const char *section, const json_t *old, const json_t *now)
{
    const char *key;
    json_t *value;
    int failed = 0;
    json_object_foreach((json_t *)(uintptr_t)now, key, value) failed |=
        add(out, section, key, json_object_get(old, key), value) != 0;
    json_object_foreach((json_t *)(uintptr_t)old, key, value)
    {
        if (json_object_get(now, key) == NULL)
            failed |= add(out, section, key, value, NULL) != 0;
    }
    return failed;
}

/* ---- rewards ---- */

/* A key of all rewards, {"list": [{"name": ..., KEY: ...}, ...]}: the value of the only one, or the
 * array of their values. A table without a list, {"name": "none"}, has its own value. */
static json_t *reward_values(const json_t *rewards, const char *key)
{
    const json_t *list = json_object_get(rewards, "list");
    const size_t n = json_array_size(list);
    if (list == NULL)
        return or_null(json_object_get(rewards, key));
    if (n == 1)
        return or_null(json_object_get(json_array_get(list, 0), key));
    json_t *values = json_array();
    for (size_t i = 0; values && i < n; i++)
        if (json_array_append_new(values, or_null(json_object_get(json_array_get(list, i), key))) !=
            0)
            return NULL;
    return values;
}

/* Adds reward.KEY if its values differ. */
static int add_reward_key(json_t *out, const json_t *old, const json_t *now, const char *key)
{
    json_t *from = reward_values(old, key), *to = reward_values(now, key);
    const int failed = from == NULL || to == NULL || add(out, "reward", key, from, to) != 0;
    json_decref(from);
    json_decref(to);
    return failed;
}

/* Adds the keys of each reward of a list. */
static int add_reward_keys(json_t *out, const json_t *old, const json_t *now, const json_t *of)
{
    const json_t *list = json_object_get(of, "list");
    const char *key;
    json_t *value;
    int failed = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        json_object_foreach(json_array_get(list, i), key, value) failed |=
            add_reward_key(out, old, now, key);
    return failed;
}

/* Adds the changed keys of the rewards, by the names that they have in [reward] and [[reward]]. If
 * there are other rewards than before, their keys are not comparable, and reward.name is the
 * change.
 */
static int add_rewards(json_t *out, const json_t *old, const json_t *now)
{
    const size_t before = json_object_size(out);
    if (add_reward_key(out, old, now, "name") != 0)
        return 1;
    return json_object_size(out) > before
               ? 0
               : add_reward_keys(out, old, now, old) | add_reward_keys(out, old, now, now);
}

json_t *lathe_config_changes(const json_t *before, const json_t *now)
{
    json_t *out = json_object(), *table;
    const char *section;
    int failed = out == NULL;
    json_object_foreach((json_t *)(uintptr_t)now, section, table)
    {
        const json_t *old = json_object_get(before, section);
        failed |= strcmp(section, "reward") == 0 ? add_rewards(out, old, table)
                                                 : add_section(out, section, old, table);
    }
    if (!failed)
        return out;
    json_decref(out);
    return NULL;
}

int32_t lathe_change_effect(const char *name)
{
    static const struct {
        const char
            *name; /* "section.*": every other key of the section; the first row that fits counts */
        int32_t effect;
    } rows[] = {
        {"model.path", LATHE_CHANGE_DATA},     /* the run may use the tokenizer of this folder */
        {"model.adapter", 0},                  /* its hashes are compared (parents.h) */
        {"model.weights", LATHE_CHANGE_QUIET}, /* it decides model.path, whose files are compared */
        {"model.seed", LATHE_CHANGE_QUIET},
        {"model.max_position_embeddings", 0},
        {"model.*", LATHE_CHANGE_FIXED},
        {"stage.plugin", LATHE_CHANGE_FIXED},
        {"adapter.plugin", LATHE_CHANGE_FIXED},
        {"quant.plugin", LATHE_CHANGE_FIXED},
        {"optimizer.plugin", LATHE_CHANGE_FIXED},
        {"scheduler.plugin", LATHE_CHANGE_FIXED},
        {"stage.name", LATHE_CHANGE_QUIET}, /* it determines stage.plugin, which is compared */
        {"adapter.name", LATHE_CHANGE_QUIET},
        {"quant.name", LATHE_CHANGE_QUIET},
        {"optimizer.name", LATHE_CHANGE_QUIET},
        {"scheduler.name", LATHE_CHANGE_QUIET},
        {"stage.version", 0},
        {"adapter.version", 0},
        {"quant.version", 0},
        {"stage.*", LATHE_CHANGE_OBJECTIVE},
        {"adapter.*", LATHE_CHANGE_OBJECTIVE},
        {"quant.*", LATHE_CHANGE_OBJECTIVE},
        {"moe.*", LATHE_CHANGE_OBJECTIVE},
        {"reward.version", 0},
        {"reward.timeout_seconds", LATHE_CHANGE_QUIET}, /* a slow reward is an error, not a score */
        {"reward.retries", LATHE_CHANGE_QUIET},         /* so is one that fails */
        {"reward.*", LATHE_CHANGE_OBJECTIVE},
        {"teacher.*", LATHE_CHANGE_OBJECTIVE},
        {"data.datasets", LATHE_CHANGE_DATA | LATHE_CHANGE_QUIET},
        {"data.seq_len", LATHE_CHANGE_DATA},
        {"data.packing", LATHE_CHANGE_DATA},
        {"data.overlong", LATHE_CHANGE_DATA},
        {"data.chat_template", LATHE_CHANGE_DATA},
        {"data.chat_template_kwargs", LATHE_CHANGE_DATA},
        {"data.shuffle", LATHE_CHANGE_DATA},
        {"data.validation_split", LATHE_CHANGE_DATA},
        {"data.validation_count", LATHE_CHANGE_DATA},
        {"data.seed",
         LATHE_CHANGE_QUIET}, /* compared as the seed in use, which is data.seed or train.seed */
        {"data.cache_dir", LATHE_CHANGE_QUIET},
        {"data.prefetch", LATHE_CHANGE_QUIET},
        {"tokenizer.path", LATHE_CHANGE_DATA | LATHE_CHANGE_QUIET},
        {"tokenizer.train", LATHE_CHANGE_DATA | LATHE_CHANGE_QUIET},
        {"tokenizer.*", LATHE_CHANGE_FIXED},  /* which tokens and rows are added */
        {"collective.*", LATHE_CHANGE_QUIET}, /* how the numbers of ranks travel changes none */
        {"parallel.*", LATHE_CHANGE_QUIET},
        {"train.stop_after", LATHE_CHANGE_QUIET},
        {"train.threads", LATHE_CHANGE_QUIET},
        {"train.log_every", LATHE_CHANGE_QUIET},
        {"train.memory_limit", LATHE_CHANGE_QUIET},
        {"train.offload_optimizer", LATHE_CHANGE_QUIET},
        {"train.offload_activations", LATHE_CHANGE_QUIET},
        {"train.offload_buffer", LATHE_CHANGE_QUIET},
        {"train.capture", LATHE_CHANGE_QUIET},
        {"checkpoint.best_metric", 0}, /* early stopping uses it */
        {"checkpoint.best_mode", 0},
        {"checkpoint.*", LATHE_CHANGE_QUIET},
        {"generate.*", LATHE_CHANGE_QUIET},
        {"log.*", LATHE_CHANGE_QUIET},
        {"plugins.*", LATHE_CHANGE_QUIET},
        {"device.*", LATHE_CHANGE_QUIET},
        {"attention.plugin",
         LATHE_CHANGE_QUIET}, /* candidates only; the chosen backend is reported elsewhere */
        {"attention.version", LATHE_CHANGE_QUIET},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const size_t n = strcspn(rows[i].name, "*");
        if (rows[i].name[n] ? strncmp(rows[i].name, name, n) == 0 : strcmp(rows[i].name, name) == 0)
            return rows[i].effect;
    }
    return 0;
}

int32_t lathe_config_allows_change(const lathe_config *config, const char *name)
{
    const lathe_value *list = lathe_config_get(config, "checkpoint", "allow_changed");
    for (int64_t i = 0; list && list->is_set && i < list->n; i++)
        if (strcmp(list->strs[i], name) == 0)
            return 1;
    return 0;
}

void lathe_change_value_put(const json_t *value, lathe_buffer *out)
{
    if (value == NULL || json_is_null(value)) {
        lathe_buffer_puts(out, "unset");
        return;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    const size_t n = text ? strlen(text) : 0;
    if (n <= MAX_VALUE) {
        lathe_buffer_puts(out, text ? text : "?");
    } else {
        size_t kept = MAX_VALUE;
        while (kept > 0 && ((unsigned char)text[kept] & 0xC0) == 0x80)
            kept--; /* not within a character */
        lathe_buffer_printf(out, "%.*s...", (int)kept, text);
    }
    free(text);
}

void lathe_change_put(const json_t *change, lathe_buffer *out)
{
    lathe_change_value_put(json_object_get(change, "from"), out);
    lathe_buffer_puts(out, " -> ");
    lathe_change_value_put(json_object_get(change, "to"), out);
}

lathe_status lathe_config_object(const lathe_config *config, json_t **out)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_config_json(config, &text);
    const lathe_status status = text.status == LATHE_OK ? lathe_json_load("the run's configuration",
                                                                          text.data, text.len, out)
                                                        : text.status;
    lathe_buffer_fini(&text);
    return status;
}
