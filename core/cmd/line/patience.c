/* Sets how the threads of the pool wait for each other. */
#include "cmd/line/patience.h"

#include <stdlib.h>
#include <unistd.h>

void lathe_cli_wait_patiently(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (setenv("OMP_WAIT_POLICY", "passive", 1) == 0)
        (void)execv("/proc/self/exe", argv);
}
