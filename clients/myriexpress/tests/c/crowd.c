/* crowd takes MESSAGES SENDERS: receives short messages of many senders, and a long one.
 * crowd sends PEER_NIC OWN MESSAGES, crowd long PEER_NIC OWN: the senders.
 * crowd leaves PEER_NIC MESSAGES: sends and ends. crowd stays MESSAGES: receives all of them. */
#include "check.h"

enum { TAKER = 1, KEY = 5, BYTES = 1000, LONG = 8 << 20, POSTED = 64 };
/* Kinds of messages. */
enum { HELLO, GO, SHORT, BIG };

static unsigned char room[BYTES];

/* Greets the receiver, and waits for the start. */
static mx_endpoint_addr_t greet(mx_endpoint_t endpoint, uint64_t nic) {
    mx_endpoint_addr_t to = reach(endpoint, nic, TAKER, KEY);
    mx_request_t go = receiving(endpoint, NULL, 0, GO, MX_MATCH_MASK_NONE);
    CHECK(ended(endpoint, sending(endpoint, NULL, 0, to, HELLO)).code == 0);
    CHECK(ended(endpoint, go).code == 0);
    return to;
}

static void sends(mx_endpoint_t endpoint, uint64_t nic, uint32_t count) {
    mx_endpoint_addr_t to = greet(endpoint, nic);
    mx_request_t requests[32];
    for (uint32_t sent = 0; sent < count; sent += 32) {
        for (int at = 0; at < 32; at++) requests[at] = sending(endpoint, room, BYTES, to, SHORT);
        for (int at = 0; at < 32; at++) CHECK(ended(endpoint, requests[at]).code == 0);
    }
}

static void sends_long(mx_endpoint_t endpoint, uint64_t nic) {
    mx_endpoint_addr_t to = greet(endpoint, nic);
    unsigned char *bytes = calloc(1, LONG);
    CHECK(ended(endpoint, sending(endpoint, bytes, LONG, to, BIG)).code == 0);
}

static void takes(mx_endpoint_t endpoint, uint32_t count, uint32_t senders) {
    mx_request_t posted[POSTED];
    unsigned char *bytes = malloc(LONG);
    mx_request_t big = receiving(endpoint, bytes, LONG, BIG, MX_MATCH_MASK_NONE);
    for (int at = 0; at < POSTED; at++)
        posted[at] = receiving(endpoint, room, BYTES, SHORT, MX_MATCH_MASK_NONE);
    mx_endpoint_addr_t *all = malloc(senders * sizeof *all);
    for (uint32_t at = 0; at < senders; at++)
        all[at] = ended(endpoint, receiving(endpoint, NULL, 0, HELLO, MX_MATCH_MASK_NONE)).source;
    for (uint32_t at = 0; at < senders; at++)
        CHECK(ended(endpoint, sending(endpoint, NULL, 0, all[at], GO)).code == 0);
    for (uint32_t at = 0; at < count; at++) {
        CHECK(ended(endpoint, posted[at % POSTED]).xfer_length == BYTES);
        if (at + POSTED < count)
            posted[at % POSTED] = receiving(endpoint, room, BYTES, SHORT, MX_MATCH_MASK_NONE);
        /* The receiver is busy between its calls. */
        for (volatile int work = 0; work < 1000; work++) {}
    }
    mx_status_t status = ended(endpoint, big);
    CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == LONG);
}

static void leaves(mx_endpoint_t endpoint, uint64_t nic, uint32_t count) {
    mx_endpoint_addr_t to = greet(endpoint, nic);
    for (uint32_t at = 0; at < count; at++) {
        mx_request_t request = sending(endpoint, &at, sizeof at, to, SHORT);
        CHECK(ended(endpoint, request).code == MX_STATUS_SUCCESS);
    }
}

static void stays(mx_endpoint_t endpoint, uint32_t count) {
    mx_status_t hello = ended(endpoint, receiving(endpoint, NULL, 0, HELLO, MX_MATCH_MASK_NONE));
    CHECK(ended(endpoint, sending(endpoint, NULL, 0, hello.source, GO)).code == 0);
    for (uint32_t at = 0; at < count; at++) {
        uint32_t got = ~at;
        mx_request_t request = receiving(endpoint, &got, sizeof got, SHORT, MX_MATCH_MASK_NONE);
        CHECK(ended(endpoint, request).code == MX_STATUS_SUCCESS && got == at);
    }
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    alarm(60);
    const char *how = argv[1];
    int comes = strcmp(how, "takes") && strcmp(how, "stays");
    uint32_t own = !comes ? TAKER : strcmp(how, "leaves") ? (uint32_t)atoi(argv[3]) : 2;
    uint64_t nic = comes ? strtoull(argv[2], NULL, 0) : 0;
    mx_endpoint_t endpoint;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, own, KEY, NULL, 0, &endpoint));
    if (!strcmp(how, "takes")) takes(endpoint, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
    if (!strcmp(how, "sends")) sends(endpoint, nic, (uint32_t)atoi(argv[4]));
    if (!strcmp(how, "long")) sends_long(endpoint, nic);
    if (!strcmp(how, "leaves")) leaves(endpoint, nic, (uint32_t)atoi(argv[3]));
    if (!strcmp(how, "stays")) stays(endpoint, (uint32_t)atoi(argv[2]));
    OK(mx_close_endpoint(endpoint));
    OK(mx_finalize());
    return 0;
}
