/* Checks whether a plan fits the machine, and searches for settings that do. */
#include "opening/fit.h"
#include "model/model_size.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/model_path.h"
#include "base/parallel.h"
#include "lathe/kit/launcher_kit.h"
#include "opening/opening.h"
#include "passes/passes.h"

/* Bytes of the KV caches, which generation allocates when it begins. */
static int64_t cache_bytes(const lathe_model_config *m, int32_t seq_len, int32_t dtype)
{
    const int64_t rows = seq_len < m->max_positions ? seq_len : m->max_positions;
    return 2 * m->n_layers * rows * lathe_model_kv_width(m) * lathe_dtype_bytes(dtype);
}

/* A number of the device plugin's own table; 0: it has no such key. */
static int64_t device_setting(const lathe_instance *device, const char *key)
{
    const lathe_plugin *plugin = device->component->plugin;
    for (int32_t i = 0; i < plugin->n_fields && device->values; i++)
        if (strcmp(plugin->fields[i].key, key) == 0)
            return device->values[i].i;
    return 0;
}

/* Available memory of a device with its own memory: what is free, or the part of it that the run
 * may use. */
static void device_memory(const lathe_machine *m, lathe_fit *out)
{
    const lathe_device_info *info = &m->info;
    const int64_t limit = device_setting(m->device, "memory_limit");
    const int64_t there =
        info->memory_free_bytes > 0 ? info->memory_free_bytes : info->memory_bytes;
    out->have = there > 0 ? there : INT64_MAX;
    (void)snprintf(out->source, sizeof out->source, "%s of the %.64s",
                   info->memory_free_bytes > 0 ? "free memory" : "memory", info->model);
    if (limit > 0 && limit < out->have) {
        out->have = limit;
        (void)snprintf(out->source, sizeof out->source, "device.memory_limit");
    }
}

/* Address space of the stacks of n threads. */
static int64_t stack_bytes(int32_t n_threads)
{
    struct rlimit limit;
    const int known = getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    const int64_t each = known ? (int64_t)limit.rlim_cur : (int64_t)8 << 20;
    return n_threads * each;
}

/* Bytes of the model's files, which are mapped while they are read. */
static int64_t mapped_bytes(const lathe_run *run)
{
    const lathe_params *params = &run->params;
    struct stat st;
    int64_t n = 0;
    if (lathe_path_is_gguf(run->set.model_path) && stat(run->set.model_path, &st) == 0)
        return (int64_t)st.st_size;
    for (int32_t i = 0; i < params->n_model; i++)
        n += lathe_desc_count(&params->rows[i]->desc);
    return n * lathe_dtype_bytes(run->model.file_dtype);
}

/* Memory that the process needs in addition to the plan. */
static int64_t reserve_of(const lathe_host_memory *memory, int32_t n_threads)
{
    return LATHE_HOST_RESERVE + (memory->is_address_space ? stack_bytes(n_threads) : 0);
}

/* Host memory available for the plan. */
static int64_t of_the_host(const lathe_run *run, const char *what, char *source, size_t bytes)
{
    lathe_host_memory memory;
    lathe_host_memory_read("", &memory);
    int64_t reserve = reserve_of(&memory, lathe_parallel_threads());
    if (memory.is_address_space)
        reserve += run->set.model_path ? mapped_bytes(run) : 0;
    (void)snprintf(source, bytes, "%s%s, less %lld MiB for the process itself%s", what,
                   memory.source, (long long)(reserve >> 20),
                   memory.is_address_space ? " and the files that it maps" : "");
    if (memory.available == INT64_MAX)
        return INT64_MAX;
    return memory.available < reserve ? 0 : memory.available - reserve;
}

/* Address space that Open MPI takes for a moment while it starts: its threads' stacks and heaps. It
 * ends the process in 60 lines where it is refused. Measured: 217 MiB with Open MPI 4.1.4. */
#define MPI_BYTES ((int64_t)256 << 20)

lathe_status lathe__fit_floor(int32_t n_threads)
{
    lathe_host_memory memory;
    int32_t n_ranks;
    char mpi[64] = "";
    const int is_rank = lathe_launcher_find(&n_ranks) != NULL && n_ranks != 1;
    lathe_host_limits_read("", &memory);
    const int64_t more = is_rank && memory.is_address_space ? MPI_BYTES : 0;
    const int64_t least = reserve_of(&memory, n_threads) + more;
    if (memory.available >= least)
        return LATHE_OK;
    if (more > 0)
        (void)snprintf(mpi, sizeof mpi, ", %lld of them for MPI", (long long)(more >> 20));
    return lathe_error(
        LATHE_E_CONFIG,
        "this process may take %lld MiB more (%s); any run needs %lld MiB for itself "
        "with %d thread%s%s: raise the limit%s",
        (long long)(memory.available >> 20), memory.source, (long long)(least >> 20), n_threads,
        n_threads == 1 ? "" : "s", mpi, n_threads == 1 ? "" : ", or lower train.threads");
}

