/* Selects the run's components, binds their values and creates their instances. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "exec/program/precision.h"
#include "lathe/fp8.h"
#include "plug/answers.h"
#include "plug/kind.h"
#include "reward/reward_open.h"
#include "run/decide/fastest_precision.h"
#include "run/parts/run_formats.h"
#include "run/parts/run_parts.h"
#include "run/state/run_state.h"

/* A run, and the kind whose plugin warns. */
typedef struct warned_part {
    const lathe_run *run;
    int32_t kind;
} warned_part;

/* Logs a plugin's warning with the place of its key. Plugins know no places, only their keys. */
static void place_warning(void *arg, const char *key, const char *message)
{
    const warned_part *part = arg;
    lathe__run_warn_part(part->run, part->kind, key, "%s", message);
}

/* Makes an instance of the component, with the values of its kind's table. */
static lathe_status make(lathe_run *run, int32_t kind, const lathe_component *component,
                         lathe_instance *out)
{
    const lathe_part *part = lathe_config_part(run->config, kind);
    const lathe_value *values = part->values;
    /* the configuration was checked against the schema of the component that the file names; one
     * that "auto" or a family name chose later has a schema of its own */
    if (component != part->component || values == NULL) {
        lathe_diags own = {0};
        const lathe_status bound = lathe_config_bind(
            run->config, kind, component, run->open.diags ? run->open.diags : &own, &values);
        lathe_diags_fini(&own);
        LATHE_TRY(bound);
    }
    warned_part warned = {run, kind};
    lathe_log_catch_warnings(place_warning, &warned);
    const lathe_status status = lathe_instance_init(out, component, values);
    lathe_log_catch_warnings(NULL, NULL);
    return status == LATHE_E_CONFIG ? lathe__run_refuse_part(run, kind) : status;
}

/* Refuses a device that is named exactly and cannot run on this machine, with its reason. */
static lathe_status refuse_device(const lathe_run *run, const lathe_component *component)
{
    char why[256] = "";
    const lathe_device_v1 *table = component->plugin->table;
    if (!LATHE_HAS(table, score) || table->score(why, sizeof why) > LATHE_SCORE_NO)
        return LATHE_OK;
    why[sizeof why - 1] = '\0';
    return lathe__run_refuse(run, "device", "name", "device \"%s\" cannot run on this machine: %s",
                             component->plugin->name, why);
}

static lathe_status open_device(lathe_run *run)
{
    const lathe_part *part = lathe_config_part(run->config, LATHE_KIND_DEVICE);
    const lathe_component *component = part->component;
    const char *why = NULL;
    if (component == NULL) {
        const lathe_status status =
            lathe_select_device(run->registry, part->name, &run->arena, &component, &why);
        if (status == LATHE_E_UNSUPPORTED || status == LATHE_E_NOT_FOUND)
            return lathe__run_refuse(run, "device", "name", "%s", lathe_error_message());
        LATHE_TRY(status);
    } else {
        LATHE_TRY(refuse_device(run, component));
    }
    LATHE_TRY(make(run, LATHE_KIND_DEVICE, component, &run->parts.device));
    uint32_t flags = run->set.deterministic ? LATHE_FLAG_DETERMINISTIC : 0;
    const int can_capture =
        LATHE_HAS((const lathe_device_v1 *)run->parts.device.table, capture_begin);
    const int captures = can_capture && run->set.capture != LATHE_CAPTURE_OFF;
    flags |= captures ? LATHE_FLAG_CAPTURABLE : 0;
    LATHE_TRY(lathe_machine_init(&run->machine, &run->parts.device, flags));
    if (why && !lathe_machine_memory(&run->machine)->runs_host_code)
        lathe_log(LATHE_LOG_INFO, "device.name = \"%s\": %s, %s", part->name,
                  component->plugin->name, why);
    run->machine.captures = captures;
    if (can_capture || run->set.capture != LATHE_CAPTURE_ON)
        return LATHE_OK;
    return lathe__run_refuse(run, "train", "capture",
                             "train.capture = \"on\": device \"%s\" does not support captures",
                             component->plugin->name);
}

/* Opens every backend that the name can mean: which one computes a layer is decided by its score
 * for that layer's problem, when the graph is planned. */
