/* A rank that loads one folder and saves another: reshard_program RUN.toml FROM TO SETTING... */
#include <stdio.h>
#include <stdlib.h>

#include "lathe/lathe.h"

static void expect(lathe_status status, const char *what)
{
    if (status == LATHE_OK)
        return;
    (void)fprintf(stderr, "%s: %s (%d)\n", what, lathe_last_error(), status);
    (void)fflush(stderr);
    abort(); /* mpirun ends the others */
}

int main(int argc, char **argv)
{
    lathe_run *run = NULL;
    if (argc < 4)
        return 2;
    expect(lathe_run_open(argv[1], argc - 4, (const char *const *)(argv + 4), &run), "open");
    expect(lathe_load(run, argv[2]), "load");
    expect(lathe_save(run, argv[3]), "save");
    lathe_run_close(run);
    return 0;
}
