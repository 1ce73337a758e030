/* Chooses the format of each parameter. */
#include "run/parts/run_formats.h"

#include <string.h>

#include "base/error.h"
#include "base/module_pattern.h"
#include "files/safetensors/safetensors.h"
#include "lathe/fp8.h"
#include "model/family/stored_formats.h"
#include "plug/answers.h"
#include "run/decide/run_check.h"
#include "run/parts/run_parts.h"

/* The choice under way. */
typedef struct chooser {
    lathe_run *run;
    const lathe_safetensors *set;   /* of the model's folder; NULL: it has no weights */
    const lathe_value *include;     /* quant.include_modules, or NULL */
    const lathe_value *exclude;     /* quant.exclude_modules, or NULL */
    int32_t n_linear;               /* matrices that [quant] may store */
    int32_t n_quantized, n_on_file; /* by [quant]; by the folder */
} chooser;

static int is_set(const lathe_value *list)
{
    return list != NULL && list->is_set && list->n > 0;
}

static int is_listed(const lathe_value *list, const char *name)
{
    for (int64_t i = 0; is_set(list) && i < list->n; i++)
        if (lathe_module_matches(list->strs[i], name))
            return 1;
    return 0;
}

/* Takes the format of the folder, if it stores the row quantized. Experts of gpt-oss that train are
 * decoded when they are read, because there is no other file of them; a checkpoint has their
 * numbers. Other weights are published plain, too. */
static lathe_status take_stored(chooser *c, int32_t index, int32_t trained)
{
    lathe_run *run = c->run;
    const lathe_param *p = run->params.rows[index];
    const lathe_stored_model stored = {run->set.model_path, &run->model, run->quant_source, c->set};
    const lathe_instance *format = NULL;
    LATHE_TRY(lathe_stored_format(&stored, p, &format));
    if (format == NULL)
        return LATHE_OK;
    if (trained && p->layout == LATHE_LAYOUT_FUSED_EXPERTS)
        return lathe_param_decode_stored(&stored, &run->params, index, format);
    if (trained)
        return lathe__run_refuse(run, "adapter", "name",
                                 "adapter \"%s\" trains %s, which %s stores in format %s; only "
                                 "plain numbers can be trained: choose an adapter that freezes the "
                                 "model, such as lora",
                                 run->parts.adapter.component->plugin->name, p->name, stored.path,
                                 format->component->plugin->name);
    LATHE_TRY(lathe_param_take_stored(&stored, &run->params, index, format));
    c->n_on_file++;
    return LATHE_OK;
}

/* Encodes the row in the format of [quant], unless the lists of modules leave it out. */
static lathe_status take_chosen(chooser *c, lathe_param *p)
{
    const lathe_run *run = c->run;
    c->n_linear++;
    if ((is_set(c->include) && !is_listed(c->include, p->name)) || is_listed(c->exclude, p->name))
        return LATHE_OK;
    if (LATHE_HAS((const lathe_quant_v1 *)run->parts.quant.table, encode_calibrated) &&
        !lathe__run_calibrates(run))
        return lathe__run_refuse(
            run, "quant", "name",
            "format \"%s\" is calibrated on data, which a run does not do: make "
            "a folder with lathe quantize DIR --quant.name %s --calibration "
            "TEXTS -o OUT, and set model.path to it",
            run->parts.quant.component->plugin->name, run->parts.quant.component->plugin->name);
    const lathe_status status = lathe_param_set_format(p, &run->parts.quant);
    if (status == LATHE_E_SHAPE)
        return lathe__run_refuse(run, "quant", "name",
                                 "%s: %s; or leave it as it is with quant.exclude_modules", p->name,
                                 lathe_error_message());
    LATHE_TRY(status);
    c->n_quantized++;
    return LATHE_OK;
}

static lathe_status choose(chooser *c, int32_t index)
{
    const lathe_run *run = c->run;
    lathe_param *p = run->params.rows[index];
    int32_t trained = 0;
    if (p->stage_head)
        return LATHE_OK;
    /* also where the run only evaluates */
    LATHE_TRY(lathe__run_is_trained(run, index, &trained));
    if (!lathe_param_may_be_stored(p))
        return LATHE_OK;
    LATHE_TRY(take_stored(c, index, trained));
    return p->role != LATHE_ROLE_MATRIX || p->format || trained ||
                   run->parts.quant.component == NULL
               ? LATHE_OK
               : take_chosen(c, p);
}

/* Refuses a pattern that matches no linear layer that [quant] could store. */
static lathe_status check_patterns(const chooser *c, const char *key, const lathe_value *list)
{
    const lathe_params *params = &c->run->params;
    for (int64_t k = 0; is_set(list) && k < list->n; k++) {
        int32_t i = 0;
        while (i < params->n_model && (params->rows[i]->role != LATHE_ROLE_MATRIX ||
                                       !lathe_module_matches(list->strs[k], params->rows[i]->name)))
            i++;
        if (i == params->n_model)
            return lathe__run_refuse(c->run, "quant", key,
                                     "quant.%s[%lld] = \"%s\" matches no linear layer; lathe plan "
                                     "RUN.toml --graph names them",
                                     key, (long long)k, list->strs[k]);
    }
    return LATHE_OK;
}

/* Whether [quant] names a format in which the folder stores weights. */
static int names_stored(const chooser *c)
{
    const lathe_run *run = c->run;
    for (int32_t i = 0; i < run->params.n_model; i++)
        if (run->params.rows[i]->format &&
            run->params.rows[i]->format->component == run->parts.quant.component)
            return 1;
    return 0;
}

