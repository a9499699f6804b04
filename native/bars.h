// Repaints of a progress bar as columns.
//
// tqdm draws a bar again and again, each time behind a carriage return, and little of it changes.
// From one bar that Python has read, the next ones are read that differ from it in numbers alone.
// Equals `split_meter` and `read_items` of `logs/parse/bar_form.py` and `read_number` of
// `line_rules.py` on the bars that it takes. A bar is not taken, but left to Python, if it has
// another description, other keys, another total, a step that does not rise or reaches the total,
// a rate other than in it/s or s/it, or text behind it.
#pragma once

#include <cstdint>

extern "C" {

// Kinds of items, as the bytes of `kinds`.
enum : char {
    ldlm_printed = 'n',  // a number, or a percentage, which becomes a ratio
    ldlm_nonzero = 'z',  // the same, of which zero says nothing
    ldlm_part = 'e',     // a number, mostly with the total behind a slash
    ldlm_same = '=',     // the same text as before
};

// Reads bars from `data + start` on, up to the first that is not taken, the end, or `room` bars.
// `like`: a bar before them, without its end. Its complete items, in their order, are of `kinds`.
// Of bar r, offsets[r] is where it begins in the file, in which `data` begins at `base`, and
// steps[r] its count. columns[r] becomes the share of the total, columns[width + r] the iterations
// a second, and columns[(2 + i) * width + r] the number of item i (none of the kind `ldlm_same`).
// Returns the number of bars; `*stop`: where in `data` the first one that was not read begins.
int64_t ldlm_bars_read(const char* data, int64_t size, int64_t start, const char* like,
                       int64_t like_size, const char* kinds, int64_t items, int64_t base,
                       int64_t room, int64_t width, int64_t* steps, double* columns,
                       int64_t* offsets, int64_t* stop);

// What `clock_marks` of `logs/parse/parser.py` finds in records like `like`, from `data + start` on:
// steps[r] and the seconds that the bar has run by its clock, of the record at offsets[r]. The last
// record is one with its end. Returns how many, up to the first that is not alike, or `room`.
int64_t ldlm_bar_marks(const char* data, int64_t size, int64_t start, const char* like,
                       int64_t like_size, int64_t room, int64_t* offsets, int64_t* steps,
                       double* seconds, int64_t* stop);
}
