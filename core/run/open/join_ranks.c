/* Chooses the engines of [collective], and joins the ranks.
 *
 * Numbers, texts and checkpoints travel in host memory. On a device with memory of its own, a
 * second engine over the first one exchanges that memory:
 *
 *   collective.name               host memory        memory of the device
 *   "auto"                        the best           the best
 *   one for devices ("nccl")      the best           it
 *   another ("mpi", "throttle")   it                 "staged", so that all data take its way
 */
#include "run/open/join_ranks.h"

#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "config/config.h"
#include "parallel/ranks/ranks.h"
#include "plug/schema_check.h"
#include "run/parts/run_ranks.h"

/* Rank 0 alone has the run's folder and its output. */
static void be_quiet(lathe_run *run)
{
    lathe_log_set_rank(run->programs.rank);
    run->set.checkpoint.dir = NULL;
    run->set.checkpoint.keep_best = 0;
    run->set.tensorboard = 0;
    run->set.sample_every = 0;
}

static lathe_status make(lathe_run *run, const lathe_component *component,
                         const lathe_value *values, lathe_instance *out)
{
    const lathe_status status = lathe_instance_init(out, component, values);
    return status == LATHE_E_CONFIG ? lathe__run_refuse_part(run, LATHE_KIND_COLLECTIVE) : status;
}

static uint32_t flags_of(const lathe_component *component)
{
    return ((const lathe_collective_v1 *)component->plugin->table)->flags;
}

/* Makes an engine with its defaults. */
static lathe_status make_plain(lathe_run *run, const lathe_component *component,
                               lathe_instance *out)
{
    const lathe_schema_scope scope = {.section = "collective"};
    lathe_value *values = NULL;
    lathe_diags diags = {0};
    lathe_status status =
        lathe_schema_check(&scope, NULL, component->plugin->fields, component->plugin->n_fields,
                           &run->arena, &diags, &values);
    if (status == LATHE_OK && diags.n_errors > 0)
        status = lathe_diags_status(&diags);
    lathe_diags_fini(&diags);
    LATHE_TRY(status);
    return make(run, component, values, out);
}

/* A file may have keys of an engine that "auto" takes on other machines. */
static void warn_of_idle_keys(const lathe_run *run, const lathe_component *component)
{
    const char *key;
    for (int32_t i = 0; (key = lathe_config_idle_key(run->config, LATHE_KIND_COLLECTIVE, i)); i++)
        lathe__run_warn(run, "collective", key,
                        "collective.%s has no effect: \"auto\" is \"%s\" here, which does not have "
                        "it",
                        key, component->plugin->name);
}

/* Makes the engine that the file names, with the values of the file. */
static lathe_status make_named(lathe_run *run, const lathe_component *component,
                               lathe_instance *out)
{
    const lathe_part *part = lathe_config_part(run->config, LATHE_KIND_COLLECTIVE);
    const lathe_value *values = part->values;
    lathe_diags own = {0};
    if (component != part->component || values == NULL) {
        const lathe_status bound =
            lathe_config_bind(run->config, LATHE_KIND_COLLECTIVE, component,
                              run->open.diags ? run->open.diags : &own, &values);
        lathe_diags_fini(&own);
        LATHE_TRY(bound);
        warn_of_idle_keys(run, component);
    }
    return make(run, component, values, out);
}

/* The best engine in host memory. */
static lathe_status find_host(lathe_run *run, const char *name, const lathe_component **out)
{
    const lathe_collective_probe probe = {(uint32_t)sizeof probe, 1,
                                          run->parts.device.component->plugin->name};
    return lathe_select_collective(run->registry, name, &probe, &run->arena, out, NULL);
}

/* Makes the engine under one that needs another: the one that "auto" means, with its defaults. */
static lathe_status make_base(lathe_run *run, const lathe_component *over, lathe_instance *out)
{
    const lathe_component *component = NULL;
    LATHE_TRY(find_host(run, "auto", &component));
    if (flags_of(component) & LATHE_COLLECTIVE_NEEDS_BASE)
        return lathe__run_refuse(run, "collective", "name",
                                 "collective \"%s\" needs another engine, and the best one here, "
                                 "\"%s\", needs another one itself",
                                 over->plugin->name, component->plugin->name);
    return make_plain(run, component, out);
}

/* Refuses an engine for devices on a device in host memory. */
static lathe_status check_memory(const lathe_run *run, const lathe_component *named)
{
    if (named == NULL || !(flags_of(named) & LATHE_COLLECTIVE_FOR_DEVICES) ||
        run->machine.dev == NULL || !lathe_machine_memory(&run->machine)->is_in_place)
        return LATHE_OK;
    return lathe__run_refuse(run, "collective", "name",
                             "collective \"%s\" is for devices with memory of their own, and "
                             "device \"%s\" has the host's: remove the line, or name \"mpi\"",
                             named->plugin->name, run->parts.device.component->plugin->name);
}

/* The engine that the file names; NULL: "auto". */
static const lathe_component *named_by(const lathe_run *run)
{
    return lathe_config_part(run->config, LATHE_KIND_COLLECTIVE)->component;
}

lathe_status lathe__run_check_engine(lathe_run *run)
{
    const lathe_component *named = named_by(run);
    lathe_instance engine = {.component = NULL};
    if (lathe_config_part(run->config, LATHE_KIND_COLLECTIVE)->is_none || named == NULL)
        return LATHE_OK; /* "auto" depends on the launcher */
    LATHE_TRY(check_memory(run, named));
    LATHE_TRY(make_named(run, named, &engine));
    lathe_instance_fini(&engine);
    return LATHE_OK;
}