/* A plan that fits a device with its own memory must also fit the host, which holds a part of the
 * plan in pinned memory. */
static void host_side(const lathe_run *run, lathe_fit *out)
{
    lathe_fit host = {.need = lathe_mem_total(&run->planned) -
                              lathe_machine_total(&run->machine, &run->planned)};
    host.have = of_the_host(run, "in the host's memory: ", host.source, sizeof host.source);
    if (out->need <= out->have && host.need > host.have)
        *out = host;
}

void lathe_fit_check(const lathe_run *run, lathe_fit *out)
{
    memset(out, 0, sizeof *out);
    out->need = lathe_machine_total(&run->machine, &run->planned);
    if (run->open.mode == LATHE_OPEN_INFER)
        out->need += cache_bytes(&run->model, run->set.seq_len, run->params.compute_dtype);
    if (run->set.memory_limit > 0) {
        out->have = run->set.memory_limit;
        (void)snprintf(out->source, sizeof out->source, "train.memory_limit");
    } else if (!run->machine.info.host_memory) {
        device_memory(&run->machine, out);
        host_side(run, out);
    } else {
        out->have = of_the_host(run, "", out->source, sizeof out->source);
    }
}

/* ---- settings that would fit ---- */

/* Limits, large enough for every case below. Each try makes a plan, which takes tens of
 * milliseconds. */
enum { MAX_TRIES = 40, MAX_CHANGES = 8, MAX_USER = 256 };

typedef struct search {
    const lathe_run *run;
    lathe_fit *fit;
    int32_t tries;
} search;

/* Settings of one try, on top of the user's. */
typedef struct changes {
    lathe_override list[MAX_CHANGES];
    char values[MAX_CHANGES][24];
    int32_t n;
} changes;

