/* Structs of older and newer callers of the C API. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/api_struct.h"
#include "base/error.h"

typedef struct figures {
    uint32_t size;
    int32_t a;
    double b;
    double later; /* added by a newer header */
} figures;

enum { OLD = 16 };

Test(api_struct, an_older_caller_gets_what_it_knows_and_no_more)
{
    figures mine = {.size = OLD, .later = 7.0};
    const figures result = {.size = sizeof result, .a = 1, .b = 2.0, .later = 3.0};
    cr_assert_eq(lathe_struct_check(&mine, "figures", OLD), LATHE_OK);
    lathe_struct_write(&mine, &result, sizeof result);
    cr_expect_eq(mine.size, OLD);
    cr_expect_eq(mine.a, 1);
    cr_expect_eq(mine.b, 2.0);
    cr_expect_eq(mine.later, 7.0, "memory past the caller's struct is not written");
}

Test(api_struct, a_newer_caller_keeps_what_the_library_does_not_know)
{
    struct {
        figures known;
        double newest;
    } mine = {.known.size = sizeof mine, .newest = 5.0};
    const figures result = {.size = sizeof result, .later = 3.0};
    lathe_struct_write(&mine, &result, sizeof result);
    cr_expect_eq(mine.known.size, sizeof mine);
    cr_expect_eq(mine.known.later, 3.0);
    cr_expect_eq(mine.newest, 5.0);
}

Test(api_struct, an_older_input_is_read_with_zeros_after_its_end)
{
    const figures given = {.size = OLD, .a = 4, .b = 0.5, .later = 9.0};
    figures read;
    memset(&read, 0xff, sizeof read);
    cr_assert_eq(lathe_struct_read(&given, "figures", OLD, &read, sizeof read), LATHE_OK);
    cr_expect_eq(read.size, sizeof read);
    cr_expect_eq(read.a, 4);
    cr_expect_eq(read.b, 0.5);
    cr_expect_eq(read.later, 0.0);
}

Test(api_struct, a_size_that_was_not_set_is_refused_by_name)
{
    const figures given = {.size = 0};
    figures read;
    cr_expect_eq(lathe_struct_read(&given, "figures", OLD, &read, sizeof read), LATHE_E_ARG);
    cr_expect_not_null(
        strstr(lathe_error_message(), "figures.size is 0; expected sizeof(figures)"));
    cr_expect_eq(lathe_struct_check(&given, "figures", OLD), LATHE_E_ARG);
}
