/* A rank that trains step by step, and prints loss and norm of the gradients of the last step:
 * step_program RUN.toml SETTING... */
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
    lathe_step_result s = {.size = (uint32_t)sizeof s};
    if (argc < 2)
        return 2;
    expect(lathe_run_open(argv[1], argc - 2, (const char *const *)(argv + 2), &run), "open");
    for (int i = 0; i < 4; i++) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        expect(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f), "forward");
        expect(lathe_backward(run, NULL), "backward");
        expect(lathe_step(run, &s), "step");
    }
    lathe_run_close(run);
    (void)printf("loss %.9g norm %.9g\n", s.loss, s.grad_norm);
    return 0;
}
