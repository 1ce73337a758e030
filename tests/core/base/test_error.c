/* The thread's error record. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"

Test(error, keeps_code_and_message)
{
    cr_assert_eq(lathe_error(LATHE_E_SHAPE, "%s is %d", "rows", 3), LATHE_E_SHAPE);
    cr_assert_str_eq(lathe_error_message(), "rows is 3");
    lathe_error_clear();
    cr_assert_str_eq(lathe_error_message(), "");
}

Test(error, context_goes_before_the_message)
{
    (void)lathe_error(LATHE_E_IO, "cannot read");
    cr_assert_eq(lathe_error_context(LATHE_E_IO, "shard %d", 7), LATHE_E_IO);
    cr_assert_str_eq(lathe_error_message(), "shard 7: cannot read");
}

Test(error, may_quote_its_own_message)
{
    (void)lathe_error(LATHE_E_IO, "inner");
    (void)lathe_error(LATHE_E_PLUGIN, "outer (%s)", lathe_error_message());
    cr_assert_str_eq(lathe_error_message(), "outer (inner)");
}

Test(error, long_messages_are_cut_not_overrun)
{
    char text[9000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)lathe_error(LATHE_E_IO, "%s", text);
    const size_t n = strlen(lathe_error_message());
    cr_assert(n > 1000 && n < 8000);
    (void)lathe_error_context(LATHE_E_IO, "%s", text);
    cr_assert(strlen(lathe_error_message()) < 8000);
    (void)lathe_error(LATHE_E_IO, "%.*s", 4000, text);
    (void)lathe_error_context(LATHE_E_IO, "%.*s", 94, text);
    cr_assert_eq(strlen(lathe_error_message()), 4095);
}

static void *other_thread(void *arg)
{
    (void)lathe_error(LATHE_E_IO, "theirs");
    return arg;
}

Test(error, is_the_threads_own)
{
    pthread_t thread;
    (void)lathe_error(LATHE_E_IO, "ours");
    cr_assert_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_str_eq(lathe_error_message(), "ours");
}

Test(error, every_code_has_a_text)
{
    cr_assert_str_eq(lathe_status_text(LATHE_E_SHAPE), "shapes do not agree");
    cr_assert_str_eq(lathe_status_text(LATHE_OK), "success");
    cr_assert_str_eq(lathe_status_text(-999), "unknown status");
}
