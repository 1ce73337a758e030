/* Compiles a function for several instruction sets; the loader chooses one. */
#ifndef LATHE_BASE_TARGET_CLONES_H
#define LATHE_BASE_TARGET_CLONES_H

/* Put before a function whose loops gain from wider vectors. All builds must give the same bits:
 * core is compiled without contraction, so none fuses a product with a sum, and a sum has the same
 * lanes in each. ThreadSanitizer cannot run the loader's choice, and clang 14 leaves the name of a
 * clone undefined in other objects. */
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_THREAD__) &&                  \
    !defined(__clang__)
#define LATHE_TARGET_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define LATHE_TARGET_CLONES
#endif

#endif
