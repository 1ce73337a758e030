/* Removes a member of a JSON object and keeps the other bytes of the text as they are. */
#include "base/json/json_cut.h"

#include "lathe/kit/json_text.h"

int lathe_json_cut(const char *text, int64_t bytes, const char *key, int64_t *from, int64_t *to)
{
    lathe_chars object = {text, bytes};
    lathe_json__skip(&object, 0);
    lathe_json_members it = lathe_json_open(object);
    const char *end = object.data + 1; /* of the member before */
    while (lathe_json_next(&it)) {
        const char *after = it.value.data + it.value.bytes;
        if (lathe_json_is(it.key, key)) {
            *from = end - text;
            *to = after - text;
            if (it.n == 1 && it.rest.bytes > 0 && it.rest.data[0] == ',')
                *to = it.rest.data + 1 - text;
            return 1;
        }
        end = after;
    }
    return 0;
}
