/* Describes how a run trains, before its first step. */
#include "run/parts/run_header.h"

#include <string.h>

#include "config/config_rate.h"
#include "plug/kind.h"
#include "run/decide/run_length.h"
#include "run/parts/iteration.h"

/* Appends where the file or the command line sets a key: " (run.toml:8)", " (--optimizer.lr)". */
static void put_place(const lathe_config *config, const char *section, const char *key,
                      lathe_buffer *out)
{
    const lathe_place place = lathe_config_where(config, section, key);
    const char *slash = strrchr(place.file, '/');
    if (place.line > 0)
        lathe_buffer_printf(out, " (%s:%d)", slash ? slash + 1 : place.file, place.line);
    else
        lathe_buffer_printf(out, " (%s)", place.file);
}

static void put_part(const lathe_run *run, int32_t kind, lathe_buffer *out)
{
    const char *section = lathe_kind_name(kind);
    lathe_buffer_printf(out, "%s %s", section, lathe_config_part(run->config, kind)->name);
    if (lathe_config_names(run->config, kind))
        put_place(run->config, section, "name", out);
    else
        lathe_buffer_puts(out, " (default)");
}

static void put_rate(const lathe_run *run, lathe_buffer *out)
{
    lathe_buffer_printf(out, ", lr %g", run->opt.base_lr);
    if (lathe_config_is_explicit(run->config, "optimizer", "lr"))
        put_place(run->config, "optimizer", "lr", out);
    else if (lathe_config_is_set(run->config, "optimizer", "lr"))
        lathe_buffer_printf(out, " (default for %s)", lathe_config_default_rate(run->config).what);
    else
        lathe_buffer_puts(out, " (the optimizer's own)");
}

static void put_warm_up(const lathe_run *run, lathe_buffer *out)
{
    const int64_t steps = lathe_config_int(run->config, "scheduler", "warmup_steps");
    const double ratio = lathe_config_float(run->config, "scheduler", "warmup_ratio");
    if (ratio > 0.0)
        lathe_buffer_printf(out, " with %g %% of warm-up", 100.0 * ratio);
    else if (steps > 0)
        lathe_buffer_printf(out, " with %lld steps of warm-up", (long long)steps);
    else if (lathe_config_get(run->config, "scheduler", "warmup_steps"))
        lathe_buffer_puts(out, " without warm-up");
}

void lathe_run_method_text(const lathe_run *run, lathe_buffer *out)
{
    put_part(run, LATHE_KIND_ADAPTER, out);
    lathe_buffer_puts(out, ", ");
    put_part(run, LATHE_KIND_OPTIMIZER, out);
    put_rate(run, out);
    lathe_buffer_puts(out, ", ");
    put_part(run, LATHE_KIND_SCHEDULER, out);
    lathe_buffer_printf(out, " over %lld step%s", (long long)run->set.max_steps,
                        run->set.max_steps == 1 ? "" : "s");
    put_warm_up(run, out);
    lathe_buffer_puts(out, "\n");
}

static const char *packing_text(const lathe_run *run)
{
    static const char *const names[] = {"packed (sequential)", "packed (multipack)", "",
                                        "not packed"};
    return lathe_row_shape_get(lathe_shards_rows(run->data.shards))->is_padded
               ? "not packed"
               : names[lathe_packing(run->set.packing, lathe_shards_rows(run->data.shards))];
}

/* How many records train and how many evaluate, and which key says so. */
static void put_split(const lathe_run *run, const lathe_row_kind *kind, int64_t n_train,
                      lathe_buffer *out)
{
    static const char *const keys[] = {"validation", "validation_split", "validation_count"};
    lathe_loader_facts f;
    lathe_buffer_printf(out, "%lld %s to train on, ", (long long)n_train,
                        n_train == 1 ? kind->record : kind->records);
    if (run->data.validation == NULL) {
        lathe_buffer_puts(out, "none to evaluate on\n");
        return;
    }
    lathe_loader_facts_get(run->data.validation, &f);
    if (f.is_cut) /* the only document is divided */
        lathe_buffer_puts(out, "the end of it to evaluate on");
    else
        lathe_buffer_printf(out, "%lld to evaluate on", (long long)f.n_documents);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (lathe_config_is_explicit(run->config, "data", keys[i])) {
            lathe_buffer_printf(out, ", by data.%s", keys[i]);
            put_place(run->config, "data", keys[i], out);
            break;
        }
    lathe_buffer_puts(out, "\n");
}

void lathe_run_step_text(const lathe_run *run, lathe_buffer *out)
{
    lathe_loader_facts f;
    if (!run->data.loader || lathe__run_iterates(run))
        return;
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(run->data.shards));
    lathe_loader_facts_get(run->data.loader, &f);
    const int32_t each = lathe_row_shape_get(lathe_shards_rows(run->data.shards))->n_rows;
    const int64_t rows = lathe__run_step_rows(run), per_step = run->set.gradient_accumulation_steps;
    const double records = (double)rows * (double)f.n_documents / (double)f.n_rows;
    const int64_t steps = (lathe_loader_batches(run->data.loader, 1.0) + per_step - 1) / per_step;
    const int64_t n_rows = rows * each;
    lathe_buffer_puts(out, "a step learns from ");
    if (f.n_documents > f.n_rows || kind->n_segments > 1 || kind->is_masked)
        lathe_buffer_printf(out, "%s%.4g %s: ", f.n_documents == f.n_rows ? "" : "about ", records,
                            rows == 1 && f.n_documents == f.n_rows ? kind->record : kind->records);
    lathe_buffer_printf(out, "%lld row%s of %d tokens, %s; an epoch is %lld step%s\n",
                        (long long)n_rows, n_rows == 1 ? "" : "s", run->set.seq_len,
                        packing_text(run), (long long)steps, steps == 1 ? "" : "s");
    put_split(run, kind, f.n_documents, out);
}
