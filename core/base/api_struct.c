/* Reads and writes structs that callers of the C API pass, across versions. */
#include "base/api_struct.h"

#include <string.h>

#include "base/error.h"

/* The first member of a struct of the C API, which is its size in the caller's header. */
static uint32_t caller_size(const void *any)
{
    uint32_t size;
    memcpy(&size, any, sizeof size);
    return size;
}

lathe_status lathe_struct_check(const void *out, const char *name, int64_t least)
{
    if ((int64_t)caller_size(out) >= least)
        return LATHE_OK;
    return lathe_error(LATHE_E_ARG,
                       "%s.size is %u; expected sizeof(%s), at least %lld: set it before the call",
                       name, caller_size(out), name, (long long)least);
}

lathe_status lathe_struct_read(const void *in, const char *name, int64_t least, void *out,
                               int64_t bytes)
{
    const uint32_t whole = (uint32_t)bytes;
    LATHE_TRY(lathe_struct_check(in, name, least));
    memset(out, 0, (size_t)bytes);
    memcpy(out, in, caller_size(in) < whole ? caller_size(in) : whole);
    memcpy(out, &whole, sizeof whole);
    return LATHE_OK;
}

void lathe_struct_write(void *out, const void *result, int64_t bytes)
{
    const int64_t theirs = caller_size(out), n = theirs < bytes ? theirs : bytes;
    const int64_t skip = (int64_t)sizeof(uint32_t);
    if (n > skip)
        memcpy((char *)out + skip, (const char *)result + skip, (size_t)(n - skip));
}
