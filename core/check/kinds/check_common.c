/* Checks of every kind: the plugin's description, its schema, and making instances. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "check/harness/static_memory.h"
#include "check/harness/subject.h"
#include "check/kinds/checks.h"
#include "plug/host_table.h"
#include "plug/schema_check.h"
#include "plug/so.h"

static lathe_status one_line(const char *what, const char *text, int required)
{
    if (text == NULL || text[0] == '\0')
        return required ? lathe_error(LATHE_E_PLUGIN, "%s is missing", what) : LATHE_OK;
    if (strchr(text, '\n') != NULL)
        return lathe_error(LATHE_E_PLUGIN, "%s is more than one line", what);
    return LATHE_OK;
}

static lathe_status describes_itself(lathe__subject *s)
{
    const lathe_plugin *p = s->plugin;
    int major, minor, patch, end = 0;
    LATHE_TRY(lathe_plugin_check(p, p->kind, p->name));
    LATHE_TRY(one_line("summary", p->summary, 1));
    LATHE_TRY(one_line("source", p->source, 1));
    LATHE_TRY(one_line("license", p->license, 1));
    if (p->version == NULL || sscanf(p->version, "%d.%d.%d%n", &major, &minor, &patch, &end) != 3 ||
        (p->version[end] != '\0' && p->version[end] != '-' && p->version[end] != '+'))
        return lathe_error(LATHE_E_PLUGIN, "version is '%s', expected MAJOR.MINOR.PATCH",
                           p->version ? p->version : "");
    return LATHE_OK;
}

static lathe_status documents_its_keys(lathe__subject *s)
{
    LATHE_TRY(lathe_schema_validate(s->plugin->fields, s->plugin->n_fields));
    for (int32_t i = 0; i < s->plugin->n_fields; i++) {
        const lathe_field *f = &s->plugin->fields[i];
        char what[128];
        (void)snprintf(what, sizeof what, "the doc of '%s'", f->key);
        LATHE_TRY(one_line(what, f->doc, 1));
        if (strcmp(f->key, "name") == 0)
            return lathe_error(LATHE_E_PLUGIN, "the key 'name' is the core's");
    }
    lathe__note(s, "%d keys", s->plugin->n_fields);
    return LATHE_OK;
}

static int is_absent_device(const lathe__subject *s)
{
    char why[256] = "";
    const lathe_device_v1 *device = s->table;
    return s->plugin->kind == LATHE_KIND_DEVICE && device->score(why, sizeof why) == LATHE_SCORE_NO;
}

static int has_required_keys(const lathe_plugin *plugin)
{
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (plugin->fields[i].flags & LATHE_FIELD_REQUIRED)
            return 1;
    return 0;
}

static lathe_status makes_an_instance(lathe__subject *s)
{
    lathe_instance instance;
    if (is_absent_device(s))
        return lathe__skip(s, "this machine has no such device");
    const lathe_status status = lathe__instance(s, &instance);
    if (status != LATHE_OK)
        return lathe_error_context(status, "%s",
                                   has_required_keys(s->plugin)
                                       ? "it has required keys, which --set KEY=VALUE "
                                         "gives"
                                       : "with the defaults of its keys");
    lathe_instance_fini(&instance);
    return LATHE_OK;
}

static lathe_status makes_many_instances(lathe__subject *s)
{
    lathe_instance many[8] = {{0}};
    lathe_status status = LATHE_OK;
    if (is_absent_device(s))
        return lathe__skip(s, "this machine has no such device");
    for (int round = 0; round < 4 && status == LATHE_OK; round++) {
        for (int i = 0; i < 8 && status == LATHE_OK; i++)
            status = lathe__instance(s, &many[i]);
        for (int i = 0; i < 8; i++)
            lathe_instance_fini(&many[(i * 3) % 8]);
    }
    if (status == LATHE_OK && LATHE_HAS(s->plugin, destroy))
        s->plugin->destroy(NULL); /* destroy must accept NULL */
    return status;
}

