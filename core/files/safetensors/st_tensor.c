/* Converts dtypes to and from their names in safetensors files. */
#include "files/safetensors/st_tensor.h"

#include <string.h>

static const struct {
    const char *text;
    int32_t dtype;
} dtype_names[] = {
    {"F32", LATHE_F32},    {"BF16", LATHE_BF16},       {"F16", LATHE_F16},
    {"F64", LATHE_F64},    {"I8", LATHE_I8},           {"U8", LATHE_U8},
    {"I32", LATHE_I32},    {"I64", LATHE_I64},         {"BOOL", LATHE_BOOL},
    {"I16", LATHE_I16},    {"F8_E4M3", LATHE_F8_E4M3}, {"F8_E5M2", LATHE_F8_E5M2},
    {"F8_E8M0", LATHE_U8}, /* an exponent byte, read as a plain byte */
};

const char *lathe_st_dtype_text(int32_t dtype)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof dtype_names[0]; i++)
        if (dtype_names[i].dtype == dtype)
            return dtype_names[i].text;
    return NULL;
}

int32_t lathe_st_dtype_find(const char *text)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof dtype_names[0]; i++)
        if (strcmp(dtype_names[i].text, text) == 0)
            return dtype_names[i].dtype;
    return -1;
}
