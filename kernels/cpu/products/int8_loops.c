/* Compiles the loops with and without AVX512-VNNI or AVX-VNNI. */
#include "products/int8_loops.h"

#define INT8_LOOP(name) name##_by_words
#define INT8_TARGET
#define INT8_DOT 0
#include "products/int8_loop_bodies.h"
#undef INT8_LOOP
#undef INT8_TARGET
#undef INT8_DOT

#define INT8_LOOP(name) name##_by_dots
#define INT8_DOT 1
#if VL == 16
#define INT8_TARGET __attribute__((target("avx512vnni")))
#define DOTS "avx512vnni"
#else
#define INT8_TARGET __attribute__((target("avxvnni")))
#define DOTS "avxvnni"
#endif
#include "products/int8_loop_bodies.h"

const int8_loops *cpu_int8_loops(int dots)
{
    static const int8_loops by_words = {panel_by_words, lines_by_words};
    static const int8_loops by_dots = {panel_by_dots, lines_by_dots};
    return dots && __builtin_cpu_supports(DOTS) ? &by_dots : &by_words;
}
