#include "bars.h"

#include <cstring>
#include <vector>

#include "number.h"

namespace {

using ldlm::is_digit;

constexpr int64_t most_count = 20;   // bytes of "n/total", as in bar_form.py
constexpr int64_t most_item = 128;   // bytes of an item
constexpr int64_t most_key = 64;     // bytes of its key, with the space before it
constexpr size_t most_items = 32;
constexpr int64_t most_description = 160;

struct Span {
    const char* begin = nullptr;
    const char* end = nullptr;

    int64_t size() const { return end - begin; }
    bool operator==(const Span& other) const {
        return size() == other.size() && std::memcmp(begin, other.begin, size_t(size())) == 0;
    }
};

struct Item {
    Span key, value;
};

// A bar in its parts; `head`: all before the percentage.
struct Bar {
    Span head, total;
    int64_t step = 0, of = 0;
    double rate = 0;
    std::vector<Item> items;
};

// Moves `at` behind digits; false if there is none.
bool skip_digits(const char*& at, const char* end) {
    const char* const begin = at;
    while (at < end && is_digit(*at)) ++at;
    return at > begin;
}

bool skip(const char*& at, const char* end, char byte) {
    if (at == end || *at != byte) return false;
    ++at;
    return true;
}

bool skip_word(const char*& at, const char* end, const char* word) {
    const auto size = int64_t(std::strlen(word));
    if (end - at < size || std::memcmp(at, word, size_t(size)) != 0) return false;
    at += size;
    return true;
}

const char* find(const char* at, const char* end, char byte) {
    return static_cast<const char*>(std::memchr(at, byte, size_t(end - at)));
}

// Digits at `at` as a count; false if there is none, or it is too long.
bool read_count(const char*& at, const char* end, int64_t& count) {
    const char* const begin = at;
    if (!skip_digits(at, end) || at - begin > ldlm::most_digits) return false;
    count = 0;
    for (const char* digit = begin; digit < at; ++digit) count = count * 10 + (*digit - '0');
    return true;
}

// The description and the percentage, up to behind the drawn bar.
bool read_head(const char*& at, const char* end, Span& head) {
    const char* const begin = at;
    const char* const percent = find(at, end, '%');
    if (percent == nullptr) return false;
    const char* digits = percent;
    while (digits > begin && is_digit(digits[-1])) --digits;
    const int64_t count = percent - digits;
    if (count < 1 || count > 3 || digits == begin || digits[-1] != ' ') return false;
    head = {begin, digits - 1};
    if (head.size() > most_description) return false;
    while (head.end > begin && head.end[-1] == ' ') --head.end;
    at = percent + 1;
    if (!skip(at, end, '|')) return false;
    const char* const drawn = find(at, end, '|');
    if (drawn == nullptr) return false;
    at = drawn + 1;
    return true;
}

// `SS`, `MM:SS` or `H:MM:SS` before `<` or `,` as seconds.
bool read_elapsed(const char*& at, const char* end, double& seconds) {
    int64_t total = 0, part = 0;
    for (int parts = 1;; ++parts) {
        const char* const begin = at;
        if (!read_count(at, end, part) || at - begin > 9) return false;
        total = total * 60 + part;
        if (parts == 3 || !skip(at, end, ':')) break;
    }
    seconds = double(total);
    return at < end && (*at == '<' || *at == ',');
}

// `01:02<03:04`
bool skip_clock(const char*& at, const char* end) {
    const char* const begin = at;
    while (at < end && (is_digit(*at) || *at == ':')) ++at;
    if (at == begin || !is_digit(*begin) || !skip(at, end, '<')) return false;
    const char* const left = at;
    while (at < end && (is_digit(*at) || *at == ':')) ++at;
    return at > left;
}

bool read_rate(const char*& at, const char* end, double& rate) {
    while (at < end && *at == ' ') ++at;
    const char* const behind = at < end && is_digit(*at) ? ldlm::read_number(at, end, rate) : nullptr;
    if (behind == nullptr || rate == 0) return false;
    // An exponent is of no rate.
    for (const char* byte = at; byte < behind; ++byte) {
        if (!is_digit(*byte) && *byte != '.') return false;
    }
    at = behind;
    if (skip_word(at, end, "it/s")) return true;
    if (!skip_word(at, end, "s/it")) return false;
    rate = 1 / rate;
    return true;
}

// ` key=value`
bool read_item(Span piece, Item& item) {
    if (piece.size() > most_item || piece.size() == 0 || *piece.begin != ' ') return false;
    const char* const equals = find(piece.begin, piece.end, '=');
    if (equals == nullptr || equals - piece.begin > most_key) return false;
    item = {{piece.begin + 1, equals}, {equals + 1, piece.end}};
    return find(item.value.begin, item.value.end, '=') == nullptr &&
           find(item.value.begin, item.value.end, ' ') == nullptr;
}

// The items of the postfix from its first comma on. The last one may be cut where the terminal's
// width ends: then there is no bracket, and it is left out.
bool read_items(const char* at, const char* end, std::vector<Item>& items) {
    items.clear();
    const char* const bracket = find(at, end, ']');
    const char* const stop = bracket ? bracket : end;
    while (at < stop) {
        if (!skip(at, stop, ',') || items.size() > most_items) return false;
        const char* const comma = find(at, stop, ',');
        Item item;
        if (!read_item({at, comma ? comma : stop}, item)) return false;
        at = comma ? comma : stop;
        if (comma || bracket) items.push_back(item);
    }
    for (at = bracket ? bracket + 1 : end; at < end; ++at) {
        if (*at != ' ') return false;
    }
    return items.size() <= most_items;
}

// ` 5/100 [`
bool read_counts(const char*& at, const char* end, Bar& bar) {
    const char* const count = at;
    while (at < end && *at == ' ') ++at;
    if (!read_count(at, end, bar.step) || !skip(at, end, '/')) return false;
    bar.total.begin = at;
    if (!read_count(at, end, bar.of)) return false;
    bar.total.end = at;
    if (uint64_t(bar.of) > ldlm::most_exact) return false;
    return at - count <= most_count && skip_word(at, end, " [");
}

// The bar that a record, from `at` to `end`, is; false for anything else.
bool read_bar(const char* at, const char* end, Bar& bar) {
    if (find(at, end, '\x1b') || find(at, end, '\b')) return false;
    return read_head(at, end, bar.head) && read_counts(at, end, bar) && skip_clock(at, end) &&
           skip_word(at, end, ", ") && read_rate(at, end, bar.rate) &&
           read_items(at, end, bar.items);
}

// The record that begins at `at` and ends with a carriage return alone; false for another end, or
// for none.
bool find_repaint(const char* at, const char* end, Span& record) {
    const char* const closed = find(at, end, '\r');
    // Where a line ends, or ends within, it is not this bar alone.
    if (closed == nullptr || (closed + 1 < end && closed[1] == '\n')) return false;
    record = {at, closed};
    return find(at, closed, '\n') == nullptr;
}

// The number of an item; false if it is none of its kind. 0 for one that is only compared.
bool number_of(const Item& item, const Item& before, char kind, double& number) {
    number = 0;
    if (kind == ldlm_same) return item.value == before.value;
    const char* at = ldlm::read_number(item.value.begin, item.value.end, number);
    if (at == nullptr || (kind == ldlm_nonzero && number == 0)) return false;
    if (kind == ldlm_part) return at == item.value.end || *at == '/';
    if (at < item.value.end && *at == '%') {
        ++at;
        number /= 100;  // as `patterns.scaled`: not times 0.01
    }
    return at == item.value.end;
}

// Whether a text has the percentage of a bar.
bool has_bar(const char* at, const char* end) {
    while ((at = find(at, end, '%')) != nullptr) {
        if (++at < end && *at == '|') return true;
    }
    return false;
}

bool is_alike(const Bar& bar, const Bar& before) {
    if (!(bar.head == before.head && bar.total == before.total)) return false;
    if (bar.items.size() != before.items.size()) return false;
    for (size_t index = 0; index < bar.items.size(); ++index) {
        if (!(bar.items[index].key == before.items[index].key)) return false;
    }
    return true;
}

}  // namespace

