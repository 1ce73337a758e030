/* Programs of ours that a test starts. */
#ifndef LATHE_TEST_CHILD_PROGRAM_H
#define LATHE_TEST_CHILD_PROGRAM_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/** Under AddressSanitizer the leak check of GCC 12 faults in its own tracer when it meets OpenMP's
 * threads at a program's end ("Tracer caught signal 11"), and the exit code tells that instead of
 * the run's: off for the programs that this test starts from now on. Memory errors are found as
 * ever, and leaks of the same code by the tests that run it in their own process. */
static inline void child_programs_skip_the_leak_check(void)
{
    char options[512];
    const char *set = getenv("ASAN_OPTIONS");
    (void)snprintf(options, sizeof options, "%s:detect_leaks=0", set ? set : "");
    cr_assert_eq(setenv("ASAN_OPTIONS", options, 1), 0);
}

/** Under AddressSanitizer a crash ends a program with exit code 1 and a report. For tests about
 * programs that crash: a fault stays the signal that it is without a sanitizer, an error that the
 * sanitizer finds is SIGABRT, and an allocation that is too large gives NULL, as malloc does. */
static inline void child_programs_crash_by_signal(void)
{
    char options[640];
    child_programs_skip_the_leak_check();
    (void)snprintf(
        options, sizeof options,
        "%s:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:"
        "abort_on_error=1:allocator_may_return_null=1",
        getenv("ASAN_OPTIONS"));
    cr_assert_eq(setenv("ASAN_OPTIONS", options, 1), 0);
}

#endif
