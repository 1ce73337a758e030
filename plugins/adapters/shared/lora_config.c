/* Writes adapter_config.json: the settings under the keys of PEFT. */
#include <string.h>

#include "shared/lora.h"

/* Text in a caller's buffer; n counts the whole text, also beyond the capacity. */
typedef struct text {
    char *out;
    int64_t capacity, n;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(text *t, const char *format, ...)
{
    const int64_t room = t->n < t->capacity ? t->capacity - t->n : 0;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(room > 0 ? t->out + t->n : NULL, (size_t)room, format, args);
    va_end(args);
    t->n += n;
}

static void put_string(text *t, const char *s)
{
    put(t, "\"");
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\')
            put(t, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            put(t, "\\u%04x", (unsigned)*s);
        else
            put(t, "%c", *s);
    }
    put(t, "\"");
}

static void put_targets(text *t, const lora *self)
{
    if (self->all_linear && self->n_seen == 0) {
        put_string(t, "all-linear");
        return;
    }
    const int64_t n = self->all_linear ? self->n_seen : self->n_targets;
    put(t, "[");
    for (int64_t i = 0; i < n; i++) {
        put(t, i ? ", " : "");
        put_string(t, self->all_linear ? self->seen[i] : self->targets[i]);
    }
    put(t, "]");
}

int64_t lora_config_json(void *self, const char *base, char *out, int64_t capacity)
{
    const lora *l = self;
    text t = {out, capacity, 0};
    put(&t, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n");
    put(&t, "  \"base_model_name_or_path\": ");
    put_string(&t, base ? base : "");
    put(&t, ",\n  \"target_modules\": ");
    put_targets(&t, l);
    put(&t, ",\n  \"r\": %lld,\n  \"lora_alpha\": %.17g,\n  \"lora_dropout\": %.17g,\n",
        (long long)l->r, l->alpha, l->dropout);
    put(&t, "  \"use_rslora\": %s,\n", l->use_rslora ? "true" : "false");
    put(&t, "  \"rank_pattern\": %s,\n", l->rank_json ? l->rank_json : "{}");
    put(&t, "  \"alpha_pattern\": %s,\n", l->alpha_json ? l->alpha_json : "{}");
    put(&t, "  \"fan_in_fan_out\": %s,\n", l->saw_conv1d ? "true" : "false");
    put(&t, "  \"bias\": \"none\",\n  \"use_dora\": %s,\n", l->use_dora ? "true" : "false");
    put(&t, "  \"init_lora_weights\": true,\n");
    put(&t, "  \"modules_to_save\": null,\n  \"inference_mode\": true\n}\n");
    return t.n;
}
