/* libFuzzer target: any bytes as a JSON text that a renderer takes apart. */
#include <stdint.h>
#include <stdlib.h>

#include "fuzz/fuzz_file.h"
#include "lathe/kit/json_text.h"

/* Every part lies in the text. */
static void inside(lathe_chars text, lathe_chars part)
{
    if (part.bytes > 0 &&
        (part.data < text.data || part.data + part.bytes > text.data + text.bytes))
        abort();
}

static void walk(lathe_chars value, int depth)
{
    lathe_json_members it = lathe_json_open(value);
    lathe_chars string = lathe_json_inside(value);
    char room[4];
    int64_t n = 0;
    while (lathe_json_part(&string, room).bytes > 0)
        n++;
    if (n > value.bytes)
        abort();
    (void)lathe_json_holds(lathe_json_get(value, "type"));
    while (lathe_json_next(&it)) {
        inside(value, it.key);
        inside(value, it.value);
        if (depth > 0) {
            walk(it.key, 0);
            walk(it.value, depth - 1);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    walk((lathe_chars){(const char *)data, (int64_t)size}, 16);
    return 0;
}
