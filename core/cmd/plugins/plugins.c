/* Finds kinds by name, and prints refused plugins. */
#include "cmd/plugins/plugins.h"

#include <stdio.h>

#include "base/error.h"
#include "base/print.h"
#include "plug/kind.h"
#include "plug/suggest.h"

lathe_status lathe_plugcmd_kind(const char *typed, int32_t *out)
{
    *out = lathe_kind_id(typed);
    if (*out != 0)
        return LATHE_OK;
    const char *names[LATHE_N_KINDS];
    char list[256] = "";
    int at = 0;
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++) {
        names[kind - 1] = lathe_kind_name(kind);
        at += snprintf(list + at, sizeof list - (size_t)at, " %s", names[kind - 1]);
    }
    const char *near = lathe_suggest(typed, names, LATHE_N_KINDS - 1);
    if (near != NULL)
        return lathe_error_suggest(lathe_error(LATHE_E_ARG, "unknown kind '%s'", typed), near);
    return lathe_error(LATHE_E_ARG, "unknown kind '%s', expected one of:%s", typed, list);
}

void lathe_plugcmd_print_refusals(const lathe_registry *registry, int with_notes)
{
    int64_t n;
    const lathe_refusal *refusals = lathe_registry_refusals(registry, &n);
    for (int64_t i = 0; i < n; i++)
        if (refusals[i].kind != 0 &&
            (with_notes || !refusals[i].is_note)) /* refused folders were warned about before */
            lathe_print_to(stderr, "lathe: %s: %s\n", refusals[i].is_note ? "note" : "warning",
                           refusals[i].reason);
}
