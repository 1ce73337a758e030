/* Checks what a format says of the inputs of products: a rule that devices know, and a weight whose
 * codes they can multiply; and its product fields, which are keys of the plugin. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/device/quant_weight.h"

static lathe_status check_codes(const lathe_quant_v1 *table, void *self, int64_t rows, int64_t cols)
{
    lathe_weight_codes c = {0};
    if (!table->codes(self, rows, cols, NULL, &c) || c.order != LATHE_CODES_BYTES || c.bits != 8 ||
        c.values != LATHE_VALUES_I8 || c.has_offsets || c.group < cols)
        return lathe_error(LATHE_E_PLUGIN,
                           "activations() for a weight whose codes are not bytes of values I8, in "
                           "one group without offsets");
    return LATHE_OK;
}

static lathe_status rule_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const lathe_quant_v1 *table = s->table;
    lathe_activations a = {0}, again = {0};
    const int32_t has_any = table->activations(self, rows, cols, &a);
    if (has_any != table->activations(self, rows, cols, &again) || a.dtype != again.dtype ||
        a.threshold < again.threshold || a.threshold > again.threshold)
        return lathe_error(LATHE_E_PLUGIN, "activations() answers otherwise the second time");
    if (!has_any)
        return LATHE_OK;
    if (a.dtype != LATHE_I8)
        return lathe_error(LATHE_E_PLUGIN, "activations() sets dtype %d, expected %d (i8)", a.dtype,
                           LATHE_I8);
    if (!isfinite(a.threshold) || a.threshold < 0.0f)
        return lathe_error(LATHE_E_PLUGIN,
                           "activations() sets threshold %g, expected a finite number, at least 0",
                           (double)a.threshold);
    return check_codes(table, self, rows, cols);
}

static lathe_status check_fields(const lathe__subject *s)
{
    const lathe_quant_v1 *table = s->table;
    const lathe_plugin *plugin = s->plugin;
    for (const char *const *key = LATHE_HAS(table, product_fields) ? table->product_fields : NULL;
         key != NULL && *key != NULL; key++) {
        int32_t i = 0;
        while (i < plugin->n_fields && strcmp(plugin->fields[i].key, *key) != 0)
            i++;
        if (i == plugin->n_fields)
            return lathe_error(LATHE_E_PLUGIN, "product_fields names '%s', which is no key", *key);
    }
    return LATHE_OK;
}

lathe_status lathe__codec_activations_are_codes(lathe__subject *s)
{
    const lathe_quant_v1 *table = s->table;
    LATHE_TRY(check_fields(s));
    if (!LATHE_HAS(table, activations))
        return lathe__skip(s, "no activations");
    return lathe__each_shape(s, rule_of);
}
