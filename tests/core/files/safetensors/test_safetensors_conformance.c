/* safetensors by the rules of its format: a table of headers that must be accepted, and one of
 * headers that must be refused with the file and the error. Two choices are ours: white space
 * before the header is accepted (the reference requires '{' first), and a tensor has at most 4
 * dimensions. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/safetensors.h"

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end \
    "]}"
#define META(body) "\"__metadata__\":{" body "}"

typedef struct accepted {
    const char *header;
    int64_t data_bytes, tensors;
} accepted;

typedef struct refused {
    const char *rule;
    const char *header;
    int64_t data_bytes;
    const char *says;
} refused;

static const accepted good[] = {
    {"{}", 0, 0},
    {"{" META("") "}", 0, 0},
    {"{" META("\"format\":\"pt\",\"\":\"\",\"k\":\"{}\"") "}", 0, 0},
    {"{" T("a", "F32", "1", "0", "4") "}", 4, 1},
    {"{" T("a", "F32", "1", "0", "4") "}   ", 4, 1},
    {"\n\t {" T("a", "F32", "1", "0", "4") "}", 4, 1},
    {"{" T("a", "F32", "", "0", "4") "}", 4, 1},
    {"{" T("a", "F32", "0", "0", "0") "}", 0, 1},
    {"{" T("a", "F32", "3,0,5", "0", "0") "," T("b", "U8", "0", "0", "0") "}", 0, 2},
    {"{" T("a", "U8", "2", "0", "2") "," T("z", "F32", "0", "2", "2") "," T("b", "U8", "1", "2",
                                                                            "3") "}",
     3, 3},
    {"{" T("b", "U8", "1", "4", "5") "," T("a", "F32", "1", "0", "4") "}", 5, 2},
    {"{" META("\"a\":\"b\"") "," T("a", "I64", "1", "0", "8") "}", 8, 1},
    {"{" T("a", "F64", "1,1,1,2", "0", "16") "}", 16, 1},
    {"{" T("a", "BF16", "3", "0", "6") "," T("b", "F16", "1", "6", "8") "}", 8, 2},
    {"{" T("a", "F8_E4M3", "3", "0", "3") "," T("b", "F8_E5M2", "1", "3",
                                                "4") "," T("c", "F8_E8M0", "2", "4", "6") "}",
     6, 3},
    {"{" T("a", "BOOL", "1", "0", "1") "," T("b", "I8", "1", "1", "2") "," T(
         "c", "I16", "1", "2", "4") "," T("d", "I32", "1", "4", "8") "}",
     8, 4},
    {"{\"a\":{\"data_offsets\":[0,1],\"shape\":[1],\"dtype\":\"U8\",\"more\":[{}]}}", 1, 1},
    {"{" T("\xC3\xA9.\\u20ac \\\"q\\\" \\\\", "U8", "1", "0", "1") "}", 1, 1},
    {"{" T("", "U8", "1", "0", "1") "}", 1, 1},
    {"{" T("a/b.0.weight", "U8", "1", "0", "1") "}", 1, 1},
};

static const refused bad[] = {
    /* the header's text */
    {"no header", "", 0, "safetensors header"},
    {"white space alone", "    ", 0, "safetensors header"},
    {"array", "[]", 0, "not a JSON object"},
    {"string", "\"a\"", 0, "not a JSON object"},
    {"null", "null", 0, "not a JSON object"},
    {"object cut", "{\"a\":", 0, "safetensors header"},
    {"more behind the object", "{}{}", 0, "safetensors header"},
    {"comma last", "{" T("a", "U8", "1", "0", "1") ",}", 1, "safetensors header"},
    {"name not UTF-8", "{" T("a\xFF", "U8", "1", "0", "1") "}", 1, "byte 0xff is not UTF-8"},
    {"NUL in a name", "{" T("a\\u0000b", "U8", "1", "0", "1") "}", 1, "NUL"},
    {"byte order mark", "\xEF\xBB\xBF{}", 0, "byte order mark"},
    {"nested 300 deep", NULL, 0, "deeper"},
    /* keys */
    {"tensor twice", "{" T("a", "U8", "1", "0", "1") "," T("a", "U8", "1", "1", "2") "}", 2,
     "duplicate"},
    {"tensor twice, the same", "{" T("a", "U8", "1", "0", "1") "," T("a", "U8", "1", "0", "1") "}",
     1, "duplicate"},
    {"metadata twice", "{" META("") "," META("") "}", 0, "duplicate"},
    {"metadata's key twice", "{" META("\"a\":\"1\",\"a\":\"2\"") "}", 0, "duplicate"},
    {"dtype twice",
     "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "duplicate"},
    /* metadata */
    {"metadata is a string", "{\"__metadata__\":\"pt\"}", 0, "__metadata__"},
    {"metadata is an array", "{\"__metadata__\":[]}", 0, "__metadata__"},
    {"metadata is null", "{\"__metadata__\":null}", 0, "__metadata__"},
    {"metadata holds a number", "{" META("\"epoch\":3") "}", 0, "key epoch"},
    {"metadata holds an object", "{" META("\"a\":{}") "}", 0, "key a"},
    {"metadata holds null", "{" META("\"a\":null") "}", 0, "key a"},
    {"metadata shaped like a tensor", "{" T("__metadata__", "U8", "1", "0", "1") "}", 1,
     "__metadata__"},
    /* entries */
    {"entry is null", "{\"a\":null}", 0, "tensor a is not an object"},
    {"entry is an array", "{\"a\":[]}", 0, "tensor a is not an object"},
    {"entry is empty", "{\"a\":{}}", 0, "tensor a has no dtype"},
    {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor a has no dtype"},
    {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "no shape"},
    {"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets"},
    {"keys in capitals", "{\"a\":{\"DTYPE\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "no dtype"},
    {"dtype is a number", "{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype"},
    {"dtype is null", "{\"a\":{\"dtype\":null,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype"},
    {"dtype empty", "{" T("a", "", "1", "0", "1") "}", 1, "dtype"},
    {"dtype unknown", "{" T("a", "F31", "1", "0", "4") "}", 4, "dtype F31"},
    {"dtype in small letters", "{" T("a", "f32", "1", "0", "4") "}", 4, "dtype f32"},
    {"dtype of a name elsewhere", "{" T("a", "float32", "1", "0", "4") "}", 4, "dtype float32"},
    {"dtype with a space", "{" T("a", "U8 ", "1", "0", "1") "}", 1, "dtype"},
    {"dtype of half a byte", "{" T("a", "F4", "2", "0", "1") "}", 1, "dtype F4"},
    {"dtype U16", "{" T("a", "U16", "1", "0", "2") "}", 2, "dtype U16"},
    {"dtype U32", "{" T("a", "U32", "1", "0", "4") "}", 4, "dtype U32"},
    {"dtype U64", "{" T("a", "U64", "1", "0", "8") "}", 8, "dtype U64"},
    {"dtype C64", "{" T("a", "C64", "1", "0", "8") "}", 8, "dtype C64"},
    /* shapes */
    {"shape is a number", "{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1,
     "shape"},
    {"shape is null", "{\"a\":{\"dtype\":\"U8\",\"shape\":null,\"data_offsets\":[0,1]}}", 1,
     "shape"},
    {"dimension negative", "{" T("a", "U8", "-1", "0", "1") "}", 1, "not a count"},
    {"dimensions both negative", "{" T("a", "U8", "-1,-1", "0", "1") "}", 1, "not a count"},
    {"dimension real", "{" T("a", "U8", "1.0", "0", "1") "}", 1, "not a count"},
    {"dimension a string", "{" T("a", "U8", "\"1\"", "0", "1") "}", 1, "not a count"},
    {"dimension an array", "{" T("a", "U8", "[1]", "0", "1") "}", 1, "not a count"},
    {"dimension beyond 64 bits", "{" T("a", "U8", "18446744073709551617", "0", "1") "}", 1,
     "not a count"},
    {"elements beyond 64 bits", "{" T("a", "U8", "4294967296,4294967296", "0", "0") "}", 0,
     "overflows"},
    {"bytes beyond 64 bits", "{" T("a", "F64", "2305843009213693952", "0", "0") "}", 0,
     "overflows"},
    {"overflow beside a zero", "{" T("a", "U8", "4294967296,4294967296,0", "0", "0") "}", 0,
     "overflows"},
    {"five dimensions", "{" T("a", "U8", "1,1,1,1,1", "0", "1") "}", 1, "5 dimensions"},
    {"shape larger than the data", "{" T("a", "F32", "2", "0", "4") "}", 4, "need 8"},
    {"shape smaller than the data", "{" T("a", "F32", "1", "0", "8") "}", 8, "need 4"},
    {"empty shape with data for two", "{" T("a", "F32", "", "0", "8") "}", 8, "need 4"},
    {"data without elements", "{" T("a", "F32", "0", "0", "4") "}", 4, "need 0"},
    /* offsets */
    {"offsets a number", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":1}}", 1,
     "data_offsets"},
    {"one offset",
     "{"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}",
     1, "data_offsets"},
    {"three offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
     "data_offsets"},
    {"offset real", "{" T("a", "U8", "1", "0", "1.0") "}", 1, "data_offsets"},
    {"offset a string", "{" T("a", "U8", "1", "\"0\"", "1") "}", 1, "data_offsets"},
    {"offset negative", "{" T("a", "U8", "1", "-1", "0") "}", 1, "is at bytes"},
    {"offset beyond 64 bits", "{" T("a", "U8", "1", "0", "18446744073709551616") "}", 1,
     "data_offsets"},
    {"end before begin", "{" T("a", "U8", "1", "1", "0") "}", 1, "is at bytes"},
    {"end behind the file", "{" T("a", "U8", "2", "0", "2") "}", 1, "truncated"},
    {"begin behind the file", "{" T("a", "U8", "0", "9", "9") "}", 1, "truncated"},
    /* the tensors cover the data once, from its first byte to its last */
    {"hole before the first", "{" T("a", "U8", "1", "1", "2") "}", 2, "gap"},
    {"hole between two", "{" T("a", "U8", "1", "0", "1") "," T("b", "U8", "1", "2", "3") "}", 3,
     "gap"},
    {"hole before an empty one",
     "{" T("a", "U8", "1", "0", "1") "," T("b", "U8", "0", "2", "2") "}", 2, "gap"},
    {"two share a byte", "{" T("a", "U8", "2", "0", "2") "," T("b", "U8", "2", "1", "3") "}", 3,
     "overlap"},
    {"two share all bytes", "{" T("a", "U8", "2", "0", "2") "," T("b", "I8", "2", "0", "2") "}", 2,
     "overlap"},
    {"one inside another", "{" T("a", "U8", "4", "0", "4") "," T("b", "U8", "1", "1", "2") "}", 4,
     "overlap"},
    {"bytes after the last", "{" T("a", "U8", "1", "0", "1") "}", 3, "2 bytes after"},
    {"bytes and no tensor", "{}", 1, "1 bytes after"},
};

/* A file image: u64 length, header, `data_bytes` bytes that count up. */
static uint8_t *image(const char *header, int64_t data_bytes, int64_t *out_bytes)
{
    const size_t length = strlen(header);
    uint8_t *bytes = malloc(8 + length + (size_t)data_bytes + 1);
    cr_assert_not_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (int64_t i = 0; i < data_bytes; i++)
        bytes[8 + length + (size_t)i] = (uint8_t)i;
    *out_bytes = 8 + (int64_t)length + data_bytes;
    return bytes;
}

Test(safetensors_conformance, what_is_valid_opens)
{
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t n = 0;
        uint8_t *bytes = image(good[i].header, good[i].data_bytes, &n);
        lathe_safetensors *set = NULL;
        const lathe_status status = lathe_safetensors_parse("dir/m.safetensors", bytes, n, &set);
        cr_expect_eq(status, LATHE_OK, "%s: %s", good[i].header, lathe_error_message());
        if (status == LATHE_OK)
            cr_expect_eq(lathe_safetensors_count(set), good[i].tensors, "%s", good[i].header);
        lathe_safetensors_close(set);
        free(bytes);
    }
}

