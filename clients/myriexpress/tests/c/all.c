/* all RANK COUNT BOARD_NIC: COUNT processes send each other messages of all lengths, in segments of
 * odd lengths at odd addresses. Each received byte is verified, and the bytes around the
 * segments must not change. */
#include "check.h"

enum { EACH = 100, AHEAD = 4, GUARD = 64, LONGEST = 16 << 20, ANY_MS = 15000 };
#define DONE (1ull << 63)

static uint32_t mix(uint32_t value) {
    value ^= value >> 16;
    value *= 0x7feb352du;
    value ^= value >> 15;
    value *= 0x846ca68bu;
    return value ^ value >> 16;
}

static uint32_t name(uint32_t from, uint32_t to, uint32_t number) {
    return mix(from << 24 ^ to << 16 ^ number ^ 0x5eedu);
}

/* Both sides compute the length of a message. */
static uint32_t length(uint32_t from, uint32_t to, uint32_t number) {
    static const uint32_t edges[] = {0, 1, 31, 32, 33, 127, 128, 129, 4095, 4096, 4097, 32767, 32768, 32769};
    uint32_t key = name(from, to, number);
    if (number < sizeof edges / sizeof *edges) return edges[number];
    if (number == EACH / 2 && (to == from + 1 || to + 3 == from)) return from == 0 ? LONGEST : key % LONGEST;
    return key % (number % 5 == 0 ? 200000 : number % 2 ? 300 : 20000);
}

static void fill(unsigned char *bytes, uint32_t len, uint32_t key) {
    for (uint32_t at = 0; at < len; at++) bytes[at] = (unsigned char)((at * 0x9e3779b1u ^ key) >> 13);
}

/* A pending message: `room` has guards around `len` bytes. */
struct item {
    uint32_t peer, number, len;
    unsigned char *room, *bytes;
    int sent;
};

static struct item *item(uint32_t peer, uint32_t number, uint32_t len, int sent) {
    struct item *made = malloc(sizeof *made);
    CHECK(made != NULL);
    *made = (struct item){peer, number, len, malloc((size_t)len + 2 * GUARD), NULL, sent};
    CHECK(made->room != NULL);
    memset(made->room, 0xa5, (size_t)len + 2 * GUARD);
    made->bytes = made->room + GUARD - number % 9;
    return made;
}

static void guards(const struct item *of) {
    const unsigned char *end = of->room + of->len + 2 * GUARD;
    for (const unsigned char *at = of->room; at < of->bytes; at++) CHECK(*at == 0xa5);
    for (const unsigned char *at = of->bytes + of->len; at < end; at++) CHECK(*at == 0xa5);
}

/* Splits a buffer into up to five segments, some of them empty. */
static uint32_t cut(const struct item *of, uint32_t key, mx_segment_t *list) {
    uint32_t count = 1 + key % 5, at = 0;
    for (uint32_t piece = 0; piece < count; piece++) {
        uint32_t left = of->len - at, take = piece + 1 == count ? left : mix(key + piece) % (left + 1);
        list[piece] = (mx_segment_t){of->bytes + at, take};
        at += take;
    }
    return count;
}

static uint32_t rank, ranks;
static mx_endpoint_t endpoint;
static mx_endpoint_addr_t addresses[64];

static void post(uint32_t peer, uint32_t number) {
    struct item *made = item(peer, number, length(peer, rank, number), 0);
    mx_segment_t list[5];
    uint32_t count = cut(made, name(rank, peer, number), list);
    mx_request_t request;
    /* Matches the next message of this sender, which must be in order. */
    OK(mx_irecv(endpoint, list, count, (uint64_t)peer << 32, ~0ull << 32, made, &request));
}

static void send(uint32_t peer, uint32_t number) {
    struct item *made = item(peer, number, length(rank, peer, number), 1);
    mx_segment_t list[5];
    uint32_t key = name(rank, peer, number), count = cut(made, key, list);
    fill(made->bytes, made->len, key);
    mx_request_t request;
    uint64_t info = (uint64_t)rank << 32 | number;
    if (key & 64) OK(mx_issend(endpoint, list, count, addresses[peer], info, made, &request));
    else OK(mx_isend(endpoint, list, count, addresses[peer], info, made, &request));
}

/* A barrier: all ranks report to the first, which releases them. */
static void part(void) {
    if (rank != 0) {
        mx_request_t all = receiving(endpoint, NULL, 0, DONE, MX_MATCH_MASK_NONE);
        CHECK(ended(endpoint, sending(endpoint, NULL, 0, addresses[0], DONE)).code == 0);
        CHECK(ended(endpoint, all).code == 0);
        return;
    }
    for (uint32_t peer = 1; peer < ranks; peer++)
        CHECK(ended(endpoint, receiving(endpoint, NULL, 0, DONE, MX_MATCH_MASK_NONE)).code == 0);
    for (uint32_t peer = 1; peer < ranks; peer++) {
        mx_segment_t none = {NULL, 0};
        mx_request_t request;
        OK(mx_issend(endpoint, &none, 1, addresses[peer], DONE, NULL, &request));
        CHECK(ended(endpoint, request).code == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    alarm(60);
    rank = (uint32_t)atoi(argv[1]), ranks = (uint32_t)atoi(argv[2]);
    uint64_t nic = strtoull(argv[3], NULL, 0);
    uint32_t posted[64] = {0}, sent[64] = {0}, under_way[64] = {0}, came[64] = {0}, left = 0;
    CHECK(ranks <= 64);
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, rank, 8, NULL, 0, &endpoint));
    for (uint32_t peer = 0; peer < ranks; peer++) addresses[peer] = reach(endpoint, nic, peer, 8);
    for (uint32_t peer = 0; peer < ranks; peer++) {
        while (posted[peer] < AHEAD) post(peer, posted[peer]++);
        while (under_way[peer] < AHEAD) send(peer, sent[peer]++), under_way[peer]++;
        left += 2 * EACH;
    }
    while (left > 0) {
        mx_status_t status;
        uint32_t result = 0;
        OK(mx_wait_any(endpoint, ANY_MS, 0, 0, &status, &result));
        CHECK(result == 1 && status.code == MX_STATUS_SUCCESS);
        struct item *of = status.context;
        guards(of);
        if (of->sent) {
            under_way[of->peer]--;
            if (sent[of->peer] < EACH) send(of->peer, sent[of->peer]++), under_way[of->peer]++;
        } else {
            CHECK(status.match_info == ((uint64_t)of->peer << 32 | of->number));
            CHECK(status.msg_length == of->len && status.xfer_length == of->len);
            uint32_t key = name(of->peer, rank, of->number);
            for (uint32_t at = 0; at < of->len; at++)
                CHECK(of->bytes[at] == (unsigned char)((at * 0x9e3779b1u ^ key) >> 13));
            came[of->peer]++;
            if (posted[of->peer] < EACH) post(of->peer, posted[of->peer]++);
        }
        free(of->room);
        free(of);
        left--;
    }
    for (uint32_t peer = 0; peer < ranks; peer++) CHECK(came[peer] == EACH);
    part();
    OK(mx_close_endpoint(endpoint));
    OK(mx_finalize());
    return 0;
}
