/* Checks the ELF headers of a plugin's file. Each offset from the file is checked before it is
 * used. */
#include "plug/elf_file.h"

#include <elf.h>
#include <string.h>

#include "base/error.h"
#include "lathe/plugin.h"

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#define OWN_MACHINE_NAME "x86-64"
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#define OWN_MACHINE_NAME "aarch64"
#else
#error "name this machine's ELF number here"
#endif

/* 104: size of lathe_plugin in ABI 1.0; later versions are longer. */
enum { MAX_SEGMENTS = 64, MAX_SYMBOLS = 1 << 20, NAME_BYTES = 80, MIN_ENTRY_BYTES = 104 };

/* The file, and facts collected while checking it. */
typedef struct image {
    const uint8_t *data;
    uint64_t bytes;
    Elf64_Ehdr header;
    Elf64_Phdr segments[MAX_SEGMENTS];
    /* From the dynamic section, addresses as in the file; 0: absent. */
    uint64_t strings, strings_bytes, symbols, hash, gnu_hash;
    uint64_t entry_bytes;
    uint64_t run_path[2]; /* offsets in the strings; UINT64_MAX: absent */
} image;

static int lies_inside(uint64_t offset, uint64_t bytes, uint64_t limit)
{
    return bytes <= limit && offset <= limit - bytes;
}

static lathe_status truncated(const image *im, const char *what)
{
    return lathe_error(LATHE_E_PLUGIN,
                       "the file is truncated or damaged: its %s is outside its %llu bytes; build "
                       "or copy it again",
                       what, (unsigned long long)im->bytes);
}

/* Returns `bytes` of the file at a virtual address, or NULL. */
static const uint8_t *at_address(const image *im, uint64_t address, uint64_t bytes)
{
    for (int i = 0; i < im->header.e_phnum; i++) {
        const Elf64_Phdr *s = &im->segments[i];
        if (s->p_type == PT_LOAD && address >= s->p_vaddr &&
            lies_inside(address - s->p_vaddr, bytes, s->p_filesz))
            return im->data + s->p_offset + (address - s->p_vaddr);
    }
    return NULL;
}

static lathe_status check_identity(image *im)
{
    if (im->bytes == 0)
        return lathe_error(LATHE_E_PLUGIN, "the file is empty");
    if (im->bytes < SELFMAG || memcmp(im->data, ELFMAG, SELFMAG) != 0)
        return lathe_error(LATHE_E_PLUGIN, "not a shared library: it is not an ELF file");
    if (im->bytes < sizeof im->header)
        return truncated(im, "ELF header");
    memcpy(&im->header, im->data, sizeof im->header);
    const Elf64_Ehdr *h = &im->header;
    if (h->e_ident[EI_CLASS] != ELFCLASS64)
        return lathe_error(LATHE_E_PLUGIN, "a 32-bit library; this Lathe loads 64-bit ones");
    if (h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_version != EV_CURRENT)
        return lathe_error(LATHE_E_PLUGIN, "not a little-endian ELF file of version 1");
    if (h->e_machine != OWN_MACHINE)
        return lathe_error(LATHE_E_PLUGIN,
                           "built for another processor (ELF machine %d); this Lathe runs on "
                           "%s (%d)",
                           h->e_machine, OWN_MACHINE_NAME, OWN_MACHINE);
    if (h->e_type != ET_DYN)
        return lathe_error(LATHE_E_PLUGIN,
                           "not a shared library (ELF type %d, expected %d); link it with -shared",
                           h->e_type, ET_DYN);
    return LATHE_OK;
}

static int is_power_of_two(uint64_t n)
{
    return (n & (n - 1)) == 0;
}

