/* Opens cuDNN libraries: which are accepted, and the one-line message for the others. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cudnn_library.h"

static int32_t opened(const char *name, char *why, int64_t why_bytes)
{
    cudnn_library lib;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", FAKE_FOLDER, name);
    why[0] = '\0';
    return cudnn_library_open(&lib, path, why, why_bytes);
}

Test(cudnn_library, refusals_are_one_line_that_says_why)
{
    static const char *const cases[][2] = {
        {"libabsent.so.9", "cuDNN 9 cannot be opened: "},
        {"libcudnn_lacks.so", "undefined symbol: cudnnBackendExecute"},
        {"libcudnn_91500.so", "cuDNN is 9.15.0, a 9 from 9.15.1 on is needed"},
        {"libcudnn_100000.so", "cuDNN is 10.0.0, a 9 from 9.15.1 on is needed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char why[192];
        cr_assert(!opened(cases[i][0], why, sizeof why), "%s", cases[i][0]);
        cr_assert(strstr(why, cases[i][1]), "%s: %s", cases[i][0], why);
        cr_assert(strchr(why, '\n') == NULL);
        char cut[16];
        cr_assert(!opened(cases[i][0], cut, sizeof cut) && strlen(cut) == 15);
    }
}

Test(cudnn_library, the_oldest_that_is_good_is_taken)
{
    char why[192];
    cr_assert(opened("libcudnn_91501.so", why, sizeof why), "%s", why);
    cr_assert(why[0] == '\0');
}
