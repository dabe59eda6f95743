/* window PEER NIC: this process and endpoint PEER of another host exchange long messages of growing
 * lengths, all at the same time; each received byte is verified. */
#include "check.h"

enum { COUNT = 24 };

static uint32_t length(uint32_t number) { return 100000 + number * number * 20000; }

static unsigned char at(uint32_t from, uint32_t number, uint32_t place) {
    return (unsigned char)((place * 0x9e3779b1u ^ (from * COUNT + number) * 0x85ebca6bu) >> 13);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    alarm(60);
    uint32_t peer = (uint32_t)atoi(argv[1]), own = 1 - peer;
    unsigned char *into[COUNT];
    mx_request_t sends[COUNT], receives[COUNT];
    mx_endpoint_t endpoint;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, own, 5, NULL, 0, &endpoint));
    mx_endpoint_addr_t to = reach(endpoint, strtoull(argv[2], NULL, 0), peer, 5);
    for (uint32_t number = 0; number < COUNT; number++) {
        CHECK((into[number] = malloc(length(number))) != NULL);
        receives[number] = receiving(endpoint, into[number], length(number), number, MX_MATCH_MASK_NONE);
    }
    for (uint32_t number = 0; number < COUNT; number++) {
        unsigned char *from = malloc(length(number));
        CHECK(from != NULL);
        for (uint32_t place = 0; place < length(number); place++) from[place] = at(own, number, place);
        sends[number] = sending(endpoint, from, length(number), to, number);
    }
    for (uint32_t number = 0; number < COUNT; number++) {
        mx_status_t status = ended(endpoint, receives[number]);
        CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == length(number));
        for (uint32_t place = 0; place < length(number); place++)
            CHECK(into[number][place] == at(peer, number, place));
    }
    for (uint32_t number = 0; number < COUNT; number++)
        CHECK(ended(endpoint, sends[number]).code == MX_STATUS_SUCCESS);
    /* The peer may still request lost blocks of the last message. */
    OK(mx_close_endpoint(endpoint));
    OK(mx_finalize());
    return 0;
}
