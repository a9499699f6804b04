// Numbers as texts print them, as the doubles nearest to them.
//
// Equals Python's `float(text)` on the texts that it takes: the grammar of JSON. It takes no number
// that a double cannot hold, and no integer that Python holds otherwise: one of more than 18 digits,
// or `-0`, which is no negative zero there. Whoever gets such a number leaves its line to Python.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

namespace ldlm {

inline bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

// Powers of ten that are doubles without rounding.
inline constexpr double exact_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                          1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                          1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
inline constexpr int most_digits = 18;  // of an integer, as Python's definitions of counts have it
inline constexpr uint64_t most_exact = uint64_t{1} << 53;

// Where the number at `at` ends, before `end`; nullptr if none is there, or none that is taken.
inline const char* read_number(const char* at, const char* end, double& value) {
    const char* const begin = at;
    const bool negative = at < end && *at == '-';
    at += negative;
    if (at == end || !is_digit(*at)) return nullptr;
    uint64_t digits = 0;
    int count = 0;
    const char* const first = at;
    for (; at < end && is_digit(*at); ++at, ++count) digits = digits * 10 + uint64_t(*at - '0');
    if (*first == '0' && count > 1) return nullptr;
    const bool whole = at == end || (*at != '.' && *at != 'e' && *at != 'E');
    if (whole && (count > most_digits || (negative && digits == 0))) return nullptr;
    int decimals = 0;
    if (at < end && *at == '.') {
        const char* const fraction = ++at;
        for (; at < end && is_digit(*at); ++at) digits = digits * 10 + uint64_t(*at - '0');
        decimals = int(at - fraction);
        if (decimals == 0) return nullptr;
        count += decimals;
    }
    bool scaled = false;
    if (at < end && (*at == 'e' || *at == 'E')) {
        scaled = true;
        ++at;
        if (at < end && (*at == '+' || *at == '-')) ++at;
        if (at == end || !is_digit(*at)) return nullptr;
        while (at < end && is_digit(*at)) ++at;
    }
    // An exact integer divided by an exact power is rounded once, as it must be.
    if (!scaled && count <= 19 && digits <= most_exact && decimals <= 22) {
        const double positive = double(digits) / exact_powers[decimals];
        value = negative ? -positive : positive;
        return at;
    }
    const auto read = std::from_chars(begin, at, value);
    if (read.ec != std::errc() || read.ptr != at || !std::isfinite(value)) return nullptr;
    return at;
}

}  // namespace ldlm
