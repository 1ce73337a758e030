/* The parameters of the model that are trained beside an adapter: PEFT's modules_to_save and bias.
 * The adapter's file holds them whole. */
#ifndef LATHE_ADAPTERS_SAVED_MODULES_H
#define LATHE_ADAPTERS_SAVED_MODULES_H

#include "lathe/adapter.h"
#include "lathe/schema.h"

enum { BIAS_NONE, BIAS_ALL, BIAS_OF_TARGETS };

typedef struct saved_modules {
    const lathe_host *host;
    const char *method;       /* name of the plugin, for messages */
    const char *const *names; /* ends of module names, borrowed */
    int64_t n;
    int bias;              /* BIAS_* */
    const char *bias_text; /* as given: "none", "all", "lora_only" */
    int can_tie, ties;     /* whether there is a key ensure_weight_tying, and its value */
    int strict;            /* 0: entries without effect are warned of, as for folders of PEFT */
} saved_modules;

/** Reads the values of modules_to_save, bias and ensure_weight_tying (NULL: the method has none).
 *  LATHE_E_CONFIG: an entry is empty. */
lathe_status saved_modules_read(saved_modules *s, const lathe_host *host, const char *method,
                                const lathe_value *modules, const lathe_value *bias,
                                const lathe_value *ties);

/** Whether PEFT keeps the adapter away from a module, because it or a module around it is an entry:
 *  "mlp" of "model.layers.0.mlp.up_proj". */
int saved_modules_exclude(const saved_modules *s, const char *module);

/** Whether a parameter is in a module that is trained whole. As in PEFT, the names of the module or
 *  of one around it end with an entry: "norm" is also the end of "input_layernorm". */
int saved_modules_have(const saved_modules *s, const char *param);

/** Whether the embedding or the head of a model with one matrix for both is trained apart from the
 *  other, as PEFT does without ensure_weight_tying. The names are those of the weights. */
int saved_modules_untie(const saved_modules *s, const char *embedding, const char *head);

/** Whether `param` is the bias of a module; writes the module's name. */
int saved_modules_bias_of(const char *param, char *out_module, int64_t capacity);

/** Refuses a tied embedding that is trained alone. LATHE_E_CONFIG. */
lathe_status saved_modules_check_tied(const saved_modules *s, const lathe_param_info *param);

/** LATHE_E_NOT_FOUND: an entry matches no module. LATHE_E_CONFIG: there is no bias to train.
 * targeted: whether the adapter wraps the module; of_self is its argument. */
lathe_status saved_modules_check(const saved_modules *s, const char *const *modules,
                                 int32_t n_modules, const char *const *params, int32_t n_params,
                                 int (*targeted)(const void *of_self, const char *module),
                                 const void *of_self);

#endif