/* The dynamic loader parses notes before any constructor runs. */
static lathe_status check_notes(const image *im, const Elf64_Phdr *segment)
{
    const uint64_t align = segment->p_align == 8 ? 8 : 4;
    uint64_t at = 0;
    while (at < segment->p_filesz) {
        Elf64_Nhdr note;
        if (!lies_inside(at, sizeof note, segment->p_filesz))
            return truncated(im, "last note");
        memcpy(&note, im->data + segment->p_offset + at, sizeof note);
        const uint64_t name = (note.n_namesz + align - 1) / align * align;
        const uint64_t text = (note.n_descsz + align - 1) / align * align;
        at += sizeof note;
        if (!lies_inside(at, (uint64_t)note.n_namesz, segment->p_filesz) ||
            !lies_inside(at + name, (uint64_t)note.n_descsz, segment->p_filesz))
            return lathe_error(LATHE_E_PLUGIN,
                               "damaged: a note of %u bytes in a segment of %llu bytes",
                               note.n_descsz, (unsigned long long)segment->p_filesz);
        at += name + text;
    }
    return LATHE_OK;
}

static lathe_status check_segment(const image *im, const Elf64_Phdr *s)
{
    if (s->p_type == PT_INTERP)
        return lathe_error(LATHE_E_PLUGIN, "a program and not a library; link it with -shared");
    if (!lies_inside(s->p_offset, s->p_filesz, im->bytes))
        return truncated(im, s->p_type == PT_NOTE ? "note segment" : "program segment");
    if (s->p_type == PT_NOTE)
        return check_notes(im, s);
    if (s->p_type != PT_LOAD)
        return LATHE_OK;
    if (s->p_filesz > s->p_memsz || !lies_inside(s->p_vaddr, s->p_memsz, UINT64_C(1) << 46) ||
        !is_power_of_two(s->p_align) ||
        (s->p_align > 1 && (s->p_vaddr - s->p_offset) % s->p_align != 0))
        return lathe_error(LATHE_E_PLUGIN,
                           "damaged: a segment of %llu bytes at address %llx with alignment %llu",
                           (unsigned long long)s->p_memsz, (unsigned long long)s->p_vaddr,
                           (unsigned long long)s->p_align);
    return LATHE_OK;
}

static lathe_status check_segments(image *im)
{
    const Elf64_Ehdr *h = &im->header;
    if (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phnum == 0 || h->e_phnum > MAX_SEGMENTS)
        return lathe_error(LATHE_E_PLUGIN, "damaged: %d program headers of %d bytes", h->e_phnum,
                           h->e_phentsize);
    if (!lies_inside(h->e_phoff, h->e_phnum * sizeof(Elf64_Phdr), im->bytes))
        return truncated(im, "table of program headers");
    /* The linker puts sections at the end of the file, so a truncated file loses them first. */
    if (h->e_shoff != 0 &&
        !lies_inside(h->e_shoff, (uint64_t)h->e_shnum * h->e_shentsize, im->bytes))
        return truncated(im, "table of sections");
    memcpy(im->segments, im->data + h->e_phoff, h->e_phnum * sizeof(Elf64_Phdr));
    for (int i = 0; i < h->e_phnum; i++)
        LATHE_TRY(check_segment(im, &im->segments[i]));
    return LATHE_OK;
}

static void take_dynamic(image *im, const Elf64_Dyn *entry)
{
    switch (entry->d_tag) {
    case DT_STRTAB:
        im->strings = entry->d_un.d_ptr;
        break;
    case DT_STRSZ:
        im->strings_bytes = entry->d_un.d_val;
        break;
    case DT_SYMTAB:
        im->symbols = entry->d_un.d_ptr;
        break;
    case DT_HASH:
        im->hash = entry->d_un.d_ptr;
        break;
    case DT_GNU_HASH:
        im->gnu_hash = entry->d_un.d_ptr;
        break;
    case DT_RPATH:
        im->run_path[0] = entry->d_un.d_val;
        break;
    case DT_RUNPATH:
        im->run_path[1] = entry->d_un.d_val;
        break;
    default:
        break;
    }
}

