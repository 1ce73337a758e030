/* The library's version, as text. */
#include "lathe/abi.h"

LATHE_EXPORT const char *lathe_version(void);

/** "0.1.0": the version of liblathe that is running. */
const char *lathe_version(void)
{
    return LATHE_VERSION;
}
