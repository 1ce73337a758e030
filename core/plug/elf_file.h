/* Checks the ELF headers of a plugin's file before the dynamic loader sees it. */
#ifndef LATHE_PLUG_ELF_FILE_H
#define LATHE_PLUG_ELF_FILE_H

#include "lathe/status.h"

/** Facts from the headers of an accepted plugin. */
typedef struct lathe_elf_facts {
    int64_t entry_bytes; /* size of the exported constant */
    int32_t uses_origin; /* 1: its run path contains $ORIGIN */
} lathe_elf_facts;

/** Checks the bytes of a whole file: a 64-bit ELF shared library for this machine, whose segments,
 *  notes, dynamic section and symbols are inside the file, and whose only exported symbol is the
 *  data object LATHE_PLUGIN_ENTRY_NAME. Symbols with a leading underscore belong to the compiler,
 *  the linker or a sanitizer and are not counted. A library that calls exit, _exit, _Exit or
 *  quick_exit is refused: a plugin must not end the process.
 *
 *  Any content is safe to pass: every offset is checked against `bytes` before it is used, and no
 *  code of the file runs. A file that passes may still be refused, or crash, when it is loaded.
 *  Errors: LATHE_E_PLUGIN with the first rule that is broken, without the path. */
lathe_status lathe_elf_check(const uint8_t *data, int64_t bytes, lathe_elf_facts *out);

#endif
