/* libFuzzer target: any bytes as a safetensors file. What opens must lie inside its input. */
#include <stdlib.h>

#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_safetensors *set = NULL;
    if (lathe_safetensors_parse("fuzz", data, (int64_t)size, &set) != LATHE_OK)
        return 0;
    for (int64_t i = 0; i < lathe_safetensors_count(set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(set, i);
        const uint8_t *begin = t->data;
        const int64_t bytes = lathe_desc_bytes(&t->desc);
        if (begin < data || bytes < 0 || begin + bytes > data + size ||
            lathe_safetensors_find(set, t->name) != t)
            abort();
    }
    lathe_safetensors_close(set);
    return 0;
}
