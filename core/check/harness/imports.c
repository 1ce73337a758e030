/* Counts a shared object's calls of the C library by replacing their addresses with those of
 * counting functions.
 *
 * Every call to another library goes through a slot that the dynamic linker filled (ELF relocations
 * JUMP_SLOT and GLOB_DAT). Replacing the address in that slot affects only this plugin, works
 * together with a sanitizer's allocator, and needs no second library. */
#include "check/harness/imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_llong taken, printed, started;

int64_t lathe__imports_heap(void)
{
    return atomic_load(&taken);
}

int64_t lathe__imports_prints(void)
{
    return atomic_load(&printed);
}

int64_t lathe__imports_threads(void)
{
    return atomic_load(&started);
}

static void *counted_malloc(size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return malloc(bytes);
}

static void *counted_calloc(size_t n, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return calloc(n, bytes);
}

static void *counted_realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return realloc(memory, bytes);
}

static void *counted_aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return aligned_alloc(alignment, bytes);
}

static int counted_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return posix_memalign(out, alignment, bytes);
}

static char *counted_strdup(const char *text)
{
    atomic_fetch_add(&taken, 1);
    return strdup(text);
}

static char *counted_strndup(const char *text, size_t n)
{
    atomic_fetch_add(&taken, 1);
    return strndup(text, n);
}

static void *counted_reallocarray(void *memory, size_t n, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return reallocarray(memory, n, bytes);
}

static int counted_vasprintf(char **out, const char *text, va_list args)
{
    atomic_fetch_add(&taken, 1);
    return vasprintf(out, text, args);
}

static int counted_asprintf(char **out, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    const int n = counted_vasprintf(out, text, args);
    va_end(args);
    return n;
}

static int counted_asprintf_chk(char **out, int flag, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    (void)flag;
    const int n = counted_vasprintf(out, text, args);
    va_end(args);
    return n;
}

static void *counted_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    atomic_fetch_add(&taken, 1);
    return mmap(at, bytes, protection, flags, fd, offset);
}

static FILE *counted_fopen(const char *path, const char *mode)
{
    atomic_fetch_add(&taken, 1);
    return fopen(path, mode);
}

static int counted_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                                  void *(*body)(void *), void *arg)
{
    atomic_fetch_add(&started, 1);
    return pthread_create(out, attributes, body, arg);
}

/* Calls that print are counted but print nothing, so that the report stays readable. */

static int counted_print(const char *text, ...)
{
    (void)text;
    atomic_fetch_add(&printed, 1);
    return 0;
}

static int counted_vprint(const char *text, va_list args)
{
    (void)text, (void)args;
    atomic_fetch_add(&printed, 1);
    return 0;
}

static int counted_print_chk(int flag, const char *text, ...)
{
    (void)flag, (void)text;
    atomic_fetch_add(&printed, 1);
    return 0;
}

static int counted_putchar(int byte)
{
    atomic_fetch_add(&printed, 1);
    return byte;
}

static int is_terminal(const FILE *stream)
{
    return stream == stdout || stream == stderr;
}

static int counted_fprintf(FILE *stream, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    atomic_fetch_add(&printed, is_terminal(stream));
    const int n = is_terminal(stream) ? 0 : vfprintf(stream, text, args);
    va_end(args);
    return n;
}

static int counted_fprintf_chk(FILE *stream, int flag, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    (void)flag;
    atomic_fetch_add(&printed, is_terminal(stream));
    const int n = is_terminal(stream) ? 0 : vfprintf(stream, text, args);
    va_end(args);
    return n;
}

static int counted_vfprintf(FILE *stream, const char *text, va_list args)
{
    atomic_fetch_add(&printed, is_terminal(stream));
    return is_terminal(stream) ? 0 : vfprintf(stream, text, args);
}

static int counted_vfprintf_chk(FILE *stream, int flag, const char *text, va_list args)
{
    (void)flag;
    return counted_vfprintf(stream, text, args);
}

static int counted_fputs(const char *text, FILE *stream)
{
    atomic_fetch_add(&printed, is_terminal(stream));
    return is_terminal(stream) ? 0 : fputs(text, stream);
}

static int counted_fputc(int byte, FILE *stream)
{
    atomic_fetch_add(&printed, is_terminal(stream));
    return is_terminal(stream) ? byte : fputc(byte, stream);
}

static size_t counted_fwrite(const void *from, size_t bytes, size_t n, FILE *stream)
{
    atomic_fetch_add(&printed, is_terminal(stream));
    return is_terminal(stream) ? n : fwrite(from, bytes, n, stream);
}