/* Writes a value outside the range of field f as a line of TOML; returns 0 if there is none. */
static int bad_line(const lathe_field *f, char *line, size_t bytes)
{
    const int ranged = f->min <= f->max;
    if (f->type == LATHE_T_INT && ranged && fabs(f->min) < 1e15)
        return snprintf(line, bytes, "%s = %lld\n", f->key, (long long)f->min - 1) > 0;
    if (f->type == LATHE_T_FLOAT && ranged && isfinite(f->min))
        return snprintf(line, bytes, "%s = %.17e\n", f->key, f->min - 1.0) > 0;
    if (f->type == LATHE_T_STRING && f->choices != NULL)
        return snprintf(line, bytes, "%s = \"no such choice\"\n", f->key) > 0;
    return snprintf(line, bytes, "%s = 1979-05-27\n", f->key) > 0; /* a date is not valid for any
                                                                    * type */
}

static lathe_status refuses_bad_values(lathe__subject *s)
{
    const lathe_value *values;
    char line[256];
    for (int32_t i = 0; i < s->plugin->n_fields; i++) {
        const lathe_field *f = &s->plugin->fields[i];
        if (bad_line(f, line, sizeof line) && lathe__values(s, line, &values) == LATHE_OK)
            return lathe_error(LATHE_E_PLUGIN, "accepted %s", line);
    }
    if (lathe__values(s, "no_such_key_of_anything = 1\n", &values) == LATHE_OK)
        return lathe_error(LATHE_E_PLUGIN, "accepted an unknown key");
    return LATHE_OK;
}

/* Calls create() directly, without the text that the core adds to its messages. */
static lathe_status create_and_destroy(const lathe_plugin *plugin, const lathe_value *values)
{
    void *self = NULL;
    if (!LATHE_HAS(plugin, create))
        return LATHE_OK;
    LATHE_TRY(plugin->create(lathe_host_get(), values, plugin->n_fields, &self));
    if (LATHE_HAS(plugin, destroy))
        plugin->destroy(self);
    return LATHE_OK;
}

/* Sets every field to both ends of its range; each must give an instance, or an error with a
 * message. */
static lathe_status survives_extreme_values(lathe__subject *s)
{
    const lathe_value *defaults;
    if (is_absent_device(s))
        return lathe__skip(s, "this machine has no such device");
    LATHE_TRY(lathe__values(s, NULL, &defaults));
    lathe_value *values = lathe__memory(s, s->plugin->n_fields * (int64_t)sizeof *values);
    int32_t refused = 0;
    for (int32_t i = 0; i < 2 * s->plugin->n_fields; i++) {
        const lathe_field *f = &s->plugin->fields[i / 2];
        const double bound = i % 2 ? f->max : f->min;
        if ((f->type != LATHE_T_INT && f->type != LATHE_T_FLOAT) || f->min > f->max ||
            !isfinite(bound) || fabs(bound) > 1e15)
            continue;
        memcpy(values, defaults, (size_t)s->plugin->n_fields * sizeof *values);
        const int open = f->flags & (i % 2 ? LATHE_FIELD_MAX_EXCLUSIVE : LATHE_FIELD_MIN_EXCLUSIVE);
        const double x = open ? nextafter(bound, i % 2 ? f->min : f->max) : bound;
        values[i / 2].is_set = values[i / 2].is_explicit = 1;
        values[i / 2].type = f->type;
        values[i / 2].f = x;
        values[i / 2].i = f->type == LATHE_T_INT ? (int64_t)x : 0;
        lathe_error_clear();
        if (create_and_destroy(s->plugin, values) == LATHE_OK)
            continue;
        if (lathe_error_message()[0] == '\0')
            return lathe_error(LATHE_E_PLUGIN, "refused %s = %g without a message", f->key, x);
        refused++;
    }
    if (refused > 0)
        lathe__note(s, "%d refused, each with a message", refused);
    return LATHE_OK;
}

