/* Tags and keys in the properties of a message, for the compiled modules: where they lie, and Java's hash of them.
 *
 * Properties are `name 1 value 2 name 1 value 2 ...`; the last entry may lack its end, one without a value does not
 * count, and of two with one name the later one does. Keys are words with spaces between them.
 */
#ifndef FUSEE_PROPERTY_KEYS_H
#define FUSEE_PROPERTY_KEYS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FUSEE_TAG, FUSEE_UNIQUE, FUSEE_KEYS, FUSEE_KEY_KINDS };

/* Where a value lies; it ends at 0 where there is none. */
typedef struct {
    int64_t start, end;
} fusee_value;

static inline int fusee_key_kind(const unsigned char *name, size_t size) {
    if (size == 4) return memcmp(name, "TAGS", 4) == 0 ? FUSEE_TAG : memcmp(name, "KEYS", 4) == 0 ? FUSEE_KEYS : -1;
    return size == 8 && memcmp(name, "UNIQ_KEY", 8) == 0 ? FUSEE_UNIQUE : -1;
}

typedef struct {
    const unsigned char *at;
    fusee_value *found;
    int64_t start, name_end;
} fusee_property_walk;

static inline void fusee_end_entry(fusee_property_walk *walk, int64_t end) {
    if (walk->name_end >= 0 && walk->name_end + 1 < end) {
        int kind = fusee_key_kind(walk->at + walk->start, (size_t)(walk->name_end - walk->start));
        if (kind >= 0) walk->found[kind] = (fusee_value){walk->name_end + 1, end};
    }
    walk->start = end + 1;
    walk->name_end = -1;
}

static inline void fusee_pass_mark(fusee_property_walk *walk, int64_t place) {
    unsigned char byte = walk->at[place];
    if (byte == 2) fusee_end_entry(walk, place);
    else if (byte == 1 && walk->name_end < 0) walk->name_end = place;
}

/* Where the value of each kind lies; 0 when not all of it is ASCII. Eight bytes at a time are looked over for marks. */
static inline int fusee_find_keys(const unsigned char *at, int64_t size, fusee_value *found) {
    const uint64_t threes = 0x0303030303030303u, tops = 0x8080808080808080u;
    fusee_property_walk walk = {at, found, 0, -1};
    uint64_t word, seen = 0;
    int64_t place = 0;
    memset(found, 0, FUSEE_KEY_KINDS * sizeof(fusee_value));
    for (; place + 8 <= size; place += 8) {
        memcpy(&word, at + place, 8);
        seen |= word;
        if ((word - threes) & ~word & tops) /* some byte is below 3 */
            for (int64_t inner = place; inner < place + 8; inner++) fusee_pass_mark(&walk, inner);
    }
    for (; place < size; place++) {
        seen |= at[place];
        fusee_pass_mark(&walk, place);
    }
    if (walk.start < size) fusee_end_entry(&walk, size);
    return !(seen & tops);
}

/* Java's hash of a text of ASCII, of which `code` is that of what stands before these bytes. */
static inline uint32_t fusee_text_hash(uint32_t code, const unsigned char *at, int64_t size) {
    for (; size >= 4; at += 4, size -= 4)
        code = code * 923521u + (at[0] * 29791u + at[1] * 961u + at[2] * 31u + at[3]);
    for (; size > 0; at++, size--) code = code * 31u + at[0];
    return code;
}

/* The tag as consume queues store it; 0 without one. */
static inline int64_t fusee_tags_code(const unsigned char *at, const fusee_value *found) {
    const fusee_value *tag = &found[FUSEE_TAG];
    return tag->end ? (int32_t)fusee_text_hash(0, at + tag->start, tag->end - tag->start) : 0;
}

/* What an index file stores for this hash: without sign, and 0 for the one that has no counterpart. */
static inline int64_t fusee_stored_hash(uint32_t code) {
    int64_t value = (int32_t)code;
    return value == INT32_MIN ? 0 : value < 0 ? -value : value;
}

/* The most that `fusee_key_hashes` makes of these values: a word takes two bytes with the space behind it. */
static inline int64_t fusee_key_hashes_max(const fusee_value *found) {
    return 3 + (found[FUSEE_KEYS].end - found[FUSEE_KEYS].start) / 2;
}

/* Hashes of the unique key, of each key, and of the tag, as an index stores them; how many. */
static inline int64_t fusee_key_hashes(
    const unsigned char *at, const fusee_value *found, uint32_t before_key, uint32_t before_tag, int64_t *into
) {
    int64_t count = 0, place = found[FUSEE_KEYS].start, end = found[FUSEE_KEYS].end;
    const fusee_value *unique = &found[FUSEE_UNIQUE], *tag = &found[FUSEE_TAG];
    if (unique->end)
        into[count++] =
            fusee_stored_hash(fusee_text_hash(before_key, at + unique->start, unique->end - unique->start));
    while (place < end) {
        const unsigned char *space = (const unsigned char *)memchr(at + place, ' ', (size_t)(end - place));
        int64_t word = place;
        place = space ? space - at : end;
        if (place > word) into[count++] = fusee_stored_hash(fusee_text_hash(before_key, at + word, place - word));
        place++;
    }
    if (tag->end)
        into[count++] = fusee_stored_hash(fusee_text_hash(before_tag, at + tag->start, tag->end - tag->start));
    return count;
}

#endif
