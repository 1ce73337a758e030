/* Sanitizer settings for the programs that a test starts. */
#ifndef LATHE_TEST_CHILD_PROGRAM_H
#define LATHE_TEST_CHILD_PROGRAM_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/** Turns the leak check off for the programs that the test starts from now on. Under
 * AddressSanitizer the leak check of GCC 12 crashes on OpenMP's threads at program exit ("Tracer
 * caught signal 11"), and its exit code hides that of the run. Memory errors are still found. Tests
 * that run the same code in their own process find its leaks. */
static inline void child_programs_skip_the_leak_check(void)
{
    char options[512];
    const char *set = getenv("ASAN_OPTIONS");
    (void)snprintf(options, sizeof options, "%s:detect_leaks=0", set ? set : "");
    cr_assert_eq(setenv("ASAN_OPTIONS", options, 1), 0);
}

/** For tests of programs that crash. Under AddressSanitizer a crash normally gives exit code 1.
 * After this call, a fault ends the program by its own signal, an error that the sanitizer finds
 * raises SIGABRT, and an allocation that is too large returns NULL, as malloc does. */
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
