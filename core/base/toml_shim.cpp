/* Parses TOML with toml++ and converts it to the plain tree of toml.h. No exception leaves this
 * file. */
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

extern "C" {
#include "base/error.h"
#include "base/toml.h"
}

namespace
{

constexpr int max_depth = 64;
/* More dots than this in one key are refused before the parser, whose tables nest and unwind by
 * recursion. */
constexpr int max_dots = 1000;
/* A value or a table takes up to 400 bytes here, and every two bytes of text may make one. */
constexpr int max_values = 150000;

/* A failure of the conversion, with its place. */
struct failure {
    lathe_status code;
    int32_t line, column;
    const char *text;
};

/* A number that does not fit in 64 bits. The parser read a zero of the same length in its place. */
struct big_number {
    std::string text;
    toml::source_index line, column;
};

constexpr std::size_t max_big = 16; /* each is found by a parse of its own */

struct converter {
    lathe_arena *arena;
    const std::vector<big_number> *big;

    const big_number *big_at(const toml::source_position &at) const
    {
        for (const auto &number : *big)
            if (number.line == at.line && number.column == at.column)
                return &number;
        return nullptr;
    }

    char *copy(std::string_view text, const lathe_toml_node &place)
    {
        if (std::memchr(text.data(), 0, text.size()) != nullptr)
            throw failure{LATHE_E_PARSE, place.line, place.column, "NUL inside a string"};
        char *out = lathe_arena_strndup(arena, text.data(), static_cast<int64_t>(text.size()));
        if (out == nullptr)
            throw std::bad_alloc();
        return out;
    }

    void scalar(const toml::node &node, lathe_toml_node *out)
    {
        if (const auto *text = node.as_string()) {
            out->kind = LATHE_TOML_STRING;
            out->s = copy(text->get(), *out);
        } else if (const auto *integer = node.as_integer()) {
            out->kind = LATHE_TOML_INT;
            out->i = integer->get();
            out->f = static_cast<double>(out->i);
        } else if (const auto *number = big_at(node.source().begin)) {
            out->kind = LATHE_TOML_BIG;
            out->s = copy(number->text, *out);
            out->f = std::strtod(number->text.c_str(), nullptr);
        } else if (const auto *real = node.as_floating_point()) {
            out->kind = LATHE_TOML_FLOAT;
            out->f = real->get();
        } else if (const auto *boolean = node.as_boolean()) {
            out->kind = LATHE_TOML_BOOL;
            out->i = boolean->get() ? 1 : 0;
        } else {
            std::ostringstream stream;
            if (const auto *date = node.as_date())
                stream << date->get();
            else if (const auto *time = node.as_time())
                stream << time->get();
            else if (const auto *both = node.as_date_time())
                stream << both->get();
            out->kind = LATHE_TOML_TIME;
            out->s = copy(stream.str(), *out);
        }
    }

    lathe_toml_node *node(const toml::node &from, const toml::key *key, int depth)
    {
        void *memory = lathe_arena_alloc(arena, sizeof(lathe_toml_node));
        if (memory == nullptr)
            throw std::bad_alloc();
        auto *out = static_cast<lathe_toml_node *>(memory);
        const toml::source_region &place = from.source();
        out->line = static_cast<int32_t>(place.begin.line);
        out->column = static_cast<int32_t>(place.begin.column);
        if (key != nullptr) {
            out->key_line = static_cast<int32_t>(key->source().begin.line);
            out->key_column = static_cast<int32_t>(key->source().begin.column);
            out->key = copy(key->str(), *out);
        }
        if (depth > max_depth)
            throw failure{LATHE_E_PARSE, out->line, out->column, "nested deeper than 64"};
        if (const auto *table = from.as_table()) {
            out->kind = LATHE_TOML_TABLE;
            children(out, table->size());
            for (const auto &[name, value] : *table)
                out->children[out->n_children++] = node(value, &name, depth + 1);
            std::stable_sort(out->children, out->children + out->n_children, before);
        } else if (const auto *array = from.as_array()) {
            out->kind = LATHE_TOML_ARRAY;
            children(out, array->size());
            for (const auto &value : *array)
                out->children[out->n_children++] = node(value, nullptr, depth + 1);
        } else {
            scalar(from, out);
        }
        return out;
    }

