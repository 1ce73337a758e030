/* The loss scale compared with torch's. */
#include "optim/loss_scale.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Flags and scales of torch.amp.GradScaler (tests/golden/scaler.py), to the bit. */
Test(scaler, follows_torch)
{
    static char line[1 << 14];
    FILE *f = fopen(LATHE_TEST_DATA "/golden/data/scaler.txt", "r");
    int n = 0;
    cr_assert(f);
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        char *at = strtok(line, " \n");
        lathe_scaler s = {.scale = strtof(at, NULL)};
        const int32_t interval = atoi(strtok(NULL, " \n"));
        for (int step = 1; (at = strtok(NULL, " \n")) != NULL; step++, n++) {
            lathe_scaler_update(&s, at[0] == '1', interval);
            cr_assert_eq(s.scale, strtof(at + 2, NULL), "step %d: %a, torch has %s", step,
                         (double)s.scale, at + 2);
        }
    }
    fclose(f);
    cr_assert_gt(n, 300);
}
