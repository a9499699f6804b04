// Reads damaged rows and bars with the compiled part, under the sanitizers.
//
//   fuzz_native SECONDS SEED
//
// Every input and every result lies in a block of memory of exactly its size, so that a read or
// write beyond either is seen. What was read must lie within the input, in rising order.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bars.h"
#include "rows.h"

namespace {

using Words = std::vector<std::string>;

std::mt19937_64 draw;

size_t below(size_t count) { return draw() % count; }
const std::string& one_of(const Words& words) { return words[below(words.size())]; }

const Words numbers = {"0",    "-0",   "1",      "2.5",    "-3.25e-7", "1e400", "NaN", "0.0%", "12.5%",
                       "1/3",  "00",   "1.",     "1e",     "9007199254740993",  "18446744073709551616",
                       "5e-324", "0.1234567890123456789", "true", "null", "\"a\"", "\"\\\"\"", ""};
const Words pieces = {"{", "}", "\"", ":", ",", "\n", "\r", "%|", "|", " [", "]", "=", "/", "<", "it/s",
                      "s/it", "\\", "\x1b", "\xff", " ", "\"step\"", "99999999999999999999", "0"};

const Words clocks = {"00:01<00:09", "1:02:03<4:05:06", "59<1", "1:2:3:<", "1:2:3:", "1:2:3:4<", "1:", "<"};

std::string row() {
    return "{\"step\": " + std::to_string(below(100)) + ", \"loss\": " + one_of(numbers) +
           (below(2) ? ", \"mode\": \"x\"" : "") + ", \"lr\":" + one_of(numbers) + "}\n";
}

std::string bar() {
    const std::string step = std::to_string(below(100));
    return "Training:  " + step + "%|##| " + step + "/100 [" + (below(4) ? "00:01<00:09" : one_of(clocks)) + ", 1.5it/s, Loss=" +
           one_of(numbers) + ", Epoch=" + one_of(numbers) + "]\r";
}

void damage(std::string& text) {
    for (size_t count = below(4); count > 0 && !text.empty(); --count) {
        const size_t place = below(text.size());
        switch (below(4)) {
            case 0: text[place] = char(draw()); break;
            case 1: text.erase(place, 1 + below(9)); break;
            case 2: text.insert(place, one_of(pieces)); break;
            default: text.insert(place, text.substr(below(text.size()), below(40)));
        }
    }
}

// Text of its own block of memory, without an end that a read beyond it would find.
std::unique_ptr<char[]> apart(const std::string& text) {
    std::unique_ptr<char[]> copied(new char[text.size()]);
    std::memcpy(copied.get(), text.data(), text.size());
    return copied;
}

void check(bool holds, const char* what, const std::string& input) {
    if (holds) return;
    std::fprintf(stderr, "%s: ", what);
    std::fwrite(input.data(), 1, input.size(), stderr);
    std::abort();
}

void check_places(const std::vector<int64_t>& offsets, int64_t count, int64_t start, int64_t stop,
                  const std::string& input) {
    check(count >= 0 && count <= int64_t(offsets.size()), "too many", input);
    check(start <= stop && stop <= int64_t(input.size()), "stops outside", input);
    for (int64_t at = 0; at < count; ++at) {
        const int64_t least = at ? offsets[size_t(at - 1)] + 1 : start;
        check(least <= offsets[size_t(at)] && offsets[size_t(at)] < stop, "offset", input);
    }
}

void try_rows(ldlm_row_shape* shape, int64_t keys) {
    std::string text;
    for (size_t count = below(6); count > 0; --count) text += row();
    damage(text);
    const auto data = apart(text);
    const int64_t room = int64_t(below(7)), start = int64_t(below(text.size() + 1));
    std::vector<double> columns(size_t(keys * room));
    std::vector<int64_t> offsets(size_t(room), 0);
    int64_t stop = 0;
    const int64_t count = ldlm_rows_read(shape, data.get(), int64_t(text.size()), start, 0, room, room,
                                         columns.data(), offsets.data(), &stop);
    check_places(offsets, count, start, stop, text);
}

void try_bars() {
    std::string text, like = bar();
    for (size_t count = below(6); count > 0; --count) text += bar();
    damage(text);
    damage(like);
    const auto data = apart(text), before = apart(like);
    const int64_t room = int64_t(below(7)), start = int64_t(below(text.size() + 1));
    const std::string kinds = one_of({"ne", "=e", "n=", "==", "ze", "n", ""});
    std::vector<double> columns((2 + kinds.size()) * size_t(room));
    std::vector<int64_t> offsets(size_t(room), 0), steps(size_t(room), 0);
    int64_t stop = 0;
    const int64_t count = ldlm_bars_read(
        data.get(), int64_t(text.size()), start, before.get(), int64_t(like.size()), kinds.data(),
        int64_t(kinds.size()), 0, room, room, steps.data(), columns.data(), offsets.data(), &stop);
    check_places(offsets, count, start, stop, text);
    const int64_t marks = ldlm_bar_marks(data.get(), int64_t(text.size()), start, before.get(),
                                         int64_t(like.size()), room, offsets.data(), steps.data(),
                                         columns.data(), &stop);
    check_places(offsets, marks, start, stop, text);
}

}  // namespace

int main(int count, char** words) {
    if (count != 3) return 2;
    draw.seed(std::strtoull(words[2], nullptr, 10));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(words[1]));
    const char* const keys = "steplosslrmode";
    const int64_t lengths[] = {4, 4, 2, 4};
    ldlm_row_shape* const shape = ldlm_row_shape_new(keys, lengths, "nnns", 3, 4);
    long tried = 0;
    while (std::chrono::steady_clock::now() < end) {
        for (int round = 0; round < 500; ++round, tried += 2) {
            try_rows(shape, 4);
            try_bars();
        }
    }
    ldlm_row_shape_free(shape);
    std::printf("Done %ld inputs\n", tried);
}