static ssize_t counted_write(int fd, const void *from, size_t bytes)
{
    const int terminal = fd == STDOUT_FILENO || fd == STDERR_FILENO;
    atomic_fetch_add(&printed, terminal);
    return terminal ? (ssize_t)bytes : write(fd, from, bytes);
}

typedef struct counted {
    const char *name;
    void (*replacement)(void);
} counted;

#define OURS(name, function)                                                                       \
    {                                                                                              \
        name, (void (*)(void))(function)                                                           \
    }
static const counted functions[] = {
    OURS("malloc", counted_malloc),
    OURS("calloc", counted_calloc),
    OURS("realloc", counted_realloc),
    OURS("aligned_alloc", counted_aligned_alloc),
    OURS("memalign", counted_aligned_alloc),
    OURS("posix_memalign", counted_posix_memalign),
    OURS("strdup", counted_strdup),
    OURS("strndup", counted_strndup),
    OURS("reallocarray", counted_reallocarray),
    OURS("asprintf", counted_asprintf),
    OURS("__asprintf_chk", counted_asprintf_chk),
    OURS("vasprintf", counted_vasprintf),
    OURS("mmap", counted_mmap),
    OURS("fopen", counted_fopen),
    OURS("pthread_create", counted_pthread_create),
    OURS("printf", counted_print),
    OURS("vprintf", counted_vprint),
    OURS("__printf_chk", counted_print_chk),
    OURS("puts", counted_print),
    OURS("perror", counted_print),
    OURS("putchar", counted_putchar),
    OURS("fprintf", counted_fprintf),
    OURS("__fprintf_chk", counted_fprintf_chk),
    OURS("vfprintf", counted_vfprintf),
    OURS("__vfprintf_chk", counted_vfprintf_chk),
    OURS("fputs", counted_fputs),
    OURS("fputc", counted_fputc),
    OURS("putc", counted_fputc),
    OURS("fwrite", counted_fwrite),
    OURS("write", counted_write),
};

/* Writes one slot; makes a read-only one (RELRO) writable for that time. */
static void exchange(void *slot, void (*function)(void))
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *begin = (void *)((uintptr_t)slot / page * page);
    if (mprotect(begin, page, PROT_READ | PROT_WRITE) == 0)
        memcpy(slot, &function, sizeof function);
}

/* The entries of the dynamic section that give the addresses of slots and names. */
typedef struct tables {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * lists[2];
    size_t bytes[2];
} tables;

static tables find_tables(const struct link_map *object)
{
    tables t = {0};
    for (const ElfW(Dyn) *d = object->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            t.symbols = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            t.names = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_RELA)
            t.lists[0] = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_RELASZ)
            t.bytes[0] = d->d_un.d_val;
        else if (d->d_tag == DT_JMPREL)
            t.lists[1] = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_PLTRELSZ)
            t.bytes[1] = d->d_un.d_val;
    }
    return t;
}

static int is_slot(const ElfW(Rela) * r)
{
#if defined(__x86_64__)
    return ELF64_R_TYPE(r->r_info) == R_X86_64_JUMP_SLOT ||
           ELF64_R_TYPE(r->r_info) == R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
    return ELF64_R_TYPE(r->r_info) == R_AARCH64_JUMP_SLOT ||
           ELF64_R_TYPE(r->r_info) == R_AARCH64_GLOB_DAT;
#else
    return 0 && r->r_info;
#endif
}

void lathe__imports_watch(const lathe_plugin *plugin)
{
    Dl_info info;
    struct link_map *object = NULL;
    if (dladdr1(plugin, &info, (void **)&object, RTLD_DL_LINKMAP) == 0 || object == NULL)
        return;
    const tables t = find_tables(object);
    for (int k = 0; k < 2 && t.symbols != NULL && t.names != NULL; k++)
        for (size_t i = 0; t.lists[k] != NULL && i < t.bytes[k] / sizeof *t.lists[k]; i++) {
            const ElfW(Rela) *r = &t.lists[k][i];
            const ElfW(Sym) *symbol = &t.symbols[ELF64_R_SYM(r->r_info)];
            if (!is_slot(r) || symbol->st_shndx != SHN_UNDEF)
                continue;
            for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++)
                if (strcmp(t.names + symbol->st_name, functions[f].name) == 0)
                    exchange((char *)object->l_addr + r->r_offset, functions[f].replacement);
        }
}
