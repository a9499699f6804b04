#include "rows.h"

#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "number.h"

namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

struct Key {
    std::string name;
    char kind;
};

bool is_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }

const char* without_space(const char* at, const char* end) {
    while (at < end && is_space(*at)) ++at;
    return at;
}

// Where the text behind the quote at `at` ends, before its closing quote; nullptr if it is not
// plain, or not closed.
const char* end_of_text(const char* at, const char* end) {
    for (; at < end; ++at) {
        const auto byte = static_cast<unsigned char>(*at);
        if (byte == '"') return at;
        if (byte == '\\' || byte < 0x20 || byte >= 0x80) return nullptr;
    }
    return nullptr;
}

const char* behind_word(const char* at, const char* end, const char* word) {
    const size_t size = std::strlen(word);
    return size_t(end - at) >= size && std::memcmp(at, word, size) == 0 ? at + size : nullptr;
}

// Behind the value of a kind at `at`; a number becomes `number`. nullptr for any other value.
const char* behind_value(const char* at, const char* end, char kind, double& number) {
    switch (kind) {
        case ldlm_number:
            return ldlm::read_number(at, end, number);
        case ldlm_null:
            return behind_word(at, end, "null");
        case ldlm_step:
            return behind_word(at, end, "\"step\"");
        case ldlm_bool: {
            const char* const behind = behind_word(at, end, "true");
            return behind ? behind : behind_word(at, end, "false");
        }
        case ldlm_text: {
            const char* const stop = at < end && *at == '"' ? end_of_text(at + 1, end) : nullptr;
            return stop ? stop + 1 : nullptr;
        }
        default:
            return nullptr;
    }
}

}  // namespace

struct ldlm_row_shape {
    std::vector<Key> keys;
    std::vector<size_t> follows;  // which key came behind each the last time; [0]: which came first
    std::vector<int64_t> seen;    // the number of the last row that had each key
    size_t required = 0;
    int64_t row = 0;

    // The key whose quoted name is at `at`: mostly the one that followed the key before the last
    // time. The number of keys, if it is none of them.
    size_t key_at(const char* at, const char* end, size_t before) {
        if (is_key(at, end, follows[before])) return follows[before];
        for (size_t index = 0; index < keys.size(); ++index) {
            if (is_key(at, end, index)) return follows[before] = index;
        }
        return keys.size();
    }

    bool is_key(const char* at, const char* end, size_t index) const {
        const std::string& name = keys[index].name;
        const size_t size = name.size();
        return size_t(end - at) >= size + 2 && at[0] == '"' && at[size + 1] == '"' &&
               std::memcmp(at + 1, name.data(), size) == 0;
    }

    // Whether the line from `at` to `end` is a row of the shape, whose numbers go to
    // cells[i * width]. These are of no meaning if it is none.
    bool read(const char* at, const char* end, int64_t width, double* cells) {
        ++row;
        size_t found = 0, before = 0;
        at = without_space(at, end);
        if (at == end || *at++ != '{') return false;
        for (;;) {
            at = without_space(at, end);
            const size_t index = key_at(at, end, before);
            if (index == keys.size() || seen[index] == row) return false;
            seen[index] = row;
            found += index < required;
            before = index + 1;
            at = without_space(at + keys[index].name.size() + 2, end);
            if (at == end || *at++ != ':') return false;
            at = behind_value(without_space(at, end), end, keys[index].kind,
                              cells[int64_t(index) * width]);
            if (at == nullptr) return false;
            at = without_space(at, end);
            if (at == end) return false;
            const char byte = *at++;
            if (byte == '}') break;
            if (byte != ',') return false;
        }
        if (found != required || without_space(at, end) != end) return false;
        for (size_t index = required; index < keys.size(); ++index) {
            if (seen[index] != row) cells[int64_t(index) * width] = missing;
        }
        return true;
    }
};

ldlm_row_shape* ldlm_row_shape_new(const char* keys, const int64_t* lengths, const char* kinds,
                                   int64_t required, int64_t count) {
    auto* const shape = new (std::nothrow) ldlm_row_shape;
    if (shape == nullptr) return nullptr;
    for (int64_t index = 0; index < count; ++index) {
        shape->keys.push_back({std::string(keys, size_t(lengths[index])), kinds[index]});
        shape->follows.push_back(size_t(index));
        keys += lengths[index];
    }
    shape->follows.push_back(0);  // behind the last key
    shape->seen.assign(size_t(count), 0);
    shape->required = size_t(required);
    return shape;
}

void ldlm_row_shape_free(ldlm_row_shape* shape) { delete shape; }

int64_t ldlm_rows_read(ldlm_row_shape* shape, const char* data, int64_t size, int64_t start,
                       int64_t base, int64_t room, int64_t width, double* columns,
                       int64_t* offsets, int64_t* stop) {
    int64_t rows = 0, at = start;
    while (rows < room && at < size) {
        const void* const found = std::memchr(data + at, '\n', size_t(size - at));
        const char* const end = found ? static_cast<const char*>(found) : data + size;
        if (!shape->read(data + at, end, width, columns + rows)) break;
        offsets[rows++] = base + at;
        at = end - data + (found != nullptr);
    }
    *stop = at;
    return rows;
}

int64_t ldlm_rows_present(const double* column, int64_t count, int64_t* rows) {
    int64_t found = 0;
    for (int64_t row = 0; row < count; ++row) {
        if (!std::isnan(column[row])) rows[found++] = row;
    }
    return found;
}

int64_t ldlm_rows_steps(const double* column, int64_t count, double most, int64_t* steps) {
    for (int64_t row = 0; row < count; ++row) {
        const double step = column[row];
        if (!(-most < step && step < most && step == std::trunc(step))) return 0;
        steps[row] = int64_t(step);
    }
    return 1;
}

int64_t ldlm_rows_rise(const double* column, int64_t count, int64_t repeats) {
    for (int64_t row = 1; row < count; ++row) {
        const double rise = column[row] - column[row - 1];
        if (!(rise > 0 || (repeats && rise == 0))) return 0;
    }
    return 1;
}