/* Sets field f to a value that is not the one in `value`: another number of its range, choice or
 * truth. Returns 0 if there is none. */
static int other_value(const lathe_field *f, lathe_value *value)
{
    const double before = value->type == LATHE_T_INT ? (double)value->i : value->f;
    value->is_set = value->is_explicit = 1;
    value->type = f->type;
    if (f->type == LATHE_T_BOOL) {
        value->i = !value->i;
        return 1;
    }
    if ((f->type != LATHE_T_INT && f->type != LATHE_T_FLOAT) || f->min > f->max ||
        !isfinite(f->min) || fabs(f->min) > 1e15)
        return 0;
    const double top = isfinite(f->max) && fabs(f->max) < 1e15 ? f->max : f->min + 2;
    double x = f->type == LATHE_T_INT ? floor((f->min + top) / 2) : (f->min + top) / 2;
    if (!(x > before) && !(x < before))
        x = f->type == LATHE_T_INT ? f->min : (f->min + x) / 2;
    value->f = x;
    value->i = f->type == LATHE_T_INT ? (int64_t)x : 0;
    return x > before || x < before;
}

/* Makes and destroys instances with one other setting each, and compares the plugin's static memory
 * after each with `before`, unless that is NULL. */
static lathe_status vary_settings(lathe__subject *s, const lathe_value *defaults,
                                  lathe_value *values, const lathe__static_copy *before)
{
    for (int32_t i = 0; i <= s->plugin->n_fields; i++) { /* the last: the defaults again */
        lathe__static_copy after;
        if (s->plugin->n_fields > 0)
            memcpy(values, defaults, (size_t)s->plugin->n_fields * sizeof *values);
        if (i < s->plugin->n_fields && !other_value(&s->plugin->fields[i], &values[i]))
            continue;
        (void)create_and_destroy(s->plugin, values); /* it may refuse it */
        if (before == NULL)
            continue;
        lathe__static_copy_take(s->plugin, &after);
        const int64_t at = lathe__static_copy_differs(before, &after);
        lathe__static_copy_fini(&after);
        if (at >= 0)
            return lathe_error(LATHE_E_PLUGIN,
                               "create() with another %s changes byte %lld of the plugin's static "
                               "memory: what an instance is told belongs in the instance",
                               i < s->plugin->n_fields ? s->plugin->fields[i].key : "instance",
                               (long long)at);
    }
    return LATHE_OK;
}

/* Instances share the plugin's static memory, so settings that are kept there are those of the
 * last instance. The first round lets the plugin prepare what it prepares once. */
static lathe_status settings_stay_in_the_instance(lathe__subject *s)
{
    const lathe_value *defaults;
    lathe_instance instance;
    lathe__static_copy before;
    if (s->plugin->kind == LATHE_KIND_DEVICE || s->plugin->kind == LATHE_KIND_COLLECTIVE)
        return lathe__skip(s, "it stands for hardware, which is shared");
    LATHE_TRY(lathe__values(s, NULL, &defaults));
    lathe_value *values = lathe__memory(s, s->plugin->n_fields * (int64_t)sizeof *values);
    LATHE_TRY(vary_settings(s, defaults, values, NULL));
    LATHE_TRY(lathe__instance(s, &instance));
    lathe__static_copy_take(s->plugin, &before);
    const lathe_status status = vary_settings(s, defaults, values, &before);
    lathe__static_copy_fini(&before);
    lathe_instance_fini(&instance);
    return status;
}

const lathe__check *lathe__checks_common(void)
{
    static const lathe__check checks[] = {
        {"describes_itself", describes_itself, 0},
        {"documents_its_keys", documents_its_keys, 0},
        {"makes_an_instance", makes_an_instance, 0},
        {"makes_many_instances", makes_many_instances, 0},
        {"refuses_bad_values", refuses_bad_values, 0},
        {"survives_extreme_values", survives_extreme_values, 0},
        {"settings_stay_in_the_instance", settings_stay_in_the_instance, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