Test(safetensors_conformance, what_is_invalid_is_refused_with_file_and_fault)
{
    static char deep[1024];
    snprintf(deep, sizeof deep, "{\"a\":%0600d}", 0);
    memset(deep + 5, '[', 300);
    memset(deep + 305, ']', 300);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t n = 0;
        const char *header = bad[i].header != NULL ? bad[i].header : deep;
        uint8_t *bytes = image(header, bad[i].data_bytes, &n);
        lathe_safetensors *set = NULL;
        const lathe_status status = lathe_safetensors_parse("dir/m.safetensors", bytes, n, &set);
        cr_expect(status == LATHE_E_CORRUPT || status == LATHE_E_UNSUPPORTED, "%s: %d", bad[i].rule,
                  status);
        cr_expect_null(set);
        cr_expect_not_null(strstr(lathe_error_message(), "dir/m.safetensors"), "%s: %s",
                           bad[i].rule, lathe_error_message());
        cr_expect_not_null(strstr(lathe_error_message(), bad[i].says), "%s: %s", bad[i].rule,
                           lathe_error_message());
        free(bytes);
    }
}

Test(safetensors_conformance, the_length_of_the_header_is_checked_before_it_is_believed)
{
    static const struct {
        uint64_t length;
        const char *says;
    } rows[] = {
        {0, "header"},           {1, "header"},
        {4, "truncated"},        {100000000, "truncated"},
        {100000001, "at most"},  {UINT64_C(1) << 63, "at most"},
        {UINT64_MAX, "at most"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t bytes[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        lathe_safetensors *set = NULL;
        for (int b = 0; b < 8; b++)
            bytes[b] = (uint8_t)(rows[i].length >> (8 * b));
        cr_expect_eq(lathe_safetensors_parse("m.safetensors", bytes, 10, &set), LATHE_E_CORRUPT);
        cr_expect_not_null(strstr(lathe_error_message(), rows[i].says), "%llu: %s",
                           (unsigned long long)rows[i].length, lathe_error_message());
    }
    lathe_safetensors *set = NULL;
    for (int64_t n = 0; n < 8; n++)
        cr_expect_eq(lathe_safetensors_parse("m.safetensors", "\2\0\0\0\0\0\0", n, &set),
                     LATHE_E_CORRUPT);
}

/* Headers of every length modulo 8: the data may begin at any address and is read correctly. */
Test(safetensors_conformance, data_may_begin_at_any_address)
{
    for (int pad = 0; pad < 8; pad++) {
        char header[160];
        snprintf(header, sizeof header, "{%s}%*s",
                 T("a", "F32", "2", "0", "8") "," T("b", "F64", "1", "8", "16"), pad, "");
        int64_t n = 0;
        uint8_t *bytes = image(header, 16, &n);
        const float want[2] = {1.5f, -2.0f};
        const double one = 0.25;
        memcpy(bytes + n - 16, want, sizeof want);
        memcpy(bytes + n - 8, &one, sizeof one);
        lathe_safetensors *set = NULL;
        cr_assert_eq(lathe_safetensors_parse("m.safetensors", bytes, n, &set), LATHE_OK);
        const lathe_st_tensor *a = lathe_safetensors_find(set, "a");
        const lathe_st_tensor *b = lathe_safetensors_find(set, "b");
        float got[3];
        cr_assert_eq(lathe_convert(got, LATHE_F32, a->data, LATHE_F32, 2), LATHE_OK);
        cr_assert_eq(lathe_convert(got + 2, LATHE_F32, b->data, LATHE_F64, 1), LATHE_OK);
        cr_expect(got[0] == 1.5f && got[1] == -2.0f && got[2] == 0.25f, "pad %d", pad);
        lathe_safetensors_close(set);
        free(bytes);
    }
}

/* 8 MiB of "0,0,0,..." would be 128 MiB of values. */
Test(safetensors_conformance, a_header_of_nothing_but_values_is_refused)
{
    const size_t length = ((size_t)8 << 20) + 1;
    char *header = malloc(length + 1);
    cr_assert_not_null(header);
    for (size_t i = 0; i < length; i++)
        header[i] = i % 2 ? ',' : '0';
    memcpy(header, "{\"a\":[", 6);
    memcpy(header + length - 3, "0]}", 3);
    header[length] = '\0';
    int64_t n = 0;
    uint8_t *bytes = image(header, 0, &n);
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_parse("m.safetensors", bytes, n, &set), LATHE_E_CORRUPT);
    cr_expect_not_null(strstr(lathe_error_message(), "many times the file's size"), "%s",
                       lathe_error_message());
    free(bytes);
    free(header);
}