static lathe_status read_dynamic(image *im)
{
    const Elf64_Phdr *dynamic = NULL;
    im->run_path[0] = im->run_path[1] = UINT64_MAX;
    for (int i = 0; i < im->header.e_phnum; i++)
        if (im->segments[i].p_type == PT_DYNAMIC)
            dynamic = &im->segments[i];
    if (dynamic == NULL)
        return lathe_error(LATHE_E_PLUGIN, "not a shared library: it has no dynamic section");
    const uint8_t *entries = at_address(im, dynamic->p_vaddr, dynamic->p_filesz);
    if (entries == NULL)
        return truncated(im, "dynamic section");
    int is_ended = 0;
    for (uint64_t at = 0; !is_ended && at + sizeof(Elf64_Dyn) <= dynamic->p_filesz;
         at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        memcpy(&entry, entries + at, sizeof entry);
        is_ended = entry.d_tag == DT_NULL;
        take_dynamic(im, &entry);
    }
    if (!is_ended)
        return lathe_error(LATHE_E_PLUGIN, "damaged: its dynamic section has no end");
    const uint8_t *text = at_address(im, im->strings, im->strings_bytes);
    if (text == NULL || im->strings_bytes == 0 || text[im->strings_bytes - 1] != '\0')
        return truncated(im, "table of symbol names");
    return LATHE_OK;
}

static int read_u32(const image *im, uint64_t address, uint32_t *out)
{
    const uint8_t *at = at_address(im, address, sizeof *out);
    if (at != NULL)
        memcpy(out, at, sizeof *out);
    return at != NULL;
}

/* The GNU hash table does not contain its length: the last chain ends at the last symbol. */
static int count_gnu_symbols(const image *im, uint64_t *out)
{
    uint32_t head[4]; /* buckets, first symbol in a chain, words of the bloom filter, shift */
    for (int i = 0; i < 4; i++)
        if (!read_u32(im, im->gnu_hash + 4u * (unsigned)i, &head[i]))
            return 0;
    const uint64_t buckets = im->gnu_hash + 16 + 8 * (uint64_t)head[2];
    const uint64_t chains = buckets + 4 * (uint64_t)head[0];
    uint32_t last = 0, link = 0;
    if (head[0] > MAX_SYMBOLS || head[2] > MAX_SYMBOLS)
        return 0;
    for (uint32_t i = 0; i < head[0]; i++) {
        uint32_t first;
        if (!read_u32(im, buckets + 4 * (uint64_t)i, &first))
            return 0;
        last = first > last ? first : last;
    }
    *out = head[1];
    if (last < head[1])
        return 1;
    do {
        if (last > MAX_SYMBOLS || !read_u32(im, chains + 4 * (uint64_t)(last - head[1]), &link))
            return 0;
        last++;
    } while (!(link & 1));
    *out = last;
    return 1;
}

static lathe_status count_symbols(const image *im, uint64_t *out)
{
    uint32_t n = 0;
    int known = 0;
    if (im->hash != 0) {
        known = read_u32(im, im->hash + 4, &n);
        *out = n;
    } else if (im->gnu_hash != 0) {
        known = count_gnu_symbols(im, out);
    }
    if (!known || *out > MAX_SYMBOLS)
        return lathe_error(LATHE_E_PLUGIN, "damaged: it has no readable table of symbols");
    return LATHE_OK;
}

static lathe_status check_entry(image *im, const Elf64_Sym *symbol)
{
    const int type = ELF64_ST_TYPE(symbol->st_info);
    if (type != STT_OBJECT)
        return lathe_error(
            LATHE_E_PLUGIN, "exports %s as %s, expected the constant of type lathe_plugin",
            LATHE_PLUGIN_ENTRY_NAME,
            type == STT_FUNC || type == STT_GNU_IFUNC ? "a function" : "something else than data");
    int inside = 0;
    for (int i = 0; i < im->header.e_phnum; i++) {
        const Elf64_Phdr *s = &im->segments[i];
        inside |= s->p_type == PT_LOAD && symbol->st_value >= s->p_vaddr &&
                  lies_inside(symbol->st_value - s->p_vaddr, symbol->st_size, s->p_memsz);
    }
    if (!inside)
        return lathe_error(LATHE_E_PLUGIN, "damaged: %s is in none of its segments",
                           LATHE_PLUGIN_ENTRY_NAME);
    if (symbol->st_size < MIN_ENTRY_BYTES || symbol->st_value % 8 != 0)
        return lathe_error(LATHE_E_PLUGIN,
                           "exports %s of %llu bytes at address %llx, expected a lathe_plugin of "
                           "at least %d",
                           LATHE_PLUGIN_ENTRY_NAME, (unsigned long long)symbol->st_size,
                           (unsigned long long)symbol->st_value, MIN_ENTRY_BYTES);
    im->entry_bytes = symbol->st_size;
    return LATHE_OK;
}