static lathe_status open_attention(lathe_run *run)
{
    const lathe_part *part = lathe_config_part(run->config, LATHE_KIND_ATTENTION);
    const lathe_component **candidates = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_registry_candidates(run->registry, LATHE_KIND_ATTENTION, part->name,
                                        &run->arena, &candidates, &n));
    run->parts.attention = calloc((size_t)n + 1, sizeof *run->parts.attention);
    if (run->parts.attention == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld attention backends", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        LATHE_TRY(make(run, LATHE_KIND_ATTENTION, candidates[i], &run->parts.attention[i]));
        run->parts.n_attention++;
    }
    run->machine.attention = run->parts.attention;
    run->machine.n_attention = run->parts.n_attention;
    return LATHE_OK;
}

/* Refuses rewards without a stage that asks for them, which would have no effect, and such a stage
 * without rewards. Evaluations and generations score nothing and may lack them. */
static lathe_status check_rewards(const lathe_run *run)
{
    const lathe_component *component = run->parts.stage.component;
    const uint32_t needs = lathe_answer_needs(&run->parts.stage);
    int32_t n = 0;
    const lathe_config_reward *list = lathe_config_rewards(run->config, &n);
    if (component == NULL || !lathe__run_trains(run))
        return LATHE_OK;
    if (!(needs & LATHE_NEEDS_REWARD) && n > 0)
        return lathe__run_refuse(run, "reward", "name",
                                 "reward \"%s\" has no effect: stage \"%s\" scores nothing; take "
                                 "[reward] out, or use a stage that generates text, such as ppo",
                                 list[0].label, component->plugin->name);
    if ((needs & LATHE_NEEDS_REWARD) && n == 0)
        return lathe__run_refuse(
            run, "stage", "name",
            "stage \"%s\" scores what it generates, and the file names no "
            "reward: add [reward] with name = \"match\" or another of lathe ls "
            "reward, or model = \"FOLDER\"",
            component->plugin->name);
    return LATHE_OK;
}

static lathe_status open_rewards(lathe_run *run)
{
    LATHE_TRY(lathe_reward_instances(run->config, run->open.diags, &run->arena, &run->parts.rewards,
                                     &run->parts.n_rewards));
    LATHE_TRY(check_rewards(run));
    return run->parts.n_rewards > 0
               ? lathe_rewards_open(run->config, run->parts.rewards, &run->rewards)
               : LATHE_OK;
}

/* Opens all parts if run->open.diags collects their errors; otherwise stops at the first error. */
lathe_status lathe__run_parts(lathe_run *run)
{
    const struct {
        int32_t kind;
        lathe_instance *out;
    } parts[] = {
        {LATHE_KIND_QUANT, &run->parts.quant},
        {LATHE_KIND_ADAPTER, &run->parts.adapter},
        {LATHE_KIND_STAGE, &run->parts.stage},
        {LATHE_KIND_OPTIMIZER, &run->parts.optimizer},
        {LATHE_KIND_SCHEDULER, &run->parts.scheduler},
    };
    /* the first error is the status; with run->open.diags later parts are opened all the same, so
     * that lathe validate lists the errors of all of them */
    lathe_status first = open_attention(run);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const lathe_part *part = lathe_config_part(run->config, parts[i].kind);
        if (first != LATHE_OK && run->open.diags == NULL)
            return first;
        if (part->is_none || part->component == NULL)
            continue;
        const lathe_status status = make(run, parts[i].kind, part->component, parts[i].out);
        first = first != LATHE_OK ? first : status;
    }
    if (first == LATHE_OK || run->open.diags) {
        const lathe_status status = open_rewards(run);
        first = first != LATHE_OK ? first : status;
    }
    if (first == LATHE_OK && run->parts.optimizer.component)
        first = lathe_answer_base_lr(&run->parts.optimizer, &run->opt.base_lr);
    return first;
}

/* Lists the precisions of the device: "fp32, bf16, fp16". */
static void put_precisions(const lathe_device_info *info, lathe_buffer *out)
{
    static const int32_t all[] = {LATHE_F32, LATHE_BF16, LATHE_F16, LATHE_F8_E4M3};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (lathe_precision_on(info, all[i]) == all[i])
            lathe_buffer_printf(out, "%s%s", out->len > 0 ? ", " : "",
                                lathe_precision_name(all[i]));
}

/* Chooses the fp8 recipe. With fp8 the tensors stay bf16; only the inputs of products are rounded
 * to fp8, so compute_dtype becomes bf16. */
