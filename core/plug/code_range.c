/* Where the code of each opened plugin lies. */
#include "plug/code_range.h"

#include <link.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/printable.h"

enum { MAX_PLUGINS = 512, PATH_BYTES = 512 };

typedef struct range {
    uintptr_t begin, end;
    char path[PATH_BYTES];
} range;

static range ranges[MAX_PLUGINS];
static atomic_int n_ranges; /* a handler sees whole ranges alone */

static int find_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    range *r = arg; /* begin: the address that is looked for */
    uintptr_t begin = UINTPTR_MAX, end = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        if (part->p_type != PT_LOAD)
            continue;
        begin = from < begin ? from : begin;
        end = to > end ? to : end;
    }
    if (r->begin < begin || r->begin >= end)
        return 0;
    r->begin = begin;
    r->end = end;
    return 1;
}

void lathe_code_range_add(const lathe_plugin *plugin, const char *path)
{
    const int n = atomic_load(&n_ranges);
    if (n == MAX_PLUGINS)
        return;
    range *r = &ranges[n];
    r->begin = (uintptr_t)plugin;
    r->end = 0;
    if (dl_iterate_phdr(find_object, r) == 0)
        return;
    lathe_printable_copy(r->path, sizeof r->path, path);
    atomic_store(&n_ranges, n + 1);
}

const char *lathe_code_range_find(const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    const int n = atomic_load(&n_ranges);
    for (int i = 0; i < n; i++)
        if (at >= ranges[i].begin && at < ranges[i].end)
            return ranges[i].path;
    return NULL;
}
