/* Checks whether a plan fits the memory of the machine. */
#include "run/plan/fit.h"
#include "model/family/model_size.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/model_path.h"
#include "base/parallel.h"
#include "graph/passes/passes.h"
#include "lathe/kit/launcher_kit.h"

/* Bytes of the KV caches, which generation allocates when it begins: for every layer, those with
 * linear attention included. */
static int64_t cache_bytes(const lathe_model_config *m, int32_t seq_len, int32_t dtype)
{
    const int64_t rows = seq_len < m->max_positions ? seq_len : m->max_positions;
    const int64_t width = lathe_model_most_keys(m) + lathe_model_most_values(m);
    return m->n_layers * rows * width * lathe_dtype_bytes(dtype);
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
    if (lathe__run_infers(run))
        out->need += cache_bytes(&run->model, run->set.seq_len, run->params.compute_dtype) +
                     run->programs.state_bytes;
    if (run->set.memory_limit > 0) {
        out->have = run->set.memory_limit;
        (void)snprintf(out->source, sizeof out->source, "train.memory_limit");
    } else if (!lathe_machine_memory(&run->machine)->is_of_host) {
        device_memory(&run->machine, out);
        host_side(run, out);
    } else {
        out->have = of_the_host(run, "", out->source, sizeof out->source);
    }
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

void lathe_fit_put_options(const lathe_fit *fit, lathe_buffer *out)
{
    if (fit->n_options == 0)
        lathe_buffer_printf(out,
                            "nor would smaller batches, recomputation, lora, qlora%s "
                            "or shorter rows",
                            fit->tried_ranks ? ", dividing the parameters among more ranks" : "");
    else
        lathe_buffer_puts(out, fit->auto_fits ? "these fine-tuning methods would fit "
                                                "(adapter.name = \"auto\" chooses the first):"
                                              : "this would fit:");
    for (int32_t i = 0; i < fit->n_options; i++) {
        lathe_buffer_printf(out, "\n  %s   (peak ", fit->options[i].settings);
        put_bytes(out, fit->options[i].peak);
        lathe_buffer_puts(out, ")");
    }
}

void lathe_fit_json(const lathe_fit *fit, lathe_buffer *out)
{
    lathe_buffer_puts(out, "[");
    for (int32_t i = 0; i < fit->n_options; i++) {
        lathe_buffer_printf(out, "%s{\"settings\": ", i > 0 ? ", " : "");
        lathe_buffer_json_string(out, fit->options[i].settings);
        lathe_buffer_printf(out, ", \"peak\": %lld}", (long long)fit->options[i].peak);
    }
    lathe_buffer_puts(out, "]");
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
    lathe_buffer_puts(out, "; ");
    lathe_fit_put_options(fit, out);
}
