/* libFuzzer target: any bytes as a plugin's file, whose ELF headers are read before the dynamic
 * loader sees it. An accepted file has an entry of a size that fits in the file. */
#include <stdlib.h>
#include <string.h>

#include "plug/elf_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_elf_facts facts = {0};
    if (lathe_elf_check(data, (int64_t)size, &facts) != LATHE_OK)
        return 0;
    if (facts.entry_bytes < 0 || (facts.uses_origin != 0 && facts.uses_origin != 1))
        abort();
    return 0;
}
