# What `property_keys.h` offers, for the modules that include it.

cdef extern from "property_keys.h":
    enum:
        FUSEE_KEY_KINDS

    ctypedef struct fusee_value:
        int64_t start
        int64_t end

    int fusee_find_keys(const unsigned char *at, int64_t size, fusee_value *found) noexcept nogil
    int64_t fusee_tags_code(const unsigned char *at, const fusee_value *found) noexcept nogil
    int64_t fusee_key_hashes_max(const fusee_value *found) noexcept nogil
    int64_t fusee_key_hashes(
        const unsigned char *at, const fusee_value *found, uint32_t before_key, uint32_t before_tag, int64_t *into
    ) noexcept nogil
