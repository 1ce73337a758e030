/* Runs for tests: opened from a golden model folder or a small random model, batches by hand. */
#ifndef LATHE_TEST_RUN_CASE_H
#define LATHE_TEST_RUN_CASE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/safetensors.h"
#include "open_options.h"
#include "run/open/opening.h"
#include "run/state/run_state.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())
#define MODELS LATHE_TEST_DATA "/golden/data/models/"

#define MAX_SETTINGS 48

/* Opens a run from "key=value" settings, NULL-terminated; returns the status. */
__attribute__((unused)) static lathe_status
open_run_status(int32_t mode, const char *const *settings, lathe_run **out)
{
    lathe_override list[MAX_SETTINGS];
    static char keys[MAX_SETTINGS][128];
    int32_t n = 0;
    for (; settings[n]; n++) {
        const char *equals = strchr(settings[n], '=');
        cr_assert(equals && n < MAX_SETTINGS);
        snprintf(keys[n], sizeof keys[n], "%.*s", (int)(equals - settings[n]), settings[n]);
        list[n] = (lathe_override){keys[n], equals + 1};
    }
    return open_options(NULL, list, n, mode, out);
}

/* Opens a run whose settings must work. */
__attribute__((unused)) static lathe_run *open_run(int32_t mode, const char *const *settings)
{
    lathe_run *run = NULL;
    OK(open_run_status(mode, settings, &run));
    return run;
}

/* Checks |got - want| <= tolerance * max |want| for each element. */
__attribute__((unused)) static void compare(const char *what, const float *got, const float *want,
                                            int64_t n, double tolerance)
{
    double scale = 0.0, worst = 0.0;
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs((double)got[i] - (double)want[i]);
        worst = error > worst || isnan(error) ? error : worst;
    }
    cr_assert(worst <= tolerance * scale, "%s: error %g of largest %g exceeds %g relative", what,
              worst, scale, tolerance);
}

#endif