static void change(changes *c, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void change(changes *c, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(c->values[c->n], sizeof c->values[c->n], format, args);
    va_end(args);
    c->list[c->n] = (lathe_override){key, c->values[c->n]};
    c->n++;
}

/* Plans with the changes; returns 1 and stores them if the plan fits. A plan that fails (for
 * example because an adapter does not suit the model) does not count. */
static int fits(search *s, const changes *c)
{
    lathe_override list[MAX_USER + MAX_CHANGES + 2];
    lathe_run *run = NULL;
    lathe_fit fit;
    const lathe_opening *open = &s->run->open;
    if (s->tries++ >= MAX_TRIES || open->n_overrides > MAX_USER ||
        s->fit->n_options == LATHE_FIT_OPTIONS)
        return 0;
    int32_t n = 0;
    for (; n < open->n_overrides; n++)
        list[n] = open->overrides[n];
    if (open->mode > LATHE_OPEN_TRAIN) /* measured once, not again for each try */
        list[n++] =
            (lathe_override){"train.precision", lathe_precision_name(s->run->set.precision)};
    for (int32_t i = 0; i < c->n; i++)
        list[n++] = c->list[i];
    list[n++] = (lathe_override){"log.level", "error"};
    const int32_t mode = open->mode <= LATHE_OPEN_TRAIN ? LATHE_OPEN_PLAN : open->mode;
    if (lathe__run_open_planned(open->path, list, n, mode, 0, 0, &run) != LATHE_OK)
        return 0;
    lathe_fit_check(run, &fit);
    lathe_run_close(run);
    if (fit.need > fit.have)
        return 0;
    lathe_fit_option *option = &s->fit->options[s->fit->n_options++];
    size_t at = 0;
    for (int32_t i = 0; i < c->n; i++)
        at += (size_t)snprintf(option->settings + at, sizeof option->settings - at, "%s--%s %s",
                               i > 0 ? " " : "", c->list[i].key, c->list[i].value);
    option->peak = fit.need;
    return 1;
}

/* Tries smaller micro-batches for the same step; finds the largest that fits. */
static int smaller_batches(search *s, const changes *base)
{
    const int32_t rows = s->run->set.micro_batch_size;
    const int64_t step = (int64_t)rows * s->run->set.gradient_accumulation_steps;
    for (int32_t b = rows / 2; b >= 1; b /= 2) {
        while (step % b != 0)
            b--;
        changes c = *base;
        for (int32_t i = 0; i < c.n; i++)
            c.list[i].value = c.values[i];
        change(&c, "train.micro_batch_size", "%d", b);
        if (s->run->open.mode != LATHE_OPEN_EVALUATE)
            change(&c, "train.gradient_accumulation_steps", "%lld", (long long)(step / b));
        if (fits(s, &c))
            return 1;
    }
    return 0;
}

static int is_named(const lathe_instance *instance, const char *name)
{
    return instance->component && strcmp(instance->component->plugin->name, name) == 0;
}

/* Whether offloading the optimizer's state would free device memory. */
static int may_offload(const lathe_machine *m, const lathe_store *store)
{
    return !lathe_machine_shares(m) && !store->slots_on_host && store->slot_bytes > 0 &&
           LATHE_HAS(m->dev, event_record);
}

/* Whether offloading activations would free device memory. */
static int may_offload_values(const lathe_run *run)
{
    return !lathe_machine_shares(&run->machine) && !run->set.offload_activations &&
           lathe_machine_has_events(&run->machine);
}

static int with(search *s, changes *c, const char *key, const char *value)
{
    change(c, key, "%s", value);
    return fits(s, c);
}

/* Tries offloading to host memory: the optimizer's state, activations, or both; then also with the
 * smallest micro-batch. */
static void search_offload(search *s)
{
    changes state = {.n = 0}, values = {.n = 0};
    if (may_offload(&s->run->machine, &s->run->store))
        (void)with(s, &state, "train.offload_optimizer", "true");
    if (may_offload_values(s->run))
        (void)with(s, &values, "train.offload_activations", "true");
    if (state.n > 0 && values.n > 0 && s->fit->n_options == 0)
        (void)with(s, &state, "train.offload_activations", "true");
}

/* Tries recomputation of the layers, with offloading if needed. */
static int search_layers(search *s, changes *layer)
{
    if (with(s, layer, "train.recompute", "layer") || s->fit->n_options > 0)
        return 1;
    if (may_offload_values(s->run) && with(s, layer, "train.offload_activations", "true"))
        return 1;
    if (smaller_batches(s, layer))
        return 1;
    if (!may_offload(&s->run->machine, &s->run->store))
        return 0;
    return with(s, layer, "train.offload_optimizer", "true") || smaller_batches(s, layer);
}

/* Tries 16-bit gradients, with recomputation of the layers if needed. */
static void search_narrow(search *s)
{
    changes narrow = {.n = 0};
    if (s->run->set.compute_dtype == LATHE_BF16 && s->run->set.grad_dtype == LATHE_F32 &&
        !with(s, &narrow, "train.grad_dtype", "bf16") && s->fit->n_options == 0)
        (void)with(s, &narrow, "train.recompute", "layer");
}

/* Tries options in this order: those with the same result, 16-bit gradients, fewer trained
 * parameters, shorter rows. */
static void search_training(search *s)
{
    const changes none = {.n = 0};
    changes alone = {.n = 0}, layer = {.n = 0}, lora = {.n = 0}, offload = {.n = 0};
    if (s->run->planned.by[LATHE_MEM_CHECKPOINT] > 0)
        (void)with(s, &alone, "checkpoint.async", "false");
    search_offload(s);
    (void)smaller_batches(s, &none);
    if (may_offload(&s->run->machine, &s->run->store) && s->fit->n_options == 0) {
        change(&offload, "train.offload_optimizer", "true");
        (void)smaller_batches(s, &offload);
    }
    if (s->run->set.recompute != LATHE_RECOMPUTE_LAYER)
        (void)search_layers(s, &layer);
    search_narrow(s);
    if (is_named(&s->run->parts.adapter, "full")) {
        change(&lora, "adapter.name", "lora");
        if (!fits(s, &lora) && s->fit->n_options == 0) {
            change(&lora, "train.recompute", "layer");
            if (!fits(s, &lora) && !smaller_batches(s, &lora)) {
                change(&lora, "quant.name", "nf4");
                if (!fits(s, &lora))
                    (void)smaller_batches(s, &lora);
            }
        }
    }
}

static void search_rows(search *s)
{
    for (int32_t tokens = s->run->set.seq_len / 2; tokens >= 16; tokens /= 2) {
        changes c = {.n = 0};
        change(&c, "data.seq_len", "%d", tokens);
        if (s->run->open.mode != LATHE_OPEN_INFER && s->run->set.micro_batch_size > 1)
            change(&c, "train.micro_batch_size", "1");
        if (s->run->open.mode <= LATHE_OPEN_TRAIN && s->run->set.recompute != LATHE_RECOMPUTE_LAYER)
            change(&c, "train.recompute", "layer");
        if (fits(s, &c))
            return;
    }
}

void lathe_fit_search(const lathe_run *run, lathe_fit *fit)
{
    search s = {run, fit, 0};
    const changes none = {.n = 0};
    fit->is_searched = 1;
    if (run->open.mode <= LATHE_OPEN_TRAIN)
        search_training(&s);
    else if (run->open.mode == LATHE_OPEN_EVALUATE)
        (void)smaller_batches(&s, &none);
    if (run->open.mode > LATHE_OPEN_TRAIN && run->set.compute_dtype == LATHE_F32) {
        changes half = {.n = 0};
        change(&half, "train.precision", "bf16");
        (void)fits(&s, &half);
    }
    if (fit->n_options == 0)
        search_rows(&s);
    lathe_log_set_level(run->set.log_level);
}

int64_t lathe_fit_saved(const lathe_run *run, const char *key)
{
    lathe_override list[MAX_USER + 2];
    lathe_run *without = NULL;
    const int32_t n_overrides = run->open.n_overrides;
    if (n_overrides > MAX_USER)
        return 0;
    for (int32_t i = 0; i < n_overrides; i++)
        list[i] = run->open.overrides[i];
    list[n_overrides] = (lathe_override){key, "false"};
    list[n_overrides + 1] = (lathe_override){"log.level", "error"};
    int64_t peak = 0;
    if (lathe__run_open_planned(run->open.path, list, n_overrides + 2, run->open.mode, 0, 0,
                                &without) == LATHE_OK)
        peak = lathe_machine_total(&without->machine, &without->planned) -
               lathe_machine_total(&run->machine, &run->planned);
    lathe_run_close(without);
    lathe_log_set_level(run->set.log_level);
    return peak;
}

/* ---- the message ---- */

static void put_bytes(lathe_buffer *out, int64_t bytes)
{
    const double mib = (double)bytes / (1024.0 * 1024.0);
    if (mib >= 1024.0)
        lathe_buffer_printf(out, "%.2f GiB", mib / 1024.0);
    else
        lathe_buffer_printf(out, "%.1f MiB", mib);
}

void lathe_fit_text(const lathe_fit *fit, lathe_buffer *out)
{
    if (fit->have == INT64_MAX) {
        lathe_buffer_puts(out, "fits: the memory of this machine is not known");
        return;
    }
    lathe_buffer_puts(out, fit->need <= fit->have ? "fits: peak " : "does not fit: peak ");
    put_bytes(out, fit->need);
    lathe_buffer_puts(out, " of ");
    put_bytes(out, fit->have);
    lathe_buffer_printf(out, " (%s)", fit->source);
    if (fit->need <= fit->have)
        return;
    lathe_buffer_puts(out, ", ");
    put_bytes(out, fit->need - fit->have);
    lathe_buffer_puts(out, " too much");
    if (fit->n_options == 0 && !fit->is_searched)
        return;
    if (fit->n_options == 0)
        lathe_buffer_puts(out, "; nor would smaller batches, recomputation, lora or shorter rows");
    else
        lathe_buffer_puts(out, "; this would fit:");
    for (int32_t i = 0; i < fit->n_options; i++) {
        lathe_buffer_printf(out, "\n  %s   (peak ", fit->options[i].settings);
        put_bytes(out, fit->options[i].peak);
        lathe_buffer_puts(out, ")");
    }
}

lathe_status lathe__run_fits(const lathe_run *run)
{
    lathe_fit fit;
    lathe_fit_check(run, &fit);
    if (fit.need <= fit.have)
        return LATHE_OK;
    lathe_fit_search(run, &fit);
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_fit_text(&fit, &text);
    lathe_status status = text.status;
    for (char *at = text.data; run->ranks && at && (at = strchr(at, '\n')) != NULL;)
        *at = ' '; /* one line from one rank */
    if (status == LATHE_OK)
        status = lathe__run_refuse(
            run, run->set.memory_limit > 0 ? "train" : "", "memory_limit",
            "the plan %s%strain.memory_limit (GiB) replaces the limit that was found", text.data,
            run->ranks ? "; " : "\n");
    lathe_buffer_fini(&text);
    return status;
}
