/* The parameters of the model that are trained beside an adapter. */
#include "shared/saved_modules.h"

#include <stdio.h>
#include <string.h>

/* The modules that PEFT ties (EMBEDDING_LAYER_NAMES), as far as a tied model has them. */
#define TIED_MODULE "embed_tokens"

lathe_status saved_modules_read(saved_modules *s, const lathe_host *host, const char *method,
                                const lathe_value *modules, const lathe_value *bias,
                                const lathe_value *ties)
{
    s->host = host;
    s->method = method;
    s->names = modules->strs;
    s->n = modules->is_set ? modules->n : 0;
    s->bias_text = bias->s;
    s->bias = strcmp(bias->s, "none") == 0  ? BIAS_NONE
              : strcmp(bias->s, "all") == 0 ? BIAS_ALL
                                            : BIAS_OF_TARGETS;
    s->can_tie = ties != NULL;
    s->ties = ties != NULL && ties->i != 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->names[i][0] == '\0')
            return lathe_fail_at(host, LATHE_E_CONFIG, "modules_to_save",
                                 "modules_to_save[%lld] is empty", (long long)i);
    return LATHE_OK;
}

static int ends_with(const char *text, size_t n, const char *end)
{
    const size_t m = strlen(end);
    return n >= m && memcmp(text + n - m, end, m) == 0;
}

int saved_modules_exclude(const saved_modules *s, const char *module)
{
    for (int64_t i = 0; i < s->n; i++) {
        const size_t n = strlen(s->names[i]);
        const char *dot;
        for (const char *at = module; at != NULL; at = dot != NULL ? dot + 1 : NULL) {
            if (strncmp(at, s->names[i], n) == 0 && (at[n] == '\0' || at[n] == '.'))
                return 1;
            dot = strchr(at, '.');
        }
    }
    return 0;
}

