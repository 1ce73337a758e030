/* Checks values against a schema, for programs that create a plugin's instance without the core,
 * such as tests. The core checks all values before it calls create().
 */
#ifndef LATHE_KIT_VALUES_CHECK_H
#define LATHE_KIT_VALUES_CHECK_H

#include "instance.h"

/** Checks one number against its field's range; NaN fails. */
static inline lathe_status lathe_value_check_number(const lathe_host *host, const lathe_field *f,
                                                    double x)
{
    const int low = f->flags & LATHE_FIELD_MIN_EXCLUSIVE ? x > f->min : x >= f->min;
    const int high = f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? x < f->max : x <= f->max;
    if (f->min > f->max ? x == x : low && high)
        return LATHE_OK;
    return lathe_fail_at(host, LATHE_E_CONFIG, f->key, "%s is %g, expected %s%g to %g%s", f->key, x,
                         f->flags & LATHE_FIELD_MIN_EXCLUSIVE ? "more than " : "", f->min, f->max,
                         f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? " (exclusive)" : "");
}

/** Checks all values against the schema: count, presence, ranges, choices. LATHE_E_CONFIG names
 *  the key. */
static inline lathe_status lathe_values_check(const lathe_host *host, const char *name,
                                              const lathe_field *fields, int32_t n_fields,
                                              const lathe_value *values, int32_t n_values)
{
    if (n_values != n_fields)
        return lathe_fail(host, LATHE_E_ARG, "%s takes %d values, got %d", name, n_fields,
                          n_values);
    for (int32_t k = 0; k < n_fields; k++) {
        const lathe_field *const f = &fields[k];
        const lathe_value *const v = &values[k];
        if (!v->is_set) {
            if (f->flags & LATHE_FIELD_REQUIRED)
                return lathe_fail_at(host, LATHE_E_CONFIG, f->key, "%s must be set", f->key);
            continue;
        }
        if (f->type == LATHE_T_INT || f->type == LATHE_T_FLOAT)
            LATHE_TRY(
                lathe_value_check_number(host, f, f->type == LATHE_T_INT ? (double)v->i : v->f));
        if (f->type == LATHE_T_STRING && f->choices != NULL && lathe_choice(f->choices, v->s) < 0)
            return lathe_fail_at(host, LATHE_E_CONFIG, f->key, "%s is \"%s\", expected one of %s",
                                 f->key, v->s != NULL ? v->s : "", f->choices);
    }
    return LATHE_OK;
}

#endif
