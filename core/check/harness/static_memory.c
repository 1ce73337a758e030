/* The static memory of a plugin: the writable parts of its shared object. */
#include "check/harness/static_memory.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 28 };

typedef struct search {
    uintptr_t constant; /* of the plugin that is looked for */
    lathe__static_copy *out;
} search;

static int contains(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && address >= begin && address < begin + part->p_memsz)
            return 1;
    }
    return 0;
}

/* Copies bytes of variables, and of what lies between them: AddressSanitizer puts its red zones
 * there, which only a function without its checks may read. volatile keeps the compiler from
 * calling memcpy, which has them. */
__attribute__((no_sanitize("address"))) static void
copy(unsigned char *to, const volatile unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}

/* Appends a range; a copy that would be too large stays as it is. */
static void append(lathe__static_copy *out, uintptr_t from, size_t n)
{
    unsigned char *bytes =
        out->n + (int64_t)n <= MAX_BYTES ? realloc(out->bytes, (size_t)out->n + n) : NULL;
    if (bytes == NULL)
        return;
    copy(bytes + out->n, (const volatile unsigned char *)from, n);
    out->bytes = bytes;
    out->n += (int64_t)n;
}

static int take_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    const search *x = arg;
    (void)size;
    if (!contains(info, x->constant))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_W) && part->p_memsz > 0)
            append(x->out, info->dlpi_addr + part->p_vaddr, part->p_memsz);
    }
    return 1;
}

void lathe__static_copy_take(const lathe_plugin *plugin, lathe__static_copy *out)
{
    search x = {(uintptr_t)plugin, out};
    *out = (lathe__static_copy){NULL, 0};
    (void)dl_iterate_phdr(take_object, &x);
}

void lathe__static_copy_fini(lathe__static_copy *copy)
{
    free(copy->bytes);
    *copy = (lathe__static_copy){NULL, 0};
}

int64_t lathe__static_copy_differs(const lathe__static_copy *a, const lathe__static_copy *b)
{
    const int64_t n = a->n < b->n ? a->n : b->n;
    for (int64_t i = 0; i < n; i++)
        if (a->bytes[i] != b->bytes[i])
            return i;
    return -1;
}