/* Whether the entry is the end of the parameter's module or of one around it. */
static int is_end_of(const char *entry, const char *param)
{
    for (const char *dot = strchr(param, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        if (ends_with(param, (size_t)(dot - param), entry))
            return 1;
    return 0;
}

int saved_modules_have(const saved_modules *s, const char *param)
{
    for (int64_t i = 0; i < s->n; i++)
        if (is_end_of(s->names[i], param))
            return 1;
    return 0;
}

int saved_modules_untie(const saved_modules *s, const char *embedding, const char *head)
{
    return !s->ties && (saved_modules_have(s, embedding) || saved_modules_have(s, head));
}

int saved_modules_bias_of(const char *param, char *out_module, int64_t capacity)
{
    static const char bias[] = ".bias";
    const size_t n = strlen(param), end = sizeof bias - 1;
    if (!ends_with(param, n, bias) || (int64_t)n >= capacity)
        return 0;
    memcpy(out_module, param, n - end);
    out_module[n - end] = '\0';
    return 1;
}

/* Whether the parameter belongs to a module of the name that PEFT ties. */
static int is_tied_module(const char *param)
{
    const char *dot = strrchr(param, '.');
    const size_t n = dot != NULL ? (size_t)(dot - param) : 0, m = sizeof TIED_MODULE - 1;
    return ends_with(param, n, TIED_MODULE) && (n == m || param[n - m - 1] == '.');
}

lathe_status saved_modules_check_tied(const saved_modules *s, const lathe_param_info *param)
{
    const int is_tied = LATHE_HAS(param, is_tied) && param->is_tied;
    if (is_tied && !s->ties)
        return lathe_fail_at(
            s->host, LATHE_E_CONFIG, "modules_to_save",
            "%s: modules_to_save has %s, which is the model's output head too "
            "(tie_word_embeddings): "
            "PEFT trains a copy for the input alone there, and leaves the head as it "
            "is, which Lathe "
            "does not offer; %s",
            s->method, param->name,
            s->can_tie ? "set ensure_weight_tying = true to train both as one"
                       : "leave it out, or train it with the method lora");
    if (is_tied && !is_tied_module(param->name))
        return lathe_fail_at(
            s->host, LATHE_E_CONFIG, "modules_to_save",
            "%s: modules_to_save has %s, which is the model's output head too, and "
            "PEFT ties only modules called " TIED_MODULE ": train the whole model "
            "(adapter \"full\" or \"freeze\"), or leave the embedding out",
            s->method, param->name);
    if (!is_tied && s->ties && s->strict && is_tied_module(param->name))
        return lathe_fail_at(s->host, LATHE_E_CONFIG, "ensure_weight_tying",
                             "%s: ensure_weight_tying is true, but the model's output head is not "
                             "tied to %s: leave the key out",
                             s->method, param->name);
    return LATHE_OK;
}

/* Finds entries that match no parameter. */
static lathe_status check_entries(const saved_modules *s, const char *const *params,
                                  int32_t n_params)
{
    for (int64_t i = 0; i < s->n; i++) {
        int32_t p = 0;
        while (p < n_params && !is_end_of(s->names[i], params[p]))
            p++;
        if (p < n_params)
            continue;
        if (s->strict)
            return lathe_fail_at(s->host, LATHE_E_NOT_FOUND, "modules_to_save",
                                 "%s: modules_to_save[%lld] = \"%s\" matches no module", s->method,
                                 (long long)i, s->names[i]);
        lathe_warn(s->host, "%s: modules_to_save[%lld] = \"%s\" matches no module", s->method,
                   (long long)i, s->names[i]);
    }
    return LATHE_OK;
}

/* The embedding that is to be the head too must be among what is trained. */
static lathe_status check_ties(const saved_modules *s, int has_tied)
{
    static const char text[] = "ensure_weight_tying is true, but neither target_modules nor "
                               "modules_to_save has " TIED_MODULE ", so there is nothing to tie";
    if (!s->ties || has_tied)
        return LATHE_OK;
    if (s->strict)
        return lathe_fail_at(s->host, LATHE_E_CONFIG, "ensure_weight_tying", "%s: %s", s->method,
                             text);
    lathe_warn(s->host, "%s: %s", s->method, text);
    return LATHE_OK;
}

/* Whether the setting finds a bias to train. */
static int has_bias(const saved_modules *s, const char *const *modules, int32_t n_modules,
                    const char *const *params, int32_t n_params,
                    int (*targeted)(const void *of_self, const char *module), const void *of_self)
{
    char module[512];
    for (int32_t p = 0; p < n_params; p++) {
        if (!saved_modules_bias_of(params[p], module, (int64_t)sizeof module))
            continue;
        if (s->bias == BIAS_ALL)
            return 1;
        for (int32_t m = 0; m < n_modules; m++)
            if (strcmp(modules[m], module) == 0 && targeted(of_self, module))
                return 1;
    }
    return 0;
}

lathe_status saved_modules_check(const saved_modules *s, const char *const *modules,
                                 int32_t n_modules, const char *const *params, int32_t n_params,
                                 int (*targeted)(const void *of_self, const char *module),
                                 const void *of_self)
{
    int ties = 0;
    LATHE_TRY(check_entries(s, params, n_params));
    for (int32_t m = 0; m < n_modules; m++) {
        char weight[512];
        (void)snprintf(weight, sizeof weight, "%s.weight", modules[m]);
        if (targeted(of_self, modules[m]) && saved_modules_have(s, weight))
            return lathe_fail_at(
                s->host, LATHE_E_CONFIG, "modules_to_save",
                "%s: modules_to_save trains %s whole, and the adapter wraps it: name "
                "it in one of the two",
                s->method, modules[m]);
    }
    for (int32_t p = 0; p < n_params; p++)
        ties |= saved_modules_have(s, params[p]) && is_tied_module(params[p]);
    for (int32_t m = 0; m < n_modules; m++)
        ties |=
            ends_with(modules[m], strlen(modules[m]), TIED_MODULE) && targeted(of_self, modules[m]);
    LATHE_TRY(check_ties(s, ties));
    if (s->bias == BIAS_NONE ||
        has_bias(s, modules, n_modules, params, n_params, targeted, of_self))
        return LATHE_OK;
    const char *why = s->bias == BIAS_ALL ? "but the model has no biases"
                                          : "but no module that is adapted has a bias";
    if (s->strict)
        return lathe_fail_at(s->host, LATHE_E_CONFIG, "bias",
                             "%s: bias is \"%s\", %s: leave the key out", s->method, s->bias_text,
                             why);
    lathe_warn(s->host, "%s: bias is \"%s\", %s", s->method, s->bias_text, why);
    return LATHE_OK;
}
