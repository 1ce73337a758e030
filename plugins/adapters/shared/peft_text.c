/* Writes adapter_config.json. */
#include "shared/peft_text.h"

#include <stdarg.h>
#include <stdio.h>

void peft_put(peft_text *t, const char *format, ...)
{
    const int64_t room = t->n < t->capacity ? t->capacity - t->n : 0;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(room > 0 ? t->out + t->n : NULL, (size_t)room, format, args);
    va_end(args);
    t->n += n;
}

static void put_string(peft_text *t, const char *s)
{
    peft_put(t, "\"");
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\')
            peft_put(t, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            peft_put(t, "\\u%04x", (unsigned)*s);
        else
            peft_put(t, "%c", *s);
    }
    peft_put(t, "\"");
}

static void put_list(peft_text *t, const char *const *list, int64_t n)
{
    peft_put(t, "[");
    for (int64_t i = 0; i < n; i++) {
        peft_put(t, i ? ", " : "");
        put_string(t, list[i]);
    }
    peft_put(t, "]");
}

static void put_targets(peft_text *t, const targets *modules)
{
    const char *seen[TARGETS_MAX_NAMES];
    for (int i = 0; i < modules->n_seen; i++)
        seen[i] = modules->seen[i];
    if (modules->pattern)
        put_string(t, modules->pattern);
    else if (!modules->all_linear)
        put_list(t, modules->names, modules->n);
    else if (modules->n_seen == 0)
        put_string(t, "all-linear");
    else
        put_list(t, seen, modules->n_seen);
}

/* PEFT takes a list of expressions for layers_pattern, but no empty one. */
static void put_layers(peft_text *t, const targets *modules)
{
    if (modules->n_layers == 0)
        return;
    peft_put(t, "  \"layers_to_transform\": [");
    for (int64_t i = 0; i < modules->n_layers; i++)
        peft_put(t, "%s%.0f", i ? ", " : "", modules->layers[i]);
    peft_put(t, "],\n");
    if (modules->n_layer_patterns == 0)
        return;
    peft_put(t, "  \"layers_pattern\": ");
    put_list(t, modules->layer_patterns, modules->n_layer_patterns);
    peft_put(t, ",\n");
}

void peft_begin(peft_text *t, const char *type, const char *base, const targets *modules)
{
    peft_put(t, "{\n  \"peft_type\": \"%s\",\n  \"task_type\": \"CAUSAL_LM\",\n", type);
    peft_put(t, "  \"base_model_name_or_path\": ");
    put_string(t, base ? base : "");
    peft_put(t, ",\n  \"target_modules\": ");
    put_targets(t, modules);
    peft_put(t, ",\n  \"exclude_modules\": ");
    if (modules->exclude_pattern)
        put_string(t, modules->exclude_pattern);
    else if (modules->n_excluded > 0)
        put_list(t, modules->excluded, modules->n_excluded);
    else
        peft_put(t, "null");
    peft_put(t, ",\n");
    put_layers(t, modules);
}

void peft_end(peft_text *t, const targets *modules)
{
    peft_put(t, "  \"fan_in_fan_out\": %s,\n", modules->saw_conv1d ? "true" : "false");
    peft_put(t, "  \"bias\": \"%s\",\n", modules->saved.bias_text);
    if (modules->saved.ties)
        peft_put(t, "  \"ensure_weight_tying\": true,\n");
    peft_put(t, "  \"modules_to_save\": ");
    if (modules->saved.n > 0)
        put_list(t, modules->saved.names, modules->saved.n);
    else
        peft_put(t, "null");
    peft_put(t, ",\n  \"inference_mode\": true\n}\n");
}
