/* Prints what the fine-tuning methods of a run need, as a table and as JSON. */
#include <string.h>

#include "run/plan/methods.h"

static void put_peak(int64_t bytes, lathe_buffer *out)
{
    const double mib = (double)bytes / (1024.0 * 1024.0);
    if (bytes == 0)
        lathe_buffer_printf(out, " %11s", "-");
    else if (mib >= 10240.0)
        lathe_buffer_printf(out, " %7.1f GiB", mib / 1024.0);
    else
        lathe_buffer_printf(out, " %7.1f MiB", mib);
}

void lathe_method_settings(const lathe_method_row *row, lathe_buffer *out)
{
    lathe_edits edits = {.n = 0};
    lathe_method_edits(row, LATHE_BY_AUTO, &edits);
    lathe_edits_put(&edits, out);
    lathe_edits_fini(&edits);
}

/* Writes "lora r=32 alpha=32 nf4". */
static void put_short_settings(const lathe_method_row *row, lathe_buffer *out)
{
    for (int32_t i = 0; i < row->n_set; i++) {
        const lathe_method_setting *one = &row->set[i];
        if (one->text)
            lathe_buffer_printf(out, " %s", one->text);
        else
            lathe_buffer_printf(out, " %s=%lld", strchr(one->key, '.') + 1, (long long)one->number);
    }
    if (row->recomputes)
        lathe_buffer_puts(out, " recompute=layer");
    if (row->split.rows)
        lathe_buffer_printf(out,
                            " micro_batch_size=%d gradient_accumulation_steps=%d:", row->split.rows,
                            row->split.n);
}

int32_t lathe_method_fits(const lathe_methods *methods, const lathe_method_row *row,
                          int64_t *out_peak)
{
    *out_peak = row->split.rows ? row->peak_split : row->recomputes ? row->peak_layers : row->peak;
    return !row->is_refused && *out_peak <= methods->have;
}

/* Says which method is used: that of the file, unless it has adapter.name = "auto". */
static void put_used(const lathe_methods *methods, lathe_buffer *out)
{
    if (methods->is_auto || !methods->adapter[0])
        return;
    lathe_buffer_printf(out, "  the run uses adapter \"%s\", as the run file says",
                        methods->adapter);
    if (methods->chosen >= 0) {
        lathe_buffer_puts(out, "; adapter.name = \"auto\" would choose");
        put_short_settings(&methods->rows[methods->chosen], out);
    }
    lathe_buffer_puts(out, "\n");
}

void lathe_methods_text(const lathe_methods *methods, lathe_buffer *out)
{
    lathe_buffer_puts(out, "methods     trained, M        peak  recomputed\n");
    for (int32_t i = 0; i < methods->n; i++) {
        const lathe_method_row *row = &methods->rows[i];
        int64_t peak;
        const int fits = lathe_method_fits(methods, row, &peak);
        const int is_chosen = i == methods->chosen && methods->is_auto;
        lathe_buffer_printf(out, "  %-9s",
                            row->is_refused ? "refused"
                            : is_chosen     ? "chosen"
                            : fits          ? "fits"
                                            : "too large");
        if (row->is_refused) {
            put_short_settings(row, out);
            lathe_buffer_printf(out, "\n    %s\n", row->refusal);
            continue;
        }
        lathe_buffer_printf(out, "%11.1f", (double)row->n_trained / 1e6);
        put_peak(row->peak, out);
        put_peak(row->peak_layers, out);
        lathe_buffer_puts(out, " ");
        put_short_settings(row, out);
        if (row->split.rows)
            put_peak(row->peak_split, out);
        lathe_buffer_puts(out, "\n");
    }
    if (methods->have == INT64_MAX)
        lathe_buffer_puts(out, "  the memory of this machine is not known\n");
    else {
        lathe_buffer_puts(out, "  available ");
        put_peak(methods->have, out);
        lathe_buffer_printf(out, " (%s)\n", methods->source);
    }
    put_used(methods, out);
}

static void put_number(const char *name, int64_t value, lathe_buffer *out)
{
    if (value == 0)
        lathe_buffer_printf(out, ", \"%s\": null", name);
    else
        lathe_buffer_printf(out, ", \"%s\": %lld", name, (long long)value);
}

void lathe_methods_json(const lathe_methods *methods, lathe_buffer *out)
{
    lathe_buffer_puts(out, "[");
    for (int32_t i = 0; i < methods->n; i++) {
        const lathe_method_row *row = &methods->rows[i];
        lathe_buffer settings = LATHE_BUFFER_INIT;
        lathe_method_settings(row, &settings);
        lathe_buffer_puts(out, i > 0 ? ",\n    {\"settings\": " : "\n    {\"settings\": ");
        lathe_buffer_json_string(out, settings.data ? settings.data : "");
        lathe_buffer_fini(&settings);
        put_number("trained", row->n_trained, out);
        put_number("peak", row->peak, out);
        put_number("peak_recomputed", row->peak_layers, out);
        put_number("peak_split", row->peak_split, out);
        lathe_buffer_printf(out, ", \"chosen\": %s, \"chosen_by_auto\": %s, \"refusal\": ",
                            i == methods->chosen && methods->is_auto ? "true" : "false",
                            i == methods->chosen ? "true" : "false");
        if (row->is_refused)
            lathe_buffer_json_string(out, row->refusal);
        else
            lathe_buffer_puts(out, "null");
        lathe_buffer_puts(out, "}");
    }
    lathe_buffer_puts(out, "]");
}
