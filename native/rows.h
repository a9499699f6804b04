// JSON rows of one shape as columns.
//
// A shape is the keys of flat rows and the kind of each value; `logs/parse/row_columns.py` makes it.
// Equals `PythonRows` of `logs/parse/row_decoders.py`, which decodes each row by msgspec: the same
// rows are taken, or fewer, and each number is the same double. A row is not taken, but left to
// Python, if it has an escape, a text beyond ASCII, a number that `number.h` does not take, a key
// twice, or anything that is not of the shape.
#pragma once

#include <cstdint>

extern "C" {

struct ldlm_row_shape;

// Kinds of values, as the bytes of `kinds`.
enum : char {
    ldlm_number = 'n',
    ldlm_text = 's',
    ldlm_bool = 'b',
    ldlm_null = '0',
    ldlm_step = 't',  // the text "step"
};

// `keys`: the names as UTF-8, one after the other, of the lengths `lengths`; the first `required`
// of the `count` keys are in each row. Names have no quote, backslash or control character.
// nullptr without memory.
ldlm_row_shape* ldlm_row_shape_new(const char* keys, const int64_t* lengths, const char* kinds,
                                   int64_t required, int64_t count);
void ldlm_row_shape_free(ldlm_row_shape* shape);

// Reads rows from `data + start` on, up to the first that is not taken, the end, or `room` rows.
// The number of key i in row r becomes columns[i * width + r]; NaN where a row lacks the key.
// offsets[r] is where row r begins in the file, in which `data` begins at `base`. Returns the number
// of rows; `*stop`: where in `data` the first row that was not read begins.
int64_t ldlm_rows_read(ldlm_row_shape* shape, const char* data, int64_t size, int64_t start,
                       int64_t base, int64_t room, int64_t width, double* columns,
                       int64_t* offsets, int64_t* stop);

// Which of `count` numbers are there and not NaN, as rising indices in `rows`; returns how many.
int64_t ldlm_rows_present(const double* column, int64_t count, int64_t* rows);

// Whether all numbers are whole and lie between -`most` and `most`: then they become `steps`.
int64_t ldlm_rows_steps(const double* column, int64_t count, double most, int64_t* steps);

// Whether each number is greater than the one before it, or with `repeats` not less.
int64_t ldlm_rows_rise(const double* column, int64_t count, int64_t repeats);
}