    void children(lathe_toml_node *out, std::size_t n)
    {
        void *memory = lathe_arena_alloc(arena, static_cast<int64_t>(n * sizeof(void *)));
        if (memory == nullptr)
            throw std::bad_alloc();
        out->children = static_cast<lathe_toml_node **>(memory);
    }

    static bool before(const lathe_toml_node *a, const lathe_toml_node *b)
    {
        return a->key_line != b->key_line ? a->key_line < b->key_line
                                          : a->key_column < b->key_column;
    }
};

void check_size(std::string_view text)
{
    int32_t line = 1;
    int dots = 0, values = 0;
    for (const char c : text) {
        if (c == '\n')
            line++;
        if (c != 0 && std::strchr(",=[{.", c) != nullptr && ++values > max_values)
            throw failure{LATHE_E_PARSE, line, 1, "more than 150000 values"};
        if (c == '\n' || c == '=')
            dots = 0;
        else if (c == '.' && ++dots > max_dots)
            throw failure{LATHE_E_PARSE, line, 1, "more than 1000 dots in one line"};
    }
}

/* The offset of a line and column, which count from 1; columns are code points, a byte order
 * mark counts nothing. */
std::size_t offset_of(std::string_view text, const toml::source_position &at)
{
    std::size_t offset = text.substr(0, 3) == "\xEF\xBB\xBF" ? 3 : 0;
    for (toml::source_index line = 1; line < at.line && offset < text.size(); offset++)
        line += text[offset] == '\n' ? 1 : 0;
    for (toml::source_index column = 1; column < at.column && offset < text.size(); column++)
        do
            offset++;
        while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xc0U) == 0x80U);
    return offset;
}

bool is_of_number(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '+' || c == '-' || c == '.';
}

/* If the parser refused a number because of its size: records the number and replaces it in the
 * text by a zero of the same length. */
bool take_big(std::string_view text, const toml::parse_error &e, std::string &patched,
              std::vector<big_number> &big)
{
    const std::string_view what = e.description();
    if (what.find("is not representable in 64 bits") == std::string_view::npos &&
        what.find("could not be interpreted as a value") == std::string_view::npos &&
        what.find("exceeds length limit") == std::string_view::npos)
        return false;
    const toml::source_position at = e.source().begin;
    std::size_t begin = offset_of(text, at), end = begin;
    while (begin > 0 && is_of_number(text[begin - 1]))
        begin--;
    const std::size_t before = end - begin;
    while (end < text.size() && is_of_number(text[end]))
        end++;
    if (end - begin < 3 || before >= at.column)
        return false;
    big.push_back({std::string(text.substr(begin, end - begin)), at.line,
                   static_cast<toml::source_index>(at.column - before)});
    if (patched.empty())
        patched = text;
    patched.replace(begin, end - begin, "0." + std::string(end - begin - 2, '0'));
    return true;
}

toml::table parse(std::string_view text, std::string &patched, std::vector<big_number> &big)
{
    for (;;) {
        try {
            return toml::parse(text);
        } catch (const toml::parse_error &e) {
            if (big.size() == max_big || !take_big(text, e, patched, big))
                throw;
            text = patched;
        }
    }
}

} // namespace

extern "C" lathe_status lathe_toml_load(const char *name, const char *text, int64_t bytes,
                                        lathe_arena *arena, lathe_toml_node **out)
{
    *out = nullptr;
    try {
        const std::string_view view(text, static_cast<std::size_t>(bytes));
        check_size(view);
        std::string patched;
        std::vector<big_number> big;
        const toml::table root = parse(view, patched, big);
        converter convert{arena, &big};
        *out = convert.node(root, nullptr, 0);
        return LATHE_OK;
    } catch (const failure &e) {
        return lathe_error_in(e.code, name, e.line, e.column, "%s", e.text);
    } catch (const toml::parse_error &e) {
        const std::string_view what = e.description();
        return lathe_error_in(LATHE_E_PARSE, name, e.source().begin.line, e.source().begin.column,
                              "%.*s", static_cast<int>(what.size()), what.data());
    } catch (const std::bad_alloc &) {
        return lathe_error(LATHE_E_NOMEM, "%s: out of memory", name);
    } catch (const std::exception &e) {
        return lathe_error(LATHE_E_PARSE, "%s: %s", name, e.what());
    }
}