static lathe_status settle_fp8(lathe_run *run)
{
    lathe_settings *s = &run->set;
    if (s->compute_dtype != LATHE_F8_E4M3)
        return LATHE_OK;
    s->compute_dtype = LATHE_BF16;
    s->fp8 = lathe_fp8_recipe_on(&run->machine.info, s->fp8_asked);
    if (s->fp8 != LATHE_FP8_NONE)
        return LATHE_OK;
    return lathe__run_refuse(
        run, "train", "fp8_recipe", "train.fp8_recipe = \"%s\": device \"%s\" has only \"%s\"",
        lathe_fp8_recipe_name(s->fp8_asked), run->parts.device.component->plugin->name,
        lathe_fp8_recipe_name(lathe_fp8_recipe_on(&run->machine.info, LATHE_FP8_NONE)));
}

lathe_status lathe__run_check_precision(const lathe_run *run)
{
    const lathe_settings *s = &run->set;
    if (s->fp8_asked != LATHE_FP8_NONE && s->precision != LATHE_F8_E4M3)
        lathe__run_warn(run, "train", "fp8_recipe",
                        "train.fp8_recipe changes nothing: train.precision is \"%s\"",
                        lathe_precision_name(s->precision));
    if (s->grad_dtype == LATHE_F32 || s->precision == LATHE_BF16 || s->precision == LATHE_F8_E4M3)
        return LATHE_OK;
    return lathe__run_refuse(
        run, "train", "grad_dtype",
        "train.grad_dtype = \"bf16\" needs train.precision = \"bf16\" or \"fp8\", not \"%s\"",
        lathe_precision_name(s->precision));
}

/* Chooses the dtype of gradients: products return them in f32 or in the dtype of their inputs. */
static lathe_status settle_gradients(lathe_run *run)
{
    lathe_settings *s = &run->set;
    LATHE_TRY(lathe__run_check_precision(run));
    if (s->grad_dtype == LATHE_F32 || s->grad_dtype == s->compute_dtype)
        return LATHE_OK;
    s->grad_dtype = LATHE_F32;
    lathe__run_warn(
        run, "train", "grad_dtype",
        "train.grad_dtype = \"bf16\": the run computes in %s, so its gradients have that type",
        lathe_precision_name(s->compute_dtype));
    return LATHE_OK;
}

/* Chooses the precision that the device supports, and logs it if it is not the requested one. */
static lathe_status settle_precision(lathe_run *run)
{
    lathe_settings *s = &run->set;
    lathe_buffer supported = LATHE_BUFFER_INIT;
    s->compute_dtype = lathe_precision_on(&run->machine.info, s->precision);
    if (s->compute_dtype != s->precision) {
        put_precisions(&run->machine.info, &supported);
        lathe__run_warn(
            run, "train", "precision",
            "train.precision = \"%s\": device %s computes in %s; %s is used",
            lathe_precision_name(s->precision), run->parts.device.component->plugin->name,
            supported.data ? supported.data : "fp32", lathe_precision_name(s->compute_dtype));
    }
    lathe_buffer_fini(&supported);
    /* only f16 has so few exponent bits that gradients must be scaled up before the backward */
    run->at.scaler.scale = s->compute_dtype == LATHE_F16 ? (float)s->loss_scale_init : 1.0f;
    LATHE_TRY(settle_fp8(run));
    return settle_gradients(run);
}

/* Opens the device first, because values of the other components may depend on it. Opens all
 * components if errors are collected. */
lathe_status lathe__run_components(lathe_run *run)
{
    const lathe_status device = open_device(run);
    if (device != LATHE_OK && run->open.diags == NULL)
        return device;
    LATHE_TRY(lathe__run_parts(run));
    LATHE_TRY(device);
    LATHE_TRY(lathe__fastest_precision(run));
    return settle_precision(run);
}

/* The device is last: the machine's streams belong to it. */
void lathe__run_components_fini(lathe_run *run)
{
    lathe_rewards_destroy(run->rewards);
    for (int32_t i = 0; i < run->parts.n_rewards; i++)
        lathe_instance_fini(&run->parts.rewards[i]);
    lathe_instance_fini(&run->parts.renderer);
    lathe_instance_fini(&run->parts.scheduler);
    lathe_instance_fini(&run->parts.optimizer);
    lathe_instance_fini(&run->parts.stage);
    lathe_instance_fini(&run->parts.adapter);
    lathe_instance_fini(&run->parts.reference_adapter);
    lathe_instance_fini(&run->parts.quant);
    lathe__run_formats_fini(run);
    for (int64_t i = 0; i < run->parts.n_attention; i++)
        lathe_instance_fini(&run->parts.attention[i]);
    free(run->parts.attention);
    lathe_machine_fini(&run->machine);
    lathe_instance_fini(&run->parts.device);
}
