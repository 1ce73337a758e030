/* Types of tensors in GGUF files. */
#include "files/gguf/gguf_type.h"

#include <stddef.h>

static const lathe_gguf_type types[] = {
    {LATHE_GGUF_F32, "F32", 1, 4, 1},           {LATHE_GGUF_F16, "F16", 1, 2, 1},
    {LATHE_GGUF_BF16, "BF16", 1, 2, 1},         {LATHE_GGUF_Q4_0, "Q4_0", 32, 18, 1},
    {LATHE_GGUF_Q4_1, "Q4_1", 32, 20, 0},       {LATHE_GGUF_Q5_0, "Q5_0", 32, 22, 1},
    {LATHE_GGUF_Q5_1, "Q5_1", 32, 24, 0},       {LATHE_GGUF_Q8_0, "Q8_0", 32, 34, 1},
    {LATHE_GGUF_Q4_K, "Q4_K", 256, 144, 1},     {LATHE_GGUF_Q5_K, "Q5_K", 256, 176, 0},
    {LATHE_GGUF_Q6_K, "Q6_K", 256, 210, 1},     {LATHE_GGUF_Q2_K, "Q2_K", 256, 84, 0},
    {LATHE_GGUF_Q3_K, "Q3_K", 256, 110, 0},     {LATHE_GGUF_IQ4_NL, "IQ4_NL", 32, 18, 0},
    {LATHE_GGUF_IQ4_XS, "IQ4_XS", 256, 136, 0}, {LATHE_GGUF_MXFP4, "MXFP4", 32, 17, 0},
};

/* By number; NULL: a number that is free or no longer used. */
static const char *const names[] = {
    "F32",     "F16",   "Q4_0",   "Q4_1",  NULL,    NULL,     "Q5_0", "Q5_1",    "Q8_0",
    "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K", "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "BF16",  NULL,    NULL,     NULL,   "TQ1_0",   "TQ2_0",
    NULL,      NULL,    NULL,     "MXFP4", "NVFP4", "Q1_0",
};

const lathe_gguf_type *lathe_gguf_type_of(int32_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

const char *lathe_gguf_type_name(int64_t type)
{
    return type >= 0 && type < (int64_t)(sizeof names / sizeof names[0]) ? names[type] : NULL;
}

int64_t lathe_gguf_row_bytes(const lathe_gguf_type *type, int64_t cols)
{
    return cols / type->block * type->bytes;
}