int64_t ldlm_bars_read(const char* data, int64_t size, int64_t start, const char* like,
                       int64_t like_size, const char* kinds, int64_t items, int64_t base,
                       int64_t room, int64_t width, int64_t* steps, double* columns,
                       int64_t* offsets, int64_t* stop) {
    *stop = start;
    Bar before, bar;
    if (!read_bar(like, like + like_size, before) || int64_t(before.items.size()) != items) return 0;
    int64_t bars = 0, at = start, last = before.step;
    const char* const end = data + size;
    while (bars < room && at < size) {
        Span record;
        if (!find_repaint(data + at, end, record)) break;
        if (!read_bar(record.begin, record.end, bar) || !is_alike(bar, before)) break;
        if (bar.step <= last || bar.step >= bar.of) break;
        double* const cells = columns + bars;
        cells[0] = double(bar.step) / double(bar.of);
        cells[width] = bar.rate;
        bool numbers = true;
        for (int64_t item = 0; item < items && numbers; ++item) {
            numbers = number_of(bar.items[size_t(item)], before.items[size_t(item)], kinds[item],
                                cells[(2 + item) * width]);
        }
        if (!numbers) break;
        steps[bars] = last = bar.step;
        offsets[bars++] = base + at;
        at = record.end + 1 - data;
        *stop = at;
    }
    return bars;
}

int64_t ldlm_bar_marks(const char* data, int64_t size, int64_t start, const char* like,
                       int64_t like_size, int64_t room, int64_t* offsets, int64_t* steps,
                       double* seconds, int64_t* stop) {
    *stop = start;
    Span head, record;
    const char* first = like;
    if (!read_head(first, like + like_size, head)) return 0;
    int64_t marks = 0;
    const char *at = data + start, *const end = data + size;
    while (marks < room && at < end && find_repaint(at, end, record)) {
        Bar bar;
        const char* part = record.begin;
        if (!read_head(part, record.end, bar.head) || !(bar.head == head)) break;
        if (!read_counts(part, record.end, bar)) break;
        if (!read_elapsed(part, record.end, seconds[marks])) break;
        if (has_bar(part, record.end)) break;
        steps[marks] = bar.step;
        offsets[marks++] = at - data;
        at = record.end + 1;
        *stop = at - data;
    }
    return marks;
}