/* Checks one dynamic symbol: an import, the entry, or a second export, which is refused. */
static lathe_status check_symbol(image *im, const Elf64_Sym *symbol, const char *name,
                                 int *io_entries)
{
    if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL)
        return LATHE_OK;
    if (symbol->st_shndx == SHN_UNDEF) {
        static const char *const enders[] = {"exit", "_exit", "_Exit", "quick_exit"};
        for (size_t i = 0; i < sizeof enders / sizeof enders[0]; i++)
            if (strcmp(name, enders[i]) == 0)
                return lathe_error(LATHE_E_PLUGIN,
                                   "calls %s(): a plugin never ends the process; return an error "
                                   "code instead",
                                   name);
        return LATHE_OK;
    }
    if (strcmp(name, LATHE_PLUGIN_ENTRY_NAME) == 0) {
        *io_entries += 1;
        return check_entry(im, symbol);
    }
    if (name[0] == '_' || ELF64_ST_VISIBILITY(symbol->st_other) == STV_HIDDEN)
        return LATHE_OK;
    return lathe_error(LATHE_E_PLUGIN,
                       "exports %.*s beside %s, expected that one symbol alone; compile with "
                       "-fvisibility=hidden",
                       NAME_BYTES, name, LATHE_PLUGIN_ENTRY_NAME);
}

static lathe_status check_symbols(image *im)
{
    uint64_t n = 0;
    int entries = 0;
    LATHE_TRY(count_symbols(im, &n));
    const uint8_t *symbols = at_address(im, im->symbols, n * sizeof(Elf64_Sym));
    const char *names = (const char *)at_address(im, im->strings, im->strings_bytes);
    if (symbols == NULL)
        return truncated(im, "table of symbols");
    lathe_status foreign = LATHE_OK;
    for (uint64_t i = 1; i < n; i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, symbols + i * sizeof symbol, sizeof symbol);
        if (symbol.st_name >= im->strings_bytes)
            return lathe_error(LATHE_E_PLUGIN,
                               "damaged: the name of symbol %llu is outside the table of names",
                               (unsigned long long)i);
        if (foreign == LATHE_OK)
            foreign = check_symbol(im, &symbol, names + symbol.st_name, &entries);
        else if (strcmp(names + symbol.st_name, LATHE_PLUGIN_ENTRY_NAME) == 0)
            entries++;
    }
    if (entries == 0)
        return lathe_error(LATHE_E_PLUGIN, "exports no %s: not a Lathe plugin of ABI major %d",
                           LATHE_PLUGIN_ENTRY_NAME, LATHE_ABI_MAJOR);
    return foreign;
}

lathe_status lathe_elf_check(const uint8_t *data, int64_t bytes, lathe_elf_facts *out)
{
    image im = {.data = data, .bytes = (uint64_t)bytes};
    memset(out, 0, sizeof *out);
    LATHE_TRY(check_identity(&im));
    LATHE_TRY(check_segments(&im));
    LATHE_TRY(read_dynamic(&im));
    LATHE_TRY(check_symbols(&im));
    const char *names = (const char *)at_address(&im, im.strings, im.strings_bytes);
    out->entry_bytes = (int64_t)im.entry_bytes;
    for (int i = 0; i < 2; i++)
        if (im.run_path[i] < im.strings_bytes)
            out->uses_origin |= strstr(names + im.run_path[i], "ORIGIN") != NULL;
    return LATHE_OK;
}