/* A [quant] that stores nothing has no effect, unless it names the folder's own format because of
 * quant.noise (in a training, or in a later use of an adapter that was trained so), or to say how
 * products are computed. */
static lathe_status check_effect(const chooser *c)
{
    const lathe_run *run = c->run;
    if (run->parts.quant.component == NULL || c->n_quantized > 0 ||
        ((run->set.quant_noise > 0.0 || run->set.model_adapter ||
          lathe_quant_sets_products(&run->parts.quant) || !lathe__run_has_step(run)) &&
         names_stored(c)))
        return LATHE_OK;
    const char *name = run->parts.quant.component->plugin->name;
    if (c->n_linear > 0)
        return lathe__run_refuse(run, "quant",
                                 is_set(c->include) ? "include_modules" : "exclude_modules",
                                 "quant.name = \"%s\" would quantize nothing, because "
                                 "quant.include_modules and quant.exclude_modules leave no linear "
                                 "layer",
                                 name);
    if (c->n_on_file > 0 && lathe__run_calibrates(run))
        return lathe__run_refuse(
            run, "quant", "name",
            "the weights of %s are already quantized (%s), and only plain weights are quantized: "
            "name the folder that it was made from, or decode its weights first with "
            "lathe convert %s -o PLAIN.gguf --type bf16, and quantize PLAIN.gguf",
            run->set.model_path, lathe_quant_source_method(run->quant_source), run->set.model_path);
    if (c->n_on_file > 0)
        return lathe__run_refuse(
            run, "quant", "name",
            "quant.name = \"%s\" would quantize nothing: the weights of %s are "
            "already quantized (%s); remove [quant]",
            name, run->set.model_path, lathe_quant_source_method(run->quant_source));
    return lathe__run_refuse(
        run, "quant", "name",
        "quant.name = \"%s\" would quantize nothing, because adapter \"%s\" trains every "
        "matrix: choose an adapter that freezes the model, such as lora",
        name, run->parts.adapter.component ? run->parts.adapter.component->plugin->name : "none");
}

/* Refuses activations that the device, or the precision, would not quantize. */
static lathe_status check_activations(const lathe_run *run)
{
    int32_t i = 0;
    while (i < run->params.n_model && run->params.rows[i]->activations == 0)
        i++;
    if (i == run->params.n_model)
        return LATHE_OK;
    if (!lathe_machine_quantizes(&run->machine, run->params.rows[i]->activations))
        return lathe__run_refuse(run, "quant", "activations",
                                 "quant.activations: device \"%s\" cannot quantize the "
                                 "inputs of products; use a device that can, such as cpu, or "
                                 "quant.activations = \"none\"",
                                 run->parts.device.component->plugin->name);
    if (run->set.fp8 != LATHE_FP8_NONE)
        return lathe__run_refuse(run, "quant", "activations",
                                 "quant.activations contradicts train.precision = \"fp8\", "
                                 "whose products are in fp8: remove one of the two");
    return LATHE_OK;
}

static lathe_status open_source(lathe_run *run)
{
    if (!run->model.is_quantized || run->quant_source != NULL)
        return LATHE_OK;
    const char *place = lathe_arena_printf(&run->arena, "%s/config.json", run->set.model_path);
    return place != NULL ? lathe_quant_source_create(run->registry, place, run->model.json,
                                                     &run->parts.quant, &run->quant_source)
                         : LATHE_E_NOMEM;
}

/* A checkpoint that holds the model's own parameters would have to hold the planes too. */
static lathe_status check_saved(const chooser *c)
{
    const lathe_run *run = c->run;
    for (int32_t i = 0; c->n_on_file > 0 && i < run->params.n_model; i++)
        if (run->params.rows[i]->trainable && !run->params.rows[i]->in_adapter)
            return lathe__run_refuse(
                run, "adapter", "name",
                "adapter \"%s\" trains %s of the model itself, and %s stores its "
                "weights quantized (%s): only adapters of their own, such as "
                "lora, can be trained beside them",
                run->parts.adapter.component->plugin->name, run->params.rows[i]->name,
                run->set.model_path, lathe_quant_source_method(run->quant_source));
    return LATHE_OK;
}

lathe_status lathe__run_formats(lathe_run *run)
{
    lathe_safetensors *set = NULL;
    LATHE_TRY(open_source(run));
    lathe_status status =
        run->model.is_quantized ? lathe_stored_weights_open(run->set.model_path, &set) : LATHE_OK;
    chooser c = {.run = run, .set = set};
    if (run->parts.quant.component) {
        c.include = lathe_config_get(run->config, "quant", "include_modules");
        c.exclude = lathe_config_get(run->config, "quant", "exclude_modules");
    }
    for (int32_t i = 0; i < run->params.n_model && status == LATHE_OK; i++)
        status = choose(&c, i);
    lathe_safetensors_close(set);
    if (status != LATHE_OK)
        goto out;
    if ((status = check_patterns(&c, "include_modules", c.include)) != LATHE_OK)
        goto out;
    if ((status = check_patterns(&c, "exclude_modules", c.exclude)) != LATHE_OK)
        goto out;
    if ((status = check_saved(&c)) != LATHE_OK)
        goto out;
    status = check_activations(run);
out:
    return status == LATHE_OK ? check_effect(&c) : status;
}

void lathe__run_formats_fini(lathe_run *run)
{
    lathe_quant_source_destroy(run->quant_source);
    run->quant_source = NULL;
}