static int has_own_memory(const lathe_run *run)
{
    return run->machine.dev && !lathe_machine_memory(&run->machine)->is_in_place;
}

/* Makes the engine in host memory, and the one under it. The keys of the file are those of the
 * engine that it names, or of the one that exchanges the device's memory. */
static lathe_status make_host(lathe_run *run, const lathe_component *named, lathe_instance *engine,
                              lathe_instance *base)
{
    const lathe_part *part = lathe_config_part(run->config, LATHE_KIND_COLLECTIVE);
    const int is_it = named && !(flags_of(named) & LATHE_COLLECTIVE_FOR_DEVICES);
    const lathe_component *component = named;
    if (!is_it)
        LATHE_TRY(find_host(run, named ? "auto" : part->name, &component));
    LATHE_TRY(is_it || (!named && !has_own_memory(run)) ? make_named(run, component, engine)
                                                        : make_plain(run, component, engine));
    if (!(flags_of(component) & LATHE_COLLECTIVE_NEEDS_BASE))
        return LATHE_OK;
    const lathe_status status = make_base(run, component, base);
    if (status != LATHE_OK)
        lathe_instance_fini(engine);
    return status;
}

/* Ranks that chose different engines would wait for each other. */
static lathe_status compare_engines(lathe_run *run, const lathe_component *component)
{
    char text[128];
    (void)snprintf(text, sizeof text, "{\"collective\": {\"of_the_device\": \"%.64s\"}}",
                   component->plugin->name);
    return lathe_ranks_compare(run->ranks, text);
}

/* Makes the engine for the device's own memory. */
static lathe_status make_data(lathe_run *run, const lathe_component *named, lathe_instance *out)
{
    const lathe_component *component = NULL;
    LATHE_TRY(lathe_ranks_find_data(run->registry, named, run->parts.device.component->plugin->name,
                                    &run->arena, &component));
    if (run->ranks)
        LATHE_TRY(compare_engines(run, component));
    return component == named || named == NULL ? make_named(run, component, out)
                                               : make_plain(run, component, out);
}

/* Joins the ranks once more, for the device's own memory. */
static lathe_status join_data(lathe_run *run, const lathe_component *named)
{
    lathe_instance engine = {.component = NULL};
    if (!has_own_memory(run))
        return LATHE_OK;
    LATHE_TRY(make_data(run, named, &engine));
    return lathe_ranks_join_data(run->ranks, &engine, &run->machine);
}

/* One rank exchanges nothing, but its file has to be right. */
static lathe_status stay_alone(lathe_run *run, const lathe_component *named)
{
    lathe_instance engine = {.component = NULL};
    if (named && flags_of(named) & LATHE_COLLECTIVE_NEEDS_BASE)
        lathe__run_warn(run, "collective", "name",
                        "collective \"%s\" has no effect: one rank exchanges nothing; start "
                        "several with lathe launch -n N",
                        named->plugin->name);
    if (named || !has_own_memory(run))
        return LATHE_OK;
    LATHE_TRY(make_data(run, NULL, &engine));
    lathe_instance_fini(&engine);
    return LATHE_OK;
}

/* Sums of the gradients are part of what train.deterministic promises. */
static lathe_status check_sums(const lathe_run *run)
{
    if (!(run->machine.flags & LATHE_FLAG_DETERMINISTIC) ||
        run->ranks->data.info.flags & LATHE_GROUP_DETERMINISTIC)
        return LATHE_OK;
    return lathe__run_refuse(run, "train", "deterministic",
                             "train.deterministic is true, and the sums of %s on %d ranks may have "
                             "other bits in another run: set it to false, or change [collective] "
                             "(nccl: algorithm = \"ring\", and NCCL_ALGO not set)",
                             run->ranks->data.info.engine, lathe_ranks_count(run->ranks));
}

/* Ranks with other settings would plan other exchanges and wait for each other. What "auto" has
 * chosen is compared with the plan and the data, before the first step (train/rank_compare.h). */
static lathe_status compare_settings(const lathe_run *run)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&text, "{\"settings\": ");
    lathe_config_json(run->config, &text);
    lathe_buffer_puts(&text, "}");
    const lathe_status status =
        text.status == LATHE_OK ? lathe_ranks_compare(run->ranks, text.data) : text.status;
    lathe_buffer_fini(&text);
    return status == LATHE_E_CONFIG
               ? lathe__run_refuse(run, "", "settings", "%s", lathe_error_message())
               : status;
}

lathe_status lathe__run_join(lathe_run *run)
{
    lathe_instance engine = {.component = NULL}, base = {.component = NULL};
    const lathe_component *named = named_by(run);
    if (lathe_config_part(run->config, LATHE_KIND_COLLECTIVE)->is_none)
        return LATHE_OK;
    LATHE_TRY(check_memory(run, named));
    LATHE_TRY(make_host(run, named, &engine, &base));
    LATHE_TRY(lathe_ranks_open(&engine, base.component ? &base : NULL, run->set.deadline_seconds,
                               NULL, NULL, &run->ranks));
    if (run->ranks == NULL)
        return stay_alone(run, named);
    run->programs.rank = lathe_ranks_rank(run->ranks);
    run->programs.n_ranks = lathe_ranks_count(run->ranks);
    run->saves_in = run->set.checkpoint.dir;
    run->saves_best = run->set.checkpoint.keep_best;
    run->samples_every = run->set.sample_every;
    if (run->programs.rank > 0)
        be_quiet(run);
    LATHE_TRY(compare_settings(run));
    LATHE_TRY(lathe__run_check_ranks(run));
    LATHE_TRY(join_data(run, named));
    return check_sums(run);
}
