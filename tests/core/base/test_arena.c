/* Arena and buffer: alignment, zeroing, growth, text. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"

Test(arena, pieces_are_aligned_zeroed_and_apart)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    unsigned char *pieces[300];
    for (int i = 0; i < 300; i++) {
        const int64_t bytes = (i * 37) % 1000;
        pieces[i] = lathe_arena_alloc(&arena, bytes);
        cr_assert_not_null(pieces[i]);
        cr_assert_eq((uintptr_t)pieces[i] % 16, 0);
        for (int64_t j = 0; j < bytes; j++)
            cr_assert_eq(pieces[i][j], 0);
        memset(pieces[i], i % 255 + 1, (size_t)bytes);
    }
    for (int i = 0; i < 300; i++)
        for (int64_t j = 0; j < (i * 37) % 1000; j++)
            cr_assert_eq(pieces[i][j], i % 255 + 1);
    lathe_arena_fini(&arena);
    cr_assert_eq(arena.total_bytes, 0);
}

Test(arena, a_large_piece_does_not_waste_the_block_before_it)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char *a = lathe_arena_alloc(&arena, 16);
    char *large = lathe_arena_alloc(&arena, 1 << 20);
    char *b = lathe_arena_alloc(&arena, 16);
    cr_assert_not_null(large);
    cr_assert_eq(b - a, 16);
    large[(1 << 20) - 1] = 1;
    lathe_arena_fini(&arena);
}

Test(arena, refuses_a_negative_size_and_counts_blocks)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    cr_assert_null(lathe_arena_alloc(&arena, -1));
    const int64_t before = lathe_heap_allocations();
    (void)lathe_arena_alloc(&arena, 8);
    (void)lathe_arena_alloc(&arena, 8);
    cr_assert_eq(lathe_heap_allocations() - before, 1);
    lathe_arena_fini(&arena);
}

Test(arena, copies_and_formats_text)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    cr_assert_str_eq(lathe_arena_strdup(&arena, "abc"), "abc");
    cr_assert_str_eq(lathe_arena_strndup(&arena, "abc", 2), "ab");
    cr_assert_str_eq(lathe_arena_strndup(&arena, "abc", 0), "");
    cr_assert_str_eq(lathe_arena_printf(&arena, "%d-%s", 5, "x"), "5-x");
    lathe_arena_fini(&arena);
}

Test(buffer, grows_and_stays_terminated)
{
    lathe_buffer buffer = LATHE_BUFFER_INIT;
    for (int i = 0; i < 1000; i++) {
        lathe_buffer_printf(&buffer, "%d,", i);
        cr_assert_eq((int64_t)strlen(buffer.data), buffer.len);
    }
    cr_assert_eq(buffer.len, 10 * 2 + 90 * 3 + 900 * 4);
    cr_assert_eq(strncmp(buffer.data, "0,1,2,", 6), 0);
    lathe_buffer_append(&buffer, "\0z", 2);
    cr_assert_eq(buffer.data[buffer.len - 1], 'z');
    lathe_buffer_fini(&buffer);
    cr_assert_null(buffer.data);
}

Test(buffer, empty_text_is_still_a_string)
{
    lathe_buffer buffer = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&buffer, "");
    cr_assert_str_eq(buffer.data, "");
    lathe_buffer_fini(&buffer);
}

Test(buffer, a_failure_sticks)
{
    lathe_buffer buffer = LATHE_BUFFER_INIT;
    lathe_buffer_append(&buffer, "x", -1);
    lathe_buffer_puts(&buffer, "later");
    cr_assert_eq(buffer.status, LATHE_E_NOMEM);
    cr_assert_eq(buffer.len, 0);
    lathe_buffer_fini(&buffer);
}

Test(buffer, json_strings_come_back_as_they_went_in)
{
    const char *text = "a\"b\\c\n\t\r\x01\x7f h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";
    lathe_buffer buffer = LATHE_BUFFER_INIT;
    lathe_buffer_json_string(&buffer, text);
    json_t *value = json_loads(buffer.data, JSON_DECODE_ANY, NULL);
    cr_assert_str_eq(json_string_value(value), text);
    json_decref(value);
    lathe_buffer_fini(&buffer);
}

Test(buffer, bytes_that_are_no_utf8_become_valid_json)
{
    lathe_buffer buffer = LATHE_BUFFER_INIT;
    /* a lone continuation, an overlong form, a surrogate, a cut sequence */
    lathe_buffer_json_string(&buffer, "\x80 \xC0\xAF \xED\xA0\x80 \xE2\x82");
    json_t *value = json_loads(buffer.data, JSON_DECODE_ANY, NULL);
    cr_assert_not_null(value);
    cr_assert_eq(strncmp(json_string_value(value), "\xEF\xBF\xBD ", 4), 0);
    json_decref(value);
    lathe_buffer_fini(&buffer);
}
